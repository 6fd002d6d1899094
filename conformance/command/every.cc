#include "conformance/command/every.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

[[noreturn]] void run_in_child(pid_t parent, const std::function<int()>& once) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitUnreachable);
  const int code = finish_printing(once());
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

int repeat_every(std::chrono::milliseconds interval, const std::function<int()>& once) {
  const pid_t parent = getpid();
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) {
      return complain(kExitUnreachable, std::string("--every: fork: ") + std::strerror(errno));
    }
    if (child == 0) run_in_child(parent, once);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage) return kExitUsage;
    std::this_thread::sleep_until(begin + interval);
  }
}

}  // namespace ctxconf::conformance
