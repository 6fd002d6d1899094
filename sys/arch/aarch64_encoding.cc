#include <linux/audit.h>
#include <signal.h>

#include <algorithm>

#include "sys/arch/aarch64.h"

namespace ctxconf::sys::arch::aarch64 {
namespace {

constexpr CallNumbers kNumbers = {.execve = 221,
                                  .execveat = 281,
                                  .memfd_create = 279,
                                  .ftruncate = 46,
                                  .mremap = 216,
                                  .clock_gettime = 113,
                                  .mmap = 222,
                                  .madvise = 233,
                                  .prctl = 167,
                                  .munmap = 215,
                                  .mprotect = 226,
                                  .ptrace = 117,
                                  .read = 63,
                                  .pread64 = 67,
                                  .recvfrom = 207};
constexpr std::uint32_t kClose = 57;
constexpr std::uint32_t kExit = 93;
constexpr std::uint32_t kExitGroup = 94;
constexpr std::uint32_t kClone = 220;

constexpr CallNumbers kArm = {.execve = 11,
                              .execveat = 387,
                              .memfd_create = 385,
                              .ftruncate = 93,
                              .mremap = 163,
                              .clock_gettime = 263,
                              .mmap = 192,
                              .madvise = 220,
                              .prctl = 172,
                              .munmap = 91,
                              .mprotect = 125,
                              .ptrace = 26,
                              .read = 3,
                              .pread64 = 180,
                              .recvfrom = 292};
constexpr std::uint32_t kFtruncate64 = 194;
constexpr std::uint32_t kClockGettime64 = 403;
// aarch64 has no fork and vfork; programs call clone.
constexpr CallPair kArmNatives[] = {
    {1, kExit},
    {kArm.read, kNumbers.read},
    {6, kClose},
    {kArm.execve, kNumbers.execve},
    {kArm.ptrace, kNumbers.ptrace},
    {kArm.munmap, kNumbers.munmap},
    {kArm.ftruncate, kNumbers.ftruncate},
    {120, kClone},
    {kArm.mprotect, kNumbers.mprotect},
    {kArm.mremap, kNumbers.mremap},
    {kArm.prctl, kNumbers.prctl},
    {kArm.pread64, kNumbers.pread64},
    {kArm.mmap, kNumbers.mmap},
    {kFtruncate64, kNumbers.ftruncate},
    {kArm.madvise, kNumbers.madvise},
    {248, kExitGroup},
    {kArm.recvfrom, kNumbers.recvfrom},
    {kArm.memfd_create, kNumbers.memfd_create},
    {kArm.execveat, kNumbers.execveat},
    {kArm.clock_gettime, kNumbers.clock_gettime},
    {kClockGettime64, kNumbers.clock_gettime},
};

// The most bytes that one instruction stores: four vectors of 2048 bits.
constexpr std::uint64_t kLongestStore = 1024;
constexpr std::uint64_t kWord = 8;

// The processor ignores the highest byte of a program's address.
constexpr std::uint64_t without_tag(std::uint64_t address) { return address & ~(0xffULL << 56U); }

}  // namespace

// The thread pointer, tpidr_el0, is set without the kernel.
constinit const SyscallAbi kSyscalls = {.audit_arch = AUDIT_ARCH_AARCH64,
                                        .calls = kNumbers,
                                        .compat = {.audit_arch = AUDIT_ARCH_ARM,
                                                   .calls = kArm,
                                                   .ftruncate64 = kFtruncate64,
                                                   .clock_gettime64 = kClockGettime64,
                                                   .natives = kArmNatives},
                                        .x32 = {},
                                        .set_thread_pointer = {}};

CallRegisters decode(const GeneralRegisters& r) {
  return {AUDIT_ARCH_AARCH64,
          r.x[8],
          {r.x[0], r.x[1], r.x[2], r.x[3], r.x[4], r.x[5]},
          static_cast<std::int64_t>(r.x[0]),
          r.sp,
          false,
          r.pc};
}

CallRegisters decode(const CompatRegisters& r) {
  return {AUDIT_ARCH_ARM,
          r.r[7],
          {r.orig_r0, r.r[1], r.r[2], r.r[3], r.r[4], r.r[5]},
          static_cast<std::int32_t>(r.r[0]),
          r.r[13],
          true,
          r.r[15]};
}

CallRegisters decode(const Registers& r) {
  CallRegisters out = decode(r.general);
  out.nr = static_cast<std::uint32_t>(r.call);
  return out;
}

UnwindRegisters unwind_registers(const Registers& r) {
  UnwindRegisters out{};
  std::ranges::copy(r.general.x, out.begin());
  out[kUnwindStackPointer] = r.general.sp;
  out[kUnwindProgramCounter] = r.general.pc;
  return out;
}

Registers with_call(Registers r, bool at_entry, std::uint64_t at, std::uint64_t nr,
                    const std::array<std::uint64_t, 5>& args) {
  std::ranges::copy(args, r.general.x.begin());
  if (at_entry) {
    r.call = static_cast<std::int32_t>(nr);
  } else {
    r.call = -1;
    r.general.x[8] = nr;
    r.general.pc = at;
  }
  return r;
}

Registers before_call(Registers r) {
  r.general.pc -= kSyscallLength;
  r.general.x[8] = static_cast<std::uint64_t>(r.call);
  r.call = -1;
  return r;
}

std::size_t watch_count(const WatchRegisters& r) {
  return std::min<std::size_t>(r.info & 0xffU, kMostWatches);
}

std::uint32_t write_watch_control() {
  constexpr std::uint32_t kEnabled = 1;                   // E
  constexpr std::uint32_t kAtEl0 = 0b10U << 1U;           // PAC
  constexpr std::uint32_t kStores = 0b10U << 3U;          // LSC
  constexpr std::uint32_t kAllBytes = 0b11111111U << 5U;  // BAS
  return kAllBytes | kStores | kAtEl0 | kEnabled;
}

std::uint8_t watched_word(const WatchRegisters& r, std::size_t count, std::uint64_t fault) {
  fault = without_tag(fault);
  std::uint64_t nearest = kLongestStore;
  std::uint8_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = r.watches[i].address;
    const std::uint64_t distance = fault < begin           ? begin - fault
                                   : fault - begin < kWord ? 0
                                                           : kLongestStore;
    if (distance < nearest) {
      nearest = distance;
      word = static_cast<std::uint8_t>(1U << i);
    } else if (distance == nearest && distance == 0) {
      word = static_cast<std::uint8_t>(word | 1U << i);
    }
  }
  return word;
}

std::uint32_t breakpoint_control() {
  constexpr std::uint32_t kEnabled = 1;               // E
  constexpr std::uint32_t kAtEl0 = 0b10U << 1U;       // PMC
  constexpr std::uint32_t kAllBytes = 0b1111U << 5U;  // BAS
  return kAllBytes | kAtEl0 | kEnabled;
}

std::uint8_t touched_words(const WatchRegisters& r, std::size_t count, StoredBytes stored) {
  std::uint8_t words = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t begin = r.watches[i].address;
    const std::uint64_t from = without_tag(stored.from);
    if (from < begin + kWord && begin < from + stored.size) {
      words = static_cast<std::uint8_t>(words | 1U << i);
    }
  }
  return words;
}

StepTrap step_trap(const TrapCause& cause, bool at_end_of_call) {
  if (cause.code == SI_USER && cause.sender == 0 && cause.user == 0) return StepTrap::kEndOfCall;
  if (cause.code != TRAP_TRACE && cause.code != SIGTRAP) return StepTrap::kNone;
  return at_end_of_call ? StepTrap::kEmptyStep : StepTrap::kStep;
}

}  // namespace ctxconf::sys::arch::aarch64
