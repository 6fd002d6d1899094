// Records running processes from outside with a few snapshots. If a program has the slot variable,
// each of its threads is stopped for some microseconds, unless it sleeps; no other program is
// stopped.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/snapshot.h"
#include "sys/result.h"

namespace ctxconf::conformance {

struct AttachOptions {
  std::vector<pid_t> pids;  // empty: every process that publishes
  pid_t unexamined = 0;     // with all processes, this one is left out
  std::chrono::milliseconds watch_for{1000};
  SnapshotLimits limits;  // of one image; all processes have its large_payloads together
  // A page that does not arrive within this time (sys/access_watchdog.h) cannot be waited for. Then
  // `unreachable` is called in another thread, to end this process. With all processes, the process
  // that has the page is left out instead, unless no thread can be created that waits for it.
  std::chrono::milliseconds memory_deadline{10000};
  std::function<void(pid_t)> unreachable;
  // With all processes: the copies of one process may take this long plus `watch_for` in all. Each
  // of its pages may arrive just in time.
  std::chrono::milliseconds memory_budget{30000};
  // With all processes: after so long, and `watch_for`, one look at a process must not wait longer
  // than `late_look` for its memory.
  std::chrono::milliseconds time_for_all{300000};
  std::chrono::milliseconds late_look{2000};
};

// A process of which nothing could be recorded.
struct UnreadProcess {
  pid_t pid = 0;
  std::string command;  // sys::command_name(); hostile
  std::string why;
};

inline constexpr std::size_t kMostUnread = 4096;

struct Attached {
  // A thread of ours waits in the kernel for a page that does not arrive. Only _exit() and signals
  // end this process for certain.
  bool left_a_thread = false;
  // With all processes:
  std::vector<UnreadProcess> unread;  // at most kMostUnread
  std::size_t unread_omitted = 0;     // over that limit
  std::size_t without_context = 0;    // have memory, and no mapping named OTEL_CTX
};

// Appends processes and notes to `timeline`. With one pid, the error says why it cannot be observed
// (ESRCH, EACCES). With all processes, a note counts those, and another note names each process
// that was left out because a page did not arrive, or because its pages arrived slowly; the
// timeline is incomplete then.
sys::Result<Attached> record_attach(const AttachOptions& options, Timeline& timeline);

}  // namespace ctxconf::conformance
