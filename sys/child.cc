#include "sys/child.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "sys/fd.h"
#include "sys/spawn.h"

namespace ctxconf::sys {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often to check whether the child has ended when there is no pidfd, and how long to wait for
// killed processes.
constexpr auto kSlice = milliseconds(10);
constexpr auto kKillDeadline = std::chrono::seconds(2);

struct Pipe {
  Fd reader;
  Fd writer;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail("pipe", errno, "");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// O_NONBLOCK applies to this end alone; the child's end stays blocking.
void make_non_blocking(const Fd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// write() without SIGPIPE when the reader has closed its end.
ssize_t write_quietly(int fd, const char* bytes, std::size_t size) {
  sigset_t sigpipe;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&sigpipe);
  sigaddset(&sigpipe, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
  const ssize_t n = write(fd, bytes, size);
  const int error = errno;
  if (n < 0 && error == EPIPE && !was_pending) {
    const timespec none{};
    sigtimedwait(&sigpipe, nullptr, &none);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return n;
}

// The output of one stream: keeps `limit` bytes and drops the rest.
struct Stream {
  Fd fd;
  std::string text;
  bool truncated = false;

  // Reads what is available; closes the stream at its end. Returns true if it read anything.
  bool read_some(std::size_t limit) {
    std::array<char, 65536> buffer;
    const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
      fd.reset();
      return false;
    }
    const auto got = static_cast<std::size_t>(n);
    const auto kept = std::min(got, limit - std::min(limit, text.size()));
    text.append(buffer.data(), kept);
    truncated = truncated || kept < got;
    return true;
  }

  // Reads what is still in the pipe. A process that left the group can hold the pipe open and keep
  // writing, so this is bounded.
  void drain(std::size_t limit, Clock::time_point deadline) {
    while (fd.is_open() && read_some(limit) && Clock::now() < deadline) {
    }
    fd.reset();
  }
};

}  // namespace

struct Child::State {
  ChildOptions options;
  pid_t pid = -1;
  Fd pidfd;
  Fd in;
  std::string unsent;
  Stream out;
  Stream err;
  std::optional<int> status;
  bool group_ended = false;  // its number may have been reused since

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (pid <= 0) return;
    end_group();
    forget_child(pid);
  }

  static Result<std::unique_ptr<State>> start(const ChildOptions& options);
  static Result<std::unique_ptr<State>> start_fork(const std::function<void(int)>& work);

  bool has_ended() {
    if (!status) status = reap_child(pid);
    return status.has_value();
  }

  bool is_interrupted() const {
    pollfd fd{options.interrupt, POLLIN, 0};
    return poll(&fd, 1, 0) > 0;
  }

  // Moves input and output until something happens, until the deadline, or for a short time.
  void step(Clock::time_point deadline, bool watch_end);
  void send_some();
  void close_input();
  void end_group();
};

Result<std::unique_ptr<Child::State>> Child::State::start(const ChildOptions& options) {
  if (options.argv.empty()) return fail("child", EINVAL, "no arguments");
  CTX_ASSIGN_OR_RETURN(path, find_program(options.argv[0], options.extra_env));
  CTX_ASSIGN_OR_RETURN(in, make_pipe());
  CTX_ASSIGN_OR_RETURN(out, make_pipe());
  CTX_ASSIGN_OR_RETURN(err, make_pipe());
  Fd third;
  if (options.descriptor3) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return fail("socketpair", errno, "");
    }
    in.writer = Fd(ends[0]);
    third = Fd(ends[1]);
    out.reader = Fd(fcntl(ends[0], F_DUPFD_CLOEXEC, 3));
    out.writer = Fd(fcntl(err.writer.get(), F_DUPFD_CLOEXEC, 3));
    if (!out.reader.is_open() || !out.writer.is_open()) return fail("fcntl", errno, "");
  }
  Spawn what;
  what.third = third.get();
  what.path = path;
  what.argv = options.argv;
  what.extra_env = options.extra_env;
  what.own_group = true;
  what.dies_with_us = true;
  // Above 2, so that dup2 does not replace one before it is used.
  std::array<Fd, 3> theirs;
  for (int i = 0; i < 3; ++i) {
    const Fd& end = i == 0 ? in.reader : i == 1 ? out.writer : err.writer;
    theirs[i] = Fd(fcntl(end.get(), F_DUPFD_CLOEXEC, 3));
    if (!theirs[i].is_open()) return fail("fcntl", errno, "");
    what.stdio[i] = theirs[i].get();
  }
  CTX_ASSIGN_OR_RETURN(pid, spawn(what));
  register_child(pid);
  auto state = std::make_unique<State>();
  state->options = options;
  state->pid = pid;
  state->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  state->in = std::move(in.writer);
  state->unsent = options.input;
  state->out.fd = std::move(out.reader);
  state->err.fd = std::move(err.reader);
  make_non_blocking(state->in);
  make_non_blocking(state->out.fd);
  make_non_blocking(state->err.fd);
  return state;
}

Result<std::unique_ptr<Child::State>> Child::State::start_fork(
    const std::function<void(int)>& work) {
  CTX_ASSIGN_OR_RETURN(out, make_pipe());
  auto state = std::make_unique<State>();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail("fork", errno, "");
  // The exchange goes both ways, so that neither process continues too early.
  setpgid(pid, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    // The reader may be gone; SIGPIPE must not kill this process.
    signal(SIGPIPE, SIG_IGN);
    try {
      work(out.writer.get());
    } catch (...) {
      _exit(kForkThrew);
    }
    _exit(0);
  }
  register_child(pid);
  state->options.argv = {"fork"};
  state->pid = pid;
  state->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  state->out.fd = std::move(out.reader);
  make_non_blocking(state->out.fd);
  return state;
}

void Child::State::send_some() {
  const ssize_t n = write_quietly(in.get(), unsent.data(), unsent.size());
  if (n > 0) {
    unsent.erase(0, static_cast<std::size_t>(n));
  } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
    in.reset();
    unsent.clear();
  }
}

// A socket cannot signal the end of input alone.
void Child::State::close_input() {
  if (options.descriptor3 && in.is_open()) shutdown(in.get(), SHUT_WR);
  in.reset();
}

void Child::State::step(Clock::time_point deadline, bool watch_end) {
  // poll ignores entries with a negative descriptor.
  std::array<pollfd, 5> fds{{{out.fd.get(), POLLIN, 0},
                             {err.fd.get(), POLLIN, 0},
                             {unsent.empty() ? -1 : in.get(), POLLOUT, 0},
                             {watch_end ? pidfd.get() : -1, POLLIN, 0},
                             {options.interrupt, POLLIN, 0}}};
  auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  if (watch_end && !pidfd.is_open()) left = std::min(left, kSlice);
  const auto timeout = std::clamp<long>(left.count(), 0, 1000);
  if (poll(fds.data(), fds.size(), static_cast<int>(timeout)) <= 0) return;
  if (fds[0].revents != 0) out.read_some(options.output_limit);
  if (fds[1].revents != 0) err.read_some(options.output_limit);
  if (fds[2].revents != 0) send_some();
}

// Kills the process group and reaps every member that is, or becomes, our child.
void Child::State::end_group() {
  if (std::exchange(group_ended, true)) return;
  const auto deadline = Clock::now() + kKillDeadline;
  while (true) {
    const bool group_is_gone = kill(-pid, SIGKILL) != 0 && errno == ESRCH;
    // The child itself is reaped through the registry; only then may we wait for the whole group.
    const bool child_is_gone = has_ended();
    if (child_is_gone) {
      while (waitpid(-pid, nullptr, WNOHANG | __WALL) > 0) {
      }
    }
    if ((group_is_gone && child_is_gone) || Clock::now() >= deadline) return;
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

Child::Child(State* state) : state_(state) {}
Child::Child(Child&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    delete state_;
    state_ = std::exchange(other.state_, nullptr);
  }
  return *this;
}
Child::~Child() { delete state_; }

Result<Child> Child::start(const ChildOptions& options) {
  CTX_ASSIGN_OR_RETURN(state, State::start(options));
  return Child(state.release());
}

int Child::pid() const { return state_->pid; }

Result<std::string> Child::read_line(milliseconds deadline) {
  auto& s = *state_;
  const auto until = Clock::now() + deadline;
  auto& text = s.out.text;
  std::size_t searched = 0;
  while (true) {
    if (const auto end = text.find('\n', searched); end != std::string::npos) {
      auto line = text.substr(0, end);
      text.erase(0, end + 1);
      return line;
    }
    searched = text.size();
    if (text.size() >= s.options.output_limit) {
      return fail("read line", E2BIG, s.options.argv[0]);
    }
    if (!s.out.fd.is_open()) {
      if (text.empty()) return fail("read line", 0, s.options.argv[0] + ": end of output");
      return std::exchange(text, {});
    }
    if (s.is_interrupted()) return fail("read line", ECANCELED, s.options.argv[0]);
    if (Clock::now() >= until) return fail("read line", ETIMEDOUT, s.options.argv[0]);
    s.step(until, false);
  }
}

Result<> Child::write(const std::string& text) {
  auto& s = *state_;
  const auto until = Clock::now() + s.options.deadline;
  s.unsent += text;
  while (s.in.is_open() && !s.unsent.empty()) {
    s.send_some();
    if (s.unsent.empty() || !s.in.is_open()) break;
    if (s.is_interrupted()) return fail("write", ECANCELED, s.options.argv[0]);
    if (Clock::now() >= until) return fail("write", ETIMEDOUT, s.options.argv[0]);
    s.step(until, false);
  }
  if (!s.in.is_open()) return fail("write", EPIPE, s.options.argv[0]);
  return {};
}

Result<ChildResult> Child::wait(milliseconds deadline) {
  auto& s = *state_;
  const auto until = Clock::now() + deadline;
  ChildResult result;
  while (!s.has_ended()) {
    if (Clock::now() >= until || s.is_interrupted()) {
      result.timed_out = true;
      break;
    }
    if (s.unsent.empty()) s.close_input();
    s.step(until, true);
  }
  s.close_input();
  s.end_group();
  if (!s.status) return fail("wait", ETIMEDOUT, s.options.argv[0] + ": survived SIGKILL");
  const auto drain_deadline = Clock::now() + kKillDeadline;
  s.out.drain(s.options.output_limit, drain_deadline);
  s.err.drain(s.options.output_limit, drain_deadline);
  if (WIFEXITED(*s.status)) {
    result.exit_code = WEXITSTATUS(*s.status);
  } else {
    result.killed_by = WTERMSIG(*s.status);
  }
  result.output = std::exchange(s.out.text, {});
  result.errors = std::exchange(s.err.text, {});
  result.truncated = s.out.truncated || s.err.truncated;
  return result;
}

Result<ChildResult> run_forked(const std::function<void(int)>& work, milliseconds deadline,
                               std::size_t output_limit) {
  CTX_ASSIGN_OR_RETURN(state, Child::State::start_fork(work));
  state->options.output_limit = output_limit;
  return Child(state.release()).wait(deadline);
}

Result<ChildResult> run_child(const ChildOptions& options) {
  CTX_ASSIGN_OR_RETURN(child, Child::start(options));
  return child.wait(options.deadline);
}

}  // namespace ctxconf::sys
