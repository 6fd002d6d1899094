#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <sstream>

#include "conformance/commands.h"
#include "conformance/generated_programs.h"
#include "conformance/report/result_json.h"
#include "conformance/testee/jobs.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/version.h"

namespace ctxconf::conformance {
namespace {

// "10s", "500ms", "2m", "1.5" (seconds)
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

struct GivenOptions {
  JudgeOptions judge;
  std::string run_for;
  std::string colour = "auto";
  int verbosity = 0;
};

void add_selection_and_report(CLI::App& app, GivenOptions& o) {
  app.add_option("--only", o.judge.only, "judge only ids that match this glob (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--skip", o.judge.skip, "leave out ids that match this glob (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--require-observable", o.judge.require_observable,
               "what could not be observed fails (exit 4): all of it, or what a glob names:\n"
               "--require-observable='pctx.update.*' (repeatable)");
  app.add_option("--baseline", o.judge.baseline,
                 "result.json of an earlier run: what was judged there and is not now fails (exit "
                 "4)");
  app.add_flag("-v", o.verbosity, "say more; -vv says what passed");
  app.add_flag("--quiet", o.judge.console.quiet, "a line a problem, and the summary");
  app.add_option("--color", o.colour, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

void add_common(CLI::App& app, GivenOptions& o) {
  app.add_option("--spec", o.judge.spec, "requirement sets: 4719=2026-04-07[,4947=2026-07-17]");
  add_selection_and_report(app, o);
  app.add_option("--level", o.judge.level, "deepest observation level to judge");
  app.add_option("--reading", o.judge.reading,
                 "of numbered steps: reader-visible (default) fails what a reader can notice and\n"
                 "warns of the rest, strict fails both")
      ->check(CLI::IsMember({"reader-visible", "strict"}));
  app.add_option("--expect", o.judge.expect, "file of expected failures");
  app.add_flag("--strict", o.judge.strict, "warnings fail");
  app.add_option("--expect-resource", o.judge.expect_resource,
                 "KEY=VALUE that must be found in the payload (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--out", o.judge.out,
                 "directory for result.json, junit.xml, report.html, summary.md, timeline.json and "
                 "traces/");
}

void add_expected_ids(CLI::App& app, GivenOptions& o) {
  app.add_option("--expect-trace-id", o.judge.expect_trace_id,
                 "32 hexadecimal digits: no record may show another trace id (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--expect-span-id", o.judge.expect_span_id,
                 "16 hexadecimal digits: no record may show another span id (repeatable)")
      ->allow_extra_args(false);
}

void add_timing(CLI::App& app, GivenOptions& o, const char* what) {
  app.add_option("--for", o.run_for, what);
  app.add_option("--timeout-scale", o.judge.timeout_scale,
                 "stretch every time limit by this factor")
      ->check(CLI::Range(0.01, 1000.0));
}

void add_on_fail(CLI::App& app, GivenOptions& o) {
  app.add_option(
         "--on-fail", o.judge.on_fail,
         "after the first failure: continue (default), stop, or run it once more and leave\n"
         "it standing where it failed: pause, or gdb, which is started on it")
      ->check(CLI::IsMember({"continue", "stop", "pause", "gdb"}));
}

void add_channel(CLI::App& app, std::string& channel, double& timeout_scale) {
  app.add_option("--timeout-scale", timeout_scale, "stretch every time limit by this factor")
      ->check(CLI::Range(0.01, 1000.0));
  app.add_option("--channel", channel,
                 "stdio (default), or fd3: a socket as descriptor 3, for adapters that print a lot")
      ->check(CLI::IsMember({"stdio", "fd3"}));
}

// False when --for is no duration; it was said.
bool settle(GivenOptions& o, double race_seconds, int argc, char** argv) {
  o.judge.command_line.assign(argv, argv + argc);
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
  if (std::isnan(race_seconds)) {
    complain(kExitUsage, "--race: not a number");
    return false;
  }
  if (!std::isfinite(o.judge.timeout_scale)) {
    complain(kExitUsage, "--timeout-scale: not a number");
    return false;
  }
  if (o.run_for.empty()) return true;
  o.judge.run_for = parse_duration(o.run_for);
  if (!o.judge.run_for) {
    complain(kExitUsage, "--for: " + o.run_for + " is no duration", "like 500ms, 10s or 2m");
    return false;
  }
  return true;
}

// `@FILE` stands for the words of a file, which are separated by white space; `#` begins a comment.
sys::Result<std::vector<std::string>> expand(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& word : words) {
    if (word.size() < 2 || word.front() != '@') {
      out.push_back(word);
      continue;
    }
    CTX_TRY(text, read_file(word.substr(1), 1U << 20U));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line.substr(0, line.find('#')));
      for (std::string w; in >> w;) out.push_back(w);
    }
  }
  return out;
}

int run_command_line(int argc, char** argv) {
  // Only what stands before `--` is ours.
  std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<std::string> command;
  const auto dashes = std::ranges::find(words, "--");
  const bool has_dashes = dashes != words.end();
  if (has_dashes) command.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
  auto expanded = expand(words);
  if (!expanded) return complain(kExitUsage, sys::to_string(expanded.error()));

  CLI::App app("Judges programs that share OpenTelemetry context through process memory.",
               "ctxconf");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("ctxconf {} ({})", kVersionText, kCommitText));
  app.footer(
      "Exit codes: 0 clean, 1 a requirement is broken, 2 usage, 3 the target cannot be started or\n"
      "reached, 4 nothing could be judged, 5 the expectations file is stale, 70 a bug in ctxconf.");

  GivenOptions given;
  std::vector<std::string> pids;
  std::string file;
  bool all = false;

  auto* wrap = app.add_subcommand("wrap",
                                  "start a program and judge it and all that it starts:\n"
                                  "ctxconf wrap [options] -- CMD [ARGS]");
  add_common(*wrap, given);
  add_expected_ids(*wrap, given);
  wrap->add_flag("--ids-from-output", given.judge.ids_from_output,
                 "pass on what the program prints through pipes, and judge its records by the\n"
                 "traceparents and trace ids in there");
  add_timing(*wrap, given,
             "how long the program may run (500ms, 10s, 2m); default: until it ends, or 10 s after "
             "the last publication, or 2m in all while it publishes again and again, with exit 4");
  std::string faults;
  auto* faults_option =
      wrap->add_option("--faults", faults,
                       "run the program again under each fault of the matrix, or with a glob under "
                       "those that it matches: --faults='memfd_create/*'")
          ->expected(0, 1);
  wrap->add_option("--inject", given.judge.inject,
                   "what a call of the program returns instead of what the kernel would say, where "
                   "it concerns a publication: memfd_create:error=EPERM (repeatable)")
      ->allow_extra_args(false);
  wrap->add_flag("--hide-vdso", given.judge.hide_vdso,
                 "readings of clocks become system calls and are recorded; goes with --inject "
                 "clock_gettime:...");

  wrap->add_option(
          "--watch", given.judge.watch,
          "how long stores to the header are seen: lifetime (default), or until the end of\n"
          "the publication, after which copies are as fast as alone; threads: instead of them\n"
          "changes of thread contexts, instruction by instruction")
      ->check(CLI::IsMember({"publication", "lifetime", "threads"}));

  add_on_fail(*wrap, given);

  RunCommand run_command;
  auto* run =
      app.add_subcommand("run",
                         "drive a program under test over the testee protocol and judge it:\n"
                         "ctxconf run [options] -- ADAPTER [ARGS]");
  add_common(*run, given);
  add_channel(*run, run_command.channel, given.judge.timeout_scale);
  add_on_fail(*run, given);
  run->add_option("--seed", run_command.seed, "hexadecimal; default: a new one, which is printed");
  run->add_option("--repeat", run_command.repeat,
                  "ask for everything so often; a requirement's outcome is its worst")
      ->check(CLI::Range(1, 1000));
  run->add_option("--jobs", run_command.jobs,
                  "how many groups of checks are driven at once, each in a process of its own; "
                  "default: 1")
      ->check(CLI::Range(1U, kMostJobs));
  run->add_option("--race", run_command.race_seconds,
                  "for so many seconds a reader on another processor reads beside updates; "
                  "default: 0.5")
      ->check(CLI::Range(0.01, 3600.0));
  run->add_option("--require-caps", run_command.require_caps,
                  "globs over capabilities that the adapter must declare (repeatable)")
      ->allow_extra_args(false);

  auto* adapter_lint = app.add_subcommand("adapter-lint",
                                          "is an adapter itself right?\n"
                                          "ctxconf adapter-lint [options] -- ADAPTER [ARGS]");
  AdapterCommand by_hand;
  add_channel(*adapter_lint, by_hand.channel, given.judge.timeout_scale);
  adapter_lint->footer(
      "Exit codes: 0 clean, 1 a finding, 2 usage, or it cannot be started, 70 a bug in ctxconf.");

  auto* repl = app.add_subcommand("repl",
                                  "type operations by hand; memory is shown after each:\n"
                                  "ctxconf repl [options] -- ADAPTER [ARGS]");
  add_channel(*repl, by_hand.channel, given.judge.timeout_scale);

  auto* attach = app.add_subcommand("attach", "judge running processes, without stopping them");
  add_common(*attach, given);
  add_expected_ids(*attach, given);
  add_timing(*attach, given, "how long to watch them; default 1s");
  attach->add_flag("--all", all, "every process that publishes");
  attach->add_option("PID", pids, "process ids");

  auto* replay = app.add_subcommand("replay", "judge a recorded run again, without the program");
  add_common(*replay, given);
  add_expected_ids(*replay, given);
  replay->add_option("TIMELINE", file, "timeline.json of a run with --out")->required();

  auto* puppet = app.add_subcommand(
      "puppet", "move a process through a script, one operation after the other, and judge it");
  add_common(*puppet, given);
  add_timing(*puppet, given, "how long a program that it has become by exec may run; default: 5 s");
  puppet->add_flag("--hide-vdso", given.judge.hide_vdso, "readings of clocks are recorded");
  puppet->add_option("SCRIPT", file, "lines of JSON, - for stdin: docs/puppet.md")->required();

  std::vector<std::string> elf_files;
  bool elf_json = false;
  auto* elf = app.add_subcommand(
      "elf", "will a profiler find the thread context of these programs and libraries?");
  add_selection_and_report(*elf, given);
  elf->add_option("--out", given.judge.out,
                  "directory for result.json, junit.xml, report.html and summary.md");
  elf->add_flag("--json", elf_json, "result.json on stdout instead of the report");
  elf->add_option("FILE", elf_files, "executables and shared libraries, not run")->required();
  elf->footer(
      "Files named together are taken for modules of one program: one may define\n"
      "otel_thread_ctx_v1 and another hold the relocations.\n"
      "Exit codes: 0 it will be found, 1 a finding (a warning too), or no file defines\n"
      "otel_thread_ctx_v1, 2 usage, or a file that is no sound ELF file, 70 a bug in ctxconf.");

  DecodeCommand decode_command;
  auto* decode = app.add_subcommand("decode", "show what bytes mean");
  decode
      ->add_option("--as", decode_command.as,
                   "header, payload, record or snapshot; default: guess (never a record)")
      ->check(CLI::IsMember({"header", "payload", "record", "snapshot"}));
  decode->add_option("--hex", decode_command.hex, "the bytes as hex digits");
  decode->add_option("FILE", decode_command.file, "the bytes in a file, - for stdin");

  auto* doctor =
      app.add_subcommand("doctor", "what this host can prove, and how to close each gap");

  std::string spec;
  std::string what = "--requirements";
  bool json = false;
  bool markdown = false;
  auto* list =
      app.add_subcommand("list", "the requirements, the checks or the host's capabilities");
  list->add_flag_callback(
      "--requirements", [&] { what = "--requirements"; }, "every row (default)");
  list->add_flag_callback(
      "--checks", [&] { what = "--checks"; }, "the rows that this version judges");
  list->add_flag_callback(
      "--capabilities", [&] { what = "--capabilities"; }, "what the host allows");
  list->add_option("--spec", spec, "only these sets: 4719=2026-04-07");
  list->add_flag("--json", json, "for programs");
  list->add_flag("--markdown", markdown, "docs/requirements.md");

  std::string id;
  auto* explain = app.add_subcommand("explain", "one requirement: why it matters, how it is seen");
  explain->add_option("ID", id, "like pctx.fork.dontfork")->required();

  ExpectCommand expect_command;
  auto* expect = app.add_subcommand("expect", "keep the file of expected failures");
  expect->add_option("ACTION", expect_command.action, "init, update, lint or prune")
      ->required()
      ->check(CLI::IsMember({"init", "update", "lint", "prune"}));
  expect->add_option("FILE", expect_command.file, "the expectations file")->required();
  expect->add_option("--from", expect_command.from, "result.json of a run (not for lint)");
  expect->add_flag("--strict", expect_command.strict, "warnings are failures too");
  expect->add_flag("--floor", expect_command.floor,
                   "init, update: a line for each requirement that was judged, so that it fails "
                   "where it is not");

  DriftCommand drift_command;
  auto* drift = app.add_subcommand(
      "drift", "which requirements' source sentences are others in this text of an OTEP");
  drift
      ->add_option("--otep", drift_command.oteps,
                   "NUMBER=FILE: a text of 4719 or 4947, as Markdown (repeatable)")
      ->required()
      ->allow_extra_args(false);
  drift
      ->add_option("--catalogue", drift_command.catalogues,
                   "requirements in a file instead of those built in (repeatable)")
      ->allow_extra_args(false);
  drift->add_flag("--json", drift_command.json, "for programs");
  drift->footer(
      "Exit codes: 0 all sentences are as pinned, 1 some changed, moved or vanished, 2 usage, or "
      "a\n"
      "file that cannot be read or is no text of that OTEP, 70 a bug in ctxconf.");

  ReportCommand report_command;
  auto* report = app.add_subcommand("report", "make another report from result.json, on stdout");
  report->add_option("RESULT", report_command.file, "result.json of a run")->required();
  auto* formats = report->add_option_group("format")->require_option(0, 1);
  const auto format = [&](const char* name, const char* help) {
    formats->add_flag_callback(
        std::string("--") + name, [&report_command, name] { report_command.format = name; }, help);
  };
  format("console", "as on a terminal (default)");
  format("html", "one page with everything, for a browser");
  format("markdown", "for the summary of a CI job");
  format("junit", "JUnit XML");
  format("json", "result.json again, for --redact");
  report->add_flag("--redact", report_command.redact,
                   "without the program's words and bytes: hashes in their place, others in each "
                   "report");
  report->add_flag("-v", given.verbosity, "say more");

  GoldenCommand golden_command;
  auto* golden = app.add_subcommand(
      "golden", "bytes with a known meaning, for writers, readers and this program");
  golden->add_option("ACTION", golden_command.action, "list, show, verify, regenerate or diff")
      ->required()
      ->check(CLI::IsMember({"list", "show", "verify", "regenerate", "diff"}));
  golden->add_option("NAME", golden_command.names,
                     "list: globs over ids; show: ids; diff: two ids or files");
  golden
      ->add_option("--dir", golden_command.directory,
                   "the folder golden/; default: that beside this program")
      ->check([](const std::string& folder) { return folder.empty() ? "names no folder" : ""; });
  golden->add_flag("--json", golden_command.json, "list, show: for programs");
  golden->footer(
      "Exit codes: 0 clean, 1 verify found something, regenerate refused, or diff found a "
      "difference,\n2 usage or malformed input, 70 a bug in ctxconf.");

  SelftestCommand selftest_command;
  auto* selftest =
      app.add_subcommand("selftest", "the broken and the legal programs against this binary");
  selftest->add_option("--dir", selftest_command.directory,
                       "where mutants.json and its programs are");
  selftest->add_option("--only", selftest_command.only, "programs whose name matches this glob")
      ->allow_extra_args(false);
  selftest
      ->add_option("--command", selftest_command.commands,
                   "programs for this command alone: wrap, run or elf (repeatable)")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"wrap", "run", "elf"}));
  selftest->add_option("--jobs", selftest_command.jobs,
                       "how many at once; default: one a processor");
  selftest->add_flag("-v", selftest_command.verbose, "print the report of each that went wrong");
  GeneratedProgramsCommand generated;
  auto* generate = selftest->add_option(
      "--generate", generated.count,
      "so many legal programs of a grammar instead, and as many that deviate in one way");
  selftest->add_option("--seed", generated.seed, "hexadecimal: which ones")->needs(generate);
  selftest->add_flag("--show", generated.show, "print their scripts and run none")->needs(generate);
  selftest->add_option("--keep", generated.keep, "a folder for scripts that are judged wrongly")
      ->needs(generate)
      ->check(CLI::ExistingDirectory);
  selftest
      ->add_option("--script", generated.scripts,
                   "scripts, or folders of them, that say what they break")
      ->allow_extra_args(false)
      ->excludes(generate);

  std::vector<std::string> reversed(expanded->rbegin(), expanded->rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    if (app.get_subcommands().empty() && !expanded->empty() &&
        !expanded->front().starts_with('-')) {
      return complain(kExitUsage, "no command " + expanded->front(), "ctxconf --help shows them");
    }
    std::string help = "ctxconf --help";
    for (const auto* sub : app.get_subcommands()) help = "ctxconf " + sub->get_name() + " --help";
    if (!has_dashes && (*wrap || *run)) {
      return complain(kExitUsage, e.what(),
                      *run ? "put -- before the adapter: ctxconf run -- ADAPTER [ARGS]"
                           : "put -- before the program: ctxconf wrap -- CMD [ARGS]");
    }
    return complain(kExitUsage, e.what(), help + " shows what can be said");
  }
  if (has_dashes && !*wrap && !*run && !*adapter_lint && !*repl) {
    return complain(kExitUsage, "only run, wrap, adapter-lint and repl take a program after --");
  }
  if (!settle(given, run_command.race_seconds, argc, argv)) return kExitUsage;
  if (!given.judge.baseline.empty()) {
    given.judge.baseline_text = read_file(given.judge.baseline, kLongestResultJson);
  }
  if (const int code = remove_reports(given.judge.out); code != 0) return code;
  report_command.console = given.judge.console;
  if (faults_option->count() > 0) given.judge.faults = faults.empty() ? "*" : faults;
  if (*wrap) return command_wrap(given.judge, command);
  if (*run) {
    run_command.adapter = command;
    return command_run(given.judge, run_command);
  }
  by_hand.adapter = command;
  by_hand.timeout_scale = given.judge.timeout_scale;
  if (*adapter_lint) return command_adapter_lint(by_hand);
  if (*repl) return command_repl(by_hand);
  if (*attach) return command_attach(given.judge, pids, all);
  if (*replay) return command_replay(given.judge, file);
  if (*puppet) return command_puppet(given.judge, file);
  if (*elf) return command_elf(given.judge, elf_files, elf_json);
  if (*decode) return command_decode(decode_command);
  if (*doctor) return command_doctor();
  if (*drift) return command_drift(drift_command);
  if (*list) return command_list(what, spec, json, markdown);
  if (*explain) return command_explain(id);
  if (*expect) return command_expect(expect_command);
  if (*report) return command_report(report_command);
  if (*golden) return command_golden(golden_command);
  if (generate->count() > 0 || !generated.scripts.empty()) {
    generated.only = selftest_command.only;
    generated.jobs = selftest_command.jobs;
    generated.verbose = selftest_command.verbose;
    return command_generated_programs(generated);
  }
  return command_selftest(selftest_command);
}

}  // namespace
}  // namespace ctxconf::conformance

int main(int argc, char** argv) {
  // A reader of our output that goes away is no reason to leave processes behind.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow as long is an error that can be told.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return ctxconf::conformance::run_command_line(argc, argv);
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) {
      std::fprintf(stderr, "ctxconf: cannot write to stdout: %s\n", e.what());
      return ctxconf::conformance::kExitUnreachable;
    }
    std::fprintf(stderr, "ctxconf: a bug in ctxconf, please report it: %s\n", e.what());
    return ctxconf::conformance::kExitHarnessError;
  }
}
