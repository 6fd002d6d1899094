#include "sys/arch/x86_64.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <signal.h>

#include <algorithm>
#include <initializer_list>

namespace ctxconf::sys::arch::x86_64 {
namespace {

TEST(X86_64, FindsACallInItsRegisters) {
  Registers r{};
  r.orig_rax = 319;
  r.rdi = 1;
  r.rsi = 2;
  r.rdx = 3;
  r.r10 = 4;
  r.r8 = 5;
  r.r9 = 6;
  r.rax = static_cast<std::uint64_t>(-38);
  r.rsp = 0x7000;
  r.rip = 0x401002;
  const auto call = decode(r);
  EXPECT_EQ(call.audit_arch, AUDIT_ARCH_X86_64);
  EXPECT_EQ(call.nr, 319U);
  EXPECT_EQ(call.args, (std::array<std::uint64_t, 6>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(call.result, -38);
  EXPECT_EQ(call.stack, 0x7000U);
  EXPECT_EQ(call.pc, 0x401002U);
  EXPECT_FALSE(call.compat);
}

TEST(X86_64, FindsACallIn32BitRegisters) {
  CompatRegisters r{};
  r.orig_eax = 356;
  r.ebx = 1;
  r.ecx = 2;
  r.edx = 3;
  r.esi = 4;
  r.edi = 5;
  r.ebp = 6;
  r.eax = static_cast<std::uint32_t>(-38);
  r.esp = 0xff00;
  r.eip = 0x8048002;
  const auto call = decode(r);
  EXPECT_EQ(call.audit_arch, std::uint32_t{AUDIT_ARCH_I386});
  EXPECT_EQ(call.nr, 356U);
  EXPECT_EQ(call.args, (std::array<std::uint64_t, 6>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(call.result, -38);
  EXPECT_EQ(call.stack, 0xff00U);
  EXPECT_EQ(call.pc, 0x8048002U);
  EXPECT_TRUE(call.compat);
}

TEST(X86_64, UnwindsByDwarfNumber) {
  Registers r{};
  r.rdx = 1;
  r.rsp = 7;
  r.r15 = 15;
  r.rip = 16;
  const auto all = unwind_registers(r);
  EXPECT_EQ(all[1], 1U);
  EXPECT_EQ(all[kUnwindStackPointer], 7U);
  EXPECT_EQ(all[15], 15U);
  EXPECT_EQ(all[kUnwindProgramCounter], 16U);
}

TEST(X86_64, MakesACallInsteadOfAnother) {
  Registers r{};
  r.orig_rax = 319;
  r.rax = static_cast<std::uint64_t>(-38);
  r.rip = 0x401002;
  const auto changed = with_call(r, true, 0x401000, 56, {0x8000, 1, 2, 3, 4});
  EXPECT_EQ(changed.orig_rax, 56U);
  EXPECT_EQ(changed.rip, r.rip);
  EXPECT_EQ(decode(changed).args, (std::array<std::uint64_t, 6>{0x8000, 1, 2, 3, 4, 0}));
  const auto again = before_call(r);
  EXPECT_EQ(again.rip, 0x401000U);
  EXPECT_EQ(again.rax, 319U);
  EXPECT_EQ(again.orig_rax, UINT64_MAX) << "none to restart";
}

TEST(X86_64, MakesACallOutOfNone) {
  Registers r{};
  r.orig_rax = 202;
  r.rip = 0x402000;
  const auto changed = with_call(r, false, 0x401000, 56, {});
  EXPECT_EQ(changed.orig_rax, UINT64_MAX);
  EXPECT_EQ(changed.rax, 56U);
  EXPECT_EQ(changed.rip, 0x401000U);
}

TEST(X86_64, WatchesWritesOf8Bytes) {
  EXPECT_EQ(write_watch_control(0), 0U);
  EXPECT_EQ(write_watch_control(1), 0x0009'0001U);
  EXPECT_EQ(write_watch_control(4), 0x9999'0055U);
}

TEST(X86_64, KnowsTheTrapOfAStep) {
  const auto trap = [](int code) { return step_trap({.code = code}, false); };
  EXPECT_EQ(trap(TRAP_TRACE), StepTrap::kStep);
  EXPECT_EQ(trap(TRAP_BRKPT), StepTrap::kStep) << "after a system call";
  EXPECT_EQ(trap(SIGTRAP), StepTrap::kStep) << "at a signal handler";
  EXPECT_EQ(trap(TRAP_HWBKPT), StepTrap::kNone);
  EXPECT_EQ(trap(SI_KERNEL), StepTrap::kNone) << "int3";
  EXPECT_EQ(trap(SI_USER), StepTrap::kNone);
}

std::optional<std::uint64_t> stored_by(std::initializer_list<std::uint8_t> bytes) {
  std::uint64_t code = 0;
  unsigned shift = 0;
  for (const std::uint8_t byte : bytes) {
    code |= std::uint64_t{byte} << shift;
    shift += 8;
  }
  return repeated_store(code);
}

TEST(X86_64, KnowsWhatARoundOfAStringInstructionStores) {
  EXPECT_EQ(stored_by({0xf3, 0xa4}), 1U) << "rep movsb";
  EXPECT_EQ(stored_by({0xf3, 0xaa}), 1U) << "rep stosb";
  EXPECT_EQ(stored_by({0xf3, 0x66, 0xa5}), 2U) << "rep movsw";
  EXPECT_EQ(stored_by({0xf3, 0xab}), 4U) << "rep stosd";
  EXPECT_EQ(stored_by({0xf3, 0x48, 0xa5}), 8U) << "rep movsq";
  EXPECT_EQ(stored_by({0x67, 0xf2, 0x48, 0xab}), 8U);
  EXPECT_EQ(stored_by({0x48, 0xa5}), std::nullopt) << "movsq";
  EXPECT_EQ(stored_by({0xf3, 0xa6}), std::nullopt) << "repe cmpsb";
  EXPECT_EQ(stored_by({0x48, 0x89, 0x07}), std::nullopt) << "mov [rdi], rax";
  EXPECT_EQ(stored_by({}), std::nullopt);
}

TEST(X86_64, ReadsTheClockByACall) {
  std::uint32_t nr = 0;
  std::copy_n(kClockCall.data() + 1, sizeof nr, reinterpret_cast<std::uint8_t*>(&nr));
  EXPECT_EQ(nr, kSyscalls.calls.clock_gettime);
  EXPECT_EQ(kClockCall[5] | kClockCall[6] << 8U, int{kSyscallCode});
}

}  // namespace
}  // namespace ctxconf::sys::arch::x86_64
