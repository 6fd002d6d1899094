// The event loop of a recording: receives the events of the tracer, passes each to the image of its
// process, and moves the threads. Recording (recording.h) is its interface.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/faults/injection.h"
#include "conformance/observe/fork_probes.h"
#include "conformance/observe/image_recorder.h"
#include "conformance/observe/running_race.h"
#include "conformance/observe/sampler.h"
#include "conformance/observe/stepping_time.h"
#include "conformance/observe/stopped_time.h"
#include "conformance/observe/traced_processes.h"
#include "conformance/observe/watch_registers.h"
#include "conformance/observe/wrap.h"
#include "sys/result.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class RecordingLoop {
 public:
  using Clock = std::chrono::steady_clock;

  // Both must outlive this. The program of `tracer` was started, and nobody has taken its events.
  RecordingLoop(const WrapOptions& options, Timeline& timeline, sys::Tracer tracer);

  // Handles one event, or what is due until then. False when nothing is left.
  sys::Result<bool> step(Clock::time_point until);
  bool was_idle() const { return idle_; }  // the last step() handled no event
  bool has_single_stepped() const { return stepping_time_.has_stepped(); }
  sys::Result<> finish();

  sys::Tracer& tracer() { return tracer_; }
  const TracedProcesses& processes() const { return processes_; }
  const Sampler& sampler() const { return sampler_; }
  ForkProber& forks() { return forks_; }
  RunningRace& race() { return race_; }
  bool is_paused() const { return paused_.has_value(); }
  const std::string& runaway() const { return runaway_; }
  Clock::time_point begun() const { return begin_; }
  Clock::duration late() const { return stopped_.in_all() + stepping_time_.in_all(); }
  void begin_wait() { stopped_.begin_wait(); }
  void set_ending() { ending_ = true; }
  void set_injecting(bool on) { injecting_ = on; }
  void set_stepping(bool on);

  // These handle events until there is nothing to wait for.
  std::vector<ImageView> look(SnapshotDepth depth, Clock::time_point deadline);
  void look_around(Clock::time_point deadline);
  void watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline);

  void last_look();
  void step_from_gate(pid_t pid, pid_t tid);

 private:
  void on(const sys::NewTask& e);
  void on(const sys::SyscallEntry& e);
  void on(const sys::SyscallExit& e);
  void on(const sys::Execed& e);
  void on(const sys::Exiting& e);
  void on(const sys::SignalStop& e);
  void on(const sys::Interrupted& e);
  void on(const sys::WatchpointHit& e);
  void on(const sys::Stepped& e);
  void on(const sys::Gone& e);

  // Handles events until there is nothing to wait for, or until nothing is left. The deadline moves
  // by the time for which threads stood still for us.
  template <class Condition>
  bool step_until(Clock::time_point deadline, Condition is_done);  // false: it cannot go on
  // Checks a condition that no event tells, in intervals. False: it is not done.
  template <class Condition>
  bool poll_until(Clock::time_point deadline, Clock::duration interval, Condition is_done);
  // Waits until each thread that was made has had its first stop.
  void await_new_threads(Clock::time_point deadline);
  ImageRecorder* image(pid_t pid) const { return processes_.image(pid); }
  void end_image(TracedProcess& w, const std::string& ending);
  void finish(TracedProcess& w, const std::string& ending);
  bool begin_call(const sys::SyscallEntry& e);                 // true: its result is wanted
  bool begin_call_in_lent_memory(const sys::SyscallEntry& e);  // the same
  // Notes a call in which the kernel may store to the watched header.
  void begin_storing_call(const sys::SyscallEntry& e);
  // The call that was noted, which is over or was not made.
  std::optional<StoringCall> end_storing_call(pid_t tid);
  void stored(const sys::WatchpointHit& e, const char* call);
  bool give(const sys::SyscallEntry& e, const InjectResult& answer);
  bool may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) const;
  void look_at_filters(pid_t pid, pid_t tid);
  void look_before_handover(pid_t pid, pid_t tid);
  void catch_up(pid_t pid, pid_t tid);
  void probe_fork(pid_t pid, pid_t tid, std::string at);
  void end_steps(pid_t pid, pid_t tid, const std::string& because);
  StoppedAt stopped_at(pid_t pid, pid_t tid) const;
  bool arm(pid_t pid, pid_t caller);
  void settle(pid_t pid, pid_t tid, bool hit_may_wait = false);
  void go_on(pid_t pid, pid_t tid, int signo = 0);
  void move(pid_t pid, pid_t tid, int signo = 0);
  bool is_to_pause(pid_t pid) const;
  // Everything with a deadline gets this additional time.
  void postpone(Clock::duration time);
  void stood_still_for(Clock::duration time);

  const WrapOptions& options_;
  Timeline& timeline_;
  sys::Tracer tracer_;
  TracedProcesses processes_{options_, tracer_};
  Sampler sampler_{options_, tracer_, processes_};
  WatchRegisters registers_;
  ForkProber forks_{options_, tracer_};
  RunningRace race_{options_};
  StoppedTime stopped_;
  SteppingTime stepping_time_{options_};
  std::set<pid_t> naming_;     // threads in a call that gives a context its name
  std::set<pid_t> unmarking_;  // threads in madvise(..., MADV_DOFORK)
  bool ending_ = false;
  bool injecting_ = options_.inject_at_once;
  bool stepping_ = options_.steps_at_once;
  bool idle_ = true;
  std::string runaway_;
  std::optional<std::pair<pid_t, pid_t>> paused_;  // process and thread
  Clock::time_point begin_ = Clock::now();
};

}  // namespace ctxconf::conformance
