#include "sys/arch/aarch64.h"

#include <asm/ptrace.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/aarch64_instruction.h"
#include "sys/arch/exclusive.h"
#include "sys/arch/registers.h"
#include "sys/arch/watch_registers.h"

namespace ctxconf::sys::arch {

using aarch64::CompatRegisters;
using aarch64::GeneralRegisters;
using aarch64::Registers;
using aarch64::WatchRegisters;

static_assert(sizeof(GeneralRegisters) == sizeof(user_pt_regs));
static_assert(offsetof(GeneralRegisters, sp) == offsetof(user_pt_regs, sp));
static_assert(sizeof(WatchRegisters) == sizeof(user_hwdebug_state));
static_assert(offsetof(WatchRegisters, watches[1].control) ==
              offsetof(user_hwdebug_state, dbg_regs[1].ctrl));

namespace {

constexpr std::size_t kWatches = std::tuple_size_v<WatchedWords>;

std::string text(pid_t tid) { return std::to_string(tid); }

// Returns false and sets errno on failure.
bool set_call(pid_t tid, std::int32_t nr) {
  iovec area{&nr, sizeof nr};
  return ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &area) == 0;
}

std::optional<WatchRegisters> watch_registers(pid_t tid) {
  WatchRegisters out{};
  iovec area{&out, sizeof out};
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_HW_WATCH, &area) != 0) return std::nullopt;
  return out;
}

// Returns false and sets errno on failure. The kernel creates a breakpoint for each register that
// is written.
bool set_watch_registers(pid_t tid, WatchRegisters& registers) {
  iovec area{&registers, aarch64::watch_bytes(kWatches)};
  return ptrace(PTRACE_SETREGSET, tid, NT_ARM_HW_WATCH, &area) == 0;
}

// Breakpoints are described like watchpoints.
bool set_breakpoint_registers(pid_t tid, WatchRegisters& registers, std::size_t count) {
  iovec area{&registers, aarch64::watch_bytes(count)};
  return ptrace(PTRACE_SETREGSET, tid, NT_ARM_HW_BREAK, &area) == 0;
}

// Up to `count` instructions at `from`. PTRACE_PEEKTEXT also reads code that is mapped
// execute-only.
std::vector<std::uint32_t> code_at(pid_t tid, std::uint64_t from, std::size_t count) {
  std::vector<std::uint32_t> out;
  while (out.size() < count) {
    errno = 0;
    const auto at = from + out.size() * sizeof(std::uint32_t);
    const auto two = static_cast<std::uint64_t>(ptrace(PTRACE_PEEKTEXT, tid, at, nullptr));
    if (errno != 0) break;
    out.push_back(static_cast<std::uint32_t>(two));
    if (out.size() < count) out.push_back(static_cast<std::uint32_t>(two >> 32U));
  }
  return out;
}

// The size of the block that `dc zva` zeroes; 0: it is not permitted.
std::uint64_t zeroed_block() {
  std::uint64_t id = 0;
  asm("mrs %0, dczid_el0" : "=r"(id));
  constexpr std::uint64_t kProhibited = 1U << 4U;
  return (id & kProhibited) != 0 ? 0 : std::uint64_t{4} << (id & 0xfU);
}

bool set_controls(pid_t tid, std::uint32_t control) {
  auto now = watch_registers(tid);
  if (!now) return false;
  bool changes = false;
  for (std::size_t i = 0; i < kWatches; ++i) {
    changes = changes || now->watches[i].control != control;
    now->watches[i].control = control;
  }
  if (!changes) return true;
  return set_watch_registers(tid, *now);
}

}  // namespace

Result<CallRegisters> call_registers(pid_t tid) {
  union {
    GeneralRegisters native;
    CompatRegisters compat;
  } u{};
  iovec area{&u, sizeof u};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &area) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  return area.iov_len == sizeof u.compat ? decode(u.compat) : decode(u.native);
}

Result<Registers> registers(pid_t tid) {
  Registers out{};
  iovec general{&out.general, sizeof out.general};
  iovec call{&out.call, sizeof out.call};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &general) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  if (general.iov_len != sizeof out.general) return fail("ptrace registers", ENOTSUP, text(tid));
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_SYSTEM_CALL, &call) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  return out;
}

// At a stop for PTRACE_SYSCALL the kernel uses x7 to tell entry from exit, and restores it: writing
// it here has no effect.
Result<> set_registers(pid_t tid, const Registers& registers) {
  GeneralRegisters general = registers.general;
  iovec area{&general, sizeof general};
  if (!set_call(tid, registers.call) || ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &area) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  return {};
}

Result<> answer_call(pid_t tid, std::int64_t result) {
  CTX_ASSIGN_OR_RETURN(r, registers(tid));
  r.general.x[0] = static_cast<std::uint64_t>(result);
  r.call = -1;
  return set_registers(tid, r);
}

Result<RemoteAddr> thread_pointer(pid_t tid) {
  std::uint64_t pointer = 0;
  iovec area{&pointer, sizeof pointer};
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_TLS, &area) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  if (area.iov_len < sizeof pointer) return fail("ptrace registers", ENOTSUP, text(tid));
  return RemoteAddr(pointer);
}

bool set_watches(pid_t tid, const WatchedWords& words) {
  auto now = watch_registers(tid);
  if (!now) return false;
  if (aarch64::watch_count(*now) < kWatches) {
    errno = ENOSPC;
    return false;
  }
  if (!disable_watches(tid)) return false;
  for (std::size_t i = 0; i < kWatches; ++i) {
    now->watches[i].address = words[i].raw();
    now->watches[i].control = aarch64::write_watch_control();
  }
  return set_watch_registers(tid, *now);
}

bool disable_watches(pid_t tid) { return set_controls(tid, 0); }
bool enable_watches(pid_t tid) { return set_controls(tid, aarch64::write_watch_control()); }

std::uint8_t take_touched(pid_t /*tid*/) { return 0; }

std::optional<Touched> take_touched(pid_t tid, const siginfo_t& trap) {
  if (trap.si_code != TRAP_HWBKPT) return std::nullopt;
  const auto now = watch_registers(tid);
  if (!now) return std::nullopt;
  const auto at = reinterpret_cast<std::uintptr_t>(trap.si_addr);
  const auto reported = aarch64::watched_word(*now, kWatches, at);
  const auto r = registers(tid);
  const auto code = r ? code_at(tid, r->general.pc, 1) : std::vector<std::uint32_t>();
  const auto stored =
      code.empty() ? std::nullopt : aarch64::stored_by(code[0], r->general, zeroed_block());
  // QEMU 7.2 traps at stores of two registers to the same page that are not aligned to 8, too.
  if (stored) {
    const auto words = aarch64::touched_words(*now, kWatches, *stored);
    if (words != 0 || reported != 0) return Touched{words};
  }
  if (reported == 0) return std::nullopt;
  if (stored || code.empty()) return Touched{reported};
  // The address may be before the watched words.
  return Touched{aarch64::touched_words(*now, kWatches, {at, 1}), /*in_full=*/false};
}

// No register tells it.
bool may_be_due(pid_t /*tid*/) { return true; }

std::optional<ExclusiveAttempt> attempt_from(pid_t tid, std::uint64_t pc) {
  // Most instructions are not load-exclusives, so one is read first.
  if (!aarch64::is_load_exclusive(code_at(tid, pc, 1))) return std::nullopt;
  return aarch64::attempt_from(pc, code_at(tid, pc, aarch64::kLongestAttempt));
}

std::optional<ExclusiveAttempt> attempt_to(pid_t tid, std::uint64_t pc) {
  if (!aarch64::is_store_exclusive(code_at(tid, pc, 1))) return std::nullopt;
  constexpr std::uint64_t kSmallestPage = 4096;
  const std::uint64_t farthest = pc - (aarch64::kLongestAttempt - 1) * aarch64::kInstructionLength;
  // The page before this one may not be mapped.
  for (const std::uint64_t from : {farthest, std::max(farthest, pc & ~(kSmallestPage - 1))}) {
    const std::size_t count = (pc - from) / aarch64::kInstructionLength + 1;
    const auto code = code_at(tid, from, count);
    if (code.size() == count) return aarch64::attempt_to(from, code);
  }
  return std::nullopt;
}

AttemptResult result_of(pid_t tid, const ExclusiveAttempt& attempt) {
  const auto r = registers(tid);
  if (!r || r->general.pc != attempt.after_store()) return {};
  if (!aarch64::has_stored(attempt.code, r->general)) return {Attempted::kFailed, 0};
  // It does not change its base register.
  const auto stored = aarch64::stored_by(attempt.code, r->general, 0);
  const auto watched = watch_registers(tid);
  const auto words =
      stored && watched ? aarch64::touched_words(*watched, kWatches, *stored) : std::uint8_t{0};
  return {Attempted::kStored, words};
}

bool set_breakpoints(pid_t tid, std::span<const std::uint64_t> at) {
  WatchRegisters out{};
  for (std::size_t i = 0; i < at.size(); ++i) {
    out.watches[i].address = at[i];
    out.watches[i].control = aarch64::breakpoint_control();
  }
  return set_breakpoint_registers(tid, out, at.size());
}

bool clear_breakpoints(pid_t tid) {
  WatchRegisters now{};
  iovec area{&now, sizeof now};
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_HW_BREAK, &area) != 0) return false;
  std::size_t used = 0;
  for (std::size_t i = 0; i < ExclusiveAttempt::kMostExits; ++i) {
    if (now.watches[i].control != 0) used = i + 1;
    now.watches[i].control = 0;
  }
  return used == 0 || set_breakpoint_registers(tid, now, used);
}

bool stores_on(pid_t /*tid*/, std::uint64_t /*pc*/, std::uint8_t /*words*/,
               std::uint64_t /*code*/) {
  return false;
}

}  // namespace ctxconf::sys::arch
