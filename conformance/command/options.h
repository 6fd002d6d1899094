// Options that several commands share.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/report/console.h"
#include "sys/result.h"

namespace CLI {
class App;
}

namespace ctxconf::conformance {

// The options that all judging commands share, as typed.
struct JudgeOptions {
  std::string spec;  // empty: default
  std::vector<std::string> only;
  std::vector<std::string> skip;
  std::string level;    // empty: as far as the host allows
  std::string reading;  // empty: reader-visible, or the recording's
  std::string expect;   // file of expected failures
  bool strict = false;
  std::vector<std::string> require_observable;  // globs; "true" matches all
  std::string baseline;                         // result.json of an earlier run; empty: none
  // The text of the baseline. It is read before the reports of an earlier run are removed, because
  // it may be one of them.
  sys::Result<std::string> baseline_text = std::string();
  std::vector<std::string> expect_resource;  // KEY=VALUE
  std::vector<std::string> expect_trace_id;  // hexadecimal
  std::vector<std::string> expect_span_id;   // the same
  bool ids_from_output = false;              // wrap
  std::optional<std::chrono::milliseconds> run_for;
  std::optional<std::string> faults;     // wrap: a glob over cells of the fault matrix
  std::string watch = "lifetime";        // wrap: or "publication", "threads"
  std::vector<std::string> inject;       // wrap: results of calls
  bool hide_vdso = false;                // wrap
  std::string out;                       // directory for all reports, timeline.json and traces/
  std::vector<std::string> source_root;  // the repository; also as debug information names it
  std::string on_fail = "continue";      // wrap, run: or "stop", "pause", "gdb"
  double timeout_scale = 1;
  ConsoleOptions console;
  std::vector<std::string> command_line;  // of ctxconf, for the report
};

// The options as they stand on the command line.
struct CommonOptions {
  JudgeOptions judge;
  std::string run_for;
  std::string colour = "auto";
  int verbosity = 0;
};

// Each adds options to a subcommand. They write to `o`, which must outlive the parsing.
void add_selection_and_report(CLI::App& app, CommonOptions& o);  // --only, --skip, -v, ...
void add_common(CLI::App& app, CommonOptions& o);                // these, --expect, --out, ...
void add_expected_resource(CLI::App& app, CommonOptions& o);     // what a program publishes
void add_expected_ids(CLI::App& app, CommonOptions& o);
void add_timing(CLI::App& app, CommonOptions& o, const char* help_of_for);
void add_on_fail(CLI::App& app, CommonOptions& o);
void add_channel(CLI::App& app, std::string& channel, double& timeout_scale);

// "10s", "500ms", "2m", "1.5" (seconds)
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text);

// A hexadecimal number of at most 64 bits, without 0x.
std::optional<std::uint64_t> hex_number(const std::string& text);

// Removes the reports of an earlier run, and parses the words of `o`. Returns 0, or the exit code
// after a complaint.
int settle(CommonOptions& o, const std::vector<std::string>& command_line);

}  // namespace ctxconf::conformance
