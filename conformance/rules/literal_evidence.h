// For the tests of rules: where things are in recordings that are written down, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

inline constexpr std::uint64_t kMapping = 0x7f0000000000;  // of the header
inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kHeap = 0x550000001000;
inline constexpr std::uint64_t kLowHeap = 0x55001000;  // 32-bit programs have it there, too
inline constexpr std::uint64_t kOtherLowHeap = 0x55002000;
inline constexpr std::uint64_t kSecond = 1'000'000'000;
inline constexpr std::uint64_t kNaming = 0x53564d41;  // PR_SET_VMA

inline const std::string kTrace = "0af7651916cd43dd8448eb211c80319c";
inline const std::string kSpan = "b7ad6b7169203331";
inline const std::vector<std::byte> kBlank(32);  // a header

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

inline MemoryBlock memory_block(std::uint64_t at, const std::string& content) {
  MemoryBlock out;
  out.at = sys::RemoteAddr(at);
  out.wanted = out.readable = content.size();
  out.bytes = bytes_of(content);
  out.hash = std::hash<std::string>()(content);
  return out;
}

// A field of a Protocol Buffers message that has a length.
inline std::string field(int number, const std::string& content) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  std::size_t size = content.size();
  for (; size >= 0x80; size >>= 7) out.push_back(static_cast<char>(0x80 | (size & 0x7f)));
  out.push_back(static_cast<char>(size));
  return out + content;
}

// An attribute in a thread record.
inline std::string record_attribute(int key, const std::string& value) {
  return std::string{static_cast<char>(key), static_cast<char>(value.size())} + value;
}

}  // namespace ctxconf::conformance
