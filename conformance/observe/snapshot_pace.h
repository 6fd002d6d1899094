// How long to wait between looks at all processes. If looks are expensive (a million mappings),
// they get a tenth of the time. A single expensive look does not count: the first one reads
// libraries, and a busy machine delays any look while the program continues.
#pragma once

#include <algorithm>
#include <chrono>

namespace ctxconf::conformance {

class SnapshotPace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::milliseconds kTick{100};

  // The wait after a look that took this long.
  Duration behind(Duration look) {
    const auto usual = std::min(look, last_);
    last_ = look;
    return std::max<Duration>(kTick, 9 * usual);
  }

 private:
  Duration last_{};
};

}  // namespace ctxconf::conformance
