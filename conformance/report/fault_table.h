// The fault matrix as text: one row per step, one column per errno.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Inert on a terminal; no lines without faults.
std::vector<std::string> fault_matrix_lines(std::span<const FaultOutcome> faults);

}  // namespace ctxconf::conformance
