#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>

#include "conformance/ascii.h"
#include "conformance/command_faults.h"
#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/judge.h"
#include "conformance/observe/attach.h"
#include "conformance/observe/wrap.h"
#include "conformance/on_fail.h"
#include "conformance/report/escape.h"
#include "conformance/report/result_json.h"
#include "conformance/trace.h"
#include "conformance/trace_ids.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/expectations.h"
#include "conformance/version.h"
#include "sys/capabilities.h"
#include "sys/confinement.h"
#include "sys/process.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

using std::chrono::milliseconds;

Date today() { return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()); }

std::string now_rfc3339() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

int read_floor(const JudgeOptions& options, Floor& floor) {
  const Catalogue& catalogue = Catalogue::builtin();
  for (const auto& given : options.require_observable) {
    const std::string& glob = floor.observable.emplace_back(given == "true" ? "*" : given);
    if (!catalogue.has_match(glob)) {
      return complain(kExitUsage, "--require-observable: no requirement matches " + glob,
                      "`ctxconf list` shows the ids");
    }
  }
  if (options.baseline.empty()) return kExitClean;
  const auto& text = options.baseline_text;
  if (!text) return complain(kExitUsage, "--baseline: " + sys::to_string(text.error()));
  const auto run = result_from_json(*text, catalogue);
  if (!run) {
    return complain(kExitUsage, "--baseline: " + options.baseline + ": " + run.error().detail,
                    "--out of a run with this ctxconf has a result.json for it");
  }
  floor.baseline_file = options.baseline;
  floor.baseline = judged_in(*run);
  return kExitClean;
}

Prepared prepare(const JudgeOptions& options) {
  Prepared p;
  const Catalogue& catalogue = Catalogue::builtin();
  Selection selection;
  if (!options.spec.empty()) {
    auto spec = parse_spec(catalogue, options.spec);
    if (!spec) {
      p.exit_code = complain(kExitUsage, "--spec: " + spec.error().detail);
      return p;
    }
    selection.spec = std::move(*spec);
  }
  selection.only = options.only;
  selection.skip = options.skip;
  if (!options.level.empty()) {
    const auto level = level_from(options.level);
    if (!level || *level > Level::kRace) {
      p.exit_code = complain(kExitUsage, "--level: unknown level " + options.level,
                             "one of static, snapshot, syscalls, stores, steps, race");
      return p;
    }
    selection.deepest = *level;
  }
  auto selected = select(catalogue, selection);
  if (!selected) {
    p.exit_code = complain(kExitUsage, selected.error().detail,
                           "`ctxconf list` shows the ids; --only and --skip take globs over them");
    return p;
  }
  p.selected = std::move(*selected);
  p.spec = selection.spec;
  for (const auto& pair : options.expect_resource) {
    if (pair.find('=') == std::string::npos || pair.starts_with('=')) {
      p.exit_code = complain(kExitUsage, "--expect-resource: " + pair + " is not KEY=VALUE");
      return p;
    }
  }
  for (const auto& id : options.expect_trace_id) {
    if (!trace_id_from(id)) {
      p.exit_code = complain(kExitUsage, "--expect-trace-id: " + id + " is not a trace id",
                             "32 hexadecimal digits, as in a traceparent");
      return p;
    }
  }
  for (const auto& id : options.expect_span_id) {
    if (!span_id_from(id)) {
      p.exit_code = complain(kExitUsage, "--expect-span-id: " + id + " is not a span id",
                             "16 hexadecimal digits, as in a traceparent");
      return p;
    }
  }
  p.exit_code = read_floor(options, p.floor);
  if (p.exit_code != 0) return p;
  if (!options.expect.empty()) {
    const auto text = read_file(options.expect, kMaxExpectationBytes);
    if (!text) {
      p.exit_code = complain(kExitUsage, "--expect: " + sys::to_string(text.error()),
                             "`ctxconf expect init FILE --from RESULT.json` writes one");
      return p;
    }
    p.expectations = parse_expectations(*text, options.expect, catalogue);
    if (const auto* problem = p.expectations->usage_error()) {
      p.exit_code = complain(kExitUsage,
                             fmt::format("{}:{}: {}", options.expect, problem->line, problem->text),
                             problem->mend);
      return p;
    }
  }
  if (!options.out.empty()) {
    auto out = OutputFolder::make(options.out);
    const bool writable = out && out->is_writable();
    if (!writable) {
      p.exit_code = complain(kExitUsage,
                             "--out: cannot write into " + options.out + ": " +
                                 std::strerror(out ? errno : out.error().err),
                             "name a directory that you may write to");
      return p;
    }
    p.out = std::move(*out);
  }
  return p;
}

namespace {

// Ids that prepare() has accepted.
void add_expected_ids(const JudgeOptions& options, Timeline& t) {
  if (!options.expect_trace_id.empty()) t.expected_trace_ids.clear();
  if (!options.expect_span_id.empty()) t.expected_span_ids.clear();
  for (const auto& id : options.expect_trace_id) {
    t.expected_trace_ids.push_back(trace_id_from(id).value_or(id));
  }
  for (const auto& id : options.expect_span_id) {
    t.expected_span_ids.push_back(span_id_from(id).value_or(id));
  }
}

}  // namespace

Timeline begin_timeline(const JudgeOptions& options, Mode mode, std::vector<std::string> target) {
  Timeline t;
  t.suite_version = kVersionText;
  t.mode = mode;
  t.target = std::move(target);
  utsname name{};
  uname(&name);
  t.kernel = name.release;
  t.arch = name.machine;
  t.libc = std::string("glibc ") + gnu_get_libc_version();
  t.started_at = now_rfc3339();
  t.host = sys::Capabilities::of_this_host().facts();
  t.page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  t.realtime_minus_boottime_ns = sys::realtime_now_ns() - sys::boottime_now_ns();
  t.expected_resource = options.expect_resource;
  add_expected_ids(options, t);
  t.faults_asked = options.faults.has_value();
  t.reading = reading_from(options.reading).value_or(Reading());
  return t;
}

namespace {

constexpr std::size_t kMostTraceBytes = std::size_t{64} << 20U;  // of all in a directory

constexpr const char* kTraces = "traces";

std::optional<std::string> trace_name(const std::string& id) {
  if (Catalogue::builtin().find(id) == nullptr) return std::nullopt;
  return id + ".trace";
}

// Those that an earlier run has left there, and nothing else.
sys::Result<> remove_traces(const OutputFolder& folder) {
  for (const auto& name : folder.regular_files()) {
    if (trace_name(std::filesystem::path(name).stem().string()) != name) continue;
    CTX_CHECK(folder.remove(name));
  }
  return {};
}

sys::Result<> remove_recording(const OutputFolder& out) {
  CTX_CHECK(out.remove("timeline.json"));
  CTX_CHECK(out.remove("events.jsonl"));
  if (!out.has(kTraces)) return {};
  CTX_TRY(traces, out.make_folder(kTraces));
  return remove_traces(traces);
}

// For each requirement that is broken the part of the recording that shows it.
sys::Result<> write_traces(const OutputFolder& out, Timeline& timeline, RunResult& run) {
  std::optional<OutputFolder> folder;
  std::size_t left = kMostTraceBytes;
  std::size_t left_out = 0;
  for (RequirementResult& r : run.results) {
    if (r.outcome != Outcome::kFail && r.outcome != Outcome::kWarn) continue;
    const auto text = trace_of(timeline, r, left);
    const auto name = trace_name(r.requirement->id);
    if (!text || !name) {
      ++left_out;
      continue;
    }
    if (!folder) {
      CTX_TRY(made, out.make_folder(kTraces));
      folder = std::move(made);
    }
    CTX_CHECK(folder->write(*name, *text));
    left -= text->size();
    r.trace_path = folder->prefix() + *name;
  }
  if (left_out > 0) {
    run.notes.push_back(
        fmt::format("traces/ has at most {} MiB: {} failed requirement{} no file there, "
                    "timeline.json has all",
                    kMostTraceBytes >> 20U, left_out, left_out == 1 ? " has" : "s have"));
  }
  return {};
}

}  // namespace

int prepare_output(const Prepared& prepared) {
  if (!prepared.out) return 0;
  const auto removed = remove_recording(*prepared.out);
  if (removed) return 0;
  return complain(kExitUsage, "--out: " + sys::to_string(removed.error()),
                  "what is there of an earlier run is to be removed; name another directory");
}

int conclude_run(const JudgeOptions& options, const Prepared& prepared, Timeline& timeline,
                 const std::string& mode, std::string unreachable, RunResult* judged) {
  timeline.partial = timeline.partial || prepared.partial || !unreachable.empty();
  if (timeline.incomplete.empty()) timeline.incomplete = prepared.incomplete;
  RunResult run = judge(timeline, prepared.selected);
  if (timeline.incomplete.empty()) timeline.incomplete = run.incomplete;
  // What is written beside the recording rests on the rules alone.
  const bool writes_recording = prepared.out && mode != "replay";
  sys::Result<> written;
  if (writes_recording) written = write_traces(*prepared.out, timeline, run);
  run.mode = mode;
  run.spec = prepared.spec;
  run.suite_commit = kCommitText;
  run.command_line = options.command_line;
  run.seed = prepared.seed;
  run.partial = timeline.partial || !timeline.harness_fault.empty();
  if (prepared.expectations) {
    apply(*prepared.expectations, today(),
          {options.strict, prepared.floor.observable, run.partial,
           options.command_line.empty() ? "ctxconf" : options.command_line.front(),
           options.out.empty() ? std::nullopt : std::optional(options.out + "/result.json")},
          run);
  }
  if (written && writes_recording) {
    if (const auto text = to_json(timeline, kLongestTimeline)) {
      written = prepared.out->write("timeline.json", *text);
      if (written) run.trace_path = prepared.out->prefix() + "timeline.json";
    } else {
      run.notes.push_back(fmt::format("the recording is larger than {} MiB and was not saved",
                                      kLongestTimeline >> 20U));
    }
  }
  apply_floor(prepared.floor, prepared.expectations ? &*prepared.expectations : nullptr, run);
  ExitOptions ending = {options.strict, std::move(unreachable), prepared.unwritten,
                        timeline.incomplete};
  if (!written) ending.unwritten = "--out has not all of it: " + sys::to_string(written.error());
  conclude(ending, run);
  if (prepared.out) {
    written = write_reports(*prepared.out, run, options.strict);
    if (!written) {
      ending.unwritten = "--out has not all of it: " + sys::to_string(written.error());
      conclude(ending, run);
    }
  }
  const int code = run.exit_code;
  if (prepared.is_told) return code;
  const std::string report = to_console(run, options.console);
  if (judged != nullptr) *judged = std::move(run);
  return print(report, code);
}

std::string advice_for_start(int err, std::string_view command) {
  switch (err) {
    case ENOENT:
      return "name a program that exists, with its path or in PATH";
    case EACCES:
      return fmt::format(
          "make it executable (chmod +x), or start its interpreter: ctxconf {} -- python3 app.py",
          command);
    case ENOEXEC:
      return "it is no program of this machine; a script needs a first line like #!/bin/sh";
    case EPERM:
      return "ptrace is refused here: `ctxconf doctor` says what would allow it";
    default:
      return "`ctxconf doctor` says what this host allows";
  }
}

// The thread that reads cannot be told: it waits in the kernel.
void give_up_on(pid_t pid) {
  fmt::print(stderr,
             "ctxconf: process {} cannot be observed: a page of it could not be read in time\n"
             "  whoever fills it (userfaultfd, FUSE) did not answer; observe other processes by "
             "their pid\n",
             pid);
  _exit(kExitUnreachable);
}

int check_proc(const std::string& what) {
  if (access("/proc/self/stat", F_OK) == 0) return 0;
  return complain(kExitUnreachable, what + " needs /proc, which is not mounted here",
                  "mount -t proc proc /proc");
}

int prepare_recording(const JudgeOptions& options, const Prepared& prepared,
                      const std::string& what, WrapOptions& recording, Timeline& timeline) {
  if (const int code = check_proc(what); code != 0) return code;
  const auto trampoline = sys::find_trampoline();
  if (!trampoline) {
    return complain(kExitHarnessError, sys::to_string(trampoline.error()),
                    "install ctxconf-trampoline beside ctxconf");
  }
  const auto& host = sys::Capabilities::of_this_host();
  if (!host.has(sys::kHostPtrace)) {
    return complain(kExitUnreachable, what + " needs ptrace, which this host refuses",
                    "`ctxconf doctor` says what would allow it; `ctxconf attach PID` needs less");
  }
  if (!host.has(sys::kHostProcessVmReadv)) {
    if (const auto memory = sys::try_memory_of_a_child(); !memory) {
      return complain(kExitUnreachable,
                      what +
                          " needs to read the memory of what it starts, which this host refuses: " +
                          sys::to_string(memory.error()),
                      sys::remedy_for_tracing_a_child(sys::Confinement::of_this_process()));
    }
    timeline.notes.emplace_back(
        "process_vm_readv is refused here: memory is read through /proc/PID/mem, which is slower");
  }
  recording.trampoline = *trampoline;
  recording.timeout_scale = options.timeout_scale;
  recording.unreachable = give_up_on;
  recording.no_filter = !host.has(sys::kHostSeccompTrace);
  if (recording.no_filter) {
    timeline.notes.emplace_back(
        "no system call filter here: no system call is seen, and what happens right before an exec "
        "may be missed");
  }
  if (recording.stores && !(host.has(sys::kHostWatchpoints) && !recording.no_filter)) {
    recording.stores = false;
    recording.no_stores = recording.no_filter ? "this host has no system call filter for tracers"
                                              : "this host has no watchpoints for tracers";
  }
  if (recording.picks_slots && !host.has(sys::kHostWatchpoints)) {
    recording.slot_steps = recording.picks_slots = false;
    recording.no_slot_steps = "this host has no watchpoints for tracers";
  }
  return prepare_output(prepared);
}

namespace {

// A row of this OTEP rests on stores, or on what is between them.
bool asks_for_stores(const std::vector<const Requirement*>& selected, int otep) {
  return std::ranges::any_of(selected, [&](const Requirement* r) {
    return (r->level == Level::kStores || r->level == Level::kSteps) && r->has_mode(Mode::kWrap) &&
           r->otep == otep;
  });
}

}  // namespace

int command_wrap(const JudgeOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    return complain(kExitUsage, "wrap: no command", "ctxconf wrap [options] -- CMD [ARGS]");
  }
  WrapOptions wrap;
  wrap.hide_vdso = options.hide_vdso;
  for (const auto& text : options.inject) {
    auto spec = parse_injection(text);
    if (!spec) return complain(kExitUsage, spec.error().detail, kInjectionGrammar);
    wrap.hide_vdso = wrap.hide_vdso || spec->call == "clock_gettime";
    wrap.injections.push_back(std::move(*spec));
  }
  if (options.faults && (wrap.hide_vdso || !wrap.injections.empty())) {
    return complain(kExitUsage, "--faults gives each run one fault of its own",
                    "leave out --inject and --hide-vdso");
  }
  if (options.faults && !names_fault(*options.faults)) {
    return complain(kExitUsage, "--faults: no fault matches " + *options.faults,
                    "like 'memfd_create/*' or RLIMIT_FSIZE=0: a report of wrap --faults names all");
  }
  if (const int code = check_on_fail(options); code != 0) return code;
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  Timeline timeline = begin_timeline(options, Mode::kWrap, command);
  wrap.argv = command;
  wrap.run_for = options.run_for;
  // A place to stand at may be a store, whatever the requirement.
  wrap.stores = options.on_fail == "pause" || options.on_fail == "gdb" ||
                asks_for_stores(prepared.selected, 4719);
  const bool of_threads = asks_for_stores(prepared.selected, 4947);
  if (of_threads && (options.watch == "threads" || !wrap.stores)) {
    wrap.stores = false;
    wrap.no_stores = "the variables of threads were looked at instead";
    wrap.slot_steps = wrap.picks_slots = true;
  }
  wrap.watch_lifetime = options.watch != "publication";
  wrap.ids_from_output = options.ids_from_output;
  if (const int code = prepare_recording(options, prepared, "wrap", wrap, timeline); code != 0)
    return code;
  if (wrap.no_filter && (wrap.hide_vdso || !wrap.injections.empty() || options.faults)) {
    return complain(kExitUnreachable,
                    "--inject, --faults and --hide-vdso need a system call filter",
                    "`ctxconf doctor` says what would allow it");
  }
  const bool show_progress = isatty(STDERR_FILENO) != 0 && !options.console.quiet;
  if (show_progress) {
    wrap.progress = [](double seconds, std::size_t processes, std::size_t contexts) {
      fmt::print(stderr, "\r\033[K{:.1f} s, {} process{}, {} publication{} seen\r", seconds,
                 processes, processes == 1 ? "" : "es", contexts, contexts == 1 ? "" : "s");
    };
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto wrapped = record_wrap(wrap, timeline);
  if (show_progress) fmt::print(stderr, "\r\033[K");
  if (!wrapped) {
    const auto& e = wrapped.error();
    if (std::string_view(e.op) == kFollowing) {
      return complain(kExitHarnessError, sys::to_string(e), "a bug in ctxconf: please report it");
    }
    return complain(kExitUnreachable, "cannot start " + command.front() + ": " + sys::to_string(e),
                    advice_for_start(e.err, "wrap"));
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
    timeline.notes.emplace_back("there was no run under a fault: something failed before");
  } else if (options.faults) {
    faults = run_faults(options, wrap, *wrapped, seconds(), timeline);
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
                            wrap.pause_at = at;
                            wrap.paused = std::move(paused);
                            (void)record_wrap(wrap, again);
                            return again;
                          });
}

int command_attach(const JudgeOptions& options, const std::vector<std::string>& pids, bool all) {
  if (all == !pids.empty()) {
    return complain(kExitUsage, "attach: give a pid or --all",
                    "ctxconf attach [options] PID | --all");
  }
  AttachOptions attach;
  for (const auto& text : pids) {
    const auto pid = number_from<pid_t>(text);
    if (!pid || *pid <= 0) return complain(kExitUsage, "attach: " + text + " is no process id");
    attach.pids.push_back(*pid);
  }
  if (options.faults) {
    return complain(kExitUsage, "attach: --faults needs a program to start",
                    "use ctxconf wrap --faults");
  }
  std::ranges::sort(attach.pids);
  attach.pids.erase(std::ranges::unique(attach.pids).begin(), attach.pids.end());
  if (options.run_for) attach.watch_for = *options.run_for;
  attach.watch_for =
      std::chrono::duration_cast<milliseconds>(attach.watch_for * options.timeout_scale);
  attach.memory_deadline =
      std::chrono::duration_cast<milliseconds>(attach.memory_deadline * options.timeout_scale);
  attach.unreachable = give_up_on;
  const Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  if (const int code = prepare_output(prepared); code != 0) return code;
  std::vector<std::string> target = pids;
  if (all) target = {"--all"};
  Timeline timeline = begin_timeline(options, Mode::kAttach, std::move(target));
  const auto begin = std::chrono::steady_clock::now();
  const auto recorded = record_attach(attach, timeline);
  if (!recorded) {
    const auto& e = recorded.error();
    std::string advice = "`ctxconf doctor` says what this host allows";
    if (e.err == ESRCH || e.err == ENOENT) advice = "no such process: `ps` shows those that run";
    if (e.err == EPERM || e.err == EACCES) {
      advice = "run as the process's user or as root, with CAP_SYS_PTRACE in a container";
    }
    return complain(kExitUnreachable, "cannot attach: " + sys::to_string(e), advice);
  }
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // A process that may not be read is out of reach, not without a context.
  std::string unreachable;
  for (const auto& p : timeline.processes) {
    for (const auto& image : p.images) {
      for (const auto& note : image.notes) {
        if (!all && note.find("cannot be") != std::string::npos) {
          unreachable = fmt::format("process {} {}", p.pid, note);
        }
      }
    }
  }
  const int code = conclude_run(options, prepared, timeline, "attach", unreachable);
  if (!recorded->left_a_thread) return code;
  std::fflush(nullptr);
  _exit(code);
}

int command_replay(const JudgeOptions& options, const std::string& file) {
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  const auto text = read_file(file, kLongestTimeline);
  if (!text) return complain(kExitUsage, "replay: " + sys::to_string(text.error()));
  auto timeline = timeline_from_json(*text);
  if (!timeline) {
    return complain(kExitUsage, "replay: " + file + ": " + timeline.error().detail);
  }
  if (!options.expect_resource.empty()) timeline->expected_resource = options.expect_resource;
  add_expected_ids(options, *timeline);
  if (const auto reading = reading_from(options.reading)) timeline->reading = *reading;
  // What shows other requirements was not asked for.
  prepared.partial = std::ranges::any_of(prepared.selected, [&](const Requirement* r) {
    const auto& asked_for = timeline->asked_for;
    return !asked_for.empty() && r->has_mode(Mode::kRun) &&
           std::ranges::find(asked_for, r->id) == asked_for.end();
  });
  return conclude_run(options, prepared, *timeline, "replay");
}

}  // namespace ctxconf::conformance
