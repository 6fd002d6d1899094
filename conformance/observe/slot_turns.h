// Which thread's slot is watched if nobody selects one (`wrap --watch threads`): the threads take
// turns, in the order of their ids.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class ImageRecorder;

struct WatchedThread {
  pid_t process = 0;
  std::optional<sys::RemoteAddr> pointer;    // its TLS, when known
  std::optional<sys::WatchedWords> watches;  // the words in its debug registers
};
using WatchedThreads = std::map<pid_t, WatchedThread>;

// The turns of one image.
struct SlotTurn {
  bool begun = false;   // a thread of this image was chosen
  pid_t last = 0;       // chosen last, even if it could not be watched
  pid_t next = 0;       // to be watched when it stops; 0: none
  int ticks = 0;        // since the last choice
  std::set<pid_t> had;  // threads that were watched
};

class SlotTurns {
 public:
  // Both must outlive this.
  SlotTurns(sys::Tracer& tracer, const WatchedThreads& threads)
      : tracer_(tracer), threads_(threads) {}

  // Call this once a tick and when a turn is over: interrupts the next thread.
  void choose(ImageRecorder& image, pid_t process);
  // The thread is stopped, and is watched from now on.
  void watch_here(ImageRecorder& image, pid_t process, pid_t tid);

 private:
  std::optional<sys::RemoteAddr> slot_in(const ImageRecorder& image, pid_t process,
                                         pid_t tid) const;
  std::uint64_t steps_for_turn(ImageRecorder& image, pid_t process, pid_t tid) const;

  sys::Tracer& tracer_;
  const WatchedThreads& threads_;
  std::size_t images_ = 0;  // images in which a thread was chosen
};

}  // namespace ctxconf::conformance
