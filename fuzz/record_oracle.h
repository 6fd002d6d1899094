// What has to hold for any bytes that stand where a thread record is expected.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: one byte that says what is tried besides the walk over the entries (RecordMode +
// 3 * a number), and the bytes that can be read from the record's address on. Aborts where
// something does not hold.
enum class RecordMode {
  kExact,           // walks_exactly()
  kLastOccurrence,  // of the key of the entry with the number, or of the number if there is none
  kBehindTheEnd,    // a cursor that found no more entry finds none when it is asked again
};
void check_record(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
