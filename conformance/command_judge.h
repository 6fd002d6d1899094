// What the judging commands have in common: before anything is started, and after all is recorded.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "conformance/commands.h"
#include "conformance/observe/wrap.h"
#include "conformance/output_folder.h"
#include "conformance/report/run_result.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/timeline.h"
#include "conformance/verdict/expectations.h"
#include "conformance/verdict/floor.h"

namespace ctxconf::conformance {

// What must be right before anything is started: selection, expectations, output directory.
struct Prepared {
  std::vector<const Requirement*> selected;
  SpecSelection spec;
  std::optional<Expectations> expectations;
  Floor floor;
  std::optional<OutputFolder> out;  // of --out
  std::string incomplete;           // not empty: what could not be judged although it was asked for
  std::string unwritten;            // not empty: what of --out could not be written meanwhile
  bool partial = false;             // the recording has not come to its end
  std::string seed;                 // that the program under test was given; empty: none
  bool is_told = false;  // why there is nothing to judge was said on stderr: print no report
  int exit_code = 0;     // not 0: it was said on stderr, stop
};
Prepared prepare(const JudgeOptions& options);

// What --require-observable and --baseline ask for. Not 0: the exit code, it was said on stderr.
int read_floor(const JudgeOptions& options, Floor& floor);

// Everything of a timeline that is known before something is recorded.
Timeline begin_timeline(const JudgeOptions& options, Mode mode, std::vector<std::string> target);

// Judges, applies the expectations, writes and prints; returns the exit code. `unreachable` is why
// the target could not be reached; empty: it was. `judged`, if there is one, becomes the result.
int conclude_run(const JudgeOptions& options, const Prepared& prepared, Timeline& timeline,
                 const std::string& mode, std::string unreachable = {},
                 RunResult* judged = nullptr);

// Everything that is observed is found in /proc. Not 0: the exit code, it was said on stderr.
int check_proc(const std::string& what);

// What a recording of a started program needs of this host, and where it lacks something that it
// can do without, a note. Removes the recording of an earlier run. `what` is the command. Not 0:
// the exit code, it was said on stderr.
int prepare_recording(const JudgeOptions& options, const Prepared& prepared,
                      const std::string& what, WrapOptions& recording, Timeline& timeline);
// Of this only what --out needs.
int prepare_output(const Prepared& prepared);

// What to do where a program cannot be started; `command` is ctxconf's.
std::string advice_for_start(int err, std::string_view command);

// What does not end when it is asked to: says so and exits with kExitUnreachable.
[[noreturn]] void give_up_on(pid_t pid);

}  // namespace ctxconf::conformance
