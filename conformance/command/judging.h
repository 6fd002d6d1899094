// Shared by the judging commands: the work before the start and after the recording.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/command/options.h"
#include "conformance/command/output_folder.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/expectations.h"
#include "conformance/verdict/floor.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Checked before anything starts: selection, expectations, output directory.
struct Prepared {
  std::vector<const Requirement*> selected;
  SpecSelection spec;
  Level deepest = Level::kRace;  // of --level
  std::optional<Expectations> expectations;
  Floor floor;
  std::optional<OutputFolder> out;  // of --out
  std::string incomplete;           // not empty: which request could not be judged
  std::string unwritten;            // not empty: which file of --out could not be written
  bool partial = false;             // the recording is incomplete
  std::string seed;                 // of the testee's values; empty: none
  bool is_told = false;             // stderr says why nothing is judged: print no report
  // Makes what is printed instead of the report for a console; null: the console report is printed.
  std::function<std::string(const RunResult&)> report;
  int exit_code = 0;  // not 0: stderr says why; stop
};
Prepared prepare(const JudgeOptions& options, Role role = Role::kWriter);

// Reads --require-observable and --baseline. Returns 0, or the exit code after a complaint.
int read_floor(const JudgeOptions& options, Floor& floor);

// Checks the form of --expect-resource, --expect-trace-id and --expect-span-id. Returns 0, or the
// exit code after a complaint.
int check_told_values(const JudgeOptions& options);

// Adds the trace and span ids of the options to a timeline.
void add_told_ids(const JudgeOptions& options, Timeline& timeline);

// A timeline with everything that is known before recording.
Timeline begin_timeline(const JudgeOptions& options, Mode mode, std::vector<std::string> target);

// Judges, applies the expectations, writes and prints; returns the exit code. `unreachable` says
// why the target could not be reached, or is empty. The result is moved to `judged` unless that is
// null.
int conclude_run(const JudgeOptions& options, const Prepared& prepared, Timeline& timeline,
                 const std::string& mode, std::string unreachable = {},
                 RunResult* judged = nullptr);

inline constexpr const char* kHowToMountProc = "mount -t proc proc /proc";
// ctxconf starts programs through a program that it carries in itself.
inline constexpr const char* kHowToStartPrograms =
    "allow files in memory to be executed (vm.memfd_noexec=0 or 1), or install ctxconf-trampoline "
    "next to ctxconf";
// What is wrong with /proc, or empty.
std::string fault_of_proc();
// Checks for /proc, which every command needs that starts or observes processes. Returns 0, or the
// exit code after a complaint.
int check_proc(const std::string& what);
// The same for a command that starts processes.
int check_children(const std::string& what);
// The same for a command that traces what it starts. `instead`, or nothing: what needs less.
int check_ptrace(const std::string& what, const std::string& instead = {});

// Checks what recording a started program needs of this host; adds a note for each thing that is
// missing but not essential. Removes the recording of an earlier run. `what` is the command.
// Returns 0, or the exit code after a complaint.
int prepare_recording(const JudgeOptions& options, const Prepared& prepared,
                      const std::string& what, WrapOptions& recording, Timeline& timeline);
// The part of prepare_recording() for --out.
int prepare_output(const Prepared& prepared);

// What to do if `program` cannot be started; `command` is ctxconf's.
std::string advice_for_start(int err, const std::string& program, std::string_view command);

// Says that the process does not end when asked, and exits with kExitUnreachable.
[[noreturn]] void give_up_on(pid_t pid);

}  // namespace ctxconf::conformance
