#include "sys/seccomp_filter.h"

#include <asm/prctl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "sys/arch/aarch64.h"
#include "sys/arch/x86_64.h"

namespace ctxconf::sys {
namespace {

// Runs the instructions that the filter uses; any other instruction, or a jump out of the program,
// is a failure.
std::uint32_t verdict_of(const std::vector<sock_filter>& filter, std::uint32_t arch,
                         std::uint32_t nr, const std::array<std::uint64_t, 6>& args) {
  seccomp_data data{};
  data.arch = arch;
  data.nr = static_cast<int>(nr);
  std::ranges::copy(args, std::begin(data.args));
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
      case BPF_JMP | BPF_JGT | BPF_K:
        at += loaded > op.k ? op.jt : op.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += (loaded & op.k) != 0 ? op.jt : op.jf;
        break;
      case BPF_RET | BPF_K:
        return op.k;
      default:
        return UINT32_MAX;
    }
  }
  return UINT32_MAX;
}

std::uint32_t verdict(std::uint32_t arch, std::uint32_t nr,
                      const std::array<std::uint64_t, 6>& args, ExtraCalls extra = {}) {
  return verdict_of(trace_filter(extra), arch, nr, args);
}

std::uint32_t verdict(std::uint32_t arch, std::uint32_t nr, std::uint64_t first_argument = 0) {
  return verdict(arch, nr, {first_argument, 0, 0, 0, 0, 0});
}

constexpr std::uint32_t kTrace = SECCOMP_RET_TRACE;
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;

#if defined(__x86_64__)
constexpr std::uint32_t kNative = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_I386;
constexpr std::uint32_t kForeignExecveat = 358;
constexpr std::uint32_t kForeignMemfdCreate = 356;
constexpr std::uint32_t kForeignMadvise = 219;
constexpr std::uint32_t kForeignClockGettime = 265;
constexpr std::uint32_t kForeignRecvfrom = 371;
#else
constexpr std::uint32_t kNative = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kForeign = AUDIT_ARCH_ARM;
constexpr std::uint32_t kForeignExecveat = 387;
constexpr std::uint32_t kForeignMemfdCreate = 385;
constexpr std::uint32_t kForeignMadvise = 220;
constexpr std::uint32_t kForeignClockGettime = 263;
constexpr std::uint32_t kForeignRecvfrom = 292;
#endif

TEST(TraceFilter, StopsNativeExecsAndNaming) {
  EXPECT_EQ(verdict(kNative, SYS_execve), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_execveat), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, 0x7'0000'0000 + kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, PR_SET_DUMPABLE), kTrace);
  EXPECT_EQ(verdict(kNative, SYS_prctl, PR_SET_NAME), kAllow);
}

TEST(TraceFilter, StopsForeignExecsAndNaming) {
  EXPECT_EQ(verdict(kForeign, 11), kTrace);
  EXPECT_EQ(verdict(kForeign, kForeignExecveat), kTrace);
  EXPECT_EQ(verdict(kForeign, 172, kPrSetVma), kTrace);
  EXPECT_EQ(verdict(kForeign, 172, PR_SET_DUMPABLE), kTrace);
  EXPECT_EQ(verdict(kForeign, 172, PR_SET_NAME), kAllow);
}

void expect_mappings_are_told_apart(std::uint32_t arch, std::uint32_t mmap_nr) {
  constexpr std::uint64_t fixed = MAP_FIXED;
  constexpr std::uint64_t anonymous = MAP_ANONYMOUS;
  const auto mapped = [&](std::uint64_t prot, std::uint64_t flags) {
    return verdict(arch, mmap_nr, {0, 4096, prot, flags, 3, 0});
  };
  EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE), kTrace);
  EXPECT_EQ(mapped(PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE), kTrace);
  EXPECT_EQ(mapped(PROT_READ | PROT_EXEC, MAP_PRIVATE), kAllow);
  EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | anonymous), kAllow);
  EXPECT_EQ(mapped(PROT_NONE, MAP_PRIVATE), kAllow);
  EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | fixed), kTrace);
  EXPECT_EQ(mapped(PROT_READ | PROT_EXEC, MAP_PRIVATE | fixed), kAllow);
  EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | anonymous | fixed), kAllow);
  EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE | fixed | MAP_DENYWRITE), kAllow);
  EXPECT_EQ(
      verdict(arch, mmap_nr, {0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | fixed, 3, 0x5000}),
      kAllow);
}

void expect_advice_is_told_apart(std::uint32_t arch, std::uint32_t madvise_nr) {
  const auto advised = [&](std::uint64_t advice) {
    return verdict(arch, madvise_nr, {0x7000, 4096, advice, 0, 0, 0});
  };
  EXPECT_EQ(advised(MADV_DONTFORK), kTrace);
  EXPECT_EQ(advised(std::uint64_t{7} << 32U | MADV_DONTFORK), kTrace);
  EXPECT_EQ(advised(MADV_DONTNEED), kAllow);
  EXPECT_EQ(advised(MADV_DOFORK), kTrace);
}

void expect_short_memory_is_told_apart(std::uint32_t arch, std::uint32_t munmap_nr,
                                       std::uint32_t mprotect_nr) {
  const auto unmapped = [&](std::uint64_t size) {
    return verdict(arch, munmap_nr, {0x7000, size});
  };
  for (const std::uint64_t size : {32, 4096, 12288}) EXPECT_EQ(unmapped(size), kTrace) << size;
  for (const std::uint64_t size : {12289, 16384, 1 << 20})
    EXPECT_EQ(unmapped(size), kAllow) << size;
  const auto protected_with = [&](std::uint64_t size, std::uint64_t protection) {
    return verdict(arch, mprotect_nr, {0x7000, size, protection});
  };
  EXPECT_EQ(protected_with(32, PROT_READ), kTrace);
  EXPECT_EQ(protected_with(32, PROT_READ | PROT_WRITE), kTrace);
  EXPECT_EQ(protected_with(4096, PROT_READ), kTrace);
  EXPECT_EQ(protected_with(4096, PROT_NONE), kTrace);
  EXPECT_EQ(protected_with(4096, PROT_READ | PROT_WRITE), kAllow);
  EXPECT_EQ(protected_with(8192, PROT_READ), kAllow);
}

TEST(TraceFilter, StopsShortUnmappingsAndProtections) {
  expect_short_memory_is_told_apart(kNative, SYS_munmap, SYS_mprotect);
  expect_short_memory_is_told_apart(kForeign, 91, 125);
}

TEST(TraceFilter, StopsWhoeverWantsToTrace) {
  for (const std::uint32_t nr : {std::uint32_t{SYS_ptrace}, 26U}) {
    const auto arch = nr == 26 ? kForeign : kNative;
    for (const std::uint64_t request : {PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE}) {
      EXPECT_EQ(verdict(arch, nr, request), kTrace) << request;
    }
    for (const std::uint64_t request : {PTRACE_CONT, PTRACE_PEEKDATA}) {
      EXPECT_EQ(verdict(arch, nr, request), kAllow) << request;
    }
  }
}

TEST(TraceFilter, StopsMemfdsAndWhatIsDoneWithThem) {
  for (const long nr : {SYS_memfd_create, SYS_ftruncate, SYS_mremap}) {
    EXPECT_EQ(verdict(kNative, static_cast<std::uint32_t>(nr)), kTrace) << nr;
  }
  for (const std::uint32_t nr : {kForeignMemfdCreate, 93U, 194U, 163U}) {
    EXPECT_EQ(verdict(kForeign, nr), kTrace) << nr;
  }
}

TEST(TraceFilter, StopsOnlyMappingsThatAPublicationMayBe) {
  expect_mappings_are_told_apart(kNative, SYS_mmap);
  expect_mappings_are_told_apart(kForeign, 192);
}

TEST(TraceFilter, StopsOnlyTheAdviceNotToFork) {
  expect_advice_is_told_apart(kNative, SYS_madvise);
  expect_advice_is_told_apart(kForeign, kForeignMadvise);
}

TEST(TraceFilter, StopsNothingElse) {
  const std::set<long> native = {SYS_execve, SYS_execveat, SYS_memfd_create, SYS_ftruncate,
                                 SYS_mremap, SYS_mmap,     SYS_munmap,       SYS_ptrace};
  const std::set<std::uint32_t> foreign = {11,  26,  91, kForeignExecveat, kForeignMemfdCreate, 93,
                                           163, 192, 194};
  const std::array<std::uint64_t, 6> writable_file = {0, 4096, PROT_WRITE, MAP_PRIVATE, 3, 0};
  for (std::uint32_t nr = 0; nr < 1024; ++nr) {
    EXPECT_EQ(verdict(kNative, nr, writable_file), native.contains(nr) ? kTrace : kAllow) << nr;
    EXPECT_EQ(verdict(kForeign, nr, writable_file), foreign.contains(nr) ? kTrace : kAllow) << nr;
    EXPECT_EQ(verdict(AUDIT_ARCH_S390X, nr, kPrSetVma), kAllow) << nr;
  }
}

TEST(TraceFilter, StopsClockReadingsWhereTheyAreWanted) {
  for (const auto& [arch, nr] :
       {std::pair{kNative, static_cast<std::uint32_t>(SYS_clock_gettime)},
        std::pair{kForeign, kForeignClockGettime}, std::pair{kForeign, 403U}}) {
    EXPECT_EQ(verdict(arch, nr, {}, {.clock_gettime = true}), kTrace) << nr;
    EXPECT_EQ(verdict(arch, nr, {}, {.anonymous_mmap = true}), kAllow) << nr;
    EXPECT_EQ(verdict(arch, nr), kAllow) << nr;
    EXPECT_EQ(native_number(arch, nr), SYS_clock_gettime);
    EXPECT_EQ(has_short_time(arch, nr), arch == kForeign && nr != 403U);
  }
}

TEST(TraceFilter, StopsAnonymousMappingsWhereTheyAreWanted) {
  constexpr ExtraCalls extra{.anonymous_mmap = true};
  constexpr std::uint64_t anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  for (const auto& [arch, nr] :
       {std::pair{kNative, static_cast<std::uint32_t>(SYS_mmap)}, std::pair{kForeign, 192U}}) {
    const auto mapped = [&](std::uint64_t prot, std::uint64_t flags) {
      return verdict(arch, nr, {0, 4096, prot, flags, 3, 0}, extra);
    };
    EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, anonymous), kTrace);
    EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, MAP_PRIVATE), kTrace);
    EXPECT_EQ(mapped(PROT_NONE, anonymous), kAllow);
    EXPECT_EQ(mapped(PROT_READ | PROT_WRITE, anonymous | MAP_FIXED), kAllow);
  }
}

void expect_reads_are_told_apart(std::uint32_t arch, std::uint32_t nr) {
  const auto read_to = [&](std::uint64_t buffer, std::uint64_t size, bool wanted = true) {
    return verdict(arch, nr, {3, buffer, size, 0, 0, 0}, {.reads_to_header = wanted});
  };
  constexpr std::uint64_t page = 0x7f12'3456'7000;
  SCOPED_TRACE(nr);
  for (const std::uint64_t offset : {0, 1, 16, 31}) EXPECT_EQ(read_to(page + offset, 32), kTrace);
  for (const std::uint64_t offset : {32, 33, 64, 0x800, 4095}) {
    EXPECT_EQ(read_to(page + offset, 32), kAllow) << offset;
  }
  for (const std::uint64_t size : {1, 32, 4095}) EXPECT_EQ(read_to(page, size), kTrace) << size;
  for (const std::uint64_t size : {4096, 65536}) EXPECT_EQ(read_to(page, size), kAllow) << size;
  EXPECT_EQ(read_to(page, (std::uint64_t{1} << 32U) + 32), kAllow);
  EXPECT_EQ(read_to(page, 32, /*wanted=*/false), kAllow);
}

TEST(TraceFilter, StopsShortReadsToTheStartOfAPageWhereTheyAreWanted) {
  for (const long nr : {SYS_read, SYS_pread64, SYS_recvfrom}) {
    expect_reads_are_told_apart(kNative, static_cast<std::uint32_t>(nr));
  }
  for (const std::uint32_t nr : {3U, 180U, kForeignRecvfrom}) {
    expect_reads_are_told_apart(kForeign, nr);
  }
  EXPECT_EQ(verdict(kNative, SYS_write, {3, 0x7000, 32}, {.reads_to_header = true}), kAllow);
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
  EXPECT_EQ(native_number(kForeign, 26), SYS_ptrace);
  EXPECT_EQ(native_number(kForeign, 435), SYS_clone3);
  EXPECT_EQ(native_number(kForeign, kForeignMemfdCreate), SYS_memfd_create);
  EXPECT_EQ(native_number(kForeign, kForeignMadvise), SYS_madvise);
  EXPECT_EQ(native_number(kForeign, 192), SYS_mmap);
  EXPECT_EQ(native_number(kForeign, 194), SYS_ftruncate);
  EXPECT_EQ(native_number(kForeign, 3), SYS_read);
  EXPECT_EQ(native_number(kForeign, 180), SYS_pread64);
  EXPECT_EQ(native_number(kForeign, kForeignRecvfrom), SYS_recvfrom);
  EXPECT_EQ(native_number(kForeign, 42), -1);
  EXPECT_EQ(native_number(AUDIT_ARCH_S390X, 11), -1);
}

// Uses the numbers from <asm/unistd.h> of each.
TEST(TraceFilter, IsMadeForEveryProcessor) {
  struct {
    const arch::SyscallAbi& abi;
    std::uint32_t native, compat;
    std::uint32_t memfd_create, prctl, getpid, compat_execveat, compat_getpid;
  } constexpr kProcessors[] = {
      {arch::x86_64::kSyscalls, AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, 319, 157, 39, 358, 20},
      {arch::aarch64::kSyscalls, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 279, 167, 172, 387, 20},
  };
  for (const auto& p : kProcessors) {
    const auto filter = trace_filter(p.abi, {});
    const auto of = [&](std::uint32_t arch, std::uint32_t nr, std::uint64_t first = 0) {
      return verdict_of(filter, arch, nr, {first, 0, 0, 0, 0, 0});
    };
    SCOPED_TRACE(p.native);
    EXPECT_EQ(of(p.native, p.memfd_create), kTrace);
    EXPECT_EQ(of(p.native, p.prctl, kPrSetVma), kTrace);
    EXPECT_EQ(of(p.native, p.prctl, PR_SET_NAME), kAllow);
    EXPECT_EQ(of(p.native, p.getpid), kAllow);
    EXPECT_EQ(of(p.compat, p.compat_execveat), kTrace);
    EXPECT_EQ(of(p.compat, p.compat_getpid), kAllow);
    EXPECT_EQ(of(AUDIT_ARCH_S390X, p.memfd_create), kAllow);
  }
}

TEST(NativeNumber, TranslatesForEveryProcessor) {
  EXPECT_EQ(native_number(arch::aarch64::kSyscalls, AUDIT_ARCH_ARM, 387), 281) << "execveat";
  EXPECT_EQ(native_number(arch::aarch64::kSyscalls, AUDIT_ARCH_ARM, 120), 220) << "clone";
  EXPECT_EQ(native_number(arch::aarch64::kSyscalls, AUDIT_ARCH_ARM, 2), -1) << "fork";
  EXPECT_EQ(native_number(arch::aarch64::kSyscalls, AUDIT_ARCH_AARCH64, 0x40000000), 0x40000000)
      << "no x32";
  EXPECT_EQ(native_number(arch::x86_64::kSyscalls, AUDIT_ARCH_I386, 2), 57) << "fork";
  EXPECT_EQ(native_number(arch::x86_64::kSyscalls, AUDIT_ARCH_X86_64, 0x40000000 | 520), 59);
}

#if defined(__x86_64__)
TEST(ThreadPointerSetBy, KnowsTheCallThatSetsIt) {
  EXPECT_EQ(thread_pointer_set_by(SYS_arch_prctl, {ARCH_SET_FS, 0x7000}), 0x7000U);
  EXPECT_EQ(thread_pointer_set_by(SYS_arch_prctl, {ARCH_SET_GS, 0x7000}), std::nullopt);
  EXPECT_EQ(thread_pointer_set_by(SYS_prctl, {ARCH_SET_FS, 0x7000}), std::nullopt);
}

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
  EXPECT_EQ(verdict(kNative, bit | 157, PR_SET_NAME), kAllow);
  EXPECT_EQ(verdict(kNative, bit | 59), kAllow);
}

TEST(TraceFilter, StopsX32MemfdsAndMappings) {
  constexpr std::uint32_t bit = 0x40000000;
  for (const std::uint32_t nr : {319U, 77U, 25U}) EXPECT_EQ(verdict(kNative, bit | nr), kTrace);
  expect_mappings_are_told_apart(kNative, bit | 9);
  expect_advice_is_told_apart(kNative, bit | 28);
  expect_short_memory_is_told_apart(kNative, bit | 11, bit | 10);
  EXPECT_EQ(verdict(kNative, bit | 521, PTRACE_TRACEME), kTrace);
  for (const std::uint32_t nr : {0U, 17U, 517U}) expect_reads_are_told_apart(kNative, bit | nr);
}

TEST(NativeNumber, TranslatesX32Calls) {
  constexpr std::uint64_t bit = 0x40000000;
  EXPECT_EQ(native_number(kNative, bit | 520), SYS_execve);
  EXPECT_EQ(native_number(kNative, bit | 545), SYS_execveat);
  EXPECT_EQ(native_number(kNative, bit | 157), SYS_prctl);
  EXPECT_EQ(native_number(kNative, bit | 521), SYS_ptrace);
  EXPECT_EQ(native_number(kNative, bit | 517), SYS_recvfrom);
  EXPECT_EQ(native_number(kNative, bit | 513), -1);
}
#endif

}  // namespace
}  // namespace ctxconf::sys
