#include "sys/capabilities.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "sys/arch/native.h"
#include "sys/arch/watch_registers.h"
#include "sys/confinement.h"
#include "sys/fd.h"
#include "sys/pid_namespace.h"
#include "sys/probe_child.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U  // Linux 6.3
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41  // Linux 5.17
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace ctxconf::sys {

namespace {

constexpr const char* kProbeName = "CTXCONF_PROBE";

std::string answer(int err) { return err == 0 ? "ok" : std::strerror(err); }

HostFact fact(std::string_view name, bool available, std::string detail, std::string remedy) {
  return {std::string(name), available, std::move(detail), available ? "" : std::move(remedy)};
}

std::string read_file(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  std::string out;
  std::array<char, 65536> buffer;
  for (ssize_t n = 1; fd.is_open() && n > 0 && out.size() < (64U << 20U);) {
    n = read(fd.get(), buffer.data(), buffer.size());
    if (n > 0) out.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return out;
}

HostFact probe_ptrace() {
  const ProbeChild child([] {});
  int err = child.error();
  if (err == 0 && ptrace(PTRACE_SEIZE, child.pid(), nullptr, PTRACE_O_EXITKILL) != 0) err = errno;
  return fact(kHostPtrace, err == 0, "PTRACE_SEIZE of a child: " + answer(err),
              remedy_for_tracing_a_child(Confinement::of_this_process()));
}

HostFact probe_seccomp_trace() {
  static constexpr int filter_refused = 3;
  ProbeChild child([] {
    std::array<sock_filter, 4> code{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{code.size(), code.data()};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0 &&
        (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)) {
      _exit(filter_refused);
    }
    syscall(SYS_getppid);
  });
  const char* remedy =
      "CONFIG_SECCOMP_FILTER=y, and ptrace; in a container allow seccomp(2) and prctl(2)";
  const auto result = [&](bool ok, const std::string& what) {
    return fact(kHostSeccompTrace, ok, "a filter that answers SECCOMP_RET_TRACE: " + what, remedy);
  };
  if (child.error() != 0) return result(false, answer(child.error()));
  if (ptrace(PTRACE_SEIZE, child.pid(), nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP) != 0) {
    return result(false, "PTRACE_SEIZE: " + answer(errno));
  }
  child.go();
  const auto status = child.wait();
  if (!status) return result(false, "no stop came");
  if (WIFSTOPPED(*status) && *status >> 16 == PTRACE_EVENT_SECCOMP) return result(true, "ok");
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == filter_refused) {
    return result(false, "the kernel refused the filter");
  }
  return result(false, "the call was not stopped");
}

// False: the trap did not come after the store, or the watchpoints are gone.
bool move_over_store(ProbeChild& child) {
  if (!arch::disable_watches(child.pid())) return false;
  if (ptrace(PTRACE_SINGLESTEP, child.pid(), nullptr, nullptr) != 0) return false;
  const auto status = child.wait();
  return status && WIFSTOPPED(*status) && arch::enable_watches(child.pid());
}

// Four watchpoints over 32 bytes; all must fire.
HostFact probe_watchpoints() {
  alignas(32) static std::array<volatile std::uint64_t, 4> watched{};
  ProbeChild child([] {
    for (auto& word : watched) word = 1;
  });
  const char* remedy =
      "ptrace, and debug registers that neither perf nor a kernel debugger holds; in a virtual "
      "machine the host must expose them";
  const auto result = [&](bool ok, const std::string& what) {
    return fact(kHostWatchpoints, ok, "four write watchpoints in a child: " + what, remedy);
  };
  if (child.error() != 0) return result(false, answer(child.error()));
  if (ptrace(PTRACE_SEIZE, child.pid(), nullptr, PTRACE_O_EXITKILL) != 0 ||
      ptrace(PTRACE_INTERRUPT, child.pid(), nullptr, nullptr) != 0) {
    return result(false, "PTRACE_SEIZE: " + answer(errno));
  }
  const auto stopped = child.wait();
  if (!stopped || !WIFSTOPPED(*stopped)) return result(false, "no stop came");
  const auto address = [](const volatile std::uint64_t& word) {
    return RemoteAddr(reinterpret_cast<std::uintptr_t>(&word));
  };
  const WatchedWords words = {address(watched[0]), address(watched[1]), address(watched[2]),
                              address(watched[3])};
  if (!arch::set_watches(child.pid(), words)) return result(false, answer(errno));
  child.go();
  std::size_t hits = 0;
  ptrace(PTRACE_CONT, child.pid(), nullptr, nullptr);
  while (const auto status = child.wait()) {
    if (!WIFSTOPPED(*status)) break;
    const bool hit = WSTOPSIG(*status) == SIGTRAP && *status >> 16 == 0;
    if (hit) ++hits;
    if (hit && arch::native::kTrapsBeforeStore && !move_over_store(child)) break;
    const long signo = hit || *status >> 16 != 0 ? 0 : WSTOPSIG(*status);
    ptrace(PTRACE_CONT, child.pid(), nullptr, signo);
  }
  if (hits == watched.size()) return result(true, "ok");
  return result(false, std::to_string(hits) + " of " + std::to_string(watched.size()) + " fired");
}

HostFact probe_process_vm_readv() {
  static volatile std::uint64_t remote_value = 0x6f74656c;
  const ProbeChild child([] {});
  int err = child.error();
  if (err == 0) {
    std::uint64_t copy = 0;
    const iovec local{&copy, sizeof copy};
    const iovec remote{const_cast<std::uint64_t*>(&remote_value), sizeof copy};
    const ssize_t n = process_vm_readv(child.pid(), &local, 1, &remote, 1, 0);
    if (n < 0) err = errno;
    if (n >= 0 && copy != remote_value) err = EIO;
  }
  const Confinement c = Confinement::of_this_process();
  // A filter may say ENOSYS, too.
  const bool kernel_lacks_it = err == ENOSYS && c.seccomp_filters == 0;
  return fact(kHostProcessVmReadv, err == 0, "process_vm_readv of a child: " + answer(err),
              kernel_lacks_it ? "CONFIG_CROSS_MEMORY_ATTACH=y" : remedy_for_tracing_a_child(c));
}

// struct procmap_query of <linux/fs.h>, Linux 6.11.
struct ProcmapQuery {
  std::uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size,
      vma_offset, inode;
  std::uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  std::uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);

HostFact probe_procmap_query() {
  constexpr std::uint64_t covering_or_next = 0x10;
  const Fd maps(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_flags = covering_or_next;
  int err = maps.is_open() ? 0 : errno;
  if (err == 0 && ioctl(maps.get(), _IOWR('f', 17, ProcmapQuery), &query) != 0) err = errno;
  if (err == 0 && query.vma_start >= query.vma_end) err = EIO;
  return fact(kHostProcmapQuery, err == 0, "PROCMAP_QUERY on /proc/self/maps: " + answer(err),
              "Linux 6.11; without it /proc/PID/maps is read as text, which finds the same");
}

HostFact probe_smaps_vm_flags() {
  const auto text = read_file("/proc/self/smaps");
  const bool found = text.find("\nVmFlags:") != std::string::npos;
  return fact(kHostSmapsVmFlags, found,
              text.empty() ? "/proc/self/smaps cannot be read"
              : found      ? "/proc/self/smaps has VmFlags lines"
                           : "/proc/self/smaps has no VmFlags lines",
              "CONFIG_PROC_PAGE_MONITOR=y, and /proc mounted");
}

// Names one page and checks whether /proc/self/maps shows it as `shown`.
HostFact probe_vma_name(std::string_view name, const std::string& what, int fd,
                        const std::string& shown, const std::string& remedy) {
  const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE, fd, 0);
  if (page == MAP_FAILED) return fact(name, false, "mmap: " + answer(errno), remedy);
  int err = 0;
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, page, size, kProbeName) != 0) err = errno;
  const bool seen = read_file("/proc/self/maps").find(shown) != std::string::npos;
  munmap(page, size);
  auto detail = "prctl(PR_SET_VMA) on " + what + ": " + answer(err);
  if (err == 0) detail += seen ? ", shown as " + shown : ", but /proc/self/maps does not show it";
  return fact(name, err == 0 && seen, detail, remedy);
}

HostFact probe_anon_vma_name() {
  return probe_vma_name(kHostAnonVmaName, "anonymous memory", -1,
                        "[anon:" + std::string(kProbeName) + "]",
                        "Linux 5.17 with CONFIG_ANON_VMA_NAME=y (no stock Debian kernel has it)");
}

HostFact probe_shmem_vma_name() {
  const char* remedy =
      "Linux 6.2 with CONFIG_ANON_VMA_NAME=y (no stock Debian kernel has it), and memfd_create";
  const Fd memfd(memfd_create(kProbeName, MFD_CLOEXEC));
  if (!memfd.is_open()) {
    return fact(kHostShmemVmaName, false, "memfd_create: " + answer(errno), remedy);
  }
  if (ftruncate(memfd.get(), sysconf(_SC_PAGESIZE)) != 0) {
    return fact(kHostShmemVmaName, false, "ftruncate: " + answer(errno), remedy);
  }
  return probe_vma_name(kHostShmemVmaName, "a memfd", memfd.get(),
                        "[anon_shmem:" + std::string(kProbeName) + "]", remedy);
}

HostFact probe_memfd(std::string_view name, unsigned flag, const std::string& flag_name,
                     const std::string& remedy) {
  const Fd memfd(memfd_create(kProbeName, MFD_CLOEXEC | MFD_ALLOW_SEALING | flag));
  const int err = memfd.is_open() ? 0 : errno;
  return fact(name, err == 0,
              "memfd_create(MFD_CLOEXEC | MFD_ALLOW_SEALING" + flag_name + "): " + answer(err),
              remedy);
}

HostFact probe_time_namespaces() {
  std::array<char, 64> link{};
  const int err = readlink("/proc/self/ns/time", link.data(), link.size()) < 0 ? errno : 0;
  return fact(kHostTimeNamespaces, err == 0, "readlink /proc/self/ns/time: " + answer(err),
              "Linux 5.6 with CONFIG_TIME_NS=y");
}

HostFact probe_pid_namespaces() {
  ProbeChild child([] {
    int err = unshare_pid_namespace();
    if (err != 0) _exit(err);
    const pid_t first = fork();
    if (first == 0) _exit(unshare(CLONE_NEWPID) == 0 ? 0 : errno);
    if (first < 0) err = errno;
    int status = 0;
    if (first > 0 && waitpid(first, &status, 0) == first) err = WEXITSTATUS(status);
    _exit(err);
  });
  int err = child.error();
  if (err == 0) {
    child.go();
    const auto status = child.wait();
    err = status && WIFEXITED(*status) ? WEXITSTATUS(*status) : EIO;
  }
  return fact(kHostPidNamespaces, err == 0, "a process 1 of a new pid namespace: " + answer(err),
              "CONFIG_PID_NS=y and CONFIG_USER_NS=y, user namespaces for this user (sysctl "
              "user.max_user_namespaces, AppArmor); in a container allow unshare(2)");
}

// A whole 32-bit program: one read-only, executable segment that exits with kSmallExit.
constexpr int kSmallExit = 42;
struct SmallProgram {
  struct {
    std::array<unsigned char, 16> ident;
    std::uint16_t type, machine;
    std::uint32_t version, entry, phoff, shoff, flags;
    std::uint16_t ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
  } header;
  struct {
    std::uint32_t type, offset, vaddr, paddr, filesz, memsz, flags, align;
  } segment;
  decltype(arch::CompatProgram::code) code;
};
static_assert(sizeof(SmallProgram) == 52 + 32 + 12);

constexpr SmallProgram small_program() {
  constexpr std::uint32_t base = 0x10000;
  SmallProgram p{};
  p.header.ident = {0x7f, 'E', 'L', 'F', 1, 1, 1};
  p.header.type = 2;
  p.header.version = 1;
  p.header.entry = base + offsetof(SmallProgram, code);
  p.header.phoff = offsetof(SmallProgram, segment);
  p.header.ehsize = 52;
  p.header.phentsize = 32;
  p.header.phnum = 1;
  p.segment = {1, 0, base, base, sizeof p, sizeof p, 5, 0x1000};
  constexpr auto ends = arch::native::compat_program(kSmallExit);
  p.header.machine = ends.machine;
  p.header.flags = ends.flags;
  p.code = ends.code;
  return p;
}

HostFact probe_32_bit() {
  const char* remedy =
      "CONFIG_IA32_EMULATION=y (arm64: CONFIG_COMPAT=y) and no ia32_emulation=0 on the kernel "
      "command line; matters only for 32-bit programs";
  const auto result = [&](bool ok, const std::string& what) {
    return fact(kHost32Bit, ok, "a 32-bit program in a memfd: " + what, remedy);
  };
  // With vm.memfd_noexec=1 only a memfd with MFD_EXEC can be executed.
  int fd = memfd_create(kProbeName, MFD_CLOEXEC | MFD_EXEC);
  if (fd < 0) fd = memfd_create(kProbeName, MFD_CLOEXEC);
  const Fd memfd(fd);
  if (fd < 0) return result(false, "memfd_create: " + answer(errno));
  static constexpr SmallProgram program = small_program();
  if (write(fd, &program, sizeof program) != static_cast<ssize_t>(sizeof program)) {
    return result(false, "write: " + answer(errno));
  }
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return result(false, "pipe: " + answer(errno));
  const Fd reader(ends[0]);
  int status = 0;
  {
    const Fd writer(ends[1]);
    ProbeChild child([&] {
      std::array<char, 6> name{"probe"};
      std::array<char*, 2> argv{name.data(), nullptr};
      std::array<char*, 1> env{nullptr};
      syscall(SYS_execveat, fd, "", argv.data(), env.data(), AT_EMPTY_PATH);
      const int err = errno;
      const ssize_t n = write(writer.get(), &err, sizeof err);
      _exit(n == sizeof err ? 1 : 2);
    });
    if (child.error() != 0) return result(false, "fork: " + answer(child.error()));
    child.go();
    const auto ended = child.wait();
    if (!ended) return result(false, "did not end");
    status = *ended;
  }
  int err = 0;
  if (read(reader.get(), &err, sizeof err) == static_cast<ssize_t>(sizeof err)) {
    return result(false, answer(err));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSmallExit) return result(true, "ran");
  if (WIFSIGNALED(status)) {
    return result(false, std::string("killed: ") + strsignal(WTERMSIG(status)));
  }
  return result(false, "ended with an unexpected status");
}

std::vector<HostFact> probe() {
  return {
      probe_ptrace(),
      probe_seccomp_trace(),
      probe_watchpoints(),
      probe_process_vm_readv(),
      probe_procmap_query(),
      probe_smaps_vm_flags(),
      probe_anon_vma_name(),
      probe_shmem_vma_name(),
      probe_memfd(kHostMemfd, 0, "",
                  "Linux 3.17 with CONFIG_MEMFD_CREATE=y; in a container allow "
                  "memfd_create(2)"),
      probe_memfd(kHostMemfdNoexecSeal, MFD_NOEXEC_SEAL, " | MFD_NOEXEC_SEAL", "Linux 6.3"),
      probe_time_namespaces(),
      probe_pid_namespaces(),
      probe_32_bit(),
  };
}

}  // namespace

const Capabilities& Capabilities::of_this_host() {
  static const Capabilities host(probe());
  return host;
}

bool Capabilities::has(std::string_view name) const {
  return std::any_of(facts_.begin(), facts_.end(),
                     [&](const HostFact& f) { return f.name == name && f.available; });
}

}  // namespace ctxconf::sys
