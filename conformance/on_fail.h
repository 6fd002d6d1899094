// `--on-fail`: what becomes of a program after its first failure. To be left standing where it
// failed it is run once more, up to the event of its recording that was wrong.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/observe/wrap.h"
#include "conformance/report/run_result.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// What --on-fail needs, before anything is started. Not 0: the exit code, it was said on stderr.
int check_on_fail(const JudgeOptions& options);

// Stop, pause or gdb: the rest is left out once something has failed.
bool ends_at_failure(const JudgeOptions& options);
// Whether a recording shows an unexpected failure.
bool shows_failure(const JudgeOptions& options, const Prepared& prepared, const Timeline& timeline);

struct FailurePlace {
  std::string requirement;
  PausePoint at;
  std::string text;   // what is there: code, or a call; hostile
  std::string group;  // run: of checks
};

// Records the program once more, to its end or until `at`: `paused` is then called.
using RunAgain = std::function<Timeline(const PausePoint& at, const std::string& group,
                                        std::function<void(pid_t, pid_t)> paused)>;
// After a run that ended with `code`: for pause and gdb runs it again where there is a failure, and
// says what became of it. Returns `code`.
int stand_at_failure(const JudgeOptions& options, const RunResult& run, const Timeline& timeline,
                     int code, const RunAgain& again);

}  // namespace ctxconf::conformance
