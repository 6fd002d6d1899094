#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/process_header_oracle.h"
#include "fuzz/slow_header.h"
#include "fuzz/slow_payload.h"
#include "reader_ref/process_context.h"

namespace ctxconf::fuzz {
namespace {

using Bytes = std::span<const std::byte>;
using sys::MapEntry;

// Beyond everything that the payload's memory can reach.
constexpr std::uint64_t kMapping = std::uint64_t{1} << 60U;
constexpr std::uint64_t kOtherMapping = std::uint64_t{1} << 61U;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::uint64_t kLimit = 1048576;
constexpr std::size_t kTimestampAt = 16;

// What a reader concludes from a header before it reads the payload.
enum class SlowState { kUnusable, kChanging, kUsable };
SlowState state_of(const std::optional<SlowHeader>& header) {
  if (!header || header->signature != "OTEL_CTX" || header->version != 2)
    return SlowState::kUnusable;
  return header->timestamp == 0 ? SlowState::kChanging : SlowState::kUsable;
}

// A context without attributes.
Bytes plain_header() {
  static const auto header = [] {
    std::array<std::byte, kHeaderBytes> h{};
    std::memcpy(h.data(), "OTEL_CTX\x02", 9);
    h[kTimestampAt] = std::byte{1};
    return h;
  }();
  return header;
}

// The mapping with the header, one with a plain context, and the payload's memory. Aborts if more
// is read than the headers and the payload to which the first one points.
class ProcessBytes : public sys::MemoryReader {
 public:
  ProcessBytes(const ProcessView& view, const std::optional<SlowHeader>& header)
      : view_(view), header_(header) {}

  // The timestamp differs from this read of the header on, counted from 1.
  void change_from(int nth) { change_from_ = nth; }
  int reads() const { return reads_; }

  std::size_t copy(std::uint64_t from, std::span<std::byte> out) const {
    const Bytes bytes = from >= kOtherMapping ? plain_header()
                        : from >= kMapping    ? view_.head
                                              : view_.payload;
    const std::uint64_t begin = from >= kOtherMapping ? kOtherMapping
                                : from >= kMapping    ? kMapping
                                                      : view_.payload_at;
    if (from < begin || from - begin >= bytes.size()) return 0;
    const Bytes there = bytes.subspan(from - begin);
    const std::size_t count = std::min(there.size(), out.size());
    std::copy_n(there.begin(), count, out.begin());
    return count;
  }

  sys::Result<std::size_t> read_some(sys::RemoteAddr from,
                                     std::span<std::byte> out) const override {
    ++reads_;
    const bool payload = header_ && from.raw() == header_->payload &&
                         out.size() == header_->payload_size && out.size() <= kLimit;
    const bool header =
        (from.raw() == kMapping || from.raw() == kOtherMapping) && out.size() == kHeaderBytes;
    const bool none = out.empty();  // the plain context has no payload
    FUZZ_CHECK(payload || header || none);
    const std::size_t count = copy(from.raw(), out);
    if (header && from.raw() == kMapping && ++of_header_ >= change_from_ && count == kHeaderBytes) {
      out[kTimestampAt] ^= std::byte{1};
    }
    return count;
  }

 private:
  const ProcessView& view_;
  const std::optional<SlowHeader>& header_;
  int change_from_ = INT32_MAX;
  mutable int reads_ = 0;
  mutable int of_header_ = 0;
};

MapEntry mapping_at(std::uint64_t address) {
  MapEntry m;
  m.range = sys::RemoteRange::from_size(sys::RemoteAddr(address), 4096).value();
  m.readable = m.writable = true;
  m.name = "[anon:OTEL_CTX]";
  return m;
}

// Whether the payload is a context. Nothing if decoders may differ.
std::optional<bool> is_context(const ProcessBytes& memory, const SlowHeader& header) {
  if (header.payload_size > kLimit) return false;
  std::vector<std::byte> payload(header.payload_size);
  if (memory.copy(header.payload, payload) != payload.size()) return false;
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const SlowPayload slow = slow_payload(text);
  if (slow.verdict == SlowVerdict::kBroken) return false;
  if (slow.verdict == SlowVerdict::kStrict) return std::nullopt;
  return slow.utf8;
}

using Found = std::shared_ptr<const reader::ProcessContext>;

reader::ContextSample sample(const sys::MemoryReader& memory, std::span<const MapEntry> candidates,
                             const Found& known = nullptr) {
  auto found = reader::sample_once(memory, candidates, known);
  FUZZ_CHECK(found.has_value());
  return std::move(*found);
}

void check_found(const reader::ProcessContext& got, const SlowHeader& slow) {
  FUZZ_CHECK(got.mapping.range.begin().raw() == kMapping);
  FUZZ_CHECK(std::string_view(got.header.signature.data(), 8) == slow.signature);
  FUZZ_CHECK(got.header.version == slow.version);
  FUZZ_CHECK(got.header.payload_size == slow.payload_size);
  FUZZ_CHECK(got.header.monotonic_published_at_ns == slow.timestamp);
  FUZZ_CHECK(got.header.payload == slow.payload);
}

// A known and unchanged context costs one read; one with another timestamp is not kept.
void check_known(const ProcessView& view, const SlowHeader& slow, const MapEntry& mapping,
                 const Found& known) {
  const std::optional<SlowHeader> header = slow;
  const ProcessBytes same(view, header);
  FUZZ_CHECK(sample(same, {&mapping, 1}, known).context == known);
  FUZZ_CHECK(same.reads() == 1);
  ProcessBytes later(view, header);
  later.change_from(1);
  const auto again = sample(later, {&mapping, 1}, known);
  FUZZ_CHECK(again.context != known);
  FUZZ_CHECK((again.context == nullptr) == (slow.timestamp == 1));
}

void check_patience(const sys::MemoryReader& memory, const MapEntry& mapping, bool busy) {
  int slept = 0;
  const auto got = reader::read_process_context(
      memory, [&] { return sys::Result<std::vector<MapEntry>>({mapping}); }, nullptr, {},
      [&](std::chrono::milliseconds delay) {
        FUZZ_CHECK(delay.count() >= 1 && delay.count() <= 100);
        return ++slept < 100;
      });
  FUZZ_CHECK(got.has_value() && got->busy == busy);
  FUZZ_CHECK(slept == (busy ? 7 : 0));
}

}  // namespace

void check_process_sample(std::span<const std::byte> input) {
  static GuardedBuffer head_buffer;
  static GuardedBuffer payload_buffer;
  auto view = process_view(input);
  if (!view) return;
  view->head = head_buffer.copy(view->head);
  view->payload = payload_buffer.copy(view->payload);
  static const std::array<MapEntry, 2> mappings = {mapping_at(kMapping), mapping_at(kOtherMapping)};
  const auto slow = slow_header(view->head);
  const SlowState state = state_of(slow);

  const ProcessBytes memory(*view, slow);
  const auto alone = sample(memory, std::span(mappings).first(1));
  FUZZ_CHECK(alone.busy == (state == SlowState::kChanging));
  FUZZ_CHECK(alone.notes.size() == (alone.context ? 0U : 1U));
  if (state != SlowState::kUsable) FUZZ_CHECK(!alone.context);
  check_patience(memory, mappings[0], state == SlowState::kChanging);

  // Unusable input affects only that mapping; a usable context is alone.
  const auto both = sample(memory, mappings);
  FUZZ_CHECK(both.context && !both.busy && both.notes.size() == 1);
  FUZZ_CHECK((both.context->mapping == mappings[0]) == (alone.context != nullptr));
  if (state != SlowState::kUsable) return;

  const auto expected = is_context(memory, *slow);
  if (expected) FUZZ_CHECK((alone.context != nullptr) == *expected);
  ProcessBytes changing(*view, slow);
  changing.change_from(2);
  const auto torn = sample(changing, std::span(mappings).first(1));
  FUZZ_CHECK(!torn.context && torn.busy);
  if (!alone.context) return;
  check_found(*alone.context, *slow);
  check_known(*view, *slow, mappings[0], alone.context);
}

}  // namespace ctxconf::fuzz
