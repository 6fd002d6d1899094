// A program with all that it forks and execs, recorded step by step by its caller: `wrap` steps
// until the program ends, `run` from one reply to the next.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/snapshot.h"
#include "conformance/observe/wrap.h"
#include "sys/access_watchdog.h"
#include "sys/result.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class Recording {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts options.argv; uses only the descriptors and the environment from `launch`. The error is
  // that of sys::Tracer::launch(). `timeline` must outlive this; used by one thread.
  static sys::Result<Recording> start(const WrapOptions& options, sys::Launch launch,
                                      Timeline& timeline);
  Recording(Recording&&) noexcept;
  ~Recording();  // ends what is left, unrecorded

  pid_t root() const;
  // Handles at most one event and what is due. Returns after an event, at `until`, or when a
  // descriptor of wake_for() is ready. False when no process is left.
  sys::Result<bool> step(Clock::time_point until);
  sys::Result<> wake_for(int fd, short events);  // see sys::Tracer::wake_for()
  bool was_idle() const;  // the last step() handled no event, so a descriptor may be ready
  bool has_single_stepped() const;  // the last step() handled one instruction of a stepped thread

  bool interrupted() const;  // by a signal to this process, or paused
  bool paused() const;       // a process is stopped at options.pause_at: only finish() may follow
  const std::string& runaway() const;  // not empty: too many processes; says how many
  // Both move by late().
  Clock::time_point begun() const;
  std::optional<Clock::time_point> published() const;  // when a context last appeared
  // The total time for which job control stopped us, a thread was single-stepped, or we forked it.
  Clock::duration late() const;
  // Somebody waits from now on, with a deadline that also moves. It moves a limited number of times
  // until the next wait begins.
  void begin_wait();

  std::vector<pid_t> processes() const;  // living, in order of birth
  // The image that a process runs; nothing for a process that is not recorded.
  std::optional<ImageKey> image_of(pid_t pid) const;
  // Looks at all images and their threads. Stops running threads for a moment each. Lists threads
  // that do not stop until `deadline` as unseen.
  std::vector<ImageView> look(SnapshotDepth depth, Clock::time_point deadline);

  // Watches the context of this thread. With options.record_stores: the record that it had at its
  // last look, in all threads of the process; threads that do not stop until `deadline` are not
  // watched. If the thread had no record, the previous one stays watched. With options.slot_steps:
  // its variable and the record there; step_changes() single-steps through changes to them.
  void watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline);

  void inject(bool on);  // options.injections: on or off from now on
  // options.steps: from now on, single-steps through changes to a header that begin, or no longer
  // does; a step trace that is in progress then ends.
  void step_changes(bool on);
  // With step_changes(): the thread is about to pass a gate, and changes the header after it. If
  // its process has a context, this also single-steps through what it does until its first store.
  void step_from_gate(pid_t pid, pid_t tid);
  // Whether it was ended because a fork made in it (options.forks) did not finish.
  bool is_held_up(pid_t pid) const;
  // A reader on another processor copies the context of the process again and again until
  // end_race(); one process at a time. If that is impossible, the image says why.
  void begin_race(pid_t pid);
  void end_race();
  // options.forks: at each recorded call and each store to the header, on or off from now on.
  void probe_forks(bool on);
  // The process with this number in its own view: with options.pid_namespace the one with this
  // own_pid. Nothing: none is known.
  std::optional<pid_t> process_of(std::int64_t number) const;
  // A thread of the process is about to publish or to update: its mappings are recorded and may be
  // made to fail.
  void begins_to_publish(pid_t pid, pid_t tid);
  // Takes the periodic look now; stops running threads for it, waiting until `deadline`.
  void look_around(Clock::time_point deadline);
  std::size_t threads() const;  // of all processes, without threads that have begun to end
  void last_look();             // at all running images, before they are ended
  void terminate(
      bool politely);  // from now on we cause signals that kill; politely: SIGTERM to all
  // Kills what is left and appends processes, stops and notes to the timeline.
  sys::Result<> finish();

 private:
  struct State;
  explicit Recording(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// While it exists, calls `options.unreachable` if a page of a testee does not arrive in time.
sys::AccessWatchdog watchdog(const WrapOptions& options);

}  // namespace ctxconf::conformance
