// Job control (Ctrl-Z, SIGSTOP to the group) stops this process together with the program that it
// observes. That time does not count for either: every deadline moves by it.
#pragma once

#include <chrono>
#include <limits>

namespace ctxconf::conformance {

class StoppedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // A stopped process wakes up this late; other load rarely delays it that much.
  static constexpr std::chrono::milliseconds kLate{1000};
  // A host that is late with every wake-up does not stop anything: in waits, each wait gains time
  // only this often.
  static constexpr int kMostInAWait = 10;

  void begin_wait() { left_ = kMostInAWait; }
  // A sleep until `due` ended at `now`. Returns the time gained.
  Clock::duration woke(Clock::time_point due, Clock::time_point now) {
    const auto late = now - due;
    if (late <= kLate || left_ == 0) return {};
    --left_;
    in_all_ += late;
    return late;
  }
  Clock::duration in_all() const { return in_all_; }

 private:
  int left_ = std::numeric_limits<int>::max();
  Clock::duration in_all_{};
};

}  // namespace ctxconf::conformance
