#include "sys/arch/x86_64.h"

#include <asm/prctl.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "sys/arch/exclusive.h"
#include "sys/arch/registers.h"
#include "sys/arch/watch_registers.h"

namespace ctxconf::sys::arch {

using x86_64::CompatRegisters;
using x86_64::Registers;

static_assert(sizeof(Registers) == sizeof(user_regs_struct));
static_assert(offsetof(Registers, orig_rax) == offsetof(user_regs_struct, orig_rax));
static_assert(offsetof(Registers, rip) == offsetof(user_regs_struct, rip));
static_assert(offsetof(Registers, fs_base) == offsetof(user_regs_struct, fs_base));

namespace {

std::string text(pid_t tid) { return std::to_string(tid); }

constexpr std::size_t kWatches = std::tuple_size_v<WatchedWords>;
constexpr std::size_t kStatusRegister = 6;
constexpr std::size_t kControlRegister = 7;

constexpr std::size_t debug_register(std::size_t n) {
  return offsetof(struct user, u_debugreg) + n * sizeof(user{}.u_debugreg[0]);
}

// Returns false and sets errno on failure.
bool set_debug_register(pid_t tid, std::size_t n, std::uint64_t value) {
  return ptrace(PTRACE_POKEUSER, tid, debug_register(n), value) == 0;
}

std::optional<std::uint64_t> user_word(pid_t tid, std::size_t offset) {
  errno = 0;
  const long value = ptrace(PTRACE_PEEKUSER, tid, offset, nullptr);
  if (errno != 0) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

}  // namespace

Result<CallRegisters> call_registers(pid_t tid) {
  union {
    Registers native;
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
  iovec area{&out, sizeof out};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &area) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  // The kernel answers in the format of the code that the thread runs at this moment.
  if (area.iov_len != sizeof out) return fail("ptrace registers", ENOTSUP, text(tid));
  return out;
}

Result<> set_registers(pid_t tid, const Registers& registers) {
  Registers copy = registers;
  iovec area{&copy, sizeof copy};
  if (ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &area) != 0) {
    return fail("ptrace registers", errno, text(tid));
  }
  return {};
}

Result<> answer_call(pid_t tid, std::int64_t result) {
  const auto poke = [tid](std::size_t at, std::int64_t value) {
    return ptrace(PTRACE_POKEUSER, tid, at, value) == 0;
  };
  if (!poke(offsetof(user_regs_struct, orig_rax), -1) ||
      !poke(offsetof(user_regs_struct, rax), result)) {
    return fail("ptrace registers", errno, text(tid));
  }
  return {};
}

Result<RemoteAddr> thread_pointer(pid_t tid) {
  CTX_ASSIGN_OR_RETURN(r, registers(tid));
  return RemoteAddr(r.fs_base);
}

bool set_watches(pid_t tid, const WatchedWords& words) {
  // An armed register must not pass through a state in which its neighbours are only partly moved.
  bool ok = disable_watches(tid);
  for (std::size_t i = 0; ok && i < kWatches; ++i) ok = set_debug_register(tid, i, words[i].raw());
  return ok && enable_watches(tid);
}

bool disable_watches(pid_t tid) { return set_debug_register(tid, kControlRegister, 0); }

bool enable_watches(pid_t tid) {
  return set_debug_register(tid, kControlRegister, x86_64::write_watch_control(kWatches));
}

std::uint8_t take_touched(pid_t tid) {
  const auto status = user_word(tid, debug_register(kStatusRegister));
  const auto words = static_cast<std::uint8_t>(status.value_or(0) & x86_64::kStatusWords);
  if (words != 0) set_debug_register(tid, kStatusRegister, 0);
  return words;
}

std::optional<Touched> take_touched(pid_t tid, const siginfo_t& /*trap*/) {
  const std::uint8_t words = take_touched(tid);
  return words == 0 ? std::nullopt : std::optional(Touched{words});
}

bool may_be_due(pid_t tid) {
  const auto status = user_word(tid, debug_register(kStatusRegister));
  return !status || (*status & x86_64::kStatusWords) != 0;
}

std::optional<ExclusiveAttempt> attempt_from(pid_t /*tid*/, std::uint64_t /*pc*/) {
  return std::nullopt;
}
std::optional<ExclusiveAttempt> attempt_to(pid_t /*tid*/, std::uint64_t /*pc*/) {
  return std::nullopt;
}
AttemptResult result_of(pid_t /*tid*/, const ExclusiveAttempt& /*attempt*/) { return {}; }
bool set_breakpoints(pid_t /*tid*/, std::span<const std::uint64_t> /*at*/) { return false; }
bool clear_breakpoints(pid_t /*tid*/) { return false; }

bool stores_on(pid_t tid, std::uint64_t pc, std::uint8_t words, std::uint64_t code) {
  // PTRACE_PEEKTEXT also reads code that is mapped execute-only.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
  if (code == 0) code = static_cast<std::uint64_t>(ptrace(PTRACE_PEEKTEXT, tid, pc, nullptr));
  const auto size = x86_64::repeated_store(code);
  if (!size) return false;
  const auto to = user_word(tid, offsetof(struct user, regs.rdi));
  const auto flags = user_word(tid, offsetof(struct user, regs.eflags));
  if (!to || !flags) return false;
  constexpr std::uint64_t kBackwards = 1UL << 10U;
  const std::uint64_t last = (*flags & kBackwards) != 0 ? *to + *size : *to - *size;
  for (std::size_t i = 0; i < kWatches; ++i) {
    if ((words >> i & 1U) == 0) continue;
    const auto word = user_word(tid, debug_register(i));
    if (word && last < *word + kWordBytes && *word < last + *size) return true;
  }
  return false;
}

}  // namespace ctxconf::sys::arch
