#include "sys/started.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "sys/spawn.h"

namespace ctxconf::sys {
namespace {

using Clock = std::chrono::steady_clock;

constexpr timespec kPause{0, 1'000'000};

}  // namespace

Started::Started() {
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const auto before = descendants_of_this_process();
  earlier_.insert(before.begin(), before.end());
}

bool Started::has(pid_t pid) const {
  const auto all = descendants_of_this_process();
  return !earlier_.contains(pid) && std::ranges::find(all, pid) != all.end();
}

std::vector<pid_t> Started::running() const {
  std::vector<pid_t> out;
  for (const pid_t pid : descendants_of_this_process()) {
    if (earlier_.contains(pid) || is_registered_child(pid)) continue;
    // For a process that is not a child this fails; ignore it.
    if (waitpid(pid, nullptr, WNOHANG | __WALL) != pid) out.push_back(pid);
  }
  return out;
}

std::vector<pid_t> Started::end(std::chrono::milliseconds limit) const {
  const auto until = Clock::now() + limit;
  while (true) {
    auto left = running();
    // A pid is reused only after its process was reaped, and only this process can reap a child.
    // The others become children when their parents have ended.
    for (const pid_t pid : children_of_this_process()) {
      if (!earlier_.contains(pid) && !is_registered_child(pid)) kill(pid, SIGKILL);
    }
    if (left.empty() || Clock::now() >= until) return left;
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace ctxconf::sys
