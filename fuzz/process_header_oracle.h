// What has to hold for any bytes that stand where a process header is expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ctxconf::fuzz {

// `input`, little-endian: one byte with the number of bytes that can be read of the header's
// mapping (at most 40), three numbers of 8 bytes (the address of the payload's memory and the
// boot-time and wall clock, 0: not known), the header's bytes, and the payload's memory. Aborts
// where something does not hold. The first checks the header, which needs no library; the second
// how a reader gets from it to a context, which is decoded with protobuf.
void check_process_header(std::span<const std::byte> input);
void check_process_look(std::span<const std::byte> input);

struct ProcessView {
  std::uint64_t payload_at = 0;  // below 1 << 56
  std::uint64_t boottime = 0;
  std::uint64_t realtime = 0;
  std::span<const std::byte> head;     // of the input
  std::span<const std::byte> payload;  // of the input
};
// The parts of an input; nothing when it is too short to have them.
std::optional<ProcessView> process_view(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
