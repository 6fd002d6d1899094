// One thread of a process that is not ours, stopped for a moment: PTRACE_SEIZE,
// PTRACE_INTERRUPT, and released when the object goes. A call like epoll_wait that the
// thread sleeps in may return EINTR (signal(7)), so a thread that sleeps anyway should be
// looked at without this: see ThreadActivity.
//
// Not in a process that has a Tracee: both wait for stops, and either would eat the other's.
// A child of the process that ends meanwhile is left to whoever waits for it; but who waits
// with waitpid(-1, ...) may be told of the stop of a child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

// Where the TLS of a thread that this thread traces and that is stopped is: fs_base on x86-64,
// tpidr_el0 on aarch64; 0: none yet, or none any more. ENOTSUP for a 32-bit thread.
Result<RemoteAddr> stopped_thread_pointer(pid_t tid);

class ThreadStop {
 public:
  // ESRCH: gone (or a zombie), or no thread of `pid` any more, if that is given; EPERM: not ours
  // to look at, or "is traced by process N"; ETIMEDOUT: did not stop in that time (uninterruptible
  // sleep, no CPU), and has been released.
  static Result<ThreadStop> stop(pid_t tid, std::chrono::milliseconds deadline, pid_t pid = 0);

  ThreadStop(ThreadStop&& other) noexcept;
  ThreadStop& operator=(ThreadStop&& other) noexcept;
  ~ThreadStop();  // goes on as it was: a group-stopped thread stays so, a pending signal arrives

  pid_t tid() const;
  // x86-64: fs_base; aarch64: tpidr_el0. 0 in a thread that has none (yet, or any more).
  // ENOTSUP for a 32-bit thread.
  Result<RemoteAddr> thread_pointer() const;

 private:
  struct Tracer;
  explicit ThreadStop(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;  // null once moved from
};

// Has a thread run? Two equal activities with sleeping == true mean that it slept all the
// while, so that what only it writes has not changed.
struct ThreadActivity {
  bool sleeping = false;       // state S, D, T or t
  std::uint64_t switches = 0;  // voluntary and other context switches
  friend bool operator==(const ThreadActivity&, const ThreadActivity&) = default;
};
// ESRCH when there is no such thread.
Result<ThreadActivity> thread_activity(pid_t pid, pid_t tid);

}  // namespace ctxconf::sys
