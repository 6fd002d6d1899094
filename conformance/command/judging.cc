#include "conformance/command/judging.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "conformance/command/fault_runs.h"
#include "conformance/command/files.h"
#include "conformance/command/on_fail.h"
#include "conformance/command/print.h"
#include "conformance/command/source_root.h"
#include "conformance/evidence/trace_ids.h"
#include "conformance/judge/judge.h"
#include "conformance/judge/trace.h"
#include "conformance/observe/attach.h"
#include "conformance/observe/known_files.h"
#include "conformance/observe/wrap.h"
#include "conformance/report/escape.h"
#include "conformance/report/result_json.h"
#include "conformance/rules/state_rules.h"
#include "conformance/text/ascii.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/expectations.h"
#include "conformance/version.h"
#include "sys/capabilities.h"
#include "sys/confinement.h"
#include "sys/elf_image.h"
#include "sys/process.h"
#include "sys/processor.h"
#include "sys/spawn.h"
#include "sys/tracer.h"
#include "sys/trampoline_file.h"

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
                    "run this ctxconf with --out: it writes a result.json for it");
  }
  floor.baseline_file = options.baseline;
  floor.baseline = judged_in(*run);
  return kExitClean;
}

int check_told_values(const JudgeOptions& options) {
  for (const auto& pair : options.expect_resource) {
    if (pair.find('=') == std::string::npos || pair.starts_with('=')) {
      return complain(kExitUsage, "--expect-resource: " + pair + " is not KEY=VALUE");
    }
  }
  for (const auto& id : options.expect_trace_id) {
    if (!trace_id_from(id)) {
      return complain(kExitUsage, "--expect-trace-id: " + id + " is not a trace id",
                      "32 hexadecimal digits, as in a traceparent");
    }
  }
  for (const auto& id : options.expect_span_id) {
    if (!span_id_from(id)) {
      return complain(kExitUsage, "--expect-span-id: " + id + " is not a span id",
                      "16 hexadecimal digits, as in a traceparent");
    }
  }
  return kExitClean;
}

Prepared prepare(const JudgeOptions& options, Role role) {
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
  selection.role = role;
  if (!options.level.empty()) {
    const auto level = level_from(options.level);
    if (!level || *level > Level::kRace) {
      p.exit_code = complain(kExitUsage, "--level: unknown level " + options.level,
                             "one of static, snapshot, syscalls, stores, steps, race");
      return p;
    }
    selection.deepest = p.deepest = *level;
  }
  auto selected = select(catalogue, selection);
  if (!selected) {
    p.exit_code = complain(kExitUsage, selected.error().detail,
                           "`ctxconf list` shows the ids; --only and --skip take globs over them");
    return p;
  }
  p.selected = std::move(*selected);
  p.spec = selection.spec;
  p.exit_code = check_told_values(options);
  if (p.exit_code != 0) return p;
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

void add_told_ids(const JudgeOptions& options, Timeline& t) {
  if (!options.expect_trace_id.empty()) t.expected_trace_ids.clear();
  if (!options.expect_span_id.empty()) t.expected_span_ids.clear();
  for (const auto& id : options.expect_trace_id) {
    t.expected_trace_ids.push_back(trace_id_from(id).value_or(id));
  }
  for (const auto& id : options.expect_span_id) {
    t.expected_span_ids.push_back(span_id_from(id).value_or(id));
  }
}

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
  add_told_ids(options, t);
  t.faults_asked = options.faults.has_value();
  t.reading = reading_from(options.reading).value_or(Reading());
  return t;
}

namespace {

constexpr std::size_t kMostTraceBytes = std::size_t{64} << 20U;  // of all traces in a directory

constexpr const char* kTraces = "traces";

std::optional<std::string> trace_name(const std::string& id) {
  if (Catalogue::builtin().find(id) == nullptr) return std::nullopt;
  return id + ".trace";
}

// Removes the traces of an earlier run, and nothing else.
sys::Result<> remove_traces(const OutputFolder& folder) {
  for (const auto& name : folder.regular_files()) {
    if (trace_name(std::filesystem::path(name).stem().string()) != name) continue;
    CTX_RETURN_IF_ERROR(folder.remove(name));
  }
  return {};
}

sys::Result<> remove_recording(const OutputFolder& out) {
  CTX_RETURN_IF_ERROR(out.remove("timeline.json"));
  CTX_RETURN_IF_ERROR(out.remove("events.jsonl"));
  if (!out.has(kTraces)) return {};
  CTX_ASSIGN_OR_RETURN(traces, out.make_folder(kTraces));
  return remove_traces(traces);
}

// Writes the part of the recording that shows each broken requirement.
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
      CTX_ASSIGN_OR_RETURN(made, out.make_folder(kTraces));
      folder = std::move(made);
    }
    CTX_RETURN_IF_ERROR(folder->write(*name, *text));
    left -= text->size();
    r.trace_path = folder->prefix() + *name;
  }
  if (left_out > 0) {
    run.notes.push_back(
        fmt::format("traces/ has at most {} MiB: {} failed requirement{} no file there; "
                    "timeline.json has them all",
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
                  "the results of an earlier run cannot be removed; name another directory");
}

int conclude_run(const JudgeOptions& options, const Prepared& prepared, Timeline& timeline,
                 const std::string& mode, std::string unreachable, RunResult* judged) {
  timeline.partial = timeline.partial || prepared.partial || !unreachable.empty();
  if (timeline.incomplete.empty()) timeline.incomplete = prepared.incomplete;
  RunResult run = judge(timeline, prepared.selected);
  if (timeline.incomplete.empty()) timeline.incomplete = run.incomplete;
  // The traces and timeline.json rest on the rules alone, not on expectations.
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
  find_sources(options, run);
  apply_floor(prepared.floor, prepared.expectations ? &*prepared.expectations : nullptr, run);
  ExitOptions ending = {options.strict, std::move(unreachable), prepared.unwritten,
                        timeline.incomplete};
  if (!written) ending.unwritten = "--out is incomplete: " + sys::to_string(written.error());
  conclude(ending, run);
  if (prepared.out) {
    written = write_reports(*prepared.out, run, options.strict);
    if (!written) {
      ending.unwritten = "--out is incomplete: " + sys::to_string(written.error());
      conclude(ending, run);
    }
  }
  if (prepared.is_told) return run.exit_code;
  const std::string report =
      prepared.report ? prepared.report(run) : to_console(run, options.console);
  const int code = print(report, run.exit_code);
  if (code != run.exit_code && prepared.out) {
    // The reports have the same exit code.
    ending.unwritten = kNotPrinted;
    conclude(ending, run);
    (void)write_reports(*prepared.out, run, options.strict);
  }
  if (judged != nullptr) *judged = std::move(run);
  return code;
}

namespace {

std::string advice_for_format(const std::string& program) {
  const auto path = sys::find_program(program, {});
  const auto file = path ? sys::ElfImage::open(*path) : std::unexpected(path.error());
  utsname host{};
  uname(&host);
  const auto here = sys::processor_of_uname(host.machine).name;
  if (!file || sys::processor_of_elf(file->machine()).name == here) {
    return "it is not a program for this machine; a script needs a first line like #!/bin/sh";
  }
  const auto theirs = sys::processor_of_elf(file->machine()).name;
  return fmt::format(
      "it is a program for {}, which this machine ({}) does not run: start ctxconf on one that "
      "does, or on an emulated one; `ctxconf elf` judges the file here",
      theirs.empty() ? "another processor" : theirs, here);
}

}  // namespace

std::string advice_for_start(int err, const std::string& program, std::string_view command) {
  switch (err) {
    case ENOENT:
      // Also the answer if the kernel does not find what the file names.
      if (const auto path = sys::find_program(program, {});
          path && access(path->c_str(), F_OK) == 0) {
        return "this file exists, but not the dynamic loader or the interpreter that it names "
               "(`readelf -l`, or its first line): install that";
      }
      return "name a program that exists, with its path or in PATH";
    case EACCES:
      return fmt::format(
          "make it executable (chmod +x) in a file system that is not mounted with noexec, or "
          "start its interpreter: ctxconf {} -- python3 app.py",
          command);
    case ENOEXEC:
      return advice_for_format(program);
    case EAGAIN:
      return sys::remedy_for_children(err, sys::Confinement::of_this_process());
    case EPERM:
      return "a seccomp filter or a security module may refuse it: `ctxconf doctor` says what is "
             "refused here";
    default:
      return "`ctxconf doctor` says what this host allows";
  }
}

// The thread that reads cannot be stopped: it waits in the kernel.
void give_up_on(pid_t pid) {
  tell(fmt::format(
      "ctxconf: process {} cannot be observed: a page of it could not be read in time\n"
      "  the process that fills it (userfaultfd, FUSE) did not answer; observe other processes by "
      "their pid\n",
      pid));
  _exit(kExitUnreachable);
}

std::string fault_of_proc() {
  if (access("/proc/self/stat", F_OK) != 0) return "is not mounted here";
  std::array<char, 16> link{};
  const auto n = readlink("/proc/self", link.data(), link.size());
  const std::string_view self(link.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  return self == std::to_string(getpid()) ? "" : "is here that of another PID namespace";
}

int check_proc(const std::string& what) {
  const std::string fault = fault_of_proc();
  if (fault.empty()) return 0;
  return complain(kExitUnreachable, what + " needs /proc, which " + fault, kHowToMountProc);
}

int check_children(const std::string& what) {
  if (const int code = check_proc(what); code != 0) return code;
  const sys::HostFact children = sys::probe_children();
  if (children.available) return 0;
  return complain(kExitUnreachable, what + " cannot start processes here: " + children.detail,
                  children.remedy);
}

int check_ptrace(const std::string& what, const std::string& instead) {
  if (const int code = check_children(what); code != 0) return code;
  if (sys::Capabilities::of_this_host().has(sys::kHostPtrace)) return 0;
  return complain(kExitUnreachable, what + " needs ptrace, which this host refuses",
                  sys::remedy_for_tracing_a_child(sys::Confinement::of_this_process()) + instead);
}

int prepare_recording(const JudgeOptions& options, const Prepared& prepared,
                      const std::string& what, WrapOptions& recording, Timeline& timeline) {
  if (const int code = check_ptrace(what, "; `ctxconf attach PID` needs less"); code != 0)
    return code;
  const auto trampoline = sys::find_trampoline();
  if (!trampoline) {
    return complain(kExitUnreachable, sys::to_string(trampoline.error()), kHowToStartPrograms);
  }
  recording.limits.judge = &state_judge();
  // A run of an adapter records it many times.
  recording.known_files = std::make_shared<KnownFiles>();
  const auto& host = sys::Capabilities::of_this_host();
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
        "no system call filter here: no system call is seen, and events right before an exec "
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

}  // namespace ctxconf::conformance
