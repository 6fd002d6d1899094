// `--on-fail`: what happens to a program after its first failure. `pause` and `gdb` run it again
// and stop it after the event that was wrong.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Checks what --on-fail needs before the start. Returns 0, or the exit code after a complaint.
int check_on_fail(const JudgeOptions& options);

// Whether the run ends after a failure, as with stop, pause and gdb.
bool ends_at_failure(const JudgeOptions& options);
// Whether a recording shows an unexpected failure.
bool shows_failure(const JudgeOptions& options, const Prepared& prepared, const Timeline& timeline);

struct FailureLocation {
  std::string requirement;
  PausePoint at;
  std::string text;   // code or a call; hostile
  std::string group;  // of checks; run only
};

// Records the program again, to its end or until `at`; there it calls `paused`.
using RunAgain = std::function<Timeline(const PausePoint& at, const std::string& group,
                                        std::function<void(pid_t, pid_t)> paused)>;
// After a run that ended with `code`: with pause and gdb, runs it again to its failure, if any, and
// prints the result. Returns `code`.
int stand_at_failure(const JudgeOptions& options, const RunResult& run, const Timeline& timeline,
                     int code, const RunAgain& again);

}  // namespace ctxconf::conformance
