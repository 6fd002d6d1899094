// From evidence to a result: every selected requirement against every image
// that published.
#pragma once

#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// The deepest level that this version judges in one mode.
constexpr Level deepest_recorded(Mode mode) {
  switch (mode) {
    case Mode::kRun:
      return Level::kRace;
    case Mode::kWrap:
      return Level::kStores;
    default:
      return Level::kSnapshot;
  }
}

// Fills what follows from the evidence: images, results, problems, notes, host.
// Expectations, totals and exit code come later (verdict/).
RunResult judge(const Timeline& timeline, const std::vector<const Requirement*>& selected);

}  // namespace ctxconf::conformance
