#include "sys/confinement.h"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "sys/fd.h"
#include "sys/memory_reader.h"
#include "sys/probe_child.h"
#include "sys/proc_text.h"

namespace ctxconf::sys {
namespace {

constexpr unsigned kCapSysPtrace = 19;
// PROC_PID_INIT_INO and PROC_USER_INIT_INO, unchanged since Linux 3.8.
constexpr std::string_view kInitialPidNamespace = "pid:[4026531836]";
constexpr std::string_view kInitialUserNamespace = "user:[4026531837]";

std::string read_small(const char* path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 8192> buffer{};
  const ssize_t n = fd.is_open() ? read(fd.get(), buffer.data(), buffer.size()) : 0;
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

std::string read_link(const char* path) {
  std::array<char, 64> buffer{};
  const ssize_t n = readlink(path, buffer.data(), buffer.size());
  return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

std::string join(const std::vector<std::string>& texts) {
  std::string out;
  for (const auto& t : texts) out += (out.empty() ? "" : "; ") + t;
  return out;
}

std::string apparmor_text(const Confinement& c) {
  return "the AppArmor profile " + c.apparmor +
         " does not allow it: docker run --security-opt apparmor=unconfined";
}

std::string seccomp_text() {
  return "a seccomp filter may refuse it: docker run "
         "--cap-add=SYS_PTRACE, with which Docker's default profile allows it on every kernel, or "
         "--security-opt seccomp=FILE with a profile that allows ptrace and process_vm_readv; in "
         "Kubernetes securityContext.capabilities.add: [SYS_PTRACE], or "
         "securityContext.seccompProfile";
}

}  // namespace

Confinement Confinement::from(std::string_view status, std::string_view yama,
                              std::string_view apparmor, std::string_view pid_namespace,
                              std::string_view user_namespace) {
  Confinement c;
  const std::string_view uids = status_field(status, "Uid").value_or("");  // real, effective, ...
  const auto second = std::min(uids.find('\t'), uids.size() - 1) + 1;
  c.user = leading_number<int>(uids.substr(second)).value_or(-1);
  const auto effective = status_number<std::uint64_t>(status, "CapEff", 16).value_or(0);
  c.traces_any_user = (effective >> kCapSysPtrace & 1U) != 0;
  c.is_traced = status_number<pid_t>(status, "TracerPid").value_or(0) != 0;
  const bool filtered = status_number<int>(status, "Seccomp").value_or(0) != 0;
  c.seccomp_filters = status_number<int>(status, "Seccomp_filters").value_or(filtered ? 1 : 0);
  c.yama_scope = leading_number<int>(yama).value_or(-1);
  apparmor = apparmor.substr(0, apparmor.find_first_of(std::string_view("\n\0", 2)));
  if (!apparmor.starts_with("unconfined")) c.apparmor = apparmor;
  c.own_pid_namespace = !pid_namespace.empty() && pid_namespace != kInitialPidNamespace;
  c.own_user_namespace = !user_namespace.empty() && user_namespace != kInitialUserNamespace;
  return c;
}

Confinement Confinement::of_this_process() {
  // attr/current belongs to the first security module, whichever it is; the other file is
  // AppArmor's own.
  return from(read_small("/proc/self/status"), read_small("/proc/sys/kernel/yama/ptrace_scope"),
              read_small("/proc/self/attr/apparmor/current"), read_link("/proc/self/ns/pid"),
              read_link("/proc/self/ns/user"));
}

std::string remedy_for_tracing_a_child(const Confinement& c) {
  std::vector<std::string> causes;
  if (c.yama_scope >= 2) {
    causes.push_back("kernel.yama.ptrace_scope is " + std::to_string(c.yama_scope) +
                     ": set it to 1 on the host (sysctl; 3 lasts until the next boot) or run with "
                     "CAP_SYS_PTRACE (docker run --user 0 --cap-add=SYS_PTRACE)");
  }
  if (c.is_traced)
    causes.emplace_back("a debugger or strace runs this program: run it without them");
  if (c.seccomp_filters > 0) causes.push_back(seccomp_text());
  if (causes.empty()) causes.emplace_back("allow ptrace where this program is confined");
  return join(causes);
}

std::string remedy_for_tracing_another(const Confinement& c) {
  std::vector<std::string> causes;
  if (c.yama_scope == 3) {
    causes.emplace_back("kernel.yama.ptrace_scope is 3 until the next boot of the host");
  } else if (c.yama_scope >= 1 && !c.traces_any_user) {
    causes.push_back("kernel.yama.ptrace_scope is " + std::to_string(c.yama_scope) +
                     ": set it to 0 on the host (sysctl) or run with CAP_SYS_PTRACE (docker run "
                     "--user 0 --cap-add=SYS_PTRACE)");
  }
  if (!c.apparmor.empty()) causes.push_back(apparmor_text(c));
  if (c.seccomp_filters > 0) causes.push_back(seccomp_text());
  if (causes.empty()) causes.emplace_back("allow ptrace where this program is confined");
  return join(causes);
}

std::string remedy_for_reading_another(const Confinement& c) {
  if (c.traces_any_user) return remedy_for_tracing_another(c);
  std::string out =
      "run as the process's user or as root, with CAP_SYS_PTRACE in a container (docker run "
      "--user 0 --cap-add=SYS_PTRACE)";
  if (c.seccomp_filters > 0) out += "; " + seccomp_text();
  return out;
}

std::string remedy_for_children(int err, const Confinement& c) {
  if (err == EAGAIN) {
    return "a limit of processes is reached: end some, or raise it (ulimit -u, docker run "
           "--pids-limit, in Kubernetes podPidsLimit of the kubelet)";
  }
  if (err == ENOMEM) return "free memory, or raise its limit (docker run --memory)";
  if (c.seccomp_filters > 0) {
    return "a seccomp filter may refuse it: docker run --security-opt seccomp=FILE with a profile "
           "that allows clone, clone3 and vfork; in Kubernetes securityContext.seccompProfile";
  }
  return "allow this program to start others where it is confined";
}

HostFact probe_children() {
  HostFact fact = {std::string(kHostChildren), false, "", ""};
  // As long as the other namespace has no process, the second link leads nowhere.
  if (read_link("/proc/self/ns/pid") != read_link("/proc/self/ns/pid_for_children")) {
    fact.detail = "children would be in another PID namespace";
    fact.remedy = "start ctxconf itself in it: unshare --pid --fork --mount-proc ctxconf";
    return fact;
  }
  const ProbeChild child([] {});
  const int err = child.error();
  fact.available = err == 0;
  fact.detail = std::string("fork: ") + (err == 0 ? "ok" : std::strerror(err));
  if (err != 0) fact.remedy = remedy_for_children(err, Confinement::of_this_process());
  return fact;
}

Result<> try_memory_of_a_child() {
  static volatile std::uint64_t word = 1;
  const ProbeChild child([] {});
  if (child.error() != 0) return fail("fork", child.error(), "");
  std::uint64_t copy = 0;
  return ProcessMemory(child.pid())
      .read_exact(RemoteAddr(reinterpret_cast<std::uintptr_t>(&word)),
                  std::as_writable_bytes(std::span(&copy, 1)));
}

std::vector<HostFact> reach_of(const Confinement& c, int seize_error, int read_error) {
  const auto said = [](int err) { return std::string(err == 0 ? "ok" : std::strerror(err)); };
  const bool same_user = seize_error == 0 && read_error == 0;
  const bool any_user = c.traces_any_user && !c.own_user_namespace;
  std::string outside =
      "docker run --pid=host for those of the machine, --pid=container:NAME for "
      "those of one container";
  if (!c.apparmor.empty()) outside += "; " + apparmor_text(c);
  return {
      {std::string(kReachSameUser), same_user,
       "of a process that is not a child: PTRACE_SEIZE: " + said(seize_error) +
           ", process_vm_readv: " + said(read_error),
       same_user ? "" : remedy_for_tracing_another(c)},
      {std::string(kReachAnyUser), any_user,
       "user " + std::to_string(c.user) + (c.traces_any_user ? " with" : " without") +
           " CAP_SYS_PTRACE" + (c.own_user_namespace ? ", in a user namespace of its own" : ""),
       any_user ? ""
       : c.own_user_namespace
           ? "use a container engine that is not rootless, without --userns; matters "
             "only for processes of other users"
           : "run as root, in a container docker run --user 0 "
             "--cap-add=SYS_PTRACE; matters only for processes of other users, "
             "and those that are not dumpable"},
      {std::string(kReachAllProcesses), !c.own_pid_namespace,
       c.own_pid_namespace ? "a PID namespace of its own, as in a container"
                           : "the PID namespace of the machine",
       c.own_pid_namespace ? outside : ""},
  };
}

std::vector<HostFact> probe_reach() {
  struct Errors {
    int seize, read;
  };
  static volatile std::uint64_t word = 1;
  std::array<int, 2> ends{-1, -1};
  Errors errors{EIO, EIO};
  // The first child and the second child are unrelated processes of the same user. The second has
  // no end of the pipe; otherwise a reader would wait for it.
  const ProbeChild other([] {});
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    errors = {errno, errno};
  } else {
    const Fd reader(ends[0]);
    {
      const Fd writer(ends[1]);
      ProbeChild observer([&] {
        Errors e{0, 0};
        if (ptrace(PTRACE_SEIZE, other.pid(), nullptr, nullptr) != 0) e.seize = errno;
        std::uint64_t copy = 0;
        const iovec local{&copy, sizeof copy};
        const iovec remote{const_cast<std::uint64_t*>(&word), sizeof copy};
        if (process_vm_readv(other.pid(), &local, 1, &remote, 1, 0) < 0) e.read = errno;
        const ssize_t n = write(writer.get(), &e, sizeof e);
        _exit(n == sizeof e ? 0 : 1);
      });
      if (other.error() != 0 || observer.error() != 0) {
        const int err = other.error() != 0 ? other.error() : observer.error();
        errors = {err, err};
      } else {
        observer.go();
        observer.wait();
      }
    }
    Errors told{};
    if (read(reader.get(), &told, sizeof told) == sizeof told) errors = told;
  }
  return reach_of(Confinement::of_this_process(), errors.seize, errors.read);
}

}  // namespace ctxconf::sys
