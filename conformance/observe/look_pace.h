// How long to wait between looks at all processes. Where they are dear (a million mappings) they
// get a tenth of the time. One that alone was dear does not count: the first one reads libraries,
// and a busy machine delays any, while the program goes on.
#pragma once

#include <algorithm>
#include <chrono>

namespace ctxconf::conformance {

class LookPace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::milliseconds kTick{100};

  // The wait behind a look that took so long.
  Duration behind(Duration look) {
    const auto usual = std::min(look, last_);
    last_ = look;
    return std::max<Duration>(kTick, 9 * usual);
  }

 private:
  Duration last_{};
};

}  // namespace ctxconf::conformance
