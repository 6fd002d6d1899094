// The floor: what a run must have judged, whatever the verdicts. A program, kernel or container
// that shows less turns failures into `unobservable` and `n/a`. Pure: results in, problems out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/verdict/expectations.h"
#include "conformance/verdict/finding.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

struct Floor {
  // Globs over ids; matching requirements must not be unobservable. A glob that matches no selected
  // requirement is also below the floor.
  std::vector<std::string> observable;
  // The verdicts of an earlier run, in its order. A requirement that it judged and that this run
  // did not judge, or did not select, is below the floor.
  std::string baseline_file;
  std::vector<std::pair<std::string, Outcome>> baseline;

  bool must_be_observable(std::string_view id) const;
};

// The run as a floor for later runs.
std::vector<std::pair<std::string, Outcome>> judged_in(const RunResult& run);

// Whether the outcome is a verdict on the program: not n/a, unobservable or a fault of ctxconf.
bool is_judged(Outcome o);

// Fills RunResult::floor, in the order of the results. `expectations` may be null; its `judged`
// lines ignore requirements that were not selected. A requirement that does not apply to the
// processor of the run may be missing.
void apply_floor(const Floor& floor, const Expectations* expectations, RunResult& run);

}  // namespace ctxconf::conformance
