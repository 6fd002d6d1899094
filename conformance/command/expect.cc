#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/report/result_json.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/expectations.h"
#include "conformance/verdict/expectations_edit.h"
#include "conformance/verdict/floor.h"

namespace ctxconf::conformance {
namespace {

struct ExpectCommand {
  std::string action;  // init, update, lint, prune
  std::string file;
  std::string from;  // result.json
  bool strict = false;
  bool floor = false;  // init, update: requirements judged now must be judged later
};

int expect(const ExpectCommand& c) {
  const Catalogue& catalogue = Catalogue::builtin();
  std::vector<Observed> seen;
  std::vector<std::string> judged;
  bool partial = false;
  if (c.action != "lint") {
    if (c.from.empty()) {
      return complain(
          kExitUsage, "expect " + c.action + ": no result",
          "--from RESULT.json, which `ctxconf wrap --out DIR` writes to DIR/result.json");
    }
    const auto text = read_file(c.from, kLongestResultJson);
    if (!text) return complain(kExitUsage, "--from: " + sys::to_string(text.error()));
    const auto run = result_from_json(*text, catalogue);
    if (!run) return complain(kExitUsage, "--from: " + c.from + ": " + run.error().detail);
    seen = observed(*run);
    partial = run->partial;
    if (c.floor) {
      for (const auto& [id, outcome] : judged_in(*run)) judged.push_back(id);
    }
  }
  if (c.action == "init") {
    if (access(c.file.c_str(), F_OK) == 0) {
      return complain(kExitUsage, c.file + " exists", "`ctxconf expect update` adds to it");
    }
    const auto written = write_file(c.file, init_expectations(seen, judged, c.strict));
    if (!written) return complain(kExitUnreachable, sys::to_string(written.error()));
    return print("wrote " + c.file + "; now name an issue in each line\n", kExitClean);
  }
  const auto text = read_file(c.file, kMaxExpectationBytes);
  if (!text) {
    return complain(kExitUsage, sys::to_string(text.error()),
                    "`ctxconf expect init` writes a new one");
  }
  const auto say = [&](const std::vector<ExpectationProblem>& problems) {
    int worst = kExitClean;
    for (const auto& p : problems) {
      complain(0, fmt::format("{}:{}: {}", c.file, p.line, p.text), p.mend);
      if (p.exit_code == kExitUsage || worst == kExitClean) worst = p.exit_code;
    }
    return worst;
  };
  if (c.action == "lint") {
    const Date today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
    const int code = say(lint_expectations(*text, c.file, catalogue, today));
    return code == kExitClean ? print(c.file + " is in order\n", code) : code;
  }
  const Edited edited = c.action == "update"
                            ? update_expectations(*text, c.file, catalogue, seen, judged, c.strict)
                            : prune_expectations(*text, c.file, catalogue, seen, partial);
  if (!edited.problems.empty()) return say(edited.problems);
  if (edited.text != *text) {
    const auto written = write_file(c.file, edited.text);
    if (!written) return complain(kExitUnreachable, sys::to_string(written.error()));
  }
  std::string out = fmt::format("{}: {} lines added, {} removed\n", c.file, edited.added.size(),
                                edited.removed.size());
  if (!edited.kept.empty()) {
    out += fmt::format("note: kept {} that did not fail: {} does not have the whole run\n",
                       counted(edited.kept.size(), "line"), c.from);
  }
  return print(out, kExitClean);
}

}  // namespace

Command expect_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<ExpectCommand>();
  CLI::App* sub =
      app.add_subcommand("expect", "write, update, check or prune the file of expected failures");
  sub->add_option("ACTION", o->action, "init, update, lint or prune")
      ->required()
      ->check(CLI::IsMember({"init", "update", "lint", "prune"}));
  sub->add_option("FILE", o->file, "the expectations file")->required();
  sub->add_option("--from", o->from,
                  "result.json of the run to take the failures from (not for lint)");
  sub->add_flag("--strict", o->strict, "treat warnings as failures");
  sub->add_flag("--floor", o->floor,
                "init, update: add a line for each requirement that was judged; a later run fails\n"
                "if it cannot judge it");
  sub->footer(
      "Exit codes: 0 clean, 2 usage, a file that cannot be read or has a mistake, or one that "
      "init\n"
      "would overwrite, 3 a file or stdout could not be written, 5 lint found a stale line, 70 a "
      "bug\n"
      "in ctxconf.");

  return {
      .app = sub, .run = [o](const Words& /*program*/) { return expect(*o); }, .takes = nullptr};
}

}  // namespace ctxconf::conformance
