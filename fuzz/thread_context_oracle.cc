#include "fuzz/thread_context_oracle.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "abi/thread_layouts.h"
#include "abi/thread_record.h"
#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/slow_record.h"
#include "reader_ref/thread_context.h"

namespace ctxconf::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kSlot = 0x1000;
constexpr std::uint64_t kRecord = 0x20000;

bool same_bytes(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// --- the encoder

// Appends the entries of `area`, up to the first that is refused; returns the bytes written.
std::size_t encode_entries(std::span<const std::byte> area, const SlowEntries& entries,
                           std::span<std::byte> out) {
  abi::AttributeEncoder encoder(out);
  for (std::size_t i = 0; i < entries.count; ++i) {
    const SlowEntry& e = entries.list[i];
    if (!encoder.append(static_cast<std::uint8_t>(e.key), area.subspan(e.offset + 2, e.length)))
      break;
  }
  return encoder.size();
}

// Parse, print, and get the same bytes again; with one byte less room the last entry is refused.
void check_encoder(Bytes area, const SlowEntries& slow) {
  static std::array<std::byte, 65536> memory;
  const std::span<std::byte> printed(memory.data(), slow.end);
  FUZZ_CHECK(encode_entries(area, slow, printed) == slow.end);
  FUZZ_CHECK(slow.end == 0 || std::memcmp(area.data(), printed.data(), slow.end) == 0);
  if (slow.count == 0) return;
  FUZZ_CHECK(encode_entries(area, slow, printed.first(slow.end - 1)) ==
             slow.list[slow.count - 1].offset);
}

// --- the reference reader

// One slot and one record; remembers how far it was read.
class RecordMemory : public sys::MemoryReader {
 public:
  RecordMemory(RecordLocation location, Bytes record) : place_(location), record_(record) {}

  std::uint64_t address() const {
    if (place_ == RecordLocation::kNull) return 0;
    if (place_ == RecordLocation::kOdd) return kRecord + 1;
    return place_ == RecordLocation::kEndOfMemory ? UINT64_MAX - (kFixedPart - 1) : kRecord;
  }
  sys::Result<std::size_t> read_some(sys::RemoteAddr from,
                                     std::span<std::byte> out) const override {
    if (from.raw() == kSlot) {
      if (place_ == RecordLocation::kSlotUnreadable) return std::size_t{0};
      const std::uint64_t slot = address();
      FUZZ_CHECK(out.size() == sizeof slot);
      std::memcpy(out.data(), &slot, sizeof slot);
      return sizeof slot;
    }
    FUZZ_CHECK(from.raw() >= address());
    const std::uint64_t offset = from.raw() - address();
    wanted_ = std::max<std::uint64_t>(wanted_, offset + out.size());
    if (offset >= record_.size()) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(out.size(), record_.size() - offset);
    std::memcpy(out.data(), record_.data() + offset, count);
    return count;
  }
  std::uint64_t wanted() const { return wanted_; }

 private:
  RecordLocation place_;
  Bytes record_;
  mutable std::uint64_t wanted_ = 0;
};

// Missing names and repeated names among the others.
reader::KeyMap make_keys(std::size_t count) {
  reader::KeyMap keys;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(i % 16 == 7 ? "" : "key" + std::to_string(i % 16 == 11 ? 3 : i));
  }
  return keys;
}

const reader::KeyMap& keys_of(std::size_t count) {
  static std::array<std::unique_ptr<reader::KeyMap>, 257> maps;
  auto& keys = maps[count];
  if (!keys) keys = std::make_unique<reader::KeyMap>(make_keys(count));
  return *keys;
}

reader::RecordState expected_state(RecordLocation location, const SlowHead& slow) {
  using enum reader::RecordState;
  if (location == RecordLocation::kSlotUnreadable) return kSlotUnreadable;
  if (location == RecordLocation::kNull) return kNull;
  if (location == RecordLocation::kOdd) return kOddAddress;
  if (!slow.present) return kUnreadable;
  return slow.valid == 1 ? kValid : kNotValid;
}

// The last of all entries whose index has this name counts.
const SlowEntry* last_named(const SlowEntries& slow, const reader::KeyMap& keys,
                            const std::string& name) {
  for (std::size_t i = slow.count; i-- > 0;) {
    const SlowEntry& e = slow.list[i];
    if (e.key < keys.size() && keys[e.key] == name) return &e;
  }
  return nullptr;
}

void check_attributes(Bytes area, const SlowEntries& slow, const reader::KeyMap& keys,
                      const reader::ThreadContext& context) {
  for (const auto& attribute : context.attributes) {
    FUZZ_CHECK(!attribute.key.empty());
    const SlowEntry* e = last_named(slow, keys, attribute.key);
    FUZZ_CHECK(e != nullptr);
    FUZZ_CHECK(same_bytes(std::as_bytes(std::span(attribute.value)),
                          area.subspan(e->offset + 2, e->length)));
  }
  std::vector<std::string> names;
  std::bitset<256> unknown;
  for (std::size_t i = 0; i < slow.last.size(); ++i) {
    if (slow.last[i] < 0) continue;
    if (i >= keys.size()) {
      unknown.set(i);
    } else if (!keys[i].empty() && std::ranges::find(names, keys[i]) == names.end()) {
      names.push_back(keys[i]);
    }
  }
  FUZZ_CHECK(context.attributes.size() == names.size());
  FUZZ_CHECK(context.unknown.size() == unknown.count());
  for (const auto key : context.unknown) FUZZ_CHECK(unknown[key]);
}

void check_reader(Bytes record, const SlowHead& head, RecordLocation location,
                  const reader::KeyMap& keys) {
  const bool wants = location != RecordLocation::kWithoutAttributes;
  const RecordMemory memory(location, record);
  const auto copied =
      reader::copy_record(memory, sys::RemoteAddr(kSlot),
                          wants ? reader::Attributes::kRead : reader::Attributes::kSkip);
  FUZZ_CHECK(copied.has_value());
  FUZZ_CHECK(copied->state == expected_state(location, head));
  FUZZ_CHECK(!reader::describe(copied->state).empty());
  const bool valid = copied->state == reader::RecordState::kValid;
  // Never reads a byte beyond the size.
  const bool reachable = wants && location != RecordLocation::kEndOfMemory;
  FUZZ_CHECK(memory.wanted() <= kFixedPart + (valid && reachable ? head.size : 0));
  if (!valid) {
    FUZZ_CHECK(copied->area.empty());
    return;
  }
  const std::size_t available =
      reachable ? std::min<std::size_t>(head.size, record.size() - kFixedPart) : 0;
  FUZZ_CHECK(same_bytes(copied->area, record.subspan(kFixedPart, available)));
  FUZZ_CHECK(copied->area_cut == (reachable && available < head.size));

  static SlowEntries slow;
  slow_entries(copied->area, slow);
  const auto context = reader::parse_record(*copied, keys);
  FUZZ_CHECK(context.link.has_value() == (head.trace_id_set && head.span_id_set));
  if (context.link) {
    FUZZ_CHECK(std::memcmp(context.link->trace_id.data(), record.data(), 16) == 0);
    FUZZ_CHECK(std::memcmp(context.link->span_id.data(), record.data() + 16, 8) == 0);
    FUZZ_CHECK(context.link->flags == head.trace_flags);
  }
  const bool half = head.trace_id_set != head.span_id_set;
  const bool ragged = copied->area_cut || slow.end != copied->area.size();
  FUZZ_CHECK(context.notes.size() == (half ? 1U : 0U) + (ragged ? 1U : 0U));
  check_attributes(copied->area, slow, keys, context);
}

// --- the layouts of the drafts

abi::EntryWalk expected_walk(SlowFit fit) {
  switch (fit) {
    case SlowFit::kCut:
      return abi::EntryWalk::kUnseen;
    case SlowFit::kEmpty:
      return abi::EntryWalk::kEmpty;
    case SlowFit::kExact:
      return abi::EntryWalk::kExact;
    case SlowFit::kNotThere:
    case SlowFit::kImpossible:
      break;
  }
  return abi::EntryWalk::kImpossible;
}

void check_draft(Bytes record, abi::RecordLayout layout, bool other_byte_order,
                 const SlowDraft& slow) {
  const auto& fields = abi::fields_of(layout);
  const auto got = abi::decode_record_as(fields, record, other_byte_order);
  if (slow.fit == SlowFit::kNotThere) {
    FUZZ_CHECK(record.size() < fields.fixed_bytes);
    FUZZ_CHECK(!got.problem.empty());
    return;
  }
  FUZZ_CHECK(got.walk == expected_walk(slow.fit));
  FUZZ_CHECK(got.valid == slow.valid);
  FUZZ_CHECK(got.entries == slow.entries);
  FUZZ_CHECK(got.attribute_bytes == slow.attribute_bytes);
  FUZZ_CHECK(got.problem.empty() == (slow.valid <= 1 && slow.fit != SlowFit::kImpossible));
}

void check_layouts(Bytes record, std::size_t choice) {
  static SlowEntries scratch;
  const SlowDraft t0 = slow_t0(record, scratch);
  const SlowDraft sized = slow_sized(record, false, scratch);
  const SlowDraft swapped = slow_sized(record, true, scratch);
  check_draft(record, abi::RecordLayout::kT0, false, t0);
  check_draft(record, abi::RecordLayout::kT1, false, sized);
  check_draft(record, abi::RecordLayout::kT3, false, sized);
  check_draft(record, abi::RecordLayout::kT3, true, swapped);

  abi::RecordRecognitionInput input;
  input.bytes = record;
  const auto symbol = choice % 3 == 0   ? abi::kThreadSlotSymbol
                      : choice % 3 == 1 ? abi::kDraftThreadSlotSymbol
                                        : std::string_view("other");
  input.symbol = abi::slot_symbol(symbol);
  input.has_max_record_size = choice % 2 != 0;
  const auto r = abi::recognise_record(input);
  FUZZ_CHECK(!abi::to_string(r.best).empty());
  const auto fits = [](const SlowDraft& d) {
    return d.fit != SlowFit::kNotThere && d.fit != SlowFit::kImpossible && d.valid <= 1;
  };
  const bool swapped_fits = fits(swapped) && swapped.fit == SlowFit::kExact;
  FUZZ_CHECK((r.best == abi::RecordLayout::kUnknown) ==
             (!fits(t0) && !fits(sized) && !swapped_fits));
  // A record that fits only one layout must be recognised as that layout.
  if (fits(t0) && !fits(sized) && !swapped_fits) FUZZ_CHECK(r.best == abi::RecordLayout::kT0);
  if (!fits(t0) && fits(sized) && !swapped_fits) {
    FUZZ_CHECK(r.best == (choice % 3 == 1 ? abi::RecordLayout::kT1 : abi::RecordLayout::kT3));
    FUZZ_CHECK(!r.other_byte_order);
  }
  const bool merged = r.best == abi::RecordLayout::kT3 || r.best == abi::RecordLayout::kUnknown;
  FUZZ_CHECK(abi::describe(r.best).empty() == merged);
}

}  // namespace

void check_thread_context(Bytes input) {
  static GuardedBuffer record_buffer;
  static GuardedBuffer area_buffer;
  static SlowEntries slow;
  if (input.size() < 2) return;
  const auto count = std::to_integer<std::size_t>(input[0]);
  const auto choice = std::to_integer<std::size_t>(input[1]);
  const std::size_t location = choice / 3;
  const Bytes record = record_buffer.copy(input.subspan(2));
  const SlowHead head = slow_head(record);
  switch (static_cast<ContextMode>(choice % 3)) {
    case ContextMode::kEncoder:
      if (head.present) {
        const std::size_t available = std::min<std::size_t>(head.size, record.size() - kFixedPart);
        const Bytes area = area_buffer.copy(record.subspan(kFixedPart, available));
        slow_entries(area, slow);
        check_encoder(area, slow);
      }
      break;
    case ContextMode::kReader:
      check_reader(record, head, static_cast<RecordLocation>(location % 6),
                   keys_of(count == 255 ? 256 : count));
      break;
    case ContextMode::kLayouts:
      check_layouts(record, location);
      break;
  }
}

}  // namespace ctxconf::fuzz
