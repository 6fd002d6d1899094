// Stops one thread of a process that is not ours for a moment, with PTRACE_SEIZE and
// PTRACE_INTERRUPT, and releases it in the destructor. A call such as epoll_wait in which the
// thread sleeps may return EINTR (signal(7)), so look at a sleeping thread without this: see
// ThreadActivity.
//
// Do not use this in a process that has a Tracer: both wait for stops, and each would take the
// other's. If a child of the process ends meanwhile, its status is left to whoever waits for it;
// but waitpid(-1, ...) elsewhere may report the stop of a child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

// The TLS address of a stopped thread that this thread traces: fs_base on x86-64, tpidr_el0 on
// aarch64; 0: not set, or no longer set. ENOTSUP for a 32-bit thread.
Result<RemoteAddr> stopped_thread_pointer(pid_t tid);

class ThreadStop {
 public:
  // ESRCH: gone (or a zombie), or not a thread of `pid`, if that is given. EPERM: no permission, or
  // "is traced by process N". ETIMEDOUT: did not stop in that time (uninterruptible sleep, no CPU),
  // and was released.
  static Result<ThreadStop> stop(pid_t tid, std::chrono::milliseconds deadline, pid_t pid = 0);

  ThreadStop(ThreadStop&& other) noexcept;
  ThreadStop& operator=(ThreadStop&& other) noexcept;
  ~ThreadStop();  // restores its state: a group-stopped thread stays stopped, a pending signal
                  // arrives

  pid_t tid() const;
  // x86-64: fs_base; aarch64: tpidr_el0. 0 if the thread has none (not yet, or no longer). ENOTSUP
  // for a 32-bit thread.
  Result<RemoteAddr> thread_pointer() const;

 private:
  struct Tracer;
  explicit ThreadStop(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;  // null after a move
};

// Tells whether a thread has run. Two equal activities with sleeping == true mean that it slept all
// the time, so that what only it writes has not changed.
struct ThreadActivity {
  bool sleeping = false;       // state S, D, T or t
  std::uint64_t switches = 0;  // voluntary and involuntary context switches
  friend bool operator==(const ThreadActivity&, const ThreadActivity&) = default;
};
// ESRCH: there is no such thread.
Result<ThreadActivity> thread_activity(pid_t pid, pid_t tid);

}  // namespace ctxconf::sys
