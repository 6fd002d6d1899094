// Recognises the draft of OTEP 4947 from which a record comes: the record layouts that have been in
// use, and the procedure that tells them apart. Pure: the caller supplies the bytes and its
// knowledge of the process; nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ctxconf::abi {

// T2 has the bytes of T3 and leaves byte 25 zero; kT3 stands for both.
enum class RecordLayout { kUnknown, kT0, kT1, kT3 };
std::string_view to_string(RecordLayout layout);  // "T3"

struct RecordFields {
  RecordLayout layout;
  std::string_view id;      // "T0"
  std::string_view in_use;  // "December 2025 to end of January 2026"
  // Offsets; -1 if the layout has no such field.
  int root_span_id, valid, trace_flags, count, size;
  std::size_t fixed_bytes;  // the attributes begin here
};
// T0, T1, T3.
std::span<const RecordFields> record_layouts();
const RecordFields& fields_of(RecordLayout layout);  // kUnknown: those of T3

// The thread-local variable of the drafts before the end of March 2026; also a pointer.
inline constexpr std::string_view kDraftThreadSlotSymbol = "custom_labels_current_set_v2";

enum class SlotSymbol { kOther, kDraft, kCurrent };
SlotSymbol slot_symbol(std::string_view name);

// Whether whole entries make up the attributes.
enum class EntryWalk {
  kImpossible,  // no: one ends outside, or there are fewer than the count
  kUnseen,      // as far as the bytes go; they end before the attributes
  kEmpty,       // there are none
  kExact,
};

// A record decoded with one layout.
struct DecodedRecord {
  std::uint8_t valid = 0;
  std::uint8_t trace_flags = 0;     // 0 where the layout has none
  std::uint64_t root_span_id = 0;   // as eight bytes, host order; only T0
  std::size_t entries = 0;          // whole ones that are visible
  std::size_t attribute_bytes = 0;  // according to the size; for T0 the bytes of the entries
  EntryWalk walk = EntryWalk::kImpossible;
  std::string_view problem;  // why it cannot be this layout, static; empty: it can be
};
// `other_byte_order`: swap the 16-bit size. T0 has none.
DecodedRecord decode_record_as(const RecordFields& layout, std::span<const std::byte> bytes,
                               bool other_byte_order = false);

struct RecordRecognitionInput {
  SlotSymbol symbol = SlotSymbol::kOther;
  // The memory that begins at the address in the slot: 64 bytes tell most, 640 tell all; hostile.
  std::span<const std::byte> bytes;
  // What the process context says, in any of its forms.
  bool has_max_record_size = false;  // threadlocal.max_record_size
  bool key_map_is_pairs = false;     // the key map is a key-value list, not an array
};

struct RecordScore {
  RecordLayout layout = RecordLayout::kUnknown;
  bool other_byte_order = false;
  int score = 0;  // 0: it cannot be this one, see fields.problem
  DecodedRecord fields;
};

struct RecordRecognition {
  RecordLayout best = RecordLayout::kUnknown;
  bool other_byte_order = false;  // of the size: the writer is for another machine
  // T0, then T1 (draft symbol) or T3, then the latter with its size swapped.
  std::array<RecordScore, 3> scores{};
};
RecordRecognition recognise_record(const RecordRecognitionInput& input);

// "this looks like the draft of December 2025 to end of January 2026: ..."
// Static storage; empty for kT3 and kUnknown.
std::string_view describe(RecordLayout layout);

}  // namespace ctxconf::abi
