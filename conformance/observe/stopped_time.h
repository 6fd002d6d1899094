// Job control (Ctrl-Z, SIGSTOP to the group) stops this process together with the program that it
// observes: that time counts for neither, and all that has a deadline gains it.
#pragma once

#include <chrono>
#include <limits>

namespace ctxconf::conformance {

class StoppedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // So late wakes up who was stopped, and hardly one that other load keeps waiting.
  static constexpr std::chrono::milliseconds kLate{1000};
  // A host that is late with every wake-up does not stop anything: where waits are begun, each
  // gains only so many times.
  static constexpr int kMostInAWait = 10;

  void begin_wait() { left_ = kMostInAWait; }
  // A sleep until `due` ended at `now`. Returns what is gained by that.
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
