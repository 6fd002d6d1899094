// A recording of several processes, judged process by process.
#pragma once

#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/process_verdict.h"

namespace ctxconf::conformance {

// One verdict for each process of the recording, in its order. With `strict`, warnings are
// failures. `timeline` is the same afterwards.
std::vector<ProcessVerdict> judge_each(Timeline& timeline,
                                       const std::vector<const Requirement*>& selected,
                                       bool strict);

}  // namespace ctxconf::conformance
