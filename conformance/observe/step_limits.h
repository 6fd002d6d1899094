// How much of a change to the header is single-stepped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

struct StepLimits {
  std::uint64_t steps = 100'000;      // of one step trace
  std::uint64_t all_steps = 400'000;  // of one image
  // The limits between a gate and the first store, which are counted separately.
  std::uint64_t early_steps = 50'000;
  std::uint64_t all_early_steps = 100'000;
  // When a valid header has not changed for this long, the change is over.
  std::uint64_t stable = 1000;
  std::size_t step_traces = kMaxStepTraces;
  std::size_t views = kMaxViews;
  std::uint64_t payload = std::uint64_t{64} << 10U;  // bytes that are compared
  std::uint64_t bytes = std::uint64_t{2} << 20U;     // of payloads that are kept
};

}  // namespace ctxconf::conformance
