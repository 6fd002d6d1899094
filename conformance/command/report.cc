#include <CLI/CLI.hpp>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/report/console.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/redact.h"
#include "conformance/report/result_json.h"
#include "conformance/report/sarif.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

struct ReportCommand {
  std::string file;
  std::string format = "console";  // console, junit, sarif, html, markdown, json
  bool redact = false;             // see report/redact.h
  ConsoleOptions console;
};

int report(const ReportCommand& c) {
  const auto text = read_file(c.file, kLongestResultJson);
  if (!text) return complain(kExitUsage, "report: " + sys::to_string(text.error()));
  auto read = result_from_json(*text, Catalogue::builtin());
  if (!read) return complain(kExitUsage, "report: " + c.file + ": " + read.error().detail);
  const RunResult run =
      c.redact ? redacted(*std::move(read), random_redaction_key()) : *std::move(read);
  const auto made = [&] {
    if (c.format == "html") return to_html(run);
    if (c.format == "json") return to_result_json(run);
    if (c.format == "junit") return to_junit(run, {});
    if (c.format == "sarif") return to_sarif(run);
    if (c.format == "markdown") return to_markdown(run);
    return to_console(run, c.console);
  };
  return print(made(), kExitClean);
}

struct ReportOptions {
  CommonOptions common;
  ReportCommand report;
};

}  // namespace

Command report_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<ReportOptions>();
  CLI::App* sub = app.add_subcommand("report", "print a report of result.json in another format");
  sub->add_option("RESULT", o->report.file, "result.json, which a run with --out writes")
      ->required();
  auto* formats = sub->add_option_group("format")->require_option(0, 1);
  const auto format = [&](const char* name, const char* help) {
    formats->add_flag_callback(
        std::string("--") + name, [o, name] { o->report.format = name; }, help);
  };
  format("console", "text for a terminal (default)");
  format("html", "one HTML page with everything");
  format("markdown", "Markdown for the summary of a CI job");
  format("junit", "JUnit XML");
  format("sarif", "SARIF 2.1.0");
  format("json", "result.json itself, with --redact");
  sub->add_flag(
      "--redact", o->report.redact,
      "replace the program's words and bytes by hashes, which differ from report to report");
  sub->add_flag("-v", o->common.verbosity, "print more");
  sub->footer(
      "Exit codes: 0 the report was printed, whatever it says, 2 usage, or RESULT cannot be read "
      "or\n"
      "is not a result.json, 3 stdout could not be written, 70 a bug in ctxconf.");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                o->report.console = o->common.judge.console;
                return report(o->report);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
