// What must hold for any bytes used as a thread record.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: one byte that selects what is tested besides the walk over the entries (RecordMode + 3 *
// a number), and the bytes that can be read from the record's address on. Aborts if a check fails.
enum class RecordMode {
  kExact,           // walks_exactly()
  kLastOccurrence,  // of the key of the entry with this number, or of the number if there is none
  kBehindTheEnd,    // a cursor that found no more entry finds none when asked again
};
void check_record(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
