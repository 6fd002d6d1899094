// A forked child that tries what the kernel allows.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>

#include "sys/fd.h"

namespace ctxconf::sys {

// The destructor kills and reaps it. It runs `body`, which may only make system calls.
class ProbeChild {
 public:
  template <class Body>
  explicit ProbeChild(const Body& body) {
    std::array<int, 2> go{-1, -1};
    if (pipe2(go.data(), O_CLOEXEC) != 0) {
      error_ = errno;
      return;
    }
    const Fd reader(go[0]);
    go_ = Fd(go[1]);
    pid_ = fork();
    if (pid_ < 0) error_ = errno;
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      go_.reset();
      char byte = 0;
      if (read(reader.get(), &byte, 1) == 1) body();
      _exit(0);
    }
  }
  ~ProbeChild() {
    go_.reset();
    if (pid_ <= 0 || ended_) return;
    kill(pid_, SIGKILL);
    while (!ended_ && wait()) ptrace(PTRACE_CONT, pid_, nullptr, nullptr);
  }
  ProbeChild(const ProbeChild&) = delete;
  ProbeChild& operator=(const ProbeChild&) = delete;

  pid_t pid() const { return pid_; }
  int error() const { return error_; }  // of the fork
  void go() const {
    const ssize_t n = write(go_.get(), "g", 1);
    static_cast<void>(n);
  }
  // Its next status, or nothing at the deadline.
  std::optional<int> wait() {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      int status = 0;
      const pid_t got = waitpid(pid_, &status, WNOHANG | __WALL);
      if (got == pid_) {
        ended_ = WIFEXITED(status) || WIFSIGNALED(status);
        return status;
      }
      if (got < 0 && errno != EINTR) return std::nullopt;
      const timespec pause{0, 200'000};
      nanosleep(&pause, nullptr);
    }
    return std::nullopt;
  }

 private:
  static constexpr auto kDeadline = std::chrono::seconds(5);
  pid_t pid_ = -1;
  Fd go_;
  int error_ = 0;
  bool ended_ = false;
};

}  // namespace ctxconf::sys
