// The fault matrix of `wrap --faults`: runs the program again and again, each time under one fault.
#pragma once

#include <string>

#include "conformance/command/options.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"

namespace ctxconf::conformance {

struct FaultsEnding {
  bool interrupted = false;   // some cells are missing
  std::string unreachable;    // not empty: why a cell could not be observed; the matrix stopped
  std::string harness_fault;  // ctxconf's own
};

// Whether a glob of --faults matches a cell.
bool names_fault(const std::string& glob);

// Runs after the run without a fault, which is in `timeline` and took `seconds`. Adds the cells
// whose names match options.faults. `wrap` has the options of that run, `wrapped` its result.
FaultsEnding run_faults(const JudgeOptions& options, const WrapOptions& wrap,
                        const Wrapped& wrapped, double seconds, Timeline& timeline);

}  // namespace ctxconf::conformance
