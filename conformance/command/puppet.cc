#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/puppet/record_script.h"
#include "conformance/report/escape.h"
#include "conformance/text/json_text.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kShownBytes = 64;  // of the result of `read`
constexpr std::size_t kShownLine = 200;

std::string hex_digits(const puppet::Bytes& bytes) {
  std::string out = hex(std::span(bytes).first(std::min(bytes.size(), kShownBytes)));
  if (bytes.size() > kShownBytes) out += "...";
  return out;
}

std::string line_of(const puppet::Operation& operation) {
  std::string out = puppet::to_json(operation);
  if (out.size() > kShownLine) out = out.substr(0, kShownLine - 3) + "...";
  return out;
}

int move_puppet(const JudgeOptions& options, const std::string& file) {
  const auto text = read_file(file, puppet::kLongestScript);
  if (!text) return complain(kExitUsage, "puppet: " + sys::to_string(text.error()));
  std::vector<std::size_t> lines;
  const auto script = puppet::script_from_json(*text, &lines);
  if (!script) {
    return complain(kExitUsage,
                    fmt::format("{}:{}: {}", file, script.error().line, script.error().text),
                    "docs/puppet.md has all operations");
  }
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  if (const int code = check_children("puppet"); code != 0) return code;
  const auto programs = puppet::find_puppets();
  if (!programs) {
    return complain(kExitUnreachable, sys::to_string(programs.error()),
                    puppet::kHowToInstallPuppets);
  }
  Timeline timeline = begin_timeline(options, Mode::kWrap, {"ctxconf-puppet", file});
  puppet::PuppetOptions run;
  run.player.programs = *programs;
  run.shows_output = true;
  run.wrap.stores = true;
  run.wrap.watch_lifetime = options.watch == "lifetime";
  run.wrap.hide_vdso = options.hide_vdso;
  if (options.run_for) run.player.others_within = *options.run_for;
  if (const int code = prepare_recording(options, prepared, "puppet", run.wrap, timeline);
      code != 0) {
    return code;
  }
  if (run.wrap.no_filter && run.wrap.hide_vdso) {
    return complain(kExitUnreachable, "--hide-vdso needs a system call filter",
                    "`ctxconf doctor` says what would allow it");
  }
  if (!options.console.quiet) {
    run.player.told = [&](const puppet::Step& step) {
      const auto& operation = script->operations[step.operation];
      std::string result = puppet::to_string(step);
      if (!step.bytes.empty()) result = "= " + hex_digits(step.bytes);
      fmt::print("{:>5}  {}  {}\n", lines[step.operation],
                 escape(line_of(operation), Escape::kTerminal), escape(result, Escape::kTerminal));
      std::fflush(stdout);
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto played = puppet::record_script(*script, run, timeline);
  if (!played) {
    return complain(kExitUnreachable, "the script cannot be run: " + sys::to_string(played.error()),
                    "`ctxconf doctor` says what this host allows");
  }
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (played->interrupted) {
    timeline.notes.emplace_back("the observation was interrupted");
    prepared.incomplete = "the observation was interrupted";
    prepared.partial = true;
  }
  if (played->problem) {
    const auto& problem = *played->problem;
    return complain(kExitUsage, fmt::format("{}:{}: {}", file, lines[problem.line], problem.text));
  }
  return conclude_run(options, prepared, timeline, "wrap");
}

struct PuppetCommand {
  CommonOptions common;
  std::string file;
};

}  // namespace

Command puppet_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<PuppetCommand>();
  CLI::App* sub = app.add_subcommand(
      "puppet", "run a script of operations in a process, one by one, and judge it");
  add_common(*sub, o->common);
  add_expected_resource(*sub, o->common);
  add_timing(*sub, o->common,
             "how long a program that the script starts by exec may run; default: 5s");
  sub->add_flag("--hide-vdso", o->common.judge.hide_vdso,
                "make the process read clocks by system calls, so that they are recorded");
  sub->add_option("SCRIPT", o->file,
                  "a file with one JSON object per line, or - for stdin: see docs/puppet.md")
      ->required();
  sub->footer(
      "Exit codes: 0 clean, 1 a requirement is broken, or the program crashed or hung,\n"
      "2 usage, or the script is wrong or the kernel refused an operation, 3 the script cannot be\n"
      "run, or output cannot be written, 4 nothing could be judged, or less than was asked for,\n"
      "5 the expectations file is stale, 70 a bug in ctxconf.");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                return move_puppet(o->common.judge, o->file);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
