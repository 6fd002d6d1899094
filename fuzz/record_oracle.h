// What has to hold for any bytes that stand where a thread record is expected.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: one byte with the number of keys in the map (255: 256), one byte that says what is
// tried besides the entries (RecordMode + 3 * RecordPlace), and the bytes that can be read from
// the record's address on. Aborts where something does not hold.
enum class RecordMode { kEntries, kReader, kLayouts };
enum class RecordPlace {
  kPlain,
  kNull,  // the slot is null
  kOdd,   // the record is at an odd address
  kSlotUnreadable,
  kEndOfMemory,        // the fixed part reaches the last address there is
  kWithoutAttributes,  // readable, and not asked for
};
void check_record(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
