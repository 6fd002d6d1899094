// The one place that turns what a run found into its exit code.
#pragma once

#include <string>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

inline constexpr int kExitClean = 0;
inline constexpr int kExitFailed = 1;         // an unexpected failure, crash or hang
inline constexpr int kExitUsage = 2;          // a bad flag, an unknown id, nothing selected
inline constexpr int kExitUnreachable = 3;    // no target that can be observed, no report written
inline constexpr int kExitNotJudged = 4;      // nothing could be judged, or not what was required
inline constexpr int kExitStale = 5;          // the expectations file needs mending
inline constexpr int kExitHarnessError = 70;  // a bug of ours

struct ExitOptions {
  bool strict = false;      // warnings fail
  std::string unreachable;  // not empty: why the target could not be reached
  std::string unwritten;    // not empty: what of the reports could not be written
  std::string incomplete;   // not empty: what was asked for and could not be judged
};

// What remains of an exit code where something could not be written.
int unwritten_code(int code);

// Counts the outcomes. An expected failure is counted under its outcome as well.
Totals count(const RunResult& run);

// A failure, crash or hang that the expectations do not have; with `strict` also a warning.
bool is_unexpected_failure(const RequirementResult& result, bool strict);

// Sets totals, exit_code and exit_reason, after the expectations and the floor were applied.
// Of several codes the first of 70, 2, 3, 1, 5, 4, 0 wins.
void conclude(const ExitOptions& options, RunResult& run);

}  // namespace ctxconf::conformance
