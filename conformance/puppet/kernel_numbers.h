// The kernel's numbers that the grammar writes into scripts.
#pragma once

#include <cstdint>

namespace ctxconf::conformance::puppet {

inline constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
inline constexpr std::uint64_t kRead = 1;
inline constexpr std::uint64_t kReadWrite = 3;
inline constexpr std::uint64_t kShared = 1;
inline constexpr std::uint64_t kPrivate = 2;
inline constexpr std::uint64_t kFixed = 0x10;
inline constexpr std::uint64_t kGrowsDown = 0x100;
inline constexpr std::uint64_t kStackFlag = 0x20000;
inline constexpr std::uint64_t kCloexec = 1;
// A system call of this machine that has no operation of its own.
#if defined(__x86_64__)
inline constexpr std::uint64_t kBrk = 12;
#else
inline constexpr std::uint64_t kBrk = 214;
#endif

}  // namespace ctxconf::conformance::puppet
