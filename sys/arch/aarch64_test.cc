#include "sys/arch/aarch64.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <signal.h>

#include <cstring>

namespace ctxconf::sys::arch::aarch64 {
namespace {

Registers some_registers() {
  Registers r{};
  for (std::size_t i = 0; i < r.general.x.size(); ++i) r.general.x[i] = 100 + i;
  r.general.sp = 0x7000;
  r.general.pc = 0x401004;
  r.call = 279;
  return r;
}

TEST(Aarch64, FindsACallInItsRegisters) {
  auto r = some_registers();
  const auto call = decode(r.general);
  EXPECT_EQ(call.audit_arch, AUDIT_ARCH_AARCH64);
  EXPECT_EQ(call.nr, 108U);
  EXPECT_EQ(call.args, (std::array<std::uint64_t, 6>{100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(call.stack, 0x7000U);
  EXPECT_EQ(call.pc, 0x401004U);
  EXPECT_FALSE(call.compat);
  EXPECT_EQ(decode(r).nr, 279U) << "the kernel's number, not that of x8";
  r.general.x[0] = static_cast<std::uint64_t>(-38);
  EXPECT_EQ(decode(r.general).result, -38);
}

TEST(Aarch64, FindsACallIn32BitRegisters) {
  CompatRegisters r{};
  for (std::uint32_t i = 0; i < r.r.size(); ++i) r.r[i] = 100 + i;
  r.r[0] = static_cast<std::uint32_t>(-38);
  r.orig_r0 = 99;
  const auto call = decode(r);
  EXPECT_EQ(call.audit_arch, std::uint32_t{AUDIT_ARCH_ARM});
  EXPECT_EQ(call.nr, 107U);
  EXPECT_EQ(call.args, (std::array<std::uint64_t, 6>{99, 101, 102, 103, 104, 105}));
  EXPECT_EQ(call.result, -38);
  EXPECT_EQ(call.stack, 113U);
  EXPECT_EQ(call.pc, 115U);
  EXPECT_TRUE(call.compat);
}

TEST(Aarch64, UnwindsByDwarfNumber) {
  const auto all = unwind_registers(some_registers());
  EXPECT_EQ(all[0], 100U);
  EXPECT_EQ(all[30], 130U);
  EXPECT_EQ(all[kUnwindStackPointer], 0x7000U);
  EXPECT_EQ(all[kUnwindProgramCounter], 0x401004U);
}

TEST(Aarch64, MakesACallInsteadOfAnother) {
  const auto r = some_registers();
  const auto changed = with_call(r, true, 0x401000, 220, {0x8000, 1, 2, 3, 4});
  EXPECT_EQ(changed.call, 220);
  EXPECT_EQ(changed.general.pc, r.general.pc);
  EXPECT_EQ(decode(changed).args, (std::array<std::uint64_t, 6>{0x8000, 1, 2, 3, 4, 105}));
  const auto again = before_call(r);
  EXPECT_EQ(again.general.pc, 0x401000U);
  EXPECT_EQ(again.general.x[8], 279U);
  EXPECT_EQ(again.call, -1) << "no call to restart";
}

TEST(Aarch64, MakesACallOutOfNone) {
  const auto changed = with_call(some_registers(), false, 0x400000, 220, {});
  EXPECT_EQ(changed.call, -1);
  EXPECT_EQ(changed.general.x[8], 220U);
  EXPECT_EQ(changed.general.pc, 0x400000U);
}

TEST(Aarch64, WatchesStoresToADoubleword) {
  const std::uint32_t control = write_watch_control();
  EXPECT_EQ(control & 1U, 1U) << "enabled";
  EXPECT_EQ(control >> 1U & 3U, 2U) << "at EL0";
  EXPECT_EQ(control >> 3U & 3U, 2U) << "stores";
  EXPECT_EQ(control >> 5U & 0xffU, 0xffU) << "all bytes";
  EXPECT_EQ(control, 0x1ff5U);
}

TEST(Aarch64, CountsItsWatchRegisters) {
  WatchRegisters r{};
  r.info = 0x0604;
  EXPECT_EQ(watch_count(r), 4U);
  r.info = 0x06ff;
  EXPECT_EQ(watch_count(r), kMostWatches);
  EXPECT_EQ(watch_bytes(4), 8U + 4 * 16);
}

TEST(Aarch64, KnowsTheWordOfAStore) {
  WatchRegisters r{};
  for (std::size_t i = 0; i < 4; ++i) r.watches[i].address = 0x1000 + 8 * i;
  EXPECT_EQ(watched_word(r, 4, 0x1000), 0b0001U);
  EXPECT_EQ(watched_word(r, 4, 0x100f), 0b0010U);
  EXPECT_EQ(watched_word(r, 4, 0x1018), 0b1000U);
  EXPECT_EQ(watched_word(r, 4, 0xff8), 0b0001U) << "a pair that begins before the first word";
  EXPECT_EQ(watched_word(r, 4, 0x1020), 0U) << "after the last word";
  EXPECT_EQ(watched_word(r, 4, 0xe00), 0U) << "no store is that long";
  r.watches[3].address = 0x1000;
  EXPECT_EQ(watched_word(r, 4, 0x1000), 0b1001U) << "one word, watched twice";
}

TEST(Aarch64, KnowsTheTrapOfAStep) {
  const auto trap = [](int code) { return step_trap({.code = code}, false); };
  EXPECT_EQ(trap(TRAP_TRACE), StepTrap::kStep);
  EXPECT_EQ(trap(SIGTRAP), StepTrap::kStep) << "at a signal handler";
  EXPECT_EQ(trap(TRAP_BRKPT), StepTrap::kNone) << "brk";
  EXPECT_EQ(trap(TRAP_HWBKPT), StepTrap::kNone);
}

TEST(Aarch64, KnowsBothTrapsOfAStepOverACall) {
  const TrapCause end{.code = SI_USER, .sender = 0, .user = 0};
  EXPECT_EQ(step_trap(end, false), StepTrap::kEndOfCall);
  EXPECT_EQ(step_trap({.code = TRAP_TRACE}, true), StepTrap::kEmptyStep);
  EXPECT_EQ(step_trap({.code = TRAP_TRACE}, false), StepTrap::kStep) << "it is elsewhere";
  EXPECT_EQ(step_trap(end, true), StepTrap::kEndOfCall) << "a call that was repeated";
  EXPECT_EQ(step_trap({.code = TRAP_HWBKPT}, true), StepTrap::kNone);
  EXPECT_EQ(step_trap({.code = SI_USER, .sender = 7}, false), StepTrap::kNone)
      << "a process sent it";
  EXPECT_EQ(step_trap({.code = SI_USER, .sender = 0, .user = 1000}, false), StepTrap::kNone)
      << "from outside the namespace, and not by root";
}

TEST(Aarch64, ReadsTheClockByACall) {
  std::array<std::uint32_t, 2> code{};
  std::memcpy(code.data(), kClockCall.data(), sizeof code);
  EXPECT_EQ(code[0], 0xd2800008U | kSyscalls.calls.clock_gettime << 5U) << "mov x8, #113";
  EXPECT_EQ(code[1], kSyscallCode);
}

}  // namespace
}  // namespace ctxconf::sys::arch::aarch64
