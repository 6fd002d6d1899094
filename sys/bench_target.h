// For benchmarks: a process to look at, and the median of times.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <vector>

namespace ctxconf::sys {

// A child that prepares itself and then sleeps.
class BenchTarget {
 public:
  // `prepare` returns whether it succeeded.
  explicit BenchTarget(const std::function<bool()>& prepare) {
    std::array<int, 2> ready{};
    if (pipe2(ready.data(), O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ < 0) abort();  // kill(-1) would be sent to all processes
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (!prepare() || write(ready[1], "r", 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char c = 0;
    const auto n = read(ready[0], &c, 1);
    if (n < 0) abort();
    is_prepared_ = n == 1;
    close(ready[0]);
  }
  BenchTarget(const BenchTarget&) = delete;
  BenchTarget& operator=(const BenchTarget&) = delete;
  ~BenchTarget() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool is_prepared() const { return is_prepared_; }

 private:
  pid_t pid_ = 0;
  bool is_prepared_ = false;
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ctxconf::sys
