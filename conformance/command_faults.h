// The fault matrix of `wrap --faults`: the program again and again, each time with something taken
// away.
#pragma once

#include <string>

#include "conformance/commands.h"
#include "conformance/observe/wrap.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

struct FaultsEnding {
  bool interrupted = false;   // not all cells are there
  std::string unreachable;    // not empty: why a cell could not be observed, and all was ended
  std::string harness_fault;  // ctxconf's own
};

// Whether a glob of --faults matches a cell.
bool names_fault(const std::string& glob);

// After the run without a fault, which is in `timeline` and took `seconds`: adds the cells whose
// name matches options.faults. `wrap` is what that run was recorded with, `wrapped` what came of
// it.
FaultsEnding run_faults(const JudgeOptions& options, const WrapOptions& wrap,
                        const Wrapped& wrapped, double seconds, Timeline& timeline);

}  // namespace ctxconf::conformance
