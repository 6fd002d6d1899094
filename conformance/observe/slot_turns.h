// Level steps of thread context if nobody selects a thread (`wrap --watch threads`): the threads of
// an image take turns, in the order of their ids.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "conformance/observe/slot_steps.h"
#include "conformance/observe/watched_threads.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// What the images of a recording share.
struct SharedBySlotTurns {
  sys::Tracer& tracer;
  const WatchedThreads& threads;  // of all processes
  std::size_t images = 0;         // in which a thread was watched
};

class SlotTurnRecorder : public SlotStepRecorder {
 public:
  // `threads`: of the same image. It and `shared` must outlive this.
  SlotTurnRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files,
                   const ThreadRecorder& threads, SharedBySlotTurns& shared);

  bool chooses_threads() const override { return watched_thread() == 0; }
  void ticked() override;
  void named(pid_t tid) override;
  bool stepped(const sys::Stepped& e, StoppedAt at) override;
  void interrupted(pid_t tid) override;
  void ended(pid_t tid) override;
  void add_to(Image& image, bool saw_context) override;

 private:
  // Call this once a tick and when a turn is over: interrupts the next thread.
  void choose();
  // The thread is stopped, and is watched from now on.
  void watch_here(pid_t tid);
  pid_t process() const { return threads().context().image().key.pid; }
  std::optional<sys::RemoteAddr> slot_in(pid_t tid) const;
  std::uint64_t steps_for(bool had_a_turn) const;
  std::uint64_t steps_for_turn(pid_t tid) const;

  SharedBySlotTurns& shared_;
  bool begun_ = false;   // a thread of this image was watched
  pid_t chosen_ = 0;     // last, even if it could not be watched
  pid_t next_ = 0;       // to be watched when it stops; 0: none
  int ticks_ = 0;        // since the last choice
  std::set<pid_t> had_;  // threads that were watched
};

}  // namespace ctxconf::conformance
