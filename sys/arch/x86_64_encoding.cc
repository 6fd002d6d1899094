#include <linux/audit.h>
#include <signal.h>

#include "sys/arch/x86_64.h"

namespace ctxconf::sys::arch::x86_64 {
namespace {

constexpr CallNumbers kNumbers = {.execve = 59,
                                  .execveat = 322,
                                  .memfd_create = 319,
                                  .ftruncate = 77,
                                  .mremap = 25,
                                  .clock_gettime = 228,
                                  .mmap = 9,
                                  .madvise = 28,
                                  .prctl = 157,
                                  .munmap = 11,
                                  .mprotect = 10,
                                  .ptrace = 101,
                                  .read = 0,
                                  .pread64 = 17,
                                  .recvfrom = 45};
constexpr std::uint32_t kClone = 56;
constexpr std::uint32_t kFork = 57;
constexpr std::uint32_t kVfork = 58;
constexpr std::uint32_t kExit = 60;
constexpr std::uint32_t kExitGroup = 231;
constexpr std::uint32_t kClose = 3;
constexpr std::uint32_t kArchPrctl = 158;
constexpr std::uint32_t kArchSetFs = 0x1002;  // ARCH_SET_FS of <asm/prctl.h>

constexpr CallNumbers kI386 = {.execve = 11,
                               .execveat = 358,
                               .memfd_create = 356,
                               .ftruncate = 93,
                               .mremap = 163,
                               .clock_gettime = 265,
                               .mmap = 192,
                               .madvise = 219,
                               .prctl = 172,
                               .munmap = 91,
                               .mprotect = 125,
                               .ptrace = 26,
                               .read = 3,
                               .pread64 = 180,
                               .recvfrom = 371};
constexpr std::uint32_t kFtruncate64 = 194;
constexpr std::uint32_t kClockGettime64 = 403;
constexpr CallPair kI386Natives[] = {
    {1, kExit},
    {2, kFork},
    {kI386.read, kNumbers.read},
    {6, kClose},
    {kI386.execve, kNumbers.execve},
    {kI386.ptrace, kNumbers.ptrace},
    {kI386.munmap, kNumbers.munmap},
    {kI386.ftruncate, kNumbers.ftruncate},
    {120, kClone},
    {kI386.mprotect, kNumbers.mprotect},
    {kI386.mremap, kNumbers.mremap},
    {kI386.prctl, kNumbers.prctl},
    {kI386.pread64, kNumbers.pread64},
    {190, kVfork},
    {kI386.mmap, kNumbers.mmap},
    {kFtruncate64, kNumbers.ftruncate},
    {kI386.madvise, kNumbers.madvise},
    {252, kExitGroup},
    {kI386.memfd_create, kNumbers.memfd_create},
    {kI386.execveat, kNumbers.execveat},
    {kI386.recvfrom, kNumbers.recvfrom},
    {kI386.clock_gettime, kNumbers.clock_gettime},
    {kClockGettime64, kNumbers.clock_gettime},
};

constexpr std::uint32_t kX32Bit = 0x40000000;  // __X32_SYSCALL_BIT

constexpr CallNumbers x32_numbers() {
  CallNumbers n = kNumbers;
  n.execve = 520;
  n.execveat = 545;
  n.ptrace = 521;
  n.recvfrom = 517;
  for (auto* nr : {&n.execve, &n.execveat, &n.memfd_create, &n.ftruncate, &n.mremap,
                   &n.clock_gettime, &n.mmap, &n.madvise, &n.prctl, &n.munmap, &n.mprotect,
                   &n.ptrace, &n.read, &n.pread64, &n.recvfrom}) {
    *nr |= kX32Bit;
  }
  return n;
}

}  // namespace

constinit const SyscallAbi kSyscalls = {
    .audit_arch = AUDIT_ARCH_X86_64,
    .calls = kNumbers,
    .compat = {.audit_arch = AUDIT_ARCH_I386,
               .calls = kI386,
               .ftruncate64 = kFtruncate64,
               .clock_gettime64 = kClockGettime64,
               .natives = kI386Natives},
    .x32 = X32Abi{.bit = kX32Bit, .calls = x32_numbers(), .first_own = 512, .last_own = 547},
    .set_thread_pointer = CallCode{.nr = kArchPrctl, .code = kArchSetFs}};

CallRegisters decode(const Registers& r) {
  return {AUDIT_ARCH_X86_64,
          r.orig_rax,
          {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9},
          static_cast<std::int64_t>(r.rax),
          r.rsp,
          false,
          r.rip};
}

CallRegisters decode(const CompatRegisters& r) {
  return {AUDIT_ARCH_I386,
          r.orig_eax,
          {r.ebx, r.ecx, r.edx, r.esi, r.edi, r.ebp},
          static_cast<std::int32_t>(r.eax),
          r.esp,
          true,
          r.eip};
}

UnwindRegisters unwind_registers(const Registers& r) {
  return {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
          r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
}

Registers with_call(Registers r, bool at_entry, std::uint64_t at, std::uint64_t nr,
                    const std::array<std::uint64_t, 5>& args) {
  r.rdi = args[0];
  r.rsi = args[1];
  r.rdx = args[2];
  r.r10 = args[3];
  r.r8 = args[4];
  if (at_entry) {
    r.orig_rax = nr;
  } else {
    r.orig_rax = static_cast<std::uint64_t>(-1);
    r.rax = nr;
    r.rip = at;
  }
  return r;
}

Registers before_call(Registers r) {
  r.rip -= kSyscallLength;
  r.rax = r.orig_rax;
  r.orig_rax = static_cast<std::uint64_t>(-1);
  return r;
}

std::uint64_t write_watch_control(std::size_t count) {
  constexpr std::uint64_t kLocal = 0b01;         // L<n>, in bits 2n and 2n + 1
  constexpr std::uint64_t kWritesOf8 = 0b10'01;  // LEN<n> and R/W<n>, from bit 16 + 4n on
  std::uint64_t control = 0;
  for (std::size_t n = 0; n < count; ++n) {
    control |= kLocal << 2 * n | kWritesOf8 << (16 + 4 * n);
  }
  return control;
}

StepTrap step_trap(const TrapCause& cause, bool /*at_end_of_call*/) {
  const bool steps = cause.code == TRAP_TRACE || cause.code == TRAP_BRKPT || cause.code == SIGTRAP;
  return steps ? StepTrap::kStep : StepTrap::kNone;
}

std::optional<std::uint64_t> repeated_store(std::uint64_t code) {
  bool repeats = false;
  std::uint64_t size = 4;
  while (true) {
    const auto byte = code & 0xffU;
    if (byte == 0xf3 || byte == 0xf2) {
      repeats = true;
    } else if (byte == 0x66) {
      size = 2;
    } else if ((byte & 0xf8U) == 0x48) {
      size = 8;
    } else if (byte != 0x67 && (byte & 0xf0U) != 0x40) {
      break;
    }
    code >>= 8U;
  }
  const auto opcode = code & 0xffU;
  if (!repeats || (opcode != 0xa4 && opcode != 0xa5 && opcode != 0xaa && opcode != 0xab)) {
    return std::nullopt;
  }
  return (opcode & 1U) == 0 ? 1 : size;
}

}  // namespace ctxconf::sys::arch::x86_64
