#include "fuzz/process_header_oracle.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "abi/process_header.h"
#include "abi/process_layouts.h"
#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/slow_header.h"

namespace ctxconf::fuzz {
namespace {

using Bytes = std::span<const std::byte>;
using abi::HeaderLayout;
using abi::PayloadFormat;

constexpr std::size_t kClocks = 24;
constexpr std::size_t kMostOfHead = 40;
constexpr std::uint64_t kUserSpace = (std::uint64_t{1} << 56U) - 1;

std::uint64_t load(Bytes bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void check_decoding(Bytes head) {
  const auto slow = slow_header(head);
  const auto got = abi::decode_process_header(head);
  FUZZ_CHECK(got.has_value() == slow.has_value());
  if (!got) return;
  FUZZ_CHECK(std::string_view(got->signature.data(), 8) == slow->signature);
  FUZZ_CHECK(got->version == slow->version);
  FUZZ_CHECK(got->payload_size == slow->payload_size);
  FUZZ_CHECK(got->monotonic_published_at_ns == slow->timestamp);
  FUZZ_CHECK(got->payload == slow->payload);
  FUZZ_CHECK(abi::is_valid(*got) == slow->valid);
  const auto swapped = abi::byte_swapped(*got);
  FUZZ_CHECK(abi::byte_swapped(swapped) == *got);
  FUZZ_CHECK((swapped.version == 2) == (slow->version == 0x02000000));
  FUZZ_CHECK(swapped.signature == got->signature);
}

std::string_view id_of(HeaderLayout layout) {
  if (layout == HeaderLayout::kUnknown) return "";
  if (layout == HeaderLayout::kInProgressSignatureLast) return "in progress";
  return abi::fields_of(layout).id;
}

// Each layout's fields are where its row says, or zero.
void check_layouts(Bytes head) {
  FUZZ_CHECK(abi::header_layouts().size() == 5);
  for (const auto& layout : abi::header_layouts()) {
    const auto d = abi::decode_as(layout, head);
    const auto number = [&](int at, std::size_t width) -> std::uint64_t {
      if (at < 0 || static_cast<std::size_t>(at) + width > head.size()) return 0;
      std::uint64_t out = 0;
      for (std::size_t i = 0; i < width; ++i) {
        out |= std::to_integer<std::uint64_t>(head[static_cast<std::size_t>(at) + i]) << (8 * i);
      }
      return out;
    };
    FUZZ_CHECK(d.version == number(layout.version, 4));
    FUZZ_CHECK(d.size == number(layout.size, 4));
    FUZZ_CHECK(d.timestamp == number(layout.timestamp, 8));
    FUZZ_CHECK(d.pointer == number(layout.pointer, 8));
  }
}

// What a format requires of the first bytes, whatever the guess is based on.
void check_format(Bytes payload) {
  const PayloadFormat format = abi::recognise_payload(payload);
  const auto first = payload.empty() ? 0U : std::to_integer<unsigned>(payload[0]);
  switch (format) {
    case PayloadFormat::kUnknown:
      break;
    case PayloadFormat::kP0:
      FUZZ_CHECK(payload.size() >= 6 && first == 2 && payload[1] == std::byte{0});
      FUZZ_CHECK(payload[5] == std::byte{0});
      break;
    case PayloadFormat::kP1:
      FUZZ_CHECK((first >= 0x80 && first <= 0x8f) || first == 0xde || first == 0xdf);
      break;
    case PayloadFormat::kP2:
      FUZZ_CHECK((first & 7U) == 2 && first >= 0x0a && first <= 0x42);
      break;
    case PayloadFormat::kP3:
      FUZZ_CHECK(first == 0x0a);
      break;
    case PayloadFormat::kP4:
      FUZZ_CHECK(first == 0x0a || first == 0x12);
      break;
  }
  FUZZ_CHECK(!abi::to_string(format).empty() && !abi::describe(format).empty());
  const auto clear = slow_clear_format(payload);
  if (!clear.empty()) FUZZ_CHECK(abi::to_string(format) == clear);
}

void check_recognition(Bytes head, Bytes payload, SlowSurroundings around) {
  abi::RecognitionInput in;
  in.head = head;
  in.boottime_now_ns = around.boottime;
  in.realtime_now_ns = around.realtime;
  in.is_mapped = [&](std::uint64_t address, std::uint64_t size) {
    FUZZ_CHECK(size > 0 && size <= UINT64_MAX - address);
    return address >= around.payload_at && address - around.payload_at <= payload.size() &&
           size <= payload.size() - (address - around.payload_at);
  };
  // Only from its start, so that a pointer into it finds no payload.
  in.payload = [&](std::uint64_t address, std::uint64_t) {
    return address == around.payload_at ? payload : Bytes();
  };
  around.payload_size = payload.size();
  around.is_a_payload = [&](std::uint64_t size) {
    const auto format = abi::recognise_payload(payload.first(size));
    return format != PayloadFormat::kUnknown && format != PayloadFormat::kP0;
  };
  const auto got = abi::recognise_header(in);
  FUZZ_CHECK(id_of(got.best) == slow_layout(head, around));
  FUZZ_CHECK(got.scored <= got.scores.size());
  const bool merged = got.best == HeaderLayout::kH5 || got.best == HeaderLayout::kUnknown;
  FUZZ_CHECK(abi::describe(got.best).empty() == merged);
  bool listed = got.scored == 0;
  for (std::size_t i = 0; i < got.scored; ++i) listed |= got.scores[i].layout == got.best;
  FUZZ_CHECK(listed);
}

}  // namespace

std::optional<ProcessView> process_view(Bytes input) {
  if (input.size() < 1 + kClocks) return std::nullopt;
  const Bytes rest = input.subspan(1 + kClocks);
  const auto wanted = std::to_integer<std::size_t>(input[0]);
  const std::size_t size = std::min({wanted, kMostOfHead, rest.size()});
  ProcessView view;
  view.payload_at = load(input.subspan(1, 8)) & kUserSpace;
  view.boottime = load(input.subspan(9, 8));
  view.realtime = load(input.subspan(17, 8));
  view.head = rest.first(size);
  view.payload = rest.subspan(size);
  return view;
}

void check_process_header(Bytes input) {
  static GuardedBuffer head_buffer;
  static GuardedBuffer payload_buffer;
  const auto view = process_view(input);
  if (!view) return;
  const Bytes head = head_buffer.copy(view->head);
  const Bytes payload = payload_buffer.copy(view->payload);

  check_decoding(head);
  check_layouts(head);
  check_format(payload);
  SlowSurroundings around;
  around.payload_at = view->payload_at;
  around.boottime = view->boottime;
  around.realtime = view->realtime;
  check_recognition(head, payload, around);
}

}  // namespace ctxconf::fuzz
