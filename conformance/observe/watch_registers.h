// Shares the debug registers of the threads among the instruments. Sets a thread's registers while
// it is stopped, directly before it continues. A header for which all threads are watched is armed:
// the thread that showed it waits until all others have stopped once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "conformance/observe/image_recorder.h"
#include "conformance/observe/traced_processes.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class WatchRegisters {
 public:
  using Clock = std::chrono::steady_clock;
  // A thread that waited may continue.
  using GoOn = std::function<void(pid_t process, pid_t tid)>;

  // `patience`: how long a thread waits for others that do not stop. `tracer` and `processes` must
  // outlive this.
  WatchRegisters(sys::Tracer& tracer, TracedProcesses& processes, GoOn go_on,
                 Clock::duration patience);

  // The thread is stopped: sets its registers as the instruments want.
  void set(ImageRecorder& image, pid_t tid);
  // The same before it continues; also tells the instruments. `hit_may_wait`: it may have stored
  // already, and the trap comes after this stop.
  void settle(ImageRecorder& image, pid_t process, pid_t tid, bool hit_may_wait);
  // If there is a header to arm: true if the thread, which showed it, must wait.
  bool arm(ImageRecorder& image, pid_t process, pid_t caller);

  // Makes the instruments watch the context of this thread (Instrument::select()), and interrupts
  // the threads whose registers change for that.
  void select(ImageRecorder& image, pid_t tid);
  // Whether they have all stopped, or the image has ended.
  bool is_selection_over() const { return !selection_ || missing().empty(); }
  // Tells the instrument which have not.
  void end_selection();

  // Threads that have waited long enough continue.
  void give_up(Clock::time_point now);
  // When give_up() must be called next.
  std::optional<Clock::time_point> due() const;
  void postpone(Clock::duration time);
  // Another image runs in the process, or none.
  void forget(pid_t process);

 private:
  struct Arming {
    pid_t caller = 0;  // stopped after the call that showed the header
    Instrument* instrument = nullptr;
    sys::WatchedWords words;
    std::set<pid_t> missing;
    std::set<pid_t> stuck;  // nobody waits for these
    Clock::time_point give_up;
  };
  struct OfProcess {
    std::optional<Arming> arming;
    std::set<pid_t> stuck;  // have not stopped since an arming
    bool watches = false;   // a thread may be watched
  };

  struct Selection {
    pid_t process = 0;
    pid_t thread = 0;  // whose registers change; 0: those of all threads
    Instrument* instrument = nullptr;
  };

  std::vector<pid_t> missing() const;  // threads of the selection without its words
  void disarm(pid_t process);
  void finish_arming(OfProcess& p, pid_t process);

  sys::Tracer& tracer_;
  TracedProcesses& processes_;
  GoOn go_on_;
  Clock::duration patience_;
  std::map<pid_t, OfProcess> by_process_;
  std::optional<Selection> selection_;
};

}  // namespace ctxconf::conformance
