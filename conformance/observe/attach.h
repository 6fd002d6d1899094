// Records running processes from outside: a few snapshots. The threads of a program that has
// the slot variable are stopped for some microseconds each, unless they sleep; no other
// program is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <vector>

#include "conformance/observe/snapshot.h"
#include "conformance/timeline.h"
#include "sys/result.h"

namespace ctxconf::conformance {

struct AttachOptions {
  std::vector<pid_t> pids;  // empty: every process that publishes
  std::chrono::milliseconds watch_for{1000};
  SnapshotLimits limits;
  // A page that does not come for so long (sys/access_watchdog.h) cannot be waited for: called in
  // another thread, to end this process. Not for one among all.
  std::chrono::milliseconds memory_deadline{10000};
  std::function<void(pid_t)> unreachable;
};

struct Attached {
  // A thread of ours waits in the kernel for a page that does not come. Only _exit() and signals
  // end this process for certain.
  bool left_a_thread = false;
};

// Appends processes and notes to `timeline`. With one pid the error says why it
// cannot be observed (ESRCH, EACCES); with all, such processes are counted in a note, and one of
// which a page does not come is left out and named in one.
sys::Result<Attached> record_attach(const AttachOptions& options, Timeline& timeline);

}  // namespace ctxconf::conformance
