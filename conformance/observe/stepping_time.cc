#include "conformance/observe/stepping_time.h"

#include <utility>

#include "conformance/observe/snapshot_pace.h"

namespace ctxconf::conformance {
namespace {

// How long all step traces may take together. With more running threads than processors, a stepped
// thread waits for its processor at each instruction.
constexpr std::chrono::milliseconds kStepping{30000};

}  // namespace

SteppingTime::Clock::duration SteppingTime::begin_wait(Clock::time_point now) {
  asked_ = now;
  if (!stepped_) return {};
  const auto time = now - *std::exchange(stepped_, std::nullopt);
  in_all_ += time;
  return time;
}

SteppingTime::Clock::duration SteppingTime::end_wait(Clock::time_point now, bool stepped) {
  if (!stepped) return {};
  stepped_ = now;
  in_all_ += now - asked_;
  return now - asked_;
}

bool SteppingTime::is_used_up() const {
  return in_all_ > std::chrono::duration_cast<Clock::duration>(kStepping * options_.timeout_scale);
}

void SteppingTime::tell(std::uint64_t steps, Clock::time_point now) {
  if (steps < told_steps_ || told_steps_ == 0) {  // another step trace, or none
    begun_ = now;
  } else if (now - told_ < SnapshotPace::kTick) {
    return;
  }
  if (steps == 0 && told_steps_ == 0) return;
  told_ = now;
  told_steps_ = steps;
  options_.stepping(steps, std::chrono::duration<double>(now - begun_).count());
}

}  // namespace ctxconf::conformance
