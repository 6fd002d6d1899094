// The commands of `ctxconf`. Each returns its exit code and has printed what it
// has to say: results on stdout, complaints on stderr.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "conformance/output_folder.h"
#include "conformance/report/console.h"
#include "conformance/requirements/catalogue.h"

namespace ctxconf::conformance {

// The options that all judging commands share, as they were given.
struct JudgeOptions {
  std::string spec;  // empty: the default
  std::vector<std::string> only;
  std::vector<std::string> skip;
  std::string level;    // empty: all that the host allows
  std::string reading;  // of numbered steps; empty: reader-visible, or that of the recording
  std::string expect;   // file of expected failures
  bool strict = false;
  std::vector<std::string> require_observable;  // globs; "true" is that of all
  std::string baseline;                         // result.json of an earlier run; empty: none
  // What it holds. It is read before the reports of an earlier run are removed, of which it may be.
  sys::Result<std::string> baseline_text = std::string();
  std::vector<std::string> expect_resource;  // KEY=VALUE
  std::vector<std::string> expect_trace_id;  // hexadecimal
  std::vector<std::string> expect_span_id;   // the same
  bool ids_from_output = false;              // wrap
  std::optional<std::chrono::milliseconds> run_for;
  std::optional<std::string> faults;  // wrap: a glob over cells of the fault matrix
  std::string watch = "lifetime";     // wrap: or "publication", "threads"
  std::vector<std::string> inject;    // wrap: what calls are to return
  bool hide_vdso = false;             // wrap
  std::string out;                    // directory for all reports, timeline.json and traces/
  std::string on_fail = "continue";   // wrap, run: or "stop", "pause", "gdb"
  double timeout_scale = 1;
  ConsoleOptions console;
  std::vector<std::string> command_line;  // of ctxconf, for the report
};

int command_wrap(const JudgeOptions& options, const std::vector<std::string>& command);
// Drives ADAPTER over the testee protocol.
struct RunCommand {
  std::vector<std::string> adapter;
  std::string channel = "stdio";          // or "fd3"
  std::string seed;                       // hexadecimal; empty: a new one
  std::vector<std::string> require_caps;  // globs over capabilities that must be declared
  unsigned repeat = 1;                    // how often all is asked
  unsigned jobs = 1;                      // groups of checks driven at once
  double race_seconds = 0.5;              // how long a reader reads beside updates
};
int command_run(const JudgeOptions& options, const RunCommand& command);
// How adapter-lint and repl speak to ADAPTER.
struct AdapterCommand {
  std::vector<std::string> adapter;
  std::string channel = "stdio";  // or "fd3"
  double timeout_scale = 1;
};
// 0 clean, 1 a finding, 2 it cannot be started.
int command_adapter_lint(const AdapterCommand& command);
// Requests are read from stdin. 3: it cannot be started, or did not answer.
int command_repl(const AdapterCommand& command);
int command_attach(const JudgeOptions& options, const std::vector<std::string>& pids, bool all);
int command_replay(const JudgeOptions& options, const std::string& file);
// Moves a process through a script, prints each operation and judges it as wrap does.
int command_puppet(const JudgeOptions& options, const std::string& file);
// Only `only`, `skip`, `out`, `console` and `command_line` are asked; `json`: result.json on
// stdout instead of the report. Warnings are findings, and so is it when no file has the variable.
int command_elf(const JudgeOptions& options, const std::vector<std::string>& files, bool json);

int command_list(const std::string& what, const std::string& spec, bool json, bool markdown);
int command_explain(const std::string& id);
int command_doctor();

struct ExpectCommand {
  std::string action;  // init, update, lint, prune
  std::string file;
  std::string from;  // result.json
  bool strict = false;
  bool floor = false;  // init, update: what was judged must be judged
};
int command_expect(const ExpectCommand& command);

struct DecodeCommand {
  std::string as;  // header, payload, snapshot; empty: guess
  std::string file;
  std::string hex;
};
int command_decode(const DecodeCommand& command);

struct DriftCommand {
  std::vector<std::string> oteps;       // 4719=FILE
  std::vector<std::string> catalogues;  // files; empty: what is built in
  bool json = false;
};
int command_drift(const DriftCommand& command);

struct ReportCommand {
  std::string file;
  std::string format = "console";  // console, junit, html, markdown, json
  bool redact = false;             // see report/redact.h
  ConsoleOptions console;
};
int command_report(const ReportCommand& command);

struct SelftestCommand {
  std::string directory;  // where the programs and mutants.json are; empty: beside ctxconf
  std::vector<std::string> only;
  std::vector<std::string> commands;  // wrap, run, elf; empty: all
  unsigned jobs = 0;                  // 0: one a processor
  bool verbose = false;
};
int command_selftest(const SelftestCommand& command);

struct GoldenCommand {
  std::string action;              // list, show, verify, regenerate, diff
  std::vector<std::string> names;  // list: globs; show: ids; diff: two ids or files
  std::string directory;           // golden/; empty: that of the source tree or the installation
  bool json = false;               // list, show
};
// 1: a finding of verify, what regenerate refuses, or a difference.
int command_golden(const GoldenCommand& command);

// Prints "ctxconf: TEXT" and, indented, what to do; returns `code`.
int complain(int code, const std::string& text, const std::string& what_to_do = {});

// Writes to stdout; returns `code`, or 3 after a complaint when it cannot be written, unless `code`
// comes before that. A reader that went away is not complained about.
int print(const std::string& text, int code);

// The whole of a file, "-" for stdin. EFBIG beyond `limit`.
sys::Result<std::string> read_file(const std::string& path, std::size_t limit);
// Through a temporary file and rename, so that a reader never sees half of it.
sys::Result<> write_file(const std::string& path, const std::string& text);
// result.json, junit.xml, report.html and summary.md; `strict`: warnings are failures. After an
// error none of them is there.
sys::Result<> write_reports(const OutputFolder& folder, const RunResult& run, bool strict);
// Those in the folder of --out, if there is one: whatever becomes of this run, what an earlier one
// has left there is not about it. Not 0: the exit code, it was said on stderr.
int remove_reports(const std::string& out);

}  // namespace ctxconf::conformance
