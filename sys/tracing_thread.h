// What ThreadStop and ThreadsStopper share: a thread of ours that traces. A tracee that does not
// stop cannot be detached; the kernel lets go of it when the tracing thread ends.
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "sys/result.h"

namespace ctxconf::sys {

// Sleeps a little longer each time. Yielding instead would let every runnable thread go first.
class Pauses {
 public:
  void pause();

 private:
  std::chrono::nanoseconds next_ = std::chrono::microseconds(50);
};

// Happens once. Waits on a futex at once: std::binary_semaphore yields first.
class Event {
 public:
  Event() { sem_init(&semaphore_, 0, 0); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { sem_destroy(&semaphore_); }
  void happen() { sem_post(&semaphore_); }
  void wait();
  // False: it has not happened in that time.
  bool wait_for(std::chrono::nanoseconds time);

 private:
  sem_t semaphore_;
};

class TracingThread {
 public:
  TracingThread() = default;
  TracingThread(const TracingThread&) = delete;
  TracingThread& operator=(const TracingThread&) = delete;
  ~TracingThread() { join(); }

  // Returns errno. All signals are blocked in the thread, see also ignore_stop_signals(), and it
  // can be cancelled only in wait_for_event() and seize().
  int start(std::size_t stack_bytes, std::function<void()> body);
  // Ends the thread if it is in one of these, or when it comes there. There the frames of
  // `body` need no destructor but those that may run while the thread is cancelled.
  void cancel() const;
  // Returns when the kernel has let go of everything that the thread traced.
  void join();

 private:
  void run();

  std::function<void()> body_;
  pthread_t thread_{};
  bool started_ = false;
  pid_t own_tid_ = 0;
};

// In a tracing thread, before it traces: Linux sends a SIGCHLD for each stop. If this process does
// not handle that, Linux drops it at once where the tracing thread does not block it; otherwise it
// wakes another thread of this process, for nothing.
void ignore_stop_signals();

// In a tracing thread: waits until a tracee of this thread, one or all (0), stops or ends. Takes
// nothing: not the stop, whose signal would be lost if this process were killed before the detach,
// and not the exit status, which belongs to the parent. Errors are those of waitid.
Result<siginfo_t> wait_for_event(pid_t tid);
bool is_stop(const siginfo_t& event);
// ESRCH: gone, or a zombie. EPERM: no permission, or "is traced by process N". Waits as long as the
// process is in an exec, which in turn waits until those who trace its other threads let go.
Result<> seize(pid_t tid);
// The id of a thread may have been reused by a thread of another process. Ask about a tracee, whose
// id is not reused. One call; sends nothing.
bool is_thread_of(pid_t tid, pid_t pid);
// Lets go of a stopped tracee, with a signal that was pending for it. False: it was killed
// meanwhile, and is traced until its end is taken or the tracing thread ends.
bool let_go(const siginfo_t& stop);

std::string thread_subject(pid_t tid);

}  // namespace ctxconf::sys
