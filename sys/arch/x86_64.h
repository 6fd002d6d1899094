// The part of x86-64 support that needs no kernel. aarch64.h has the same names.
#pragma once

#include <elf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sys/arch/call_registers.h"
#include "sys/arch/compat_program.h"
#include "sys/arch/step_trap.h"
#include "sys/arch/syscalls.h"

namespace ctxconf::sys::arch::x86_64 {

inline constexpr std::uint16_t kMachine = EM_X86_64;

// user_regs_struct of <sys/user.h> (NT_PRSTATUS).
struct Registers {
  std::uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax,
      rip, cs, eflags, rsp, ss, fs_base, gs_base, ds, es, fs, gs;
};
// The same for 32-bit code: user_regs_struct32 of arch/x86/include/asm/user32.h.
struct CompatRegisters {
  std::uint32_t ebx, ecx, edx, esi, edi, ebp, eax, ds, es, fs, gs, orig_eax, eip, cs, eflags, esp,
      ss;
};
CallRegisters decode(const Registers& r);
CallRegisters decode(const CompatRegisters& r);

// These are numbered as in DWARF (System V ABI for AMD64, figure 3.36): rax, rdx, rcx, rbx, rsi,
// rdi, rbp, rsp, r8 to r15, rip.
inline constexpr std::size_t kUnwindStackPointer = 7;
inline constexpr std::size_t kUnwindProgramCounter = 16;
using UnwindRegisters = std::array<std::uint64_t, 17>;
// libdw takes the program counter together with the others.
inline constexpr bool kUnwindsFromSeparatePc = false;
UnwindRegisters unwind_registers(const Registers& r);

extern const SyscallAbi kSyscalls;

// `syscall`, in memory order.
inline constexpr std::uint64_t kSyscallLength = 2;
inline constexpr std::uint32_t kSyscallCode = 0x050f;
inline constexpr std::uint32_t kSyscallMask = 0xffff;
// Makes the thread execute this call next. `at_entry`: instead of the call that it is about to
// make; otherwise with the system call instruction at `at`.
Registers with_call(Registers r, bool at_entry, std::uint64_t at, std::uint64_t nr,
                    const std::array<std::uint64_t, 5>& args);
// Makes a thread that was at the entry of a call repeat that call.
Registers before_call(Registers r);

// DR7 (Intel SDM, volume 3, 18.2.4). Each of the four: enabled in this thread, on writes only, 8
// bytes long.
std::uint64_t write_watch_control(std::size_t count);
// DR6: one bit for each register; a bit stays set until it is cleared.
inline constexpr std::uint64_t kStatusWords = 0xf;
// The trap comes after the store.
inline constexpr bool kTrapsBeforeStore = false;
inline constexpr bool kHasExclusives = false;

// Never kEndOfCall or kEmptyStep: after a system call the kernel uses TRAP_BRKPT.
StepTrap step_trap(const TrapCause& cause, bool at_end_of_call);

// How many bytes one round of a rep movs or rep stos stores. `code` has the bytes of the
// instruction, the first one lowest; nothing if it is another instruction (Intel SDM, volume 2, 2.1
// and REP).
std::optional<std::uint64_t> repeated_store(std::uint64_t code);

inline constexpr const char* kVdsoClock = "__vdso_clock_gettime";
// mov eax, 228; syscall; ret
inline constexpr std::array<std::uint8_t, 8> kClockCall = {0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0xc3};

constexpr CompatProgram compat_program(unsigned char exit_code) {
  return {EM_386,
          0,
          {0xb3, exit_code,   // mov bl, exit_code
           0xb8, 1, 0, 0, 0,  // mov eax, 1
           0xcd, 0x80}};      // int 0x80
}

}  // namespace ctxconf::sys::arch::x86_64
