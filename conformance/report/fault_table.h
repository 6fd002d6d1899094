// The fault matrix as text: a row a step, a column an errno.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

// Inert on a terminal; none without faults.
std::vector<std::string> fault_matrix_lines(std::span<const FaultOutcome> faults);

}  // namespace ctxconf::conformance
