// All processes that this process has started and their descendants, even if they left its group,
// session or environment: this process is the subreaper, so that it adopts those whose parent ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>
#include <vector>

namespace ctxconf::sys {

// Makes this process the subreaper. Processes that already exist below it do not belong to it: a
// shell may have started them before it executed this program. The same holds for a registered
// child (spawn.h), whose owner ends it.
class Started {
 public:
  Started();

  // Registered or not.
  bool has(pid_t pid) const;

  // The living processes, each parent before its children. Reaps those that have ended.
  std::vector<pid_t> running() const;

  // Kills them and waits until none is left. Returns those that are still alive at the limit.
  std::vector<pid_t> end(std::chrono::milliseconds limit) const;

 private:
  std::set<pid_t> earlier_;
};

}  // namespace ctxconf::sys
