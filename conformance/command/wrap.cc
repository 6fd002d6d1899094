#include "conformance/observe/wrap.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/fault_runs.h"
#include "conformance/command/judging.h"
#include "conformance/command/on_fail.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

// Whether a requirement of this OTEP needs stores or steps.
bool asks_for_stores(const std::vector<const Requirement*>& selected, int otep) {
  return std::ranges::any_of(selected, [&](const Requirement* r) {
    return (r->level == Level::kStores || r->level == Level::kSteps) && r->has_mode(Mode::kWrap) &&
           r->otep == otep;
  });
}

int wrap(const JudgeOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    return complain(kExitUsage, "wrap: no command", "ctxconf wrap [options] -- CMD [ARGS]");
  }
  WrapOptions recording;
  recording.hide_vdso = options.hide_vdso;
  for (const auto& text : options.inject) {
    auto spec = parse_injection(text);
    if (!spec) return complain(kExitUsage, spec.error().detail, kInjectionGrammar);
    recording.hide_vdso = recording.hide_vdso || spec->call == "clock_gettime";
    recording.injections.push_back(std::move(*spec));
  }
  if (options.faults && (recording.hide_vdso || !recording.injections.empty())) {
    return complain(kExitUsage, "--faults gives each run one fault of its own",
                    "leave out --inject and --hide-vdso");
  }
  if (options.faults && !names_fault(*options.faults)) {
    return complain(kExitUsage, "--faults: no fault matches " + *options.faults,
                    "for example 'memfd_create/*' or RLIMIT_FSIZE=0; the report of wrap --faults "
                    "lists all faults");
  }
  if (const int code = check_on_fail(options); code != 0) return code;
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  Timeline timeline = begin_timeline(options, Mode::kWrap, command);
  recording.argv = command;
  recording.run_for = options.run_for;
  // The event to stop at may be a store, whatever the requirement.
  recording.stores = options.on_fail == "pause" || options.on_fail == "gdb" ||
                     asks_for_stores(prepared.selected, 4719);
  const bool of_threads = asks_for_stores(prepared.selected, 4947);
  if (of_threads && (options.watch == "threads" || !recording.stores)) {
    recording.stores = false;
    recording.no_stores =
        "the slot and the record of each thread were watched instead of the header";
    recording.slot_steps = recording.picks_slots = true;
  }
  recording.watch_lifetime = options.watch != "publication";
  recording.ids_from_output = options.ids_from_output;
  if (const int code = prepare_recording(options, prepared, "wrap", recording, timeline); code != 0)
    return code;
  if (recording.no_filter &&
      (recording.hide_vdso || !recording.injections.empty() || options.faults)) {
    return complain(kExitUnreachable,
                    "--inject, --faults and --hide-vdso need a system call filter",
                    "`ctxconf doctor` says what would allow it");
  }
  const bool show_progress = isatty(STDERR_FILENO) != 0 && !options.console.quiet;
  if (show_progress) {
    recording.progress = [](double seconds, std::size_t processes, std::size_t contexts) {
      tell(fmt::format("\r\033[K{:.1f} s, {} process{}, {} publication{} seen\r", seconds,
                       processes, processes == 1 ? "" : "es", contexts, contexts == 1 ? "" : "s"));
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto wrapped = record_wrap(recording, timeline);
  if (show_progress) tell("\r\033[K");
  if (!wrapped) {
    const auto& e = wrapped.error();
    if (e.was_started) {
      return complain(kExitHarnessError, sys::to_string(e), "a bug in ctxconf: please report it");
    }
    return complain(kExitUnreachable, "cannot start " + command.front() + ": " + sys::to_string(e),
                    advice_for_start(e.err, command.front(), "wrap"));
  }
  const auto seconds = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  if (wrapped->interrupted) {
    prepared.incomplete = "the observation was interrupted";
    prepared.partial = true;
  }
  FaultsEnding faults;
  if (options.faults && ends_at_failure(options) && shows_failure(options, prepared, timeline)) {
    timeline.notes.emplace_back("fault runs were skipped: a requirement had failed before");
  } else if (options.faults) {
    faults = run_faults(options, recording, *wrapped, seconds(), timeline);
  }
  timeline.seconds = seconds();
  timeline.harness_fault = faults.harness_fault;
  if (faults.interrupted) {
    prepared.incomplete = "the fault matrix was interrupted";
    prepared.partial = true;
  }
  RunResult run;
  const int code = conclude_run(options, prepared, timeline, "wrap", faults.unreachable, &run);
  if (wrapped->interrupted) return code;
  return stand_at_failure(options, run, timeline, code,
                          [&](const PausePoint& at, const std::string& /*group*/, auto paused) {
                            Timeline again = begin_timeline(options, Mode::kWrap, command);
                            recording.pause_at = at;
                            recording.paused = std::move(paused);
                            (void)record_wrap(recording, again);
                            return again;
                          });
}

struct WrapCommand {
  CommonOptions common;
  std::string faults;  // a glob
};

}  // namespace

Command wrap_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<WrapCommand>();
  CLI::App* sub =
      app.add_subcommand("wrap", "start a program, and judge it and every process that it starts");
  add_common(*sub, o->common);
  add_expected_resource(*sub, o->common);
  add_expected_ids(*sub, o->common);
  sub->add_flag("--ids-from-output", o->common.judge.ids_from_output,
                "judge records by the traceparents and trace ids that the program prints;\n"
                "its output goes through pipes and is passed on");
  add_timing(
      *sub, o->common,
      "how long the program may run (500ms, 10s, 2m). Default: until it exits, or until 10 s\n"
      "after its last publication; a program that keeps publishing is ended after 2 minutes,\n"
      "with exit code 4");
  const CLI::Option* faults =
      sub->add_option(
             "--faults", o->faults,
             "run the program once more under each fault of the matrix, or under those that a\n"
             "glob matches: --faults='memfd_create/*'")
          ->expected(0, 1);
  sub->add_option("--inject", o->common.judge.inject,
                  "make a system call fail, or return a value, where it concerns a publication:\n"
                  "memfd_create:error=EPERM (repeatable)")
      ->allow_extra_args(false);
  sub->add_flag("--hide-vdso", o->common.judge.hide_vdso,
                "make the program read clocks by system calls, so that they are recorded;\n"
                "--inject clock_gettime:... implies it");

  sub->add_option(
         "--watch", o->common.judge.watch,
         "publication: watch stores to the header until it is published; then the program\n"
         "runs at full speed\n"
         "lifetime (default): watch stores to the header as long as the program runs\n"
         "threads: watch changes of thread contexts instead, instruction by instruction")
      ->check(CLI::IsMember({"publication", "lifetime", "threads"}));

  add_on_fail(*sub, o->common);

  return {.app = sub,
          .run =
              [o, faults, command_line](const Words& program) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                if (faults->count() > 0) {
                  o->common.judge.faults = o->faults.empty() ? "*" : o->faults;
                }
                return wrap(o->common.judge, program);
              },
          .takes = "program"};
}

}  // namespace ctxconf::conformance
