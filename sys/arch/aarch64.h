// The part of aarch64 support that needs no kernel. x86_64.h has the same names.
#pragma once

#include <elf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sys/arch/call_registers.h"
#include "sys/arch/compat_program.h"
#include "sys/arch/exclusive.h"
#include "sys/arch/step_trap.h"
#include "sys/arch/syscalls.h"

namespace ctxconf::sys::arch::aarch64 {

inline constexpr std::uint16_t kMachine = EM_AARCH64;

// user_pt_regs of <asm/ptrace.h> (NT_PRSTATUS), and NT_ARM_SYSTEM_CALL.
struct GeneralRegisters {
  std::array<std::uint64_t, 31> x;
  std::uint64_t sp, pc, pstate;
};
struct Registers {
  GeneralRegisters general;
  std::int32_t call;  // -1: not in a system call
};
// NT_PRSTATUS of 32-bit code: r0 to r15, cpsr, and r0 as it was before the call.
struct CompatRegisters {
  std::array<std::uint32_t, 16> r;
  std::uint32_t cpsr, orig_r0;
};
// The call number is in x8, which the kernel does not change.
CallRegisters decode(const GeneralRegisters& r);
CallRegisters decode(const CompatRegisters& r);
CallRegisters decode(const Registers& r);  // includes the number of its call

// These are numbered as in DWARF (aadwarf64, 4.1): x0 to x30, sp, pc.
inline constexpr std::size_t kUnwindStackPointer = 31;
inline constexpr std::size_t kUnwindProgramCounter = 32;
using UnwindRegisters = std::array<std::uint64_t, 33>;
// libdw takes the program counter separately.
inline constexpr bool kUnwindsFromSeparatePc = true;
UnwindRegisters unwind_registers(const Registers& r);

extern const SyscallAbi kSyscalls;

// `svc #0`, in memory order.
inline constexpr std::uint64_t kSyscallLength = 4;
inline constexpr std::uint32_t kSyscallCode = 0xd4000001;
inline constexpr std::uint32_t kSyscallMask = 0xffffffff;
// Makes the thread execute this call next. `at_entry`: instead of the call that it is about to
// make; otherwise with the system call instruction at `at`.
Registers with_call(Registers r, bool at_entry, std::uint64_t at, std::uint64_t nr,
                    const std::array<std::uint64_t, 5>& args);
// Makes a thread that was at the entry of a call repeat that call.
Registers before_call(Registers r);

inline constexpr std::size_t kMostWatches = 16;
// user_hwdebug_state of <asm/ptrace.h>: NT_ARM_HW_WATCH.
struct WatchRegisters {
  std::uint32_t info;  // the lowest byte is the number of registers that the processor has
  std::uint32_t pad;
  struct {
    std::uint64_t address;
    std::uint32_t control;
    std::uint32_t pad;
  } watches[kMostWatches];
};
std::size_t watch_count(const WatchRegisters& r);
// How many bytes of it describe the first `count` registers.
constexpr std::size_t watch_bytes(std::size_t count) {
  return offsetof(WatchRegisters, watches) + count * sizeof(WatchRegisters::watches[0]);
}
// DBGWCR<n>_EL1 (Arm ARM, D23.3.12) as the kernel accepts it: enabled, at EL0, on stores, all 8
// bytes of the doubleword.
std::uint32_t write_watch_control();
// DBGBCR<n>_EL1 (Arm ARM, D23.3.2): enabled, at EL0, one instruction of 4 bytes.
std::uint32_t breakpoint_control();
// Which of the first `count` words a store touched whose address was `fault`: the word that
// contains it, or the nearest word if the store begins before it. The processor reports only one.
std::uint8_t watched_word(const WatchRegisters& r, std::size_t count, std::uint64_t fault);

struct StoredBytes {
  std::uint64_t from = 0;
  std::uint64_t size = 0;
};
// What the instruction stores, by the registers before it (Arm ARM, C4.1). Nothing if it is no
// store, or one whose size is not in its encoding (SVE, SME, `cpy`, `set`). `zeroed`: the bytes of
// a `dc zva`, 0 if not known.
std::optional<StoredBytes> stored_by(std::uint32_t code, const GeneralRegisters& before,
                                     std::uint64_t zeroed);
// All of the first `count` words that such a store touches.
std::uint8_t touched_words(const WatchRegisters& r, std::size_t count, StoredBytes stored);

bool is_load_exclusive(std::span<const std::uint32_t> code);
bool is_store_exclusive(std::span<const std::uint32_t> code);
// The attempt of the load-exclusive at `pc`, where the instructions `code` begin. Nothing: it has
// another load or store, a call, a jump that cannot be followed, or too many exits.
std::optional<ExclusiveAttempt> attempt_from(std::uint64_t pc, std::span<const std::uint32_t> code);
// The attempt whose store-exclusive is the last of the instructions, which begin at `pc`.
std::optional<ExclusiveAttempt> attempt_to(std::uint64_t pc, std::span<const std::uint32_t> code);
// Whether the store-exclusive stored, by the registers after it.
bool has_stored(std::uint32_t code, const GeneralRegisters& after);
// The trap comes before the store: the thread must be stepped over it with watchpoints disabled.
inline constexpr bool kTrapsBeforeStore = true;
inline constexpr bool kHasExclusives = true;

// `at_end_of_call`: the last trap was a kEndOfCall, and the thread is still there. When the
// instruction was a system call, the kernel sends SI_USER from nobody (user_single_step_report),
// and after that the trap of a step that executes nothing. TRAP_BRKPT is a `brk` of the program.
StepTrap step_trap(const TrapCause& cause, bool at_end_of_call);

inline constexpr const char* kVdsoClock = "__kernel_clock_gettime";
// mov x8, #113; svc #0; ret; nop
inline constexpr std::array<std::uint8_t, 16> kClockCall = {
    0x28, 0x0e, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6, 0x1f, 0x20, 0x03, 0xd5};

constexpr CompatProgram compat_program(unsigned char exit_code) {
  return {EM_ARM,
          EF_ARM_EABI_VER5,
          {exit_code, 0x00, 0xa0, 0xe3,  // mov r0, #exit_code
           0x01, 0x70, 0xa0, 0xe3,       // mov r7, #1
           0x00, 0x00, 0x00, 0xef}};     // svc #0
}

}  // namespace ctxconf::sys::arch::aarch64
