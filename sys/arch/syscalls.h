// How programs of one processor call the kernel: the numbers of the calls that ctxconf looks at.
// They come from the tables of Linux: arch/x86/entry/syscalls/syscall_64.tbl and syscall_32.tbl,
// include/uapi/asm-generic/unistd.h for aarch64, arch/arm/tools/syscall.tbl.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace ctxconf::sys::arch {

// The numbers of one table.
struct CallNumbers {
  std::uint32_t execve, execveat, memfd_create, ftruncate, mremap, clock_gettime, mmap, madvise,
      prctl, munmap, mprotect, ptrace, read, pread64, recvfrom;
};

struct CallPair {
  std::uint32_t here;
  std::uint32_t native;
};

// 32-bit programs on a 64-bit kernel. `calls.mmap` is mmap2; the others take 32-bit numbers.
struct CompatAbi {
  std::uint32_t audit_arch;
  CallNumbers calls;
  std::uint32_t ftruncate64;
  std::uint32_t clock_gettime64;
  std::span<const CallPair> natives;  // of all calls that are known here
};

// 64-bit code with 32-bit pointers; its AUDIT_ARCH_* is the native one.
struct X32Abi {
  std::uint32_t bit;  // set in each number
  CallNumbers calls;  // including that bit
  // Without the bit: numbers that the native table does not have or uses for another call.
  std::uint32_t first_own, last_own;
};

// A call whose first argument selects what it does.
struct CallCode {
  std::uint32_t nr;
  std::uint32_t code;
};

struct SyscallAbi {
  std::uint32_t audit_arch;  // AUDIT_ARCH_* of <linux/audit.h>
  CallNumbers calls;
  CompatAbi compat;
  std::optional<X32Abi> x32;
  // The call that sets the thread pointer to its second argument; nothing if that needs no system
  // call.
  std::optional<CallCode> set_thread_pointer;
};

}  // namespace ctxconf::sys::arch
