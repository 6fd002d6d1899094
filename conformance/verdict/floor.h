// What a run must have judged, whatever its verdicts: a program, a kernel or a container that shows
// less turns failures into `unobservable` and `n/a`. Pure: results in, problems out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/verdict/expectations.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

struct Floor {
  // Globs over ids: what they name may not be unobservable. A run that selects nothing of what one
  // names is below it as well.
  std::vector<std::string> observable;
  // An earlier run, in its order. What that judged and this one does not, or does not select, is
  // below the floor.
  std::string baseline_file;
  std::vector<std::pair<std::string, Outcome>> baseline;

  bool must_be_observable(std::string_view id) const;
};

// The run as a floor for others.
std::vector<std::pair<std::string, Outcome>> judged_in(const RunResult& run);

// A verdict on the program: not n/a, unobservable, or a fault of ours.
bool is_judged(Outcome o);

// Fills RunResult::floor, in the order of the results; `expectations`, where there are any, has
// lines of the kind `judged`, which say nothing of what was not selected. What the processor of the
// run cannot need may be missing.
void apply_floor(const Floor& floor, const Expectations* expectations, RunResult& run);

}  // namespace ctxconf::conformance
