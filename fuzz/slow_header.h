// A second reader of the process header, written from the header table of OTEP 4719 and the table
// of the drafts' layouts: one byte after the other, nothing shared with abi/. For oracles on
// little-endian hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace ctxconf::fuzz {

struct SlowHeader {
  std::string signature;
  std::uint64_t version = 0;
  std::uint64_t payload_size = 0;
  std::uint64_t timestamp = 0;
  std::uint64_t payload = 0;
  bool valid = false;  // a reader accepts it
};
// Nothing if there are fewer than 32 bytes.
std::optional<SlowHeader> slow_header(std::span<const std::byte> bytes);

// What is known about the process.
struct SlowSurroundings {
  std::uint64_t boottime = 0;  // 0: unknown; also below
  std::uint64_t realtime = 0;
  std::uint64_t payload_at = 0;
  std::uint64_t payload_size = 0;  // of the mapped memory there
  std::function<bool(std::uint64_t size)>
      is_a_payload;  // whether its first `size` bytes are P1 to P4
};

// "H0", "H1", "H2", "H3", "H5", "in progress", or "" for none; `head` as far as it can be read.
std::string slow_layout(std::span<const std::byte> head, const SlowSurroundings& around);

// "P3" or "P4" if nested one-byte lengths leave no doubt, otherwise empty.
std::string slow_clear_format(std::span<const std::byte> payload);

}  // namespace ctxconf::fuzz
