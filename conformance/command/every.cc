#include "conformance/command/every.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenChecks{50};

[[noreturn]] void run_in_child(pid_t parent, const std::function<int()>& once) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitUnreachable);
  const int code = finish_printing(once());
  std::fflush(nullptr);
  _exit(code);
}

// The exit code of a child. Nothing: it did not exit by itself in time, or nobody knows, because
// SIGCHLD is ignored.
std::optional<int> code_of(pid_t child, Clock::time_point deadline) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenChecks);
  }
  if (ended == 0) {
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    complain(kExitUnreachable, "--every: a run did not end in time and was killed");
    return std::nullopt;
  }
  return ended == child && WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
}

// Sleeps. Returns early, with true, if stdout is a pipe that nobody reads.
bool loses_its_reader(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd out = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  const int wait = static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
  if (poll(&out, 1, wait) > 0 && (out.revents & POLLERR) != 0) return true;
  std::this_thread::sleep_until(until);
  return false;
}

}  // namespace

int repeat_every(const Repetition& how, const std::function<int()>& once) {
  const pid_t parent = getpid();
  while (true) {
    const auto begin = Clock::now();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
      return complain(kExitUnreachable, std::string("--every: fork: ") + std::strerror(errno));
    }
    if (child == 0) run_in_child(parent, once);
    const auto code = code_of(child, begin + how.deadline);
    if (code == kExitUsage) return kExitUsage;
    const auto next = begin + how.interval;
    if (!how.needs_reader) {
      std::this_thread::sleep_until(next);
    } else if (loses_its_reader(next)) {
      return code.value_or(kExitUnreachable);
    }
  }
}

}  // namespace ctxconf::conformance
