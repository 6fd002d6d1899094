// From evidence to a result: every selected requirement against every image
// that published.
#pragma once

#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// The deepest level that this version records.
inline constexpr Level kDeepestRecorded = Level::kStores;
// ... in one mode.
constexpr Level deepest_recorded(Mode mode) {
  return mode == Mode::kWrap || mode == Mode::kRun ? kDeepestRecorded : Level::kSnapshot;
}

// Fills what follows from the evidence: images, results, problems, notes, host.
// Expectations, totals and exit code come later (verdict/).
RunResult judge(const Timeline& timeline, const std::vector<const Requirement*>& selected);

}  // namespace ctxconf::conformance
