// The only code that turns the results of a run into its exit code.
#pragma once

#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

inline constexpr int kExitClean = 0;
inline constexpr int kExitFailed = 1;  // an unexpected failure, crash or hang
inline constexpr int kExitUsage = 2;   // a bad flag, an unknown id, nothing selected
inline constexpr int kExitUnreachable =
    3;  // the target cannot be observed, or no report can be written
inline constexpr int kExitNotJudged = 4;      // nothing could be judged, or less than required
inline constexpr int kExitStale = 5;          // the expectations file must be edited
inline constexpr int kExitHarnessError = 70;  // a bug in ctxconf

struct ExitOptions {
  bool strict = false;      // warnings fail
  std::string unreachable;  // not empty: why the target could not be reached
  std::string unwritten;    // not empty: which report could not be written
  std::string incomplete;   // not empty: which request could not be judged
};

// The exit code if something could not be written: 3, unless `code` takes precedence.
int unwritten_code(int code);

// Counts the outcomes. An expected failure also counts under its outcome.
Totals count(const RunResult& run);

// Whether the run was about a reader: then all its requirements are.
bool is_about_readers(const RunResult& run);

// Whether it is a failure, crash or hang that no expectation covers; with `strict` also a warning.
bool is_unexpected_failure(const RequirementResult& result, bool strict);

// Sets totals, exit_code and exit_reason; call it after the expectations and the floor were
// applied. Precedence of the codes: 70, 2, 3, 1, 5, 4, 0.
void conclude(const ExitOptions& options, RunResult& run);

}  // namespace ctxconf::conformance
