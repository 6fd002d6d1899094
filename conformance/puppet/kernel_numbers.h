// The kernel's numbers that the grammar writes into scripts.
#pragma once

#include <sys/syscall.h>

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
// System calls without an operation of their own.
inline constexpr std::uint64_t kBrk = SYS_brk;
inline constexpr std::uint64_t kGetpid = SYS_getpid;
inline constexpr std::uint64_t kFallocate = SYS_fallocate;
inline constexpr std::uint64_t kFutex = SYS_futex;
inline constexpr std::uint64_t kPrlimit = SYS_prlimit64;

}  // namespace ctxconf::conformance::puppet
