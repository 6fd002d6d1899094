// How long to wait between snapshots of all processes. If they are expensive (a million mappings),
// they get a tenth of the time. A single expensive one does not count: the first one reads
// libraries, and a busy machine delays any snapshot while the program continues.
#pragma once

#include <algorithm>
#include <chrono>

namespace ctxconf::conformance {

class SnapshotPace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::milliseconds kTick{100};

  // The time to wait after a round of snapshots that took this long.
  Duration wait_after(Duration round) {
    const auto usual = std::min(round, last_);
    last_ = round;
    return std::max<Duration>(kTick, 9 * usual);
  }

 private:
  Duration last_{};
};

}  // namespace ctxconf::conformance
