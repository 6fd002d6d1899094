// Copying memory of another process waits for whoever fills its pages, and opening a file that it
// maps for whoever serves it: the owner of a userfaultfd or of a FUSE file system that does not
// answer holds that up for ever. Only the end of that owner ends it, and an owner that the waiting
// thread traces does not end before that thread lets it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>

namespace ctxconf::sys {

// Exists while the memory of `pid`, or what it maps, is asked for. One within another is progress
// of the outer one.
class ProcessAccess {
 public:
  explicit ProcessAccess(pid_t pid);
  ~ProcessAccess();
  ProcessAccess(const ProcessAccess&) = delete;
  ProcessAccess& operator=(const ProcessAccess&) = delete;
};

// What becomes of the thread once an access that was found stuck ends after all.
enum class AfterStuck {
  kGoesOn,
  kStays,  // it never leaves it: who was told may do without the thread, and with what it used
};

// Watches the accesses of the thread that makes it, one watchdog a thread. `stuck` is called in
// another thread, which blocks all signals, once for each access that has made no progress within
// `deadline`. Where no thread can be made (RLIMIT_NPROC) nothing is watched.
class AccessWatchdog {
 public:
  AccessWatchdog(std::chrono::milliseconds deadline, std::function<void(pid_t)> stuck,
                 AfterStuck after = AfterStuck::kGoesOn);
  ~AccessWatchdog();
  AccessWatchdog(const AccessWatchdog&) = delete;
  AccessWatchdog& operator=(const AccessWatchdog&) = delete;

  struct Watched;  // shared with ProcessAccess

 private:
  std::unique_ptr<Watched> watched_;
};

}  // namespace ctxconf::sys
