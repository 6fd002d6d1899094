// All that this process has started and what came of it, however it left its group, its session or
// its environment: this process is the subreaper, so that whose parent ends becomes its child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>
#include <vector>

namespace ctxconf::sys {

// Makes this process the subreaper. What it has as children by then, and what is below these, is
// not its own: a shell may have started that before it became this program. So is a registered
// child (spawn.h), which has an owner that ends it.
class Started {
 public:
  Started();

  // Registered or not.
  bool has(pid_t pid) const;

  // The processes that live, each parent before its children. Reaps those that have ended.
  std::vector<pid_t> running() const;

  // Kills them, and waits until none is left. What can still not be ended by the limit is returned.
  std::vector<pid_t> end(std::chrono::milliseconds limit) const;

 private:
  std::set<pid_t> earlier_;
};

}  // namespace ctxconf::sys
