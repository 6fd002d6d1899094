// For tests: a fork of the test as a process to look at.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "sys/process.h"

namespace ctxconf::sys {

inline constexpr std::chrono::seconds kLong{20};

// Runs the body, passes its value here, and then sleeps. The body can pass one itself and not
// return.
class Forked {
 public:
  explicit Forked(const std::function<std::uint64_t(int answer)>& body) {
    std::array<int, 2> answer{};
    if (pipe(answer.data()) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(answer[0]);
      const std::uint64_t value = body(answer[1]);
      if (write(answer[1], &value, sizeof value) != sizeof value) _exit(99);
      while (true) pause();
    }
    close(answer[1]);
    if (read(answer[0], &value_, sizeof value_) != sizeof value_) value_ = 0;
    close(answer[0]);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  std::uint64_t value() const { return value_; }
  int wait_after_kill() {
    kill(pid_, SIGKILL);
    return wait();
  }
  int wait() {
    int status = -1;
    if (pid_ > 0 && waitpid(pid_, &status, 0) != pid_) ADD_FAILURE() << errno;
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  std::uint64_t value_ = 0;
};

inline std::uint64_t own_thread_pointer() {
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
}

// A field of /proc/TID/status.
inline std::string status_of(pid_t tid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  const std::string key = field + ":\t";
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return "-";
}

inline char state_of(pid_t tid) { return status_of(tid, "State").front(); }

inline bool comes_true(const std::function<bool()>& condition) {
  const auto latest = std::chrono::steady_clock::now() + kLong;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    usleep(1000);
  }
  return true;
}

inline bool comes_to(pid_t tid, char state) {
  return comes_true([&] { return state_of(tid) == state; });
}

// The thread that is not the leader.
inline pid_t other_thread(pid_t pid) {
  const auto threads = thread_list(pid).value();
  for (const pid_t tid : threads) {
    if (tid != pid) return tid;
  }
  return 0;
}

inline void spin(std::uint64_t value, int answer) {
  if (write(answer, &value, sizeof value) != sizeof value) _exit(99);
  for (volatile bool go_on = true; go_on;) {
  }
}

// Cannot stop: the parent of a vfork child sleeps uninterruptibly. Exits with 7 when that child has
// ended, which the test must kill; without it it would never end.
class Unstoppable {
 public:
  Unstoppable()
      : child_([](int answer) {
          const std::uint64_t ready = 1;
          if (write(answer, &ready, sizeof ready) != sizeof ready) _exit(99);
          if (vfork() == 0) {  // NOLINT(bugprone-unsafe-functions)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
          }
          _exit(7);
          return ready;
        }) {
    EXPECT_TRUE(comes_to(pid(), 'D'));
  }
  pid_t pid() const { return child_.pid(); }
  // False: the child of the child cannot be found.
  bool release() const {
    std::ifstream children("/proc/" + std::to_string(pid()) + "/task/" + std::to_string(pid()) +
                           "/children");
    pid_t grandchild = 0;
    return static_cast<bool>(children >> grandchild) && kill(grandchild, SIGKILL) == 0;
  }
  int wait() { return child_.wait(); }

 private:
  Forked child_;
};

}  // namespace ctxconf::sys
