#include "abi/thread_layouts.h"

#include <bit>
#include <cstring>

#include "abi/thread_record.h"

namespace ctxconf::abi {
namespace {

constexpr std::array<RecordFields, 3> kRecordLayouts = {{
    {RecordLayout::kT0, "T0", "December 2025 to end of January 2026", 24, 32, -1, 33, -1, 34},
    {RecordLayout::kT1, "T1", "end of January to end of March 2026", -1, 24, -1, -1, 26, 28},
    {RecordLayout::kT3, "T3", "since end of March 2026", -1, 24, 25, -1, 26, 28},
}};

// The integer at `offset`, or zero if the layout has none. The fixed part is complete.
template <class T>
T value_at(std::span<const std::byte> bytes, int offset) {
  T value{};
  if (offset >= 0) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void walk_size(std::span<const std::byte> after, DecodedRecord& d) {
  const bool all_seen = d.attribute_bytes <= after.size();
  AttributeCursor cursor(all_seen ? after.first(d.attribute_bytes) : after);
  while (cursor.next()) ++d.entries;
  if (d.attribute_bytes == 0) {
    d.walk = EntryWalk::kEmpty;
  } else if (all_seen) {
    d.walk = cursor.left() == 0 ? EntryWalk::kExact : EntryWalk::kImpossible;
  } else {
    // A truncated entry still shows its length if its head is visible.
    const auto cut = after.subspan(cursor.offset());
    const std::size_t need = cut.size() < kEntryHeadBytes
                                 ? kEntryHeadBytes
                                 : kEntryHeadBytes + std::to_integer<std::size_t>(cut[1]);
    const bool fits = need <= d.attribute_bytes - cursor.offset();
    d.walk = fits ? EntryWalk::kUnseen : EntryWalk::kImpossible;
  }
  if (d.walk == EntryWalk::kImpossible) d.problem = "an entry does not end within the size";
}

void walk_count(std::span<const std::byte> after, std::size_t count, DecodedRecord& d) {
  AttributeCursor cursor(after);
  while (d.entries < count && cursor.next()) ++d.entries;
  d.attribute_bytes = cursor.offset();
  if (count == 0) {
    d.walk = EntryWalk::kEmpty;
  } else {
    d.walk = d.entries == count ? EntryWalk::kExact : EntryWalk::kUnseen;
  }
}

int points_for(EntryWalk walk) {
  switch (walk) {
    case EntryWalk::kImpossible:
      return 0;
    case EntryWalk::kUnseen:
      return 1;
    case EntryWalk::kEmpty:
      return 2;
    case EntryWalk::kExact:
      return 4;
  }
  return 0;
}

RecordScore score_as(RecordLayout layout, bool other_byte_order,
                     const RecordRecognitionInput& input) {
  const RecordFields& fields = fields_of(layout);
  RecordScore s;
  s.layout = layout;
  s.other_byte_order = other_byte_order;
  s.fields = decode_record_as(fields, input.bytes, other_byte_order);
  if (!s.fields.problem.empty()) return s;
  s.score = 1 + s.fields.valid + points_for(s.fields.walk);
  if (fields.fixed_bytes + s.fields.attribute_bytes <= kRecommendedRecordBytes) s.score += 1;
  const bool of_its_symbol = layout == RecordLayout::kT3 ? input.symbol != SlotSymbol::kDraft
                                                         : input.symbol == SlotSymbol::kDraft;
  if (of_its_symbol) s.score += 4;
  // Decides if the entries fit both; worth less than entries that fit only one.
  if (layout == RecordLayout::kT0 && (input.has_max_record_size || input.key_map_is_pairs)) {
    s.score += 2;
  }
  return s;
}

}  // namespace

std::string_view to_string(RecordLayout layout) {
  return layout == RecordLayout::kUnknown ? "unknown" : fields_of(layout).id;
}

std::span<const RecordFields> record_layouts() { return kRecordLayouts; }

const RecordFields& fields_of(RecordLayout layout) {
  for (const auto& fields : kRecordLayouts) {
    if (fields.layout == layout) return fields;
  }
  return kRecordLayouts.back();
}

SlotSymbol slot_symbol(std::string_view name) {
  if (name == kThreadSlotSymbol) return SlotSymbol::kCurrent;
  if (name == kDraftThreadSlotSymbol) return SlotSymbol::kDraft;
  return SlotSymbol::kOther;
}

DecodedRecord decode_record_as(const RecordFields& layout, std::span<const std::byte> bytes,
                               bool other_byte_order) {
  DecodedRecord d;
  if (bytes.size() < layout.fixed_bytes) {
    d.problem = "the fixed part is not complete";
    return d;
  }
  d.valid = value_at<std::uint8_t>(bytes, layout.valid);
  d.trace_flags = value_at<std::uint8_t>(bytes, layout.trace_flags);
  d.root_span_id = value_at<std::uint64_t>(bytes, layout.root_span_id);
  const auto after = bytes.subspan(layout.fixed_bytes);
  if (layout.size >= 0) {
    const auto size = value_at<std::uint16_t>(bytes, layout.size);
    d.attribute_bytes = other_byte_order ? std::byteswap(size) : size;
    walk_size(after, d);
  } else {
    walk_count(after, value_at<std::uint8_t>(bytes, layout.count), d);
  }
  if (d.valid > 1) d.problem = "the valid byte is neither 0 nor 1";
  return d;
}

RecordRecognition recognise_record(const RecordRecognitionInput& input) {
  const auto sized = input.symbol == SlotSymbol::kDraft ? RecordLayout::kT1 : RecordLayout::kT3;
  RecordRecognition r;
  r.scores = {score_as(RecordLayout::kT0, false, input), score_as(sized, false, input),
              score_as(sized, true, input)};
  auto& swapped = r.scores[2];
  // Only entries that fill a size exactly prove that it was stored in the other byte order.
  if (swapped.fields.problem.empty() && swapped.fields.walk != EntryWalk::kExact) {
    swapped.score = 0;
    swapped.fields.problem = "no entries fill the swapped size";
  }
  const RecordScore* best = &r.scores[1];
  if (r.scores[0].score > best->score) best = &r.scores[0];
  if (swapped.score > best->score) best = &swapped;
  if (best->score > 0) {
    r.best = best->layout;
    r.other_byte_order = best->other_byte_order;
  }
  return r;
}

std::string_view describe(RecordLayout layout) {
  switch (layout) {
    case RecordLayout::kUnknown:
    case RecordLayout::kT3:
      return {};
    case RecordLayout::kT0:
      return "this looks like the draft of December 2025 to end of January 2026: root span id at "
             "24, valid at 32, a count of attributes at 33, attributes from 34";
    case RecordLayout::kT1:
      return "this looks like the draft of end of January to end of March 2026: no trace flags, "
             "symbol custom_labels_current_set_v2";
  }
  return {};
}

}  // namespace ctxconf::abi
