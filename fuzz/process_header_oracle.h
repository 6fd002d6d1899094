// What must hold for any bytes used as a process header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ctxconf::fuzz {

// `input`, little-endian: one byte with the number of readable bytes in the header's mapping (at
// most 40), three 8-byte numbers (the address of the payload's memory, the boot-time clock and the
// wall clock; 0: unknown), the header's bytes, and the payload's memory. Aborts if a check fails.
// The first function checks the header, which needs no library; the second checks how a reader gets
// from it to a context, decoded with protobuf.
void check_process_header(std::span<const std::byte> input);
void check_process_sample(std::span<const std::byte> input);

struct ProcessView {
  std::uint64_t payload_at = 0;  // below 1 << 56
  std::uint64_t boottime = 0;
  std::uint64_t realtime = 0;
  std::span<const std::byte> head;     // of the input
  std::span<const std::byte> payload;  // of the input
};
// The parts of an input; nothing if it is too short to have them.
std::optional<ProcessView> process_view(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
