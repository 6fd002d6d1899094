// One way to observe an image of a process. A recording tells its instruments what happens in the
// image, in the order in which ImageRecorder lists them. It asks each what it needs: the words for
// which a thread is watched, and the threads that are single-stepped. At the end of the image an
// instrument adds what it has recorded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// Why a program is not single-stepped.
inline constexpr const char* kOwnTrapAction = "the program has an action of its own for SIGTRAP";

// The situation of a thread when an instrument gets its event.
struct StoppedAt {
  bool alone = false;        // nobody else has run in its memory since its last instruction
  bool may_step = false;     // step traces may begin
  bool out_of_time = false;  // single-stepping has taken all the time that a recording gives it
  const char* call = "";  // the system call in which the kernel stored; empty: an instruction did
  std::uint8_t call_words = 0;  // those that it may have stored, a bit for each watched word
};

// Whose words of Instrument::watched() a call has changed.
enum class Rewatched { kNobody, kThread, kAllThreads };

class Instrument {
 public:
  Instrument() = default;
  Instrument(const Instrument&) = delete;
  Instrument& operator=(const Instrument&) = delete;
  virtual ~Instrument() = default;

  // What the instrument needs. A recording asks when a thread is about to continue.

  // The words for whose stores the thread is watched; nothing: do not watch the thread.
  virtual std::optional<sys::WatchedWords> watched(pid_t /*tid*/) const { return std::nullopt; }
  // Whether the words are watched in every thread. When they change, a thread that shows a new
  // header does not continue before all others have them: see armed().
  virtual bool watches_all_threads() const { return false; }
  virtual bool is_to_be_armed() const { return false; }
  // Whether the thread is single-stepped.
  virtual bool steps(pid_t /*tid*/) const { return false; }
  // Whether it sees each store of the thread without watchpoints, which is faster.
  virtual bool sees_all_stores_of(pid_t /*tid*/) const { return false; }
  // Whether it chooses the threads that it watches, and has none now: see named().
  virtual bool chooses_threads() const { return false; }

  // Requests of who records. The threads may be running.

  // Watch the context of this thread from now on. `thread_pointer`: its TLS, if known.
  virtual Rewatched select(pid_t /*tid*/, std::optional<sys::RemoteAddr> /*thread_pointer*/) {
    return Rewatched::kNobody;
  }
  // The threads that select() named have the words of watched(), except `unwatched`.
  virtual void selected(std::vector<pid_t> /*unwatched*/) {}
  // The thread is about to pass a gate, and changes the header after it. True: interrupt it there.
  virtual bool will_pass_gate(pid_t /*tid*/) { return false; }
  // No further step trace begins; the current one ends.
  virtual void stop_stepping() {}
  // About ten times a second, after a look at the sleeping threads.
  virtual void ticked() {}

  // Events. Their thread is stopped meanwhile.

  // All threads now have the words of watched(), except `unwatched`, which may have run without.
  virtual void armed(pid_t /*tid*/, std::vector<pid_t> /*unwatched*/) {}
  // A thread could not be watched.
  virtual void watch_failed(const std::string& /*why*/) {}
  // A system call that concerns a publication begins, or has returned.
  virtual void call_entered(const SystemCall& /*call*/) {}
  virtual void call_left(const sys::SyscallExit& /*e*/) {}
  // The thread has given a context its name, and was sampled after that.
  virtual void named(pid_t /*tid*/) {}
  // The thread has stored to the words of watched().
  virtual void stored(const sys::WatchpointHit& /*hit*/, StoppedAt /*at*/) {}
  // The thread has made a step. True: report the words of the step to all instruments as a store.
  virtual bool stepped(const sys::Stepped& /*e*/, StoppedAt /*at*/) { return false; }
  // The thread was interrupted and sampled. The trap of a store that it has just made may follow.
  virtual void interrupted(pid_t /*tid*/) {}
  // Record what has changed unseen, before the next event.
  virtual void catch_up(pid_t /*tid*/) {}
  // The thread continues from a stop, and no further event of this stop follows.
  virtual void resumed(pid_t /*tid*/) {}
  virtual void ended(pid_t /*tid*/) {}
  // Ends the step trace of this thread, if there is one.
  virtual void end_steps(pid_t /*tid*/, const std::string& /*because*/) {}

  // Instructions of the current step trace.
  virtual std::uint64_t steps_under_way() const { return 0; }
  // Adds its evidence; nothing else is called after that. `saw_context`: a snapshot of the image
  // shows a context.
  virtual void add_to(Image& image, bool saw_context) = 0;
  virtual std::uint64_t stored_bytes() const { return 0; }
};

// Says why evidence is missing. It must come after the instrument whose `*_unseen` it sets, if that
// one is in the list as well.
class AbsentInstrument : public Instrument {
 public:
  // `unseen`: the member of the image that gets `why`.
  AbsentInstrument(std::string Image::* unseen, std::string why)
      : unseen_(unseen), why_(std::move(why)) {}

  void add_to(Image& image, bool /*saw_context*/) override { image.*unseen_ = why_; }

 private:
  std::string Image::* unseen_;
  std::string why_;
};

}  // namespace ctxconf::conformance
