#include "sys/seccomp_filter.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#endif
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "sys/native_arch.h"

namespace ctxconf::sys {

namespace {

struct Pair {
  std::uint32_t foreign;
  long native;
};

#if defined(__x86_64__)
constexpr std::uint32_t kForeignArch = AUDIT_ARCH_I386;
constexpr std::uint32_t kX32Bit = 0x40000000;
constexpr std::uint32_t kX32Execve = kX32Bit | 520;
constexpr std::uint32_t kX32Execveat = kX32Bit | 545;
constexpr std::uint32_t kX32Ptrace = kX32Bit | 521;
constexpr std::uint32_t kForeignExecveat = 358;
constexpr std::uint32_t kForeignMemfdCreate = 356;
constexpr std::uint32_t kForeignMadvise = 219;
constexpr std::uint32_t kForeignClockGettime = 265;
constexpr Pair kForeignCalls[] = {
    {1, SYS_exit},
    {2, SYS_fork},
    {6, SYS_close},
    {11, SYS_execve},
    {26, SYS_ptrace},
    {91, SYS_munmap},
    {93, SYS_ftruncate},
    {120, SYS_clone},
    {125, SYS_mprotect},
    {163, SYS_mremap},
    {172, SYS_prctl},
    {190, SYS_vfork},
    {192, SYS_mmap},
    {194, SYS_ftruncate},
    {219, SYS_madvise},
    {252, SYS_exit_group},
    {356, SYS_memfd_create},
    {358, SYS_execveat},
    {265, SYS_clock_gettime},
    {403, SYS_clock_gettime},
};
#elif defined(__aarch64__)
constexpr std::uint32_t kForeignArch = AUDIT_ARCH_ARM;
constexpr std::uint32_t kForeignExecveat = 387;
constexpr std::uint32_t kForeignMemfdCreate = 385;
constexpr std::uint32_t kForeignMadvise = 220;
constexpr std::uint32_t kForeignClockGettime = 263;
constexpr Pair kForeignCalls[] = {
    {1, SYS_exit},       {6, SYS_close},           {11, SYS_execve},
    {26, SYS_ptrace},    {91, SYS_munmap},         {93, SYS_ftruncate},
    {120, SYS_clone},    {125, SYS_mprotect},      {163, SYS_mremap},
    {172, SYS_prctl},    {192, SYS_mmap},          {194, SYS_ftruncate},
    {220, SYS_madvise},  {248, SYS_exit_group},    {385, SYS_memfd_create},
    {387, SYS_execveat}, {263, SYS_clock_gettime}, {403, SYS_clock_gettime},
};
#else
#error "no table of system calls for this architecture"
#endif

// The same in both 32-bit tables.
constexpr std::uint32_t kForeignExecve = 11;
constexpr std::uint32_t kForeignPtrace = 26;
constexpr std::uint32_t kForeignMunmap = 91;
constexpr std::uint32_t kForeignMprotect = 125;
constexpr std::uint32_t kForeignFtruncate = 93;
constexpr std::uint32_t kForeignMremap = 163;
constexpr std::uint32_t kForeignPrctl = 172;
constexpr std::uint32_t kForeignMmap2 = 192;
constexpr std::uint32_t kForeignFtruncate64 = 194;
constexpr std::uint32_t kForeignClockGettime64 = 403;

// From here on all architectures number new calls alike.
constexpr std::uint32_t kFirstCommon = 424;

// A program with labels, so that no jump distance is counted by hand. Only instructions with
// which the kernel (5.11) still knows at once that a system call is always let through.
class Assembler {
 public:
  enum class Target {
    kTrace,
    kAllow,
    kForeign,
    kX32,
    kPrctl,
    kMmap,
    kMadvise,
    kMunmap,
    kMprotect,
    kPtrace,
    kCount
  };

  void load(std::size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
  }
  // The lower half of an argument.
  void load_argument(std::size_t n) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    load(offsetof(seccomp_data, args) + n * sizeof(std::uint64_t));
  }
  void if_equal(std::uint32_t value, Target to) { jump(BPF_JEQ, value, to, false); }
  void unless_equal(std::uint32_t value, Target to) { jump(BPF_JEQ, value, to, true); }
  void if_any(std::uint32_t bits, Target to) { jump(BPF_JSET, bits, to, false); }
  void unless_any(std::uint32_t bits, Target to) { jump(BPF_JSET, bits, to, true); }
  void if_above(std::uint32_t value, Target to) { jump(BPF_JGT, value, to, false); }
  void answer(std::uint32_t action) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, action)); }
  void here(Target target) { at_[static_cast<std::size_t>(target)] = code_.size(); }

  std::vector<sock_filter> finish() {
    for (const auto& jump : jumps_) {
      const auto distance =
          static_cast<std::uint8_t>(at_[static_cast<std::size_t>(jump.to)] - jump.from - 1);
      auto& instruction = code_[jump.from];
      (jump.when_not ? instruction.jf : instruction.jt) = distance;
    }
    return std::move(code_);
  }

 private:
  struct Jump {
    std::size_t from;
    Target to;
    bool when_not = false;
  };
  void jump(unsigned test, std::uint32_t value, Target to, bool when_not) {
    jumps_.push_back({code_.size(), to, when_not});
    code_.push_back(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | BPF_K | test), value, 0, 0));
  }

  std::vector<sock_filter> code_;
  std::vector<Jump> jumps_;
  std::array<std::size_t, static_cast<std::size_t>(Target::kCount)> at_{};
};

}  // namespace

std::vector<sock_filter> trace_filter(ExtraCalls extra) {
  using Target = Assembler::Target;
  Assembler a;
  a.load(offsetof(seccomp_data, arch));
  a.unless_equal(kNativeArch, Target::kForeign);
  a.load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
  a.if_any(kX32Bit, Target::kX32);
#endif
  for (const auto nr : {SYS_execve, SYS_execveat, SYS_memfd_create, SYS_ftruncate, SYS_mremap}) {
    a.if_equal(static_cast<std::uint32_t>(nr), Target::kTrace);
  }
  if (extra.clock_gettime) a.if_equal(SYS_clock_gettime, Target::kTrace);
  a.if_equal(SYS_mmap, Target::kMmap);
  a.if_equal(SYS_madvise, Target::kMadvise);
  a.if_equal(SYS_prctl, Target::kPrctl);
  a.if_equal(SYS_munmap, Target::kMunmap);
  a.if_equal(SYS_mprotect, Target::kMprotect);
  a.if_equal(SYS_ptrace, Target::kPtrace);
#if defined(__x86_64__)
  a.unless_equal(SYS_arch_prctl, Target::kAllow);
  a.load_argument(0);
  a.if_equal(ARCH_SET_FS, Target::kTrace);
  a.answer(SECCOMP_RET_ALLOW);

  a.here(Target::kX32);
  for (const auto nr : {kX32Execve, kX32Execveat, kX32Bit | SYS_memfd_create,
                        kX32Bit | SYS_ftruncate, kX32Bit | SYS_mremap}) {
    a.if_equal(static_cast<std::uint32_t>(nr), Target::kTrace);
  }
  if (extra.clock_gettime) a.if_equal(kX32Bit | SYS_clock_gettime, Target::kTrace);
  a.if_equal(kX32Bit | SYS_mmap, Target::kMmap);
  a.if_equal(kX32Bit | SYS_madvise, Target::kMadvise);
  a.if_equal(kX32Bit | SYS_prctl, Target::kPrctl);
  a.if_equal(kX32Bit | SYS_munmap, Target::kMunmap);
  a.if_equal(kX32Bit | SYS_mprotect, Target::kMprotect);
  a.if_equal(kX32Ptrace, Target::kPtrace);
#endif
  a.answer(SECCOMP_RET_ALLOW);

  a.here(Target::kForeign);
  a.unless_equal(kForeignArch, Target::kAllow);
  a.load(offsetof(seccomp_data, nr));
  for (const auto nr : {kForeignExecve, kForeignExecveat, kForeignMemfdCreate, kForeignFtruncate,
                        kForeignFtruncate64, kForeignMremap}) {
    a.if_equal(nr, Target::kTrace);
  }
  if (extra.clock_gettime) {
    a.if_equal(kForeignClockGettime, Target::kTrace);
    a.if_equal(kForeignClockGettime64, Target::kTrace);
  }
  a.if_equal(kForeignMmap2, Target::kMmap);
  a.if_equal(kForeignMadvise, Target::kMadvise);
  a.if_equal(kForeignMunmap, Target::kMunmap);
  a.if_equal(kForeignMprotect, Target::kMprotect);
  a.if_equal(kForeignPtrace, Target::kPtrace);
  a.unless_equal(kForeignPrctl, Target::kAllow);

  // What is looked at of an argument is an int to the kernel, or has its bits in the lower half.
  a.here(Target::kPrctl);
  a.load_argument(0);
  a.if_equal(kPrSetVma, Target::kTrace);
  a.if_equal(PR_SET_DUMPABLE, Target::kTrace);
  a.answer(SECCOMP_RET_ALLOW);

  a.here(Target::kMadvise);
  a.load_argument(2);
  a.if_equal(MADV_DONTFORK, Target::kTrace);
  a.if_equal(MADV_DOFORK, Target::kTrace);
  a.answer(SECCOMP_RET_ALLOW);

  a.here(Target::kMunmap);
  a.load_argument(1);
  a.if_above(kShortUnmap, Target::kAllow);
  a.answer(SECCOMP_RET_TRACE);

  a.here(Target::kMprotect);
  a.load_argument(1);
  a.if_above(kShortProtect, Target::kAllow);
  a.unless_equal(kShortProtect, Target::kTrace);
  a.load_argument(2);
  a.if_any(PROT_WRITE, Target::kAllow);
  a.answer(SECCOMP_RET_TRACE);

  a.here(Target::kPtrace);
  a.load_argument(0);
  for (const std::uint32_t request : {PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE}) {
    a.if_equal(request, Target::kTrace);
  }
  a.answer(SECCOMP_RET_ALLOW);

  a.here(Target::kMmap);
  a.load_argument(2);
  a.unless_any(PROT_WRITE, Target::kAllow);
  a.load_argument(3);
  if (!extra.anonymous_mmap) a.if_any(MAP_ANONYMOUS, Target::kAllow);
  a.unless_any(MAP_FIXED, Target::kTrace);
  // A loader maps the data of a library so, from an offset of the file.
  a.if_any(MAP_ANONYMOUS | MAP_DENYWRITE, Target::kAllow);
  a.load_argument(5);
  a.unless_equal(0, Target::kAllow);

  a.here(Target::kTrace);
  a.answer(SECCOMP_RET_TRACE);
  a.here(Target::kAllow);
  a.answer(SECCOMP_RET_ALLOW);
  return a.finish();
}

long native_number(std::uint32_t audit_arch, std::uint64_t nr) {
  if (audit_arch == kNativeArch) {
#if defined(__x86_64__)
    if ((nr & kX32Bit) != 0) {
      if (nr == kX32Execve) return SYS_execve;
      if (nr == kX32Execveat) return SYS_execveat;
      if (nr == kX32Ptrace) return SYS_ptrace;
      const auto plain = nr & ~std::uint64_t{kX32Bit};
      return plain >= 512 && plain < 548 ? -1 : static_cast<long>(plain);
    }
#endif
    return static_cast<long>(nr);
  }
  if (audit_arch != kForeignArch) return -1;
  if (nr >= kFirstCommon) return static_cast<long>(nr);
  const auto* found = std::find_if(std::begin(kForeignCalls), std::end(kForeignCalls),
                                   [&](Pair p) { return p.foreign == nr; });
  return found == std::end(kForeignCalls) ? -1 : found->native;
}

bool has_short_time(std::uint32_t audit_arch, std::uint64_t nr) {
  return audit_arch == kForeignArch && nr == kForeignClockGettime;
}

}  // namespace ctxconf::sys
