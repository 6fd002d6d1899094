// The seccomp filter of a traced program, and the numbers of its system calls.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace ctxconf::sys {

namespace arch {
struct SyscallAbi;
}

inline constexpr std::uint32_t kPrSetVma = 0x53564d41;  // PR_SET_VMA, Linux 5.17
// CPython maps and unmaps 16 KiB each time its frames leave the first chunk of their stack.
inline constexpr std::uint32_t kShortUnmap = 12U << 10U;
inline constexpr std::uint32_t kShortProtect = 4U << 10U;
// Buffers of files and sockets are larger, or begin elsewhere in their page.
inline constexpr std::uint32_t kShortRead = 4095;
inline constexpr std::uint32_t kHeaderOffsets = 32;

// Calls that only some observations need: programs make each of them often.
struct ExtraCalls {
  bool clock_gettime = false;
  bool anonymous_mmap = false;  // writable, at an address that the kernel chooses
  // read, pread64 and recvfrom of at most kShortRead bytes to one of the first kHeaderOffsets bytes
  // of a page.
  bool reads_to_header = false;
};

// Returns SECCOMP_RET_TRACE, whatever table the caller uses (native, 32-bit, x32), for:
//  * execve, execveat, memfd_create, ftruncate, mremap
//  * prctl(PR_SET_VMA, ...) and madvise(..., MADV_DONTFORK or MADV_DOFORK)
//  * a writable mmap of a file; with MAP_FIXED only from its beginning and without MAP_DENYWRITE,
//    because loaders map the data of a library otherwise
//  * munmap of at most kShortUnmap bytes; mprotect of at most kShortProtect bytes, with exactly
//    kShortProtect bytes only if it removes write access (a JVM's heap grows by writable pages)
//  * ptrace(PTRACE_TRACEME, PTRACE_ATTACH or PTRACE_SEIZE) and prctl(PR_SET_DUMPABLE)
//  * on x86-64 a native arch_prctl(ARCH_SET_FS, ...)
//  * the calls in `extra`
// Returns SECCOMP_RET_ALLOW for all other calls. Never traces clone and fork: if each restart of a
// clone causes a stop, and a signal arrives during each stop, the clone never completes.
std::vector<sock_filter> trace_filter(ExtraCalls extra = {});
std::vector<sock_filter> trace_filter(const arch::SyscallAbi& abi, ExtraCalls extra);

// Returns SECCOMP_RET_TRACE for the native calls with which a program reads another one, and for
// those that show what it reads and writes: process_vm_readv and process_vm_writev; read, readv,
// pread64 and preadv; pwrite64 and pwritev; ptrace; open, openat and openat2; mmap of a file; kill,
// tkill, tgkill and pidfd_send_signal; and for execve and execveat. Returns SECCOMP_RET_ALLOW for
// all other calls.
std::vector<sock_filter> reader_filter();

// The native number of call `nr` made through `audit_arch` (AUDIT_ARCH_*); -1 for a foreign call
// without a known counterpart. Knows calls about processes, mappings and memfds.
long native_number(std::uint32_t audit_arch, std::uint64_t nr);
long native_number(const arch::SyscallAbi& abi, std::uint32_t audit_arch, std::uint64_t nr);

// A clock_gettime whose time is two 4-byte numbers, not 8-byte numbers.
bool has_short_time(std::uint32_t audit_arch, std::uint64_t nr);

// The thread pointer that this call sets explicitly; the call is given by its native number.
std::optional<std::uint64_t> thread_pointer_set_by(long nr,
                                                   const std::array<std::uint64_t, 6>& args);

}  // namespace ctxconf::sys
