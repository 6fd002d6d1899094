#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace ctxconf::conformance::reader {

// The processor time that all these processes used together. Those that have ended do not count.
std::chrono::nanoseconds processor_time(const std::vector<pid_t>& processes);

// The time that a reader could use: without the time in which it waited for a processor, or for
// ctxconf at a call.
class UsableTime {
 public:
  // Between two measurements. With a shorter time, the reader would mostly be found at a call.
  static constexpr std::chrono::milliseconds kInterval{50};

  // Since the first call. `processes`: those of the reader. Measures at most once in kInterval.
  std::chrono::nanoseconds by_now(const std::vector<pid_t>& processes);

 private:
  std::chrono::nanoseconds sum_{};
  std::chrono::steady_clock::time_point now_;
  std::optional<std::chrono::nanoseconds> ran_;
};

}  // namespace ctxconf::conformance::reader
