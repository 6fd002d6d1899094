// Copying memory of another process waits for whoever fills its pages: a userfaultfd or a FUSE file
// system whose owner does not answer holds the copy up for ever. Only the end of that owner ends
// it, and an owner that the copying thread traces does not end before that thread lets it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>

namespace ctxconf::sys {

// Exists while the memory of `pid` is asked for.
class MemoryAccess {
 public:
  explicit MemoryAccess(pid_t pid);
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

// Watches the accesses of the thread that makes it, one watchdog a thread. `stuck` is called in
// another thread, which blocks all signals, once for each access that has not come back within
// `deadline`.
class AccessWatchdog {
 public:
  AccessWatchdog(std::chrono::milliseconds deadline, std::function<void(pid_t)> stuck);
  ~AccessWatchdog();
  AccessWatchdog(const AccessWatchdog&) = delete;
  AccessWatchdog& operator=(const AccessWatchdog&) = delete;

  struct Watched;  // shared with MemoryAccess

 private:
  std::unique_ptr<Watched> watched_;
};

}  // namespace ctxconf::sys
