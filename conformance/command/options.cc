#include "conformance/command/options.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/report/result_json.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || value > 1e6) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  double factor = 0;
  if (unit == "ms") factor = 1;
  if (unit == "s" || unit.empty()) factor = 1000;
  if (unit == "m") factor = 60'000;
  if (factor == 0) return std::nullopt;
  return std::chrono::milliseconds(static_cast<long long>(value * factor));
}

void add_selection_and_report(CLI::App& app, CommonOptions& o) {
  app.add_option("--only", o.judge.only,
                 "judge only the requirements whose id matches this glob (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--skip", o.judge.skip,
                 "do not judge the requirements whose id matches this glob (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--require-observable", o.judge.require_observable,
               "exit 4 if a requirement could not be observed: any of them, or those that a glob\n"
               "matches: --require-observable='pctx.update.*' (repeatable)");
  app.add_option(
      "--baseline", o.judge.baseline,
      "result.json of an earlier run: exit 4 if a requirement was judged then and is not\n"
      "judged now");
  app.add_option("--source-root", o.judge.source_root,
                 "the repository of the program, whose lines results.sarif names (repeatable;\n"
                 "default: the Git checkout around the working directory)")
      ->allow_extra_args(false);
  app.add_flag("-v", o.verbosity, "print more; -vv also lists what passed");
  app.add_flag("--quiet", o.judge.console.quiet, "print one line per problem, and the summary");
  app.add_option("--color", o.colour, "use colour: auto (default), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

void add_common(CLI::App& app, CommonOptions& o) {
  app.add_option("--spec", o.judge.spec,
                 "revisions of the OTEPs to judge by: 4719=2026-04-07[,4947=2026-07-17]");
  add_selection_and_report(app, o);
  app.add_option("--level", o.judge.level,
                 "judge only up to this observation level: snapshot, syscalls, stores, steps");
  app.add_option("--reading", o.judge.reading,
                 "how to judge the order of numbered steps: reader-visible (default) fails what a\n"
                 "reader can notice and warns of the rest; strict fails both")
      ->check(CLI::IsMember({"reader-visible", "strict"}));
  app.add_option("--expect", o.judge.expect,
                 "the file of expected failures (`ctxconf expect init` writes one)");
  app.add_flag("--strict", o.judge.strict, "treat warnings as failures");
  app.add_option(
      "--out", o.judge.out,
      "write result.json, junit.xml, report.html, summary.md, results.sarif, timeline.json and\n"
      "traces/ to this directory");
}

void add_expected_resource(CLI::App& app, CommonOptions& o) {
  app.add_option("--expect-resource", o.judge.expect_resource,
                 "KEY=VALUE that the published Resource must have (repeatable)")
      ->allow_extra_args(false);
}

void add_expected_ids(CLI::App& app, CommonOptions& o) {
  app.add_option(
         "--expect-trace-id", o.judge.expect_trace_id,
         "32 hexadecimal digits: a trace id of the program; a record with another one fails\n"
         "(repeatable)")
      ->allow_extra_args(false);
  app.add_option(
         "--expect-span-id", o.judge.expect_span_id,
         "16 hexadecimal digits: a span id of the program; a record with another one fails\n"
         "(repeatable)")
      ->allow_extra_args(false);
}

void add_timing(CLI::App& app, CommonOptions& o, const char* what) {
  app.add_option("--for", o.run_for, what);
  app.add_option("--timeout-scale", o.judge.timeout_scale,
                 "multiply every time limit by this factor")
      ->check(CLI::Range(0.01, 1000.0));
}

void add_on_fail(CLI::App& app, CommonOptions& o) {
  app.add_option(
         "--on-fail", o.judge.on_fail,
         "what to do after the first failure: continue (default); stop; pause: run the program\n"
         "once more and leave it stopped where it failed; gdb: the same, and start gdb on it")
      ->check(CLI::IsMember({"continue", "stop", "pause", "gdb"}));
}

void add_channel(CLI::App& app, std::string& channel, double& timeout_scale) {
  app.add_option("--timeout-scale", timeout_scale, "multiply every time limit by this factor")
      ->check(CLI::Range(0.01, 1000.0));
  app.add_option(
         "--channel", channel,
         "how to speak to the adapter: stdio (default), or fd3, a socket as descriptor 3, for\n"
         "adapters that print to stdout")
      ->check(CLI::IsMember({"stdio", "fd3"}));
}

std::optional<std::uint64_t> hex_number(const std::string& text) {
  constexpr int kHexadecimal = 16;
  std::uint64_t out = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out, kHexadecimal);
  if (error != std::errc() || at != end) return std::nullopt;
  return out;
}

int settle(CommonOptions& o, const std::vector<std::string>& command_line) {
  // The baseline may be one of the reports that are removed.
  if (!o.judge.baseline.empty()) {
    o.judge.baseline_text = read_file(o.judge.baseline, kLongestResultJson);
  }
  if (const int code = remove_reports(o.judge.out); code != 0) return code;
  o.judge.command_line = command_line;
  o.judge.console.verbosity = std::min(o.verbosity, 2);
  o.judge.console.colour = o.colour == "always"  ? Colour::kAlways
                           : o.colour == "never" ? Colour::kNever
                                                 : Colour::kAuto;
  o.judge.console.is_terminal = isatty(STDOUT_FILENO) != 0;
  winsize size{};
  if (o.judge.console.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col >= 40) {
    o.judge.console.width = size.ws_col;
  }
  if (!std::isfinite(o.judge.timeout_scale)) {
    return complain(kExitUsage, "--timeout-scale: not a number");
  }
  if (!o.run_for.empty()) {
    o.judge.run_for = parse_duration(o.run_for);
    if (!o.judge.run_for) {
      return complain(kExitUsage, "--for: " + o.run_for + " is not a duration",
                      "like 500ms, 10s or 2m");
    }
  }
  return 0;
}

}  // namespace ctxconf::conformance
