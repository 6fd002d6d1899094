// What has to hold for any bytes that stand where a process header is expected.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`, little-endian: one byte with the number of bytes that can be read of the header's
// mapping (at most 40), three numbers of 8 bytes (the address of the payload's memory and the
// boot-time and wall clock, 0: not known), the header's bytes, and the payload's memory. Aborts
// where something does not hold.
void check_process_header(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
