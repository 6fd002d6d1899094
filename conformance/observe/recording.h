// A program with all that it forks and execs while it is recorded, moved along by whoever asks for
// it: `wrap` until it ends, `run` from one reply to the next.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/observe/snapshot.h"
#include "conformance/observe/wrap.h"
#include "conformance/session.h"
#include "conformance/timeline.h"
#include "sys/access_watchdog.h"
#include "sys/result.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

class Recording {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts options.argv; of `launch` only what concerns descriptors and environment is asked. The
  // error is that of sys::Tracee::launch(). `timeline` outlives this; used by one thread.
  static sys::Result<Recording> start(const WrapOptions& options, sys::Launch launch,
                                      Timeline& timeline);
  Recording(Recording&&) noexcept;
  ~Recording();  // ends what is left, unseen

  pid_t root() const;
  // Handles at most one event, and what falls due; returns when there was one, at `until`, and when
  // a descriptor of wake_for() is ready. False when no process is left.
  sys::Result<bool> step(Clock::time_point until);
  sys::Result<> wake_for(int fd, short events);  // as sys::Tracee::wake_for()
  bool was_idle() const;  // the last step() handled no event, so that a descriptor may be ready

  bool interrupted() const;  // by a signal to ourselves, or paused
  bool paused() const;       // a process stands at options.pause_at: nothing but finish() is next
  const std::string& runaway() const;  // not empty: more processes than there may be; says how many
  // Both moved by late().
  Clock::time_point begun() const;
  std::optional<Clock::time_point> published() const;  // a context appeared last
  // The time for which job control stopped us, and what went by while a thread was moved by single
  // instructions or was forked by us, in all.
  Clock::duration late() const;
  // Somebody waits from now on, with a deadline that is moved, too: a bounded number of times until
  // the next is begun.
  void begin_wait();

  std::vector<pid_t> processes() const;  // alive, in order of birth
  // Which image of a process runs; nothing for those that are not recorded.
  std::optional<ImageKey> image_of(pid_t pid) const;
  // Looks at all images and their threads, which are stopped for it where they run, each for a
  // moment. Threads that do not stop until `deadline` are listed as unseen.
  std::vector<ImageView> look(Look how, Clock::time_point deadline);

  // With options.record_stores: the record that the thread had at its last look is watched from now
  // on, in all threads of the process; those that do not stop until `deadline` go without. Where it
  // had none, what is watched stays.
  void watch_record(pid_t pid, pid_t owner, Clock::time_point deadline);

  void inject(bool on);  // options.injections: from now on, or no longer
  // options.steps: changes to a header that begin from now on are walked through, or no more; one
  // that is under way is left alone then.
  void step_changes(bool on);
  // options.slot_steps: with step_changes(), changes to the variable of this thread, and to the
  // record there, are walked through from now on.
  void watch_slot(pid_t pid, pid_t owner, Clock::time_point deadline);
  // With step_changes(): the thread is about to pass a gate, behind which it changes the header.
  // What it does until its first store is walked through as well, where its process has a context.
  void step_from_gate(pid_t pid, pid_t tid);
  // It was ended, because a fork that was made in it (options.forks) did not come to an end.
  bool is_held_up(pid_t pid) const;
  // A reader on another processor copies the context of the process again and again until
  // end_race(), one process at a time. Where that cannot be, the image says why.
  void begin_race(pid_t pid);
  void end_race();
  // options.forks: at each recorded call and each store to the header from now on, or no more.
  void probe_forks(bool on);
  // The process that calls itself so: with options.pid_namespace the one with this own_pid.
  // Nothing: none is known.
  std::optional<pid_t> process_of(std::int64_t number) const;
  // A thread of the process is about to publish or to update: what it maps is recorded and may
  // fail.
  void begins_to_publish(pid_t pid, pid_t tid);
  // The look that is taken now and then, now; threads that run are stopped for it, as long as they
  // do until `deadline`.
  void look_around(Clock::time_point deadline);
  std::size_t threads() const;    // that have not begun to end, of all processes
  void last_look();               // at all that run, before they are ended
  void terminate(bool politely);  // signals that kill from now on are ours; SIGTERM to all
  // Kills what is left and appends processes, stops and notes to the timeline.
  sys::Result<> finish();

 private:
  struct State;
  explicit Recording(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// While it lives, `options.unreachable` is called when a page of a testee does not come in time.
sys::AccessWatchdog watchdog(const WrapOptions& options);

}  // namespace ctxconf::conformance
