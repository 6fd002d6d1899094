// Level steps of thread context: what a reader of a stopped thread could have copied of its
// variable and its record after every instruction, from the store that begins a change until the
// change is over. The four watchpoints are the variable and three words of the record: those with
// the beginning of the trace id, the span id, and byte 24.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/code_locations.h"
#include "conformance/observe/instructions.h"
#include "conformance/observe/instrument.h"
#include "conformance/observe/threads.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

struct SlotStepLimits {
  std::uint64_t steps = 50'000;       // of one step trace
  std::uint64_t all_steps = 100'000;  // of one image
  std::uint64_t stable = 1000;        // instructions after the last change: it is over
  std::size_t step_traces = kMaxStepTraces;
  std::size_t views = kMaxViews;
  std::uint64_t record = 4096;  // bytes of one copy
  std::uint64_t bytes = std::uint64_t{2} << 20U;
};

// The limits for all step traces of a thread together, while it is the watched thread.
struct SlotTurnLimits {
  std::uint64_t steps = UINT64_MAX;
  std::size_t step_traces = SIZE_MAX;
};

// Decides which thread is stepped, and records; its user moves the threads. One step trace at a
// time.
class SlotStepRecorder : public Instrument {
 public:
  // `threads`: of the same image; must outlive this.
  SlotStepRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files,
                   const ThreadRecorder& threads, SlotStepLimits limits = {});

  bool is_stepping(pid_t tid) const { return trace_ && trace_->tid == tid; }
  bool steps(pid_t tid) const override { return is_stepping(tid); }
  void watch_failed(const std::string& why) override { give_up(why); }
  void stored(const sys::WatchpointHit& hit, StoppedAt at) override;
  bool stepped(const sys::Stepped& e, StoppedAt at) override;
  void ended(pid_t tid) override;
  void end_steps(pid_t tid, const std::string& because) override;
  void stop_stepping() override { end_over(); }
  std::uint64_t steps_under_way() const override { return trace_ ? trace_->steps : 0; }
  // The words for which the thread is watched.
  std::optional<sys::WatchedWords> watched(pid_t tid) const override;
  Rewatched select(pid_t tid, std::optional<sys::RemoteAddr> thread_pointer) override;
  // From now on, watches this thread, which is stopped or sleeps; its variable is at `slot`.
  // `header`: of the process context, if known.
  void watch(pid_t tid, sys::RemoteAddr slot, std::optional<sys::RemoteAddr> header,
             SlotTurnLimits turn = {});
  // The thread is stopped directly after such a store, and no step trace is active: one begins, ...
  void begin(const sys::WatchpointHit& hit);
  // ... or the next one begins with the current state.
  void pass();
  // Takes a step of the thread that is single-stepped.
  void stepped(const sys::Stepped& e);
  void end(const std::string& because);  // early
  void end_over();                       // the change was over
  // No step traces begin until watch().
  void give_up(const std::string& why);
  bool gave_up() const { return gave_up_; }
  void unseen(const std::string& why);           // why some step traces are missing
  pid_t watched_thread() const { return tid_; }  // 0: none
  std::size_t traces_of_turn() const { return turn_traces_; }
  // No further step trace of this thread begins until watch(), because it might be cut.
  bool turn_is_over() const;
  std::uint64_t steps_left() const {
    return limits_.all_steps - std::min(limits_.all_steps, steps_);
  }
  void forget();  // the watched thread has ended

  void add_to(Image& image, bool saw_context) override;

 protected:
  const ThreadRecorder& threads() const { return threads_; }
  // Gives up if threads of this program cannot be watched.
  bool can_watch();
  // The address of the thread's variable, if it has one.
  std::optional<sys::RemoteAddr> variable_of(pid_t tid, sys::RemoteAddr thread_pointer) const;

 private:
  struct Seen {
    std::uint64_t value = 0;
    std::uint64_t wanted = 0;  // bytes that the record announces
    std::vector<std::byte> record;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  Seen look() const;
  bool differs();
  void add(Seen now, std::optional<std::uint32_t> location, bool by_another = false);
  bool is_by_another(const Seen& now, std::uint64_t pc) const;

  std::shared_ptr<EventOrder> order_;
  const ThreadRecorder& threads_;
  SlotStepLimits limits_;
  CodeLocations locations_;
  KnownInstructions instructions_;
  pid_t tid_ = 0;  // the watched thread; 0: none
  sys::RemoteAddr slot_;
  std::optional<sys::RemoteAddr> header_;
  std::optional<SlotStepTrace> trace_;
  Seen last_;
  std::vector<std::byte> next_;  // keeps its memory
  std::uint64_t pc_ = 0;         // of the next instruction
  std::uint64_t changed_at_ = 0;
  std::vector<SlotStepTrace> traces_;
  std::uint64_t steps_ = 0;
  SlotTurnLimits turn_;
  std::uint64_t turn_steps_ = 0;
  std::size_t turn_traces_ = 0;
  std::uint64_t bytes_ = 0;
  bool gave_up_ = false;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
