// Everything that a report needs to know about one run. result.json is made from it, and all other
// formats from that. Nothing here looks at a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/finding.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {

// What the expectations file says about a requirement.
enum class Expected {
  kNone,        // not listed
  kAsExpected,  // listed as failing (or na-ok) and it did so
  kUnexpected,  // listed, but it ended differently; `problem` says how
};

struct RequirementResult {
  const Requirement* requirement = nullptr;  // in the catalogue, never null
  Outcome outcome = Outcome::kUnobservable;  // the worst of `findings`
  std::vector<Finding> findings;             // one per image, worst first
  Expected expected = Expected::kNone;
  std::string expectation_note;  // "issue=... until=..."
  // It may be decided by a program that publishes no process context. Not in reports.
  bool holds_without_context = false;
  std::string trace_path;  // a recording with only the evidence of this result; empty: none
};

// A problem of the expectations file, with the command that fixes it.
struct ExpectationProblem {
  int line = 0;       // 1-based; 0: the whole file
  int exit_code = 5;  // 1, 2, 4 (--require-observable) or 5; 0 is a warning
  std::string text;
  std::string mend;
};

// A requirement that the run had to judge but did not (verdict/floor.h).
struct FloorProblem {
  std::string requirement;  // its id, or a glob that matches nothing selected
  std::string why;          // what asks for it: "judged in base.json, as pass"
  std::string now;          // "unobservable: memory cannot be read"; may quote the program: hostile
  std::string remedy;       // how it could be observed; may be empty
};

struct ImageSummary {
  ImageKey key;
  std::int32_t parent = 0;
  std::string executable;                 // hostile
  std::string path;                       // the same below the source root; empty: not there
  std::vector<std::string> command_line;  // hostile
  std::string libc;                       // as in Image
  std::string ending;  // "exited 0", "killed by SIGSEGV", "replaced by exec", "running"
  bool published = false;
  std::string context;  // how a reader sees it: "service.name=checkout, 3 more"; hostile
  std::uint64_t snapshots = 0;
  std::vector<std::string> notes;  // "memory cannot be read: EPERM"
};

// A problem of the run itself, not of one requirement: a crash, a hang, a fault of ctxconf, harm
// that a reader did to a process.
struct RunProblem {
  Outcome outcome = Outcome::kCrash;  // kFail, kCrash, kTimeout or kHarnessError
  ImageKey image;                     // pid 0: the whole run
  std::string text;                   // hostile
  // What a reader did: "left its target stopped, as its tracer"; empty: another problem. Hostile.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::string harm = {};
};

// How CMD itself ended. The words of result.json are in result_json.cc.
struct TargetEnd {
  enum class How : std::uint8_t {
    kExited,
    kKilled,      // by a signal that was not ours
    kKilledByUs,  // by a signal of ctxconf
  };
  How how = How::kExited;
  int number = 0;  // the exit code, or the number of the signal

  bool exited_with(int code) const { return how == How::kExited && number == code; }
  friend bool operator==(const TargetEnd&, const TargetEnd&) = default;
};

// One cell of the fault matrix: the result of the program under one fault.
struct FaultOutcome {
  std::string step;   // "memfd_create"
  std::string fault;  // "EPERM"; empty: `step` says it
  // kPass: nothing is broken that is not also broken without the fault. kNa: the program makes no
  // such call. kUnobservable: nothing could be judged, or the fault could not be injected.
  Outcome outcome = Outcome::kUnobservable;
  std::vector<std::string> requirements;  // the requirements that decide it, if any
  std::string text;                       // the reason if there are none; hostile
  std::string output;                     // the end of the output of a program that went wrong
  std::uint32_t session = 0;              // as in ImageKey
  std::vector<std::string> options;       // of `ctxconf wrap`, for this cell alone; empty: of `run`
  std::string name() const { return fault.empty() ? step : step + "/" + fault; }
};

struct Totals {
  int pass = 0, fail = 0, warn = 0, info = 0, na = 0, unobservable = 0;
  int crash = 0, timeout = 0, harness_error = 0;
  int expected_failures = 0;  // of the above, those that are expected
  int selected = 0;           // the denominator

  Totals& operator+=(const Totals& other);
};

// What one image did, if nothing in it was wrong.
struct OperationSummary {
  ImageKey image;
  std::string image_name;  // hostile
  OperationPicture picture;
};

// The repository of the program. Paths below it are relative, with slashes and without dots.
struct SourceTree {
  std::string root;          // absolute
  std::string program;       // the first file below it among the words of the target
  std::string expectations;  // the file of --expect
};

struct RunResult {
  std::string suite_version;
  std::string suite_commit;
  SpecSelection spec;
  Reading reading = Reading::kReaderVisible;  // of numbered steps
  std::string mode;                           // "wrap", "attach", "replay"
  std::vector<std::string> command_line;      // of ctxconf itself
  std::vector<std::string> target;            // CMD ARGS, or the pids
  std::string kernel;                         // uname -r
  std::string arch;                           // uname -m
  // Of the images that published, or else of all: "musl 1.2.3, glibc 2.36"; empty: none is known.
  std::string libc;
  std::string suite_libc;  // of ctxconf: "glibc 2.36"
  std::string level;       // deepest level that was used
  std::string started_at;  // RFC 3339, UTC
  double seconds = 0;
  std::vector<sys::HostFact> host;
  std::vector<std::string> injections;  // "memfd_create:error=EPERM, 1 time", in order
  std::vector<ImageSummary> images;
  std::vector<RequirementResult> results;    // catalogue order
  std::vector<OperationSummary> operations;  // a publication and an update, if both were seen
  std::vector<FaultOutcome> faults;          // the fault matrix, or empty
  std::vector<RunProblem> problems;          // counted in `totals` by outcome
  std::vector<ExpectationProblem> expectation_problems;
  std::vector<FloorProblem> floor;  // what had to be judged but was not: exit code 4
  std::vector<std::string> notes;   // about the run: "stopped after --for 10s"; may be hostile
  std::optional<std::string> target_ending;  // CMD's own exit status; reported, never judged
  std::optional<TargetEnd> target_ended;     // the same; nothing in results of earlier versions
  std::string trace_path;                    // where the timeline was saved; empty: nowhere
  std::string again;                         // the command that repeats this run
  std::optional<SourceTree> source;          // nothing: not looked for
  bool partial = false;                      // the recording is incomplete: Timeline::partial
  std::string incomplete;  // not empty: what was published or asked for but could not be judged
  std::string seed;        // of the testee's values; empty: none
  Totals totals;
  int exit_code = 70;
  std::string exit_reason;  // one line: why this exit code
};

}  // namespace ctxconf::conformance
