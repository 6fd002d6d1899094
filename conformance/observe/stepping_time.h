// The time for which threads stand still because ctxconf single-steps or forks them, and reports
// about a step trace that is in progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "conformance/observe/wrap.h"

namespace ctxconf::conformance {

class SteppingTime {
 public:
  using Clock = std::chrono::steady_clock;

  // `options` must outlive this.
  explicit SteppingTime(const WrapOptions& options) : options_(options) {}

  // Call these around each wait for an event; `stepped`: the event was a step. Both return the time
  // that deadlines gain: from one step to the next, all of it.
  Clock::duration begin_wait(Clock::time_point now);
  Clock::duration end_wait(Clock::time_point now, bool stepped);
  void add(Clock::duration time) { in_all_ += time; }

  Clock::duration in_all() const { return in_all_; }
  bool is_used_up() const;  // more than all step traces may take: StoppedAt::out_of_time
  bool has_stepped() const { return stepped_.has_value(); }  // the last event was a step

  // Calls options.stepping, if there is something to say. `steps`: of the longest step trace in
  // progress; 0: there is none.
  void tell(std::uint64_t steps, Clock::time_point now);

 private:
  const WrapOptions& options_;
  Clock::duration in_all_{};
  Clock::time_point asked_;
  std::optional<Clock::time_point> stepped_;  // set if the last event was a step; its time
  // The steps of the step trace that was reported last; 0: it is over, or there was none.
  std::uint64_t told_steps_ = 0;
  Clock::time_point begun_;
  Clock::time_point told_;
};

}  // namespace ctxconf::conformance
