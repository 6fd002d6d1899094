#include "sys/seccomp_filter.h"

#include <asm/prctl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstring>

namespace ctxconf::sys {
namespace {

// Runs the instructions that the filter uses; anything else, also a jump out of it, is a failure.
std::uint32_t verdict(std::uint32_t arch, std::uint32_t nr, std::uint64_t first_argument = 0) {
  const auto filter = trace_filter();
  seccomp_data data{};
  data.arch = arch;
  data.nr = static_cast<int>(nr);
  data.args[0] = first_argument;
  std::uint32_t loaded = 0;
  for (std::size_t at = 0; at < filter.size(); ++at) {
    const auto& op = filter[at];
    switch (op.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (op.k > sizeof data - sizeof loaded) return UINT32_MAX;
        std::memcpy(&loaded, reinterpret_cast<const char*>(&data) + op.k, sizeof loaded);
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += loaded == op.k ? op.jt : op.jf;
        break;
      case BPF_RET | BPF_K:
        return op.k;
      default:
        return UINT32_MAX;
    }
  }
  return UINT32_MAX;
}

constexpr std::uint32_t kTrace = SECCOMP_RET_TRACE;
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;

#if defined(__x86_64__)
constexpr std::uint32_t kNative = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_I386;
constexpr std::uint32_t kForeignExecveat = 358;
#else
constexpr std::uint32_t kNative = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_ARM;
constexpr std::uint32_t kForeignExecveat = 387;
#endif

TEST(TraceFilter, StopsNativeExecsAndNaming) {
  EXPECT_EQ(verdict(kNative, SYS_execve), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_execveat), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, 0x7'0000'0000 + kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, 4), kAllow);
}

TEST(TraceFilter, StopsForeignExecsAndNaming) {
  EXPECT_EQ(verdict(kForeign, 11), kTrace);
  EXPECT_EQ(verdict(kForeign, kForeignExecveat), kTrace);
  EXPECT_EQ(verdict(kForeign, 172, kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kForeign, 172, 4), kAllow);
}

TEST(TraceFilter, StopsNothingElse) {
  for (std::uint32_t nr = 0; nr < 1024; ++nr) {
    if (nr != SYS_execve && nr != SYS_execveat) {
      EXPECT_EQ(verdict(kNative, nr), kAllow) << nr;
    }
    if (nr != 11 && nr != kForeignExecveat) {
      EXPECT_EQ(verdict(kForeign, nr), kAllow) << nr;
    }
    EXPECT_EQ(verdict(AUDIT_ARCH_S390X, nr, kPrSetVma), kAllow) << nr;
  }
}

TEST(NativeNumber, IsTheSameForNativeCalls) {
  for (const long nr : {SYS_execve, SYS_clone, SYS_memfd_create}) {
    EXPECT_EQ(native_number(kNative, static_cast<std::uint64_t>(nr)), nr);
  }
}

TEST(NativeNumber, TranslatesForeignCalls) {
  EXPECT_EQ(native_number(kForeign, 11), SYS_execve);
  EXPECT_EQ(native_number(kForeign, kForeignExecveat), SYS_execveat);
  EXPECT_EQ(native_number(kForeign, 172), SYS_prctl);
  EXPECT_EQ(native_number(kForeign, 435), SYS_clone3);
  EXPECT_EQ(native_number(kForeign, 42), -1);
  EXPECT_EQ(native_number(AUDIT_ARCH_S390X, 11), -1);
}

#if defined(__x86_64__)
TEST(TraceFilter, StopsAThreadPointerSetByHand) {
  EXPECT_EQ(verdict(kNative, SYS_arch_prctl, ARCH_SET_FS), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_arch_prctl, ARCH_GET_FS), kAllow);
  EXPECT_EQ(verdict(kForeign, SYS_arch_prctl, ARCH_SET_FS), kAllow);
}

TEST(TraceFilter, StopsX32ExecsAndNaming) {
  constexpr std::uint32_t bit = 0x40000000;
  EXPECT_EQ(verdict(kNative, bit | 520), kTrace);
  EXPECT_EQ(verdict(kNative, bit | 545), kTrace);
  EXPECT_EQ(verdict(kNative, bit | 157, kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kNative, bit | 157, 4), kAllow);
  EXPECT_EQ(verdict(kNative, bit | 59), kAllow);
}

TEST(NativeNumber, TranslatesX32Calls) {
  constexpr std::uint64_t bit = 0x40000000;
  EXPECT_EQ(native_number(kNative, bit | 520), SYS_execve);
  EXPECT_EQ(native_number(kNative, bit | 545), SYS_execveat);
  EXPECT_EQ(native_number(kNative, bit | 157), SYS_prctl);
  EXPECT_EQ(native_number(kNative, bit | 513), -1);
}
#endif

}  // namespace
}  // namespace ctxconf::sys
