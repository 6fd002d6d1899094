#include "sys/arch/aarch64.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <signal.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "sys/aarch64_instruction.h"

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
  EXPECT_EQ(watched_word(r, 4, 0xb00), 0U) << "no store is that long";
  r.watches[3].address = 0x1000;
  EXPECT_EQ(watched_word(r, 4, 0x1000), 0b1001U) << "one word, watched twice";
}

TEST(Aarch64, BreaksBeforeAnInstruction) { EXPECT_EQ(breakpoint_control(), 0x1e5U); }

TEST(Aarch64, KnowsTheBytesOfAStore) {
  GeneralRegisters r{};
  r.x[5] = 0x1000;
  r.sp = 0x2000;
  const auto stored = [&](std::uint32_t code) {
    const auto s = stored_by(code, r, 64);
    return s ? std::pair(s->from, s->size) : std::pair<std::uint64_t, std::uint64_t>();
  };
  const auto bytes = [](std::uint64_t from, std::uint64_t size) { return std::pair(from, size); };
  EXPECT_EQ(stored(0xf90008a0), bytes(0x1010, 8)) << "str x0, [x5, #16]";
  EXPECT_EQ(stored(0xb80044a0), bytes(0x1000, 4)) << "str w0, [x5], #4";
  EXPECT_EQ(stored(0xf8008ca0), bytes(0x1008, 8)) << "str x0, [x5, #8]!";
  EXPECT_EQ(stored(0xf81f80a0), bytes(0xff8, 8)) << "stur x0, [x5, #-8]";
  r.x[6] = 2;
  EXPECT_EQ(stored(0xf82678a0), bytes(0x1010, 8)) << "str x0, [x5, x6, lsl #3]";
  r.x[6] = 0xffff'fff0;
  EXPECT_EQ(stored(0xb826c8a0), bytes(0xff0, 4)) << "str w0, [x5, w6, sxtw]";
  r.x[6] = 0xabcd'0000'0003;
  EXPECT_EQ(stored(0xb82658a0), bytes(0x100c, 4)) << "str w0, [x5, w6, uxtw #2]";
  EXPECT_EQ(stored(0x3d000ca0), bytes(0x1003, 1)) << "str b0, [x5, #3]";
  EXPECT_EQ(stored(0x3d8004a0), bytes(0x1010, 16)) << "str q0, [x5, #16]";
  EXPECT_EQ(stored(0xa90104a0), bytes(0x1010, 16)) << "stp x0, x1, [x5, #16]";
  EXPECT_EQ(stored(0x29bf04a0), bytes(0xff8, 8)) << "stp w0, w1, [x5, #-8]!";
  EXPECT_EQ(stored(0xadbf07e0), bytes(0x1fe0, 32)) << "stp q0, q1, [sp, #-32]!";
  EXPECT_EQ(stored(0x6c8104a0), bytes(0x1000, 16)) << "stp d0, d1, [x5], #16";
  EXPECT_EQ(stored(0xa80004a0), bytes(0x1000, 16)) << "stnp x0, x1, [x5]";
  EXPECT_EQ(stored(0x690084a0), bytes(0x1010, 16)) << "stgp x0, x1, [x5, #16]";
  EXPECT_EQ(stored(0xc89ffca0), bytes(0x1000, 8)) << "stlr x0, [x5]";
  EXPECT_EQ(stored(0x089ffca0), bytes(0x1000, 1)) << "stlrb w0, [x5]";
  EXPECT_EQ(stored(0xd91f80a0), bytes(0xff8, 8)) << "stlur x0, [x5, #-8]";
  EXPECT_EQ(stored(0xc8007ca2), bytes(0x1000, 8)) << "stxr w0, x2, [x5]";
  EXPECT_EQ(stored(0x882304a0), bytes(0x1000, 8)) << "stxp w3, w0, w1, [x5]";
  EXPECT_EQ(stored(0xc82384a0), bytes(0x1000, 16)) << "stlxp w3, x0, x1, [x5]";
  EXPECT_EQ(stored(0x88a07ca1), bytes(0x1000, 4)) << "cas w0, w1, [x5]";
  EXPECT_EQ(stored(0x4860fca2), bytes(0x1000, 16)) << "caspal x0, x1, x2, x3, [x5]";
  EXPECT_EQ(stored(0xf8e000a1), bytes(0x1000, 8)) << "ldaddal x0, x1, [x5]";
  EXPECT_EQ(stored(0x382080a1), bytes(0x1000, 1)) << "swpb w0, w1, [x5]";
  EXPECT_EQ(stored(0x4c00a0a0), bytes(0x1000, 32)) << "st1 {v0.16b, v1.16b}, [x5]";
  EXPECT_EQ(stored(0x0c9f70a0), bytes(0x1000, 8)) << "st1 {v0.8b}, [x5], #8";
  EXPECT_EQ(stored(0x4c0000a0), bytes(0x1000, 64)) << "st4 {v0.16b-v3.16b}, [x5]";
  EXPECT_EQ(stored(0x0c0040a0), bytes(0x1000, 24)) << "st3 {v0.8b-v2.8b}, [x5]";
  EXPECT_EQ(stored(0x4d0084a0), bytes(0x1000, 8)) << "st1 {v0.d}[1], [x5]";
  EXPECT_EQ(stored(0x0d2090a0), bytes(0x1000, 8)) << "st2 {v0.s, v1.s}[1], [x5]";
  EXPECT_EQ(stored(0x0d2024a0), bytes(0x1000, 4)) << "st4 {v0.b-v3.b}[1], [x5]";
  r.x[5] = 0x1033;
  EXPECT_EQ(stored(0xd50b7425), bytes(0x1000, 64)) << "dc zva, x5";
  EXPECT_FALSE(stored_by(0xd50b7425, r, 0)) << "dc zva, and its size is not known";
}

TEST(Aarch64, KnowsNoBytesOfOtherInstructions) {
  const GeneralRegisters r{};
  EXPECT_FALSE(stored_by(0xf94000a0, r, 64)) << "ldr x0, [x5]";
  EXPECT_FALSE(stored_by(0xad4004a0, r, 64)) << "ldp q0, q1, [x5]";
  EXPECT_FALSE(stored_by(0xc85f7ca0, r, 64)) << "ldxr x0, [x5]";
  EXPECT_FALSE(stored_by(0xc8dffca0, r, 64)) << "ldar x0, [x5]";
  EXPECT_FALSE(stored_by(0xf8bfc0a0, r, 64)) << "ldapr x0, [x5]";
  EXPECT_FALSE(stored_by(0xf82004a0, r, 64)) << "ldraa x0, [x5]";
  EXPECT_FALSE(stored_by(0xf98000a0, r, 64)) << "prfm pldl1keep, [x5]";
  EXPECT_FALSE(stored_by(0x4c4070a0, r, 64)) << "ld1 {v0.16b}, [x5]";
  EXPECT_FALSE(stored_by(0x58000000, r, 64)) << "ldr x0, .";
  EXPECT_FALSE(stored_by(0xf83f90a0, r, 64)) << "st64b x0, [x5]";
  EXPECT_FALSE(stored_by(0xe400e0a0, r, 64)) << "st1b {z0.b}, p0, [x5]";
  EXPECT_FALSE(stored_by(0x8b020020, r, 64)) << "add x0, x1, x2";
  EXPECT_FALSE(stored_by(0xd4000001, r, 64)) << "svc #0";
}

TEST(Aarch64, KnowsAllWordsOfAStore) {
  WatchRegisters r{};
  for (std::size_t i = 0; i < 4; ++i) r.watches[i].address = 0x1000 + 8 * i;
  EXPECT_EQ(touched_words(r, 4, {0x1000, 16}), 0b0011U);
  EXPECT_EQ(touched_words(r, 4, {0x100f, 1}), 0b0010U);
  EXPECT_EQ(touched_words(r, 4, {0x100c, 8}), 0b0110U) << "not aligned";
  EXPECT_EQ(touched_words(r, 4, {0xff8, 16}), 0b0001U) << "begins before the first word";
  EXPECT_EQ(touched_words(r, 4, {0xff0, 16}), 0U);
  EXPECT_EQ(touched_words(r, 4, {0x1020, 8}), 0U);
  EXPECT_EQ(touched_words(r, 4, {0x5600'0000'0000'1008, 8}), 0b0010U) << "with a tag";
}

std::vector<std::uint64_t> exits_of(const ExclusiveAttempt& attempt) {
  return {attempt.exits.begin(),
          attempt.exits.begin() + static_cast<std::ptrdiff_t>(attempt.exit_count)};
}

TEST(Aarch64, FindsTheEndOfAnExclusiveAttempt) {
  const std::vector<std::uint32_t> add = {0xc85ffc08,   // 1: ldaxr x8, [x0]
                                          0x8b010109,   // add x9, x8, x1
                                          0xc80afc09,   // stlxr w10, x9, [x0]
                                          0x35ffffaa};  // cbnz w10, 1b
  const auto attempt = attempt_from(0x400, add);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->load, 0x400U);
  EXPECT_EQ(attempt->store, 0x408U);
  EXPECT_EQ(attempt->after_store(), 0x40cU);
  EXPECT_EQ(attempt->code, 0xc80afc09U);
  EXPECT_EQ(exits_of(*attempt), std::vector<std::uint64_t>{0x40c});
  EXPECT_FALSE(attempt_from(0x404, std::span(add).subspan(1))) << "it begins with the load";
  EXPECT_FALSE(attempt_from(0x400, std::span(add).first(2))) << "no store";
  EXPECT_FALSE(attempt_from(0x400, {}));
  const auto same = attempt_to(0x400, std::span(add).first(3));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->load, 0x400U);
  EXPECT_FALSE(attempt_to(0x400, add)) << "it ends with the store";
  EXPECT_FALSE(attempt_to(0x404, std::span(add).subspan(1, 2))) << "no load";
}

TEST(Aarch64, FindsTheOtherExitsOfAnExclusiveAttempt) {
  const std::vector<std::uint32_t> swap = {0xc85ffc08,   // 2: ldaxr x8, [x0]
                                           0xeb01011f,   // cmp x8, x1
                                           0x54000081,   // b.ne +16
                                           0xc80a7c02};  // stxr w10, x2, [x0]
  const auto attempt = attempt_from(0x400, swap);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(exits_of(*attempt), (std::vector<std::uint64_t>{0x410, 0x418}));
  const auto with = [&](std::uint32_t second) {
    auto code = swap;
    code[1] = second;
    const auto found = attempt_from(0x400, code);
    return found ? exits_of(*found) : std::vector<std::uint64_t>();
  };
  EXPECT_EQ(with(0x35ffffe1), (std::vector<std::uint64_t>{0x410, 0x418})) << "cbnz w1, 2b: within";
  EXPECT_EQ(with(0x361ffe23), (std::vector<std::uint64_t>{0x410, 0x3c8, 0x418})) << "tbz, back";
  EXPECT_EQ(with(0x54000081), (std::vector<std::uint64_t>{0x410, 0x414, 0x418}));
  EXPECT_EQ(with(0x54000060), (std::vector<std::uint64_t>{0x410, 0x418}))
      << "b.eq to the address after the store";
  EXPECT_EQ(with(0xd5033bbf), (std::vector<std::uint64_t>{0x410, 0x418})) << "dmb ish";
  EXPECT_EQ(with(0xd53bd040), (std::vector<std::uint64_t>{0x410, 0x418})) << "mrs x0, tpidr_el0";
  EXPECT_TRUE(with(0x17ffffeb).empty()) << "b";
  EXPECT_TRUE(with(0x97ffffea).empty()) << "bl";
  EXPECT_TRUE(with(0xd63f0000).empty()) << "blr x0";
  EXPECT_TRUE(with(0xd65f03c0).empty()) << "ret";
  EXPECT_TRUE(with(0xd4000001).empty()) << "svc #0";
  EXPECT_TRUE(with(0xd50b7425).empty()) << "dc zva, x5";
  EXPECT_TRUE(with(0xf90008a0).empty()) << "str x0, [x5, #16]";
  EXPECT_TRUE(with(0xf94000a0).empty()) << "ldr x0, [x5]";
  EXPECT_TRUE(with(0xe400e0a0).empty()) << "st1b {z0.b}, p0, [x5]";
  EXPECT_TRUE(with(0x00000000).empty()) << "udf";
}

TEST(Aarch64, LimitsAnExclusiveAttempt) {
  std::vector<std::uint32_t> code(kLongestAttempt, 0xd503201f);  // nop
  code.front() = 0xc85f7c08;                                     // ldxr x8, [x0]
  code.back() = 0xc80a7c02;                                      // stxr w10, x2, [x0]
  EXPECT_TRUE(attempt_from(0x400, code));
  EXPECT_TRUE(attempt_to(0x400, code));
  code.insert(code.begin() + 1, 0xd503201f);
  EXPECT_FALSE(attempt_from(0x400, code)) << "too long";
  EXPECT_FALSE(attempt_to(0x400, code)) << "too long";
  std::vector<std::uint32_t> branches = {0xc85f7c08, 0x54000101, 0x54000101,
                                         0x54000101, 0x54000101, 0xc80a7c02};
  EXPECT_FALSE(attempt_from(0x400, branches)) << "too many exits";
  branches.erase(branches.begin() + 1);
  const auto attempt = attempt_from(0x400, branches);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->exit_count, ExclusiveAttempt::kMostExits);
}

TEST(Aarch64, KnowsWhetherAnExclusiveStoreFailed) {
  GeneralRegisters r{};
  r.x[10] = 1;
  EXPECT_FALSE(has_stored(0xc80a7c02, r)) << "stxr w10, x2, [x0]";
  r.x[10] = 0xffff'ffff'0000'0000;
  EXPECT_TRUE(has_stored(0xc80a7c02, r));
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
