#include "sys/seccomp_filter.h"

#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "sys/arch/native.h"

namespace ctxconf::sys {

namespace {

// From this number on all architectures number new calls alike.
constexpr std::uint32_t kFirstCommon = 424;

// The bits of an address that are an offset into a page of the smallest size.
constexpr std::uint32_t kPageOffset = 4095;

// A program with labels, so that nobody counts jump distances by hand. Uses only instructions with
// which the kernel (5.11) can still tell in advance that a system call is always allowed.
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
    kRead,
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
  void load_upper_half(std::size_t n) {
    load(offsetof(seccomp_data, args) + n * sizeof(std::uint64_t) + sizeof(std::uint32_t));
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

namespace {

using arch::CallNumbers;
using Target = Assembler::Target;

void trace_calls(Assembler& a, const CallNumbers& calls) {
  for (const auto nr :
       {calls.execve, calls.execveat, calls.memfd_create, calls.ftruncate, calls.mremap}) {
    a.if_equal(nr, Target::kTrace);
  }
}

void look_at_arguments(Assembler& a, const CallNumbers& calls, ExtraCalls extra) {
  a.if_equal(calls.mmap, Target::kMmap);
  a.if_equal(calls.madvise, Target::kMadvise);
  a.if_equal(calls.prctl, Target::kPrctl);
  a.if_equal(calls.munmap, Target::kMunmap);
  a.if_equal(calls.mprotect, Target::kMprotect);
  a.if_equal(calls.ptrace, Target::kPtrace);
  if (!extra.reads_to_header) return;
  for (const auto nr : {calls.read, calls.pread64, calls.recvfrom}) a.if_equal(nr, Target::kRead);
}

}  // namespace

std::vector<sock_filter> trace_filter(const arch::SyscallAbi& abi, ExtraCalls extra) {
  Assembler a;
  a.load(offsetof(seccomp_data, arch));
  a.unless_equal(abi.audit_arch, Target::kForeign);
  a.load(offsetof(seccomp_data, nr));
  if (abi.x32) a.if_any(abi.x32->bit, Target::kX32);
  trace_calls(a, abi.calls);
  if (extra.clock_gettime) a.if_equal(abi.calls.clock_gettime, Target::kTrace);
  look_at_arguments(a, abi.calls, extra);
  if (abi.set_thread_pointer) {
    a.unless_equal(abi.set_thread_pointer->nr, Target::kAllow);
    a.load_argument(0);
    a.if_equal(abi.set_thread_pointer->code, Target::kTrace);
  }
  a.answer(SECCOMP_RET_ALLOW);

  if (abi.x32) {
    a.here(Target::kX32);
    trace_calls(a, abi.x32->calls);
    if (extra.clock_gettime) a.if_equal(abi.x32->calls.clock_gettime, Target::kTrace);
    look_at_arguments(a, abi.x32->calls, extra);
    a.answer(SECCOMP_RET_ALLOW);
  }

  a.here(Target::kForeign);
  const arch::CompatAbi& compat = abi.compat;
  a.unless_equal(compat.audit_arch, Target::kAllow);
  a.load(offsetof(seccomp_data, nr));
  trace_calls(a, compat.calls);
  a.if_equal(compat.ftruncate64, Target::kTrace);
  if (extra.clock_gettime) {
    a.if_equal(compat.calls.clock_gettime, Target::kTrace);
    a.if_equal(compat.clock_gettime64, Target::kTrace);
  }
  look_at_arguments(a, compat.calls, extra);
  a.answer(SECCOMP_RET_ALLOW);

  // The arguments examined here are ints to the kernel, or have their bits in the lower half.
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

  if (extra.reads_to_header) {
    a.here(Target::kRead);
    a.load_argument(1);
    a.if_any(kPageOffset & ~(kHeaderOffsets - 1), Target::kAllow);
    a.load_upper_half(2);
    a.unless_equal(0, Target::kAllow);
    a.load_argument(2);
    a.if_above(kShortRead, Target::kAllow);
    a.answer(SECCOMP_RET_TRACE);
  }

  a.here(Target::kMmap);
  a.load_argument(2);
  a.unless_any(PROT_WRITE, Target::kAllow);
  a.load_argument(3);
  if (!extra.anonymous_mmap) a.if_any(MAP_ANONYMOUS, Target::kAllow);
  a.unless_any(MAP_FIXED, Target::kTrace);
  // A loader maps the data of a library like this, from an offset of the file.
  a.if_any(MAP_ANONYMOUS | MAP_DENYWRITE, Target::kAllow);
  a.load_argument(5);
  a.unless_equal(0, Target::kAllow);

  a.here(Target::kTrace);
  a.answer(SECCOMP_RET_TRACE);
  a.here(Target::kAllow);
  a.answer(SECCOMP_RET_ALLOW);
  return a.finish();
}

std::vector<sock_filter> trace_filter(ExtraCalls extra) {
  return trace_filter(arch::native::kSyscalls, extra);
}

std::vector<sock_filter> reader_filter() {
  Assembler a;
  a.load(offsetof(seccomp_data, arch));
  a.unless_equal(arch::native::kSyscalls.audit_arch, Target::kAllow);
  a.load(offsetof(seccomp_data, nr));
  for (const long nr :
       {SYS_execve, SYS_execveat, SYS_process_vm_readv, SYS_process_vm_writev, SYS_read, SYS_readv,
        SYS_pread64, SYS_preadv, SYS_preadv2, SYS_ptrace, SYS_openat, SYS_openat2, SYS_kill,
        SYS_tkill, SYS_tgkill, SYS_pidfd_send_signal, SYS_pwrite64, SYS_pwritev, SYS_pwritev2}) {
    a.if_equal(static_cast<std::uint32_t>(nr), Target::kTrace);
  }
#ifdef SYS_open
  a.if_equal(SYS_open, Target::kTrace);
#endif
  a.unless_equal(SYS_mmap, Target::kAllow);
  a.load_argument(3);
  a.if_any(MAP_ANONYMOUS, Target::kAllow);
  a.here(Target::kTrace);
  a.answer(SECCOMP_RET_TRACE);
  a.here(Target::kAllow);
  a.answer(SECCOMP_RET_ALLOW);
  return a.finish();
}

long native_number(const arch::SyscallAbi& abi, std::uint32_t audit_arch, std::uint64_t nr) {
  if (audit_arch == abi.audit_arch) {
    if (!abi.x32 || (nr & abi.x32->bit) == 0) return static_cast<long>(nr);
    const arch::X32Abi& x32 = *abi.x32;
    if (nr == x32.calls.execve) return abi.calls.execve;
    if (nr == x32.calls.execveat) return abi.calls.execveat;
    if (nr == x32.calls.ptrace) return abi.calls.ptrace;
    if (nr == x32.calls.recvfrom) return abi.calls.recvfrom;
    const auto plain = nr & ~std::uint64_t{x32.bit};
    return plain >= x32.first_own && plain <= x32.last_own ? -1 : static_cast<long>(plain);
  }
  if (audit_arch != abi.compat.audit_arch) return -1;
  if (nr >= kFirstCommon) return static_cast<long>(nr);
  const auto found = std::ranges::find(abi.compat.natives, nr, &arch::CallPair::here);
  return found == abi.compat.natives.end() ? -1 : static_cast<long>(found->native);
}

long native_number(std::uint32_t audit_arch, std::uint64_t nr) {
  return native_number(arch::native::kSyscalls, audit_arch, nr);
}

bool has_short_time(std::uint32_t audit_arch, std::uint64_t nr) {
  const arch::CompatAbi& compat = arch::native::kSyscalls.compat;
  return audit_arch == compat.audit_arch && nr == compat.calls.clock_gettime;
}

std::optional<std::uint64_t> thread_pointer_set_by(long nr,
                                                   const std::array<std::uint64_t, 6>& args) {
  const auto& call = arch::native::kSyscalls.set_thread_pointer;
  if (!call || nr != static_cast<long>(call->nr)) return std::nullopt;
  if (static_cast<std::uint32_t>(args[0]) != call->code) return std::nullopt;
  return args[1];
}

}  // namespace ctxconf::sys
