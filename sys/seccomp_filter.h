// The seccomp filter of a traced program and the numbers of its system calls.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

namespace ctxconf::sys {

inline constexpr std::uint32_t kPrSetVma = 0x53564d41;  // PR_SET_VMA, Linux 5.17
// CPython maps and unmaps 16 KiB each time that its frames leave the first piece of their stack.
inline constexpr std::uint32_t kShortUnmap = 12U << 10U;
inline constexpr std::uint32_t kShortProtect = 4U << 10U;

// Calls that only some observations want: each of them is made often.
struct ExtraCalls {
  bool clock_gettime = false;
  bool anonymous_mmap = false;  // writable and where the kernel likes
};

// SECCOMP_RET_TRACE for, whatever table the caller uses (native, 32-bit, x32):
//  * execve, execveat, memfd_create, ftruncate, mremap
//  * prctl(PR_SET_VMA, ...) and madvise(..., MADV_DONTFORK or MADV_DOFORK)
//  * mmap of a file, writable; with MAP_FIXED only of its beginning and without MAP_DENYWRITE, as
//    loaders map the data of a library otherwise
//  * munmap of at most kShortUnmap bytes; mprotect of at most kShortProtect, whole kShortProtect
//    bytes only where that takes away write access (a JVM's heap grows by writable pages)
//  * ptrace(PTRACE_TRACEME, PTRACE_ATTACH or PTRACE_SEIZE) and prctl(PR_SET_DUMPABLE)
//  * on x86-64 a native arch_prctl(ARCH_SET_FS, ...)
//  * what `extra` asks for
// SECCOMP_RET_ALLOW for all else. Never for clone and fork: a restarted clone that is stopped
// each time and a signal that comes each time never get past each other.
std::vector<sock_filter> trace_filter(ExtraCalls extra = {});

// The number in the native table of call `nr` made through `audit_arch`
// (AUDIT_ARCH_*); -1 for a foreign call that has no counterpart known here.
// Calls about processes, mappings and memfds are known.
long native_number(std::uint32_t audit_arch, std::uint64_t nr);

// A clock_gettime whose time is two numbers of four bytes each, not of eight.
bool has_short_time(std::uint32_t audit_arch, std::uint64_t nr);

}  // namespace ctxconf::sys
