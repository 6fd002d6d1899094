// A copy from the memory of another process waits for whoever fills its pages, and opening a file
// that the process maps waits for whoever serves the file. If that is the owner of a userfaultfd or
// of a FUSE file system, and it does not answer, the wait never ends. Only the end of that owner
// ends it, and an owner that the waiting thread traces cannot end until that thread resumes it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace ctxconf::sys {

// Create one while you access the memory of `pid`, or a file that it maps. A nested one counts as
// progress of the outer one.
class ProcessAccess {
 public:
  explicit ProcessAccess(pid_t pid);
  ~ProcessAccess();
  ProcessAccess(const ProcessAccess&) = delete;
  ProcessAccess& operator=(const ProcessAccess&) = delete;
};

// The time that the accesses of one or more threads, one after the other, may take together.
class AccessBudget {
 public:
  using Clock = std::chrono::steady_clock;
  explicit AccessBudget(Clock::duration most, std::function<Clock::time_point()> now = Clock::now);
  void begin();  // an access that is not within another one
  void end();    // this access
  // From now on no more than this, nor more than in all. Call it between accesses.
  void allow_only(Clock::duration more);
  bool is_used_up() const;

 private:
  Clock::duration most_;
  Clock::duration limit_;
  std::function<Clock::time_point()> now_;
  Clock::duration spent_{};
  std::optional<Clock::time_point> since_;  // of the access in progress
};

// What happens to the thread when an access that was found stuck ends after all.
enum class AfterStuck {
  kGoesOn,
  kStays,  // the thread never returns from the access; its owner may continue and use what the
           // thread used
};

// Watches the accesses of the thread that creates it; one watchdog per thread. Calls `stuck` in
// another thread, which blocks all signals, once for each access that makes no progress within
// `deadline`. With a budget it also calls `stuck`, in the watched thread, once an access begins and
// the budget is used up. If no thread can be created (RLIMIT_NPROC), it watches nothing.
class AccessWatchdog {
 public:
  AccessWatchdog(std::chrono::milliseconds deadline, std::function<void(pid_t)> stuck,
                 AfterStuck after = AfterStuck::kGoesOn,
                 std::shared_ptr<AccessBudget> budget = nullptr);
  ~AccessWatchdog();
  AccessWatchdog(const AccessWatchdog&) = delete;
  AccessWatchdog& operator=(const AccessWatchdog&) = delete;

  struct Watched;  // shared with ProcessAccess

 private:
  std::unique_ptr<Watched> watched_;
};

}  // namespace ctxconf::sys
