// Stops the threads of another process one after the other, each for a moment: what a profiler does
// many times per second. The rules of ThreadStop (thread_stop.h) hold here too.
//
// A thread of our own traces, not the caller's: a thread that does not stop in time is released
// only by the end of the thread that traces it. Then another one takes over. Several threads are on
// their way to their stop at once: each stops when it comes to a processor, and the others are read
// meanwhile.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct StopLimits {
  // How long each thread may take to stop. Time in which our own threads get no processor does not
  // count.
  std::chrono::milliseconds deadline;
  // When the time for all of them is over; the remaining threads are not stopped.
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max();
  // How long another tracer may take to let go of a thread: a profiler does soon, a debugger does
  // not.
  std::chrono::milliseconds tracer_patience{100};
};

// One pass over threads of a process; `tids` must live until the pass is over.
struct StopPass {
  pid_t pid = 0;
  std::span<const pid_t> tids;
  StopLimits limits;
};

// Use it in one thread at a time, and not in the callbacks. After a fork, the child needs one of
// its own.
class ThreadsStopper {
 public:
  ThreadsStopper();
  ThreadsStopper(const ThreadsStopper&) = delete;
  ThreadsStopper& operator=(const ThreadsStopper&) = delete;
  ~ThreadsStopper();

  // The index of a thread, and its thread pointer; or why it is not stopped: ESRCH, EPERM and
  // ETIMEDOUT as in ThreadStop::stop, ETIME if the time for all was over, or a failure to start our
  // own thread.
  using Visit = std::function<void(std::size_t, const Result<RemoteAddr>& thread_pointer)>;

  // Calls `visit` once for each of `tids`, threads of process `pid`, in any order, while the thread
  // is stopped; it runs again right after the call. Calls do not overlap, but may come from another
  // thread than this one. When this returns or throws what `visit` threw, no thread is stopped or
  // traced. A thread that does not stop in time delays others by some milliseconds at most.
  void visit_each(pid_t pid, std::span<const pid_t> tids, const StopLimits& limits,
                  const Visit& visit);

  // The pass to make now; nothing: the last one is over.
  using NextPass = std::function<std::optional<StopPass>()>;

  // The same for one pass after the other, as long as `next` gives one. Between two passes the
  // tracing thread itself calls `next`, because a hand-over to it costs almost as much as the stop
  // of a thread (docs/reader.md). No thread is stopped or traced meanwhile, so `next` may also
  // sleep; it may throw, as `visit` may. The tracing thread has all signals blocked.
  void visit_while(const NextPass& next, const Visit& visit);

 private:
  struct Passes;
  struct Worker;
  void do_part(Passes& passes);

  std::unique_ptr<Worker> worker_;  // started when it is first needed
};

}  // namespace ctxconf::sys
