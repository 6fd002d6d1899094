// Snapshots of the images of a recording and samples of their threads: ten times a second, around
// calls, at ends, and when somebody asks. A sleeping thread is sampled where it sleeps; a running
// one is interrupted and sampled when it stops.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/snapshot.h"
#include "conformance/observe/snapshot_pace.h"
#include "conformance/observe/traced_processes.h"
#include "conformance/observe/wrap.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class Sampler {
 public:
  using Clock = std::chrono::steady_clock;

  // All must outlive this.
  Sampler(const WrapOptions& options, sys::Tracer& tracer, TracedProcesses& processes);

  // Takes a snapshot of the image that the process runs; its index, or nothing if there is none.
  std::optional<std::uint64_t> take(pid_t pid, Moment moment, SnapshotDepth depth);
  std::optional<Clock::time_point> published() const { return published_; }  // the last context
  std::size_t contexts() const { return contexts_; }                         // so far

  // The periodic look. A snapshot of a process waits for its running threads.
  void tick();
  // Does tick() if it is due at `now`.
  bool tick_if_due(Clock::time_point now);
  Clock::time_point next_tick() const { return next_tick_; }
  bool is_tick_over() const { return interrupted_.empty(); }
  // No snapshot waits for threads of this process any more.
  void stop_waiting(pid_t pid) { interrupted_.erase(pid); }

  // Threads that were made and have not had their first stop, so that the tracer has not reported
  // them yet.
  std::vector<pid_t> unreported_threads() const;
  // Takes out those that are reported now, or have ended.
  void leave_out_reported(std::vector<pid_t>& tids) const;

  // Looks at all threads. It is over when the running ones have stopped.
  void begin_look();
  bool is_look_over() const { return awaited_.empty(); }
  bool meets_update() const;  // see SnapshotRecorder
  // Takes the snapshots. Threads that have not stopped are listed as unseen.
  std::vector<ImageView> end_look(SnapshotDepth depth);

  void look_at_modules(pid_t pid);
  void look_at_stopped_thread(pid_t pid, pid_t tid);
  // The first thread of a forked process, which starts with a copy of what its maker had.
  void look_at_birth(const sys::NewTask& e, sys::RemoteAddr pointer);
  void look_at_exit(const sys::Exiting& e);
  // A thread has stopped and was sampled, or ends: nobody waits for it any more.
  void arrived(pid_t pid, pid_t tid);
  // The process, whose threads are forgotten, has ended or runs another image.
  void forget(pid_t pid);

  void postpone(Clock::duration time);       // of published()
  void postpone_tick(Clock::duration time);  // the next one

 private:
  void look_at_threads(const TracedProcess& w);

  const WrapOptions& options_;
  sys::Tracer& tracer_;
  TracedProcesses& processes_;
  std::optional<Clock::time_point> published_;
  std::size_t contexts_ = 0;
  Clock::time_point next_tick_;
  SnapshotPace pace_;
  std::map<pid_t, std::set<pid_t>> interrupted_;  // threads of a process that must still stop
  // Threads that must still stop for a look, and what was seen in the others.
  std::set<pid_t> awaited_;
  std::map<pid_t, std::map<pid_t, std::vector<ThreadView>>> looked_;
};

}  // namespace ctxconf::conformance
