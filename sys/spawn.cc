#include "sys/spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/process/v2.hpp>
#include <boost/process/v2/posix/vfork_launcher.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "sys/all_signals_blocked.h"
#include "sys/proc_dir.h"
#include "sys/process.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)  // Linux 5.11
#endif

namespace ctxconf::sys {

namespace {

constexpr int kLastSignal = 64;

// Taken before main, so that nothing that main or a library sets up later is included.
struct SignalsAtStart {
  sigset_t mask;
  std::array<bool, kLastSignal + 1> ignored;
};
SignalsAtStart signals_at_start;

[[gnu::constructor]] void take_signals_at_start() {
  pthread_sigmask(SIG_SETMASK, nullptr, &signals_at_start.mask);
  for (int signo = 1; signo <= kLastSignal; ++signo) {
    struct sigaction action{};
    signals_at_start.ignored[signo] =
        sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }
}

// A child that stops before its exec would hold this process up, because of vfork.
void discard_pending_stops() {
  for (const int signo : {SIGTSTP, SIGTTIN, SIGTTOU}) {
    struct sigaction before{};
    struct sigaction ignored{};
    ignored.sa_handler = SIG_IGN;
    sigaction(signo, &ignored, &before);
    sigaction(signo, &before, nullptr);
  }
}

void restore_signals_at_start() {
  for (int signo = 1; signo <= kLastSignal; ++signo) {
    struct sigaction action{};
    if (sigaction(signo, nullptr, &action) != 0) continue;
    const auto wanted = signals_at_start.ignored[signo] ? SIG_IGN : SIG_DFL;
    if (action.sa_handler == wanted) continue;
    action = {};
    action.sa_handler = wanted;
    sigaction(signo, &action, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &signals_at_start.mask, nullptr);
}

void close_on_exec_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  const long open_max = std::min(sysconf(_SC_OPEN_MAX), 65536L);
  for (int fd = static_cast<int>(first); fd < open_max; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// The number in "/proc/self/fd/N".
std::optional<int> own_descriptor(std::string_view path) {
  constexpr std::string_view kFolder = "/proc/self/fd/";
  int number = 0;
  if (!path.starts_with(kFolder)) return std::nullopt;
  path.remove_prefix(kFolder.size());
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), number);
  return error == std::errc() && end == path.data() + path.size() ? std::optional(number)
                                                                  : std::nullopt;
}

// Boost.Process calls these by name. All but on_setup run in the child, whose memory is this
// process's memory until the exec (vfork): they change nothing that this process uses but the error
// code, which so comes back to it. Boost's own code that closes descriptors keeps all below the
// highest one that is kept, hence close_on_exec_from.
struct Setup {
  const Spawn& what;
  pid_t parent;

  boost::process::v2::error_code on_setup(boost::process::v2::posix::vfork_launcher& launcher,
                                          const boost::process::v2::filesystem::path&,
                                          const char* const*) const {
    if (what.third >= 0) launcher.fd_whitelist.push_back(3);
    if (what.kept >= 0) launcher.fd_whitelist.push_back(what.kept);
    if (const auto program = own_descriptor(what.path)) launcher.fd_whitelist.push_back(*program);
    return {};
  }

  boost::process::v2::error_code on_exec_setup(boost::process::v2::posix::vfork_launcher&,
                                               const boost::process::v2::filesystem::path&,
                                               const char* const*) const {
    for (int fd = 0; fd < 3; ++fd) {
      if (what.stdio[fd] >= 0 && dup2(what.stdio[fd], fd) < 0) return last_error();
    }
    if (what.third >= 0 && what.third != 3 && dup2(what.third, 3) < 0) return last_error();
    close_on_exec_from(3);
    if (what.third >= 0 && fcntl(3, F_SETFD, 0) != 0) return last_error();
    if (what.kept >= 0 && fcntl(what.kept, F_SETFD, 0) != 0) return last_error();
    if (what.own_session && setsid() < 0) return last_error();
    if (what.own_group && !what.own_session && setpgid(0, 0) != 0) return last_error();
    if (what.dies_with_us) {
      prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      if (getppid() != parent) _exit(127);  // the parent has ended before
    }
    discard_pending_stops();
    restore_signals_at_start();
    return {};
  }

  // Boost.Process would call exit(), which runs our atexit handlers and destructors in the memory
  // that this process goes on to use.
  template <class... Args>
  void on_exec_error(Args&&...) const {
    _exit(127);
  }

  static boost::process::v2::error_code last_error() {
    return {errno, boost::system::system_category()};
  }
};

// If 0 to 2 are closed in this process, prevents our pipes from getting these numbers.
class StandardDescriptors {
 public:
  StandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd) {
      if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) == fd) taken_[fd] = true;
    }
  }
  ~StandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd) {
      if (taken_[fd]) close(fd);
    }
  }
  StandardDescriptors(const StandardDescriptors&) = delete;
  StandardDescriptors& operator=(const StandardDescriptors&) = delete;

 private:
  std::array<bool, 3> taken_{};
};

// Creating an io_context makes asio ignore SIGPIPE.
class KeptSigpipe {
 public:
  KeptSigpipe() { sigaction(SIGPIPE, nullptr, &action_); }
  ~KeptSigpipe() { sigaction(SIGPIPE, &action_, nullptr); }
  KeptSigpipe(const KeptSigpipe&) = delete;
  KeptSigpipe& operator=(const KeptSigpipe&) = delete;

 private:
  struct sigaction action_{};
};

std::string_view key_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::vector<const char*> environment_with(const std::vector<std::string>& extra) {
  std::vector<const char*> out;
  const auto replaced = [&](std::string_view entry) {
    return std::any_of(extra.begin(), extra.end(),
                       [&](const std::string& e) { return key_of(e) == key_of(entry); });
  };
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) {
    if (!replaced(*e)) out.push_back(*e);
  }
  for (const auto& e : extra) out.push_back(e.c_str());
  out.push_back(nullptr);
  return out;
}

void reap_now(pid_t pid) {
  while (waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

struct Registry {
  std::mutex mutex;
  std::map<pid_t, std::optional<int>> children;
};
Registry& registry() {
  static Registry r;
  return r;
}

// Without children there is no need to search all of /proc.
bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL) ==
             0 ||
         errno != ECHILD;
}

// The pairs of all processes.
std::vector<std::pair<pid_t, pid_t>> parents() {
  std::vector<std::pair<pid_t, pid_t>> out;
  const auto all = process_list();
  if (!all) return out;
  for (const pid_t pid : *all) {
    const auto process = ProcDir::open(pid);
    if (!process) continue;
    if (const auto stat = process->read_stat()) out.emplace_back(pid, stat->parent);
  }
  return out;
}

}  // namespace

Result<pid_t> spawn(const Spawn& what) {
  if (what.argv.empty()) return fail("spawn", EINVAL, "no arguments");
  // This process adopts and reaps what its children leave running.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

  std::vector<const char*> argv;
  argv.reserve(what.argv.size() + 1);
  for (const auto& a : what.argv) argv.push_back(a.c_str());
  argv.push_back(nullptr);
  const auto env = environment_with(what.extra_env);

  const StandardDescriptors standard;
  const KeptSigpipe sigpipe;
  // No handler of this process may run in the child, which shares its memory.
  const AllSignalsBlocked signals;
  // Copying the tables of this process's pages would take longer than the rest.
  boost::process::v2::posix::vfork_launcher launcher;
  launcher.env = env.data();
  boost::process::v2::error_code ec;
  try {
    boost::asio::io_context context;
    // With the context instead of its executor, this would throw and leave `ec` alone.
    auto process =
        launcher(context.get_executor(), ec, what.path, argv.data(), Setup{what, getpid()});
    if (!ec) {
      process.detach();
      return launcher.pid;
    }
  } catch (const std::exception&) {
    if (launcher.pid == 0) _exit(127);  // this is the child
    // The program runs. What failed is the pidfd of Boost.Process, which nothing here needs: a
    // kernel or a filter may lack pidfd_open.
    if (!ec && launcher.pid > 0) return launcher.pid;
    if (!ec) ec = {EIO, boost::system::system_category()};
  }
  if (launcher.pid > 0) {
    kill(launcher.pid, SIGKILL);
    reap_now(launcher.pid);
  }
  return fail(launcher.pid < 0 ? "fork" : "exec", ec.value(), what.argv[0]);
}

Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& extra_env) {
  if (name.empty()) return fail("exec", ENOENT, name);
  if (name.find('/') != std::string::npos) return name;
  const char* ours = std::getenv("PATH");
  std::string path = ours == nullptr ? "/bin:/usr/bin" : ours;
  for (const auto& e : extra_env) {
    if (e.starts_with("PATH=")) path = e.substr(5);
  }
  int error = ENOENT;
  for (std::size_t from = 0; from <= path.size();) {
    const auto to = std::min(path.find(':', from), path.size());
    auto candidate = to == from ? "./" + name : path.substr(from, to - from) + "/" + name;
    struct stat info{};
    if (stat(candidate.c_str(), &info) == 0) {
      if (S_ISREG(info.st_mode) && access(candidate.c_str(), X_OK) == 0) return candidate;
      error = EACCES;
    }
    from = to + 1;
  }
  return fail("exec", error, name);
}

void register_child(pid_t pid) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  r.children[pid] = std::nullopt;
}

void forget_child(pid_t pid) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  r.children.erase(pid);
}

bool is_registered_child(pid_t pid) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.children.contains(pid);
}

void deposit_status(pid_t pid, int status) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  if (const auto it = r.children.find(pid); it != r.children.end()) it->second = status;
}

std::optional<int> reap_child(pid_t pid) {
  auto& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.children.find(pid);
  if (it == r.children.end()) return std::nullopt;
  if (it->second) return it->second;
  int status = 0;
  if (waitpid(pid, &status, WNOHANG | __WALL) == pid) it->second = status;
  return it->second;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> out;
  if (!has_children()) return out;
  for (const auto& [pid, parent] : parents()) {
    if (parent == getpid()) out.push_back(pid);
  }
  return out;
}

std::vector<pid_t> descendants_of_this_process() {
  std::vector<pid_t> out;
  if (!has_children()) return out;
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, parent] : parents()) children.emplace(parent, pid);
  const auto add_children_of = [&](pid_t parent) {
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) out.push_back(child->second);
    children.erase(first, last);
  };
  add_children_of(getpid());
  for (std::size_t i = 0; i < out.size(); ++i) add_children_of(out[i]);
  return out;
}

}  // namespace ctxconf::sys
