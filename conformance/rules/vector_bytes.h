// What a golden vector has where a layout rule found something else.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// Bytes that follow from what else is seen of the testee, in place of masked ones.
struct KnownBytes {
  std::uint64_t offset = 0;
  std::vector<std::uint8_t> bytes;
};
// A number as the vectors have it: little-endian, in `size` bytes.
KnownBytes known_number(std::uint64_t offset, std::uint64_t value, std::size_t size);

// Puts the header or record of a vector next to a dump that begins where that of the testee begins,
// and marks what differs and has no mark yet. For testees that are little-endian.
void put_beside_header(Hexdump& dump, const std::vector<KnownBytes>& known);
void put_beside_record(Hexdump& dump, const std::vector<KnownBytes>& known);

}  // namespace ctxconf::conformance
