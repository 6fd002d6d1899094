#include "conformance/observe/attach.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "conformance/command/command.h"
#include "conformance/command/every.h"
#include "conformance/command/judging.h"
#include "conformance/command/metrics_file.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/judge/process_verdicts.h"
#include "conformance/report/escape.h"
#include "conformance/report/exposition.h"
#include "conformance/report/process_lines.h"
#include "conformance/rules/state_rules.h"
#include "conformance/text/ascii.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/version.h"
#include "sys/confinement.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortestInterval{1000};
constexpr milliseconds kLongestRun{600000};  // of --every, in addition to --for

struct AttachCommand {
  CommonOptions common;
  std::vector<std::string> pids;
  bool all = false;
  bool json = false;
  std::optional<std::string> metrics;  // a file
  std::optional<std::string> every;
};

int read_pids(const AttachCommand& command, std::vector<pid_t>& out) {
  if (command.all == !command.pids.empty()) {
    return complain(kExitUsage, "attach: give a pid or --all",
                    "ctxconf attach [options] PID | --all");
  }
  for (const auto& text : command.pids) {
    const auto pid = number_from<pid_t>(text);
    if (!pid || *pid <= 0) return complain(kExitUsage, "attach: " + text + " is not a process id");
    out.push_back(*pid);
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return 0;
}

AttachOptions attach_options(const AttachCommand& command, std::vector<pid_t> pids) {
  const JudgeOptions& options = command.common.judge;
  AttachOptions out;
  out.pids = std::move(pids);
  if (command.every) out.unexamined = getppid();
  out.limits.judge = &state_judge();
  if (options.run_for) out.watch_for = *options.run_for;
  for (milliseconds* limit : {&out.watch_for, &out.memory_deadline, &out.memory_budget,
                              &out.time_for_all, &out.late_look}) {
    *limit = std::chrono::duration_cast<milliseconds>(*limit * options.timeout_scale);
  }
  out.unreachable = give_up_on;
  return out;
}

int complain_unreachable(const sys::Error& e) {
  std::string advice = "`ctxconf doctor` says what this host allows";
  if (e.err == ESRCH || e.err == ENOENT) advice = "no such process: `ps` shows those that run";
  if (e.err == EPERM || e.err == EACCES) {
    advice = sys::remedy_for_reading_another(sys::Confinement::of_this_process());
  }
  return complain(kExitUnreachable, "cannot attach: " + sys::to_string(e), advice);
}

// A process that cannot be read is unreachable; that does not mean that it has no context. Empty:
// the processes could be reached.
std::string unreachable_in(const Timeline& timeline, bool all) {
  std::string unseen;
  std::string unread;
  std::size_t readable = 0;
  for (const auto& p : timeline.processes) {
    const std::string why = why_unseen(p);
    if (!all && !why.empty()) unseen = fmt::format("process {} {}", p.pid, why);
    for (const auto& image : p.images) {
      if (image.unread.empty()) {
        ++readable;
      } else {
        unread = fmt::format("process {} {}", p.pid, image.unread);
      }
    }
  }
  // With --all, the others are judged.
  return !unread.empty() && (!all || readable == 0) ? unread : unseen;
}

ProcessVerdicts verdicts_of(const Attached& attached, Timeline& timeline,
                            const std::vector<const Requirement*>& selected, bool strict) {
  ProcessVerdicts out;
  out.processes = judge_each(timeline, selected, strict);
  out.without_context = attached.without_context;
  out.unread_omitted = attached.unread_omitted;
  for (const UnreadProcess& u : attached.unread) {
    ProcessVerdict& verdict = out.processes.emplace_back();
    verdict.pid = u.pid;
    verdict.state = ProcessState::kUnread;
    verdict.command = u.command;
    verdict.unread = u.why;
  }
  std::ranges::sort(out.processes, {}, &ProcessVerdict::pid);
  return out;
}

ExpositionRun exposition_run(const Timeline& timeline) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  return {.version = kVersionText,
          .commit = kCommitText,
          .ended_at = sys::realtime_now_ns() / kSecond,
          .seconds = timeline.seconds};
}

// Judges each process for --metrics and --json.
void report_each(const AttachCommand& command, const Attached& attached,
                 const std::optional<MetricsFile>& file, Timeline& timeline, Prepared& prepared) {
  if (!file && !command.json) return;
  auto verdicts = verdicts_of(attached, timeline, prepared.selected, command.common.judge.strict);
  if (file) {
    const auto written = file->write(to_exposition(exposition_run(timeline), verdicts));
    if (!written) prepared.unwritten = "--metrics: " + sys::to_string(written.error());
  }
  if (command.json) {
    prepared.report = [verdicts = std::move(verdicts)](const RunResult& run) {
      return to_process_lines(run, verdicts);
    };
  }
}

int open_metrics(const std::optional<std::string>& path, std::optional<MetricsFile>& out) {
  if (!path) return 0;
  auto file = MetricsFile::at(*path);
  if (!file) {
    return complain(kExitUsage, "--metrics: " + sys::to_string(file.error()),
                    "name a file in a directory that exists and that you may write to");
  }
  out = *std::move(file);
  return 0;
}

int attach_to(const AttachCommand& command) {
  const JudgeOptions& options = command.common.judge;
  std::vector<pid_t> pids;
  if (const int code = read_pids(command, pids); code != 0) return code;
  const AttachOptions attach = attach_options(command, std::move(pids));
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  std::optional<MetricsFile> file;
  if (const int code = open_metrics(command.metrics, file); code != 0) return code;
  if (const int code = check_proc("attach"); code != 0) return code;
  if (const int code = prepare_output(prepared); code != 0) return code;
  Timeline timeline = begin_timeline(
      options, Mode::kAttach, command.all ? std::vector<std::string>{"--all"} : command.pids);
  const auto begin = std::chrono::steady_clock::now();
  const auto recorded = record_attach(attach, timeline);
  if (!recorded) return complain_unreachable(recorded.error());
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report_each(command, *recorded, file, timeline, prepared);
  const int code =
      conclude_run(options, prepared, timeline, "attach", unreachable_in(timeline, command.all));
  if (!recorded->left_a_thread) return code;
  std::fflush(nullptr);
  _exit(code);
}

int attach_again_and_again(const AttachCommand& command) {
  const auto interval = parse_duration(*command.every);
  if (!interval || *interval < kShortestInterval) {
    return complain(kExitUsage,
                    "--every: " + shell_word(*command.every) + " is not a duration of 1 s or more",
                    "like 10s or 2m");
  }
  const JudgeOptions& options = command.common.judge;
  const auto longest = kLongestRun + options.run_for.value_or(milliseconds(0));
  const Repetition how = {
      .interval = *interval,
      .deadline = std::chrono::duration_cast<milliseconds>(longest * options.timeout_scale),
      .needs_reader = !command.metrics && options.out.empty()};
  return repeat_every(how, [&] { return attach_to(command); });
}

}  // namespace

Command attach_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<AttachCommand>();
  CLI::App* sub = app.add_subcommand("attach",
                                     "judge processes that already run; it stops threads for "
                                     "microseconds, to read their contexts");
  add_common(*sub, o->common);
  add_expected_resource(*sub, o->common);
  add_expected_ids(*sub, o->common);
  add_timing(*sub, o->common, "how long to watch the processes; default: 1s");
  sub->add_flag("--all", o->all, "judge every process of this machine that publishes");
  sub->add_flag("--json", o->json,
                "print a line of JSON for each process, and one about the run, instead of the\n"
                "report");
  sub->add_option("--metrics", o->metrics,
                  "write the verdicts about each process to this file, for the textfile collector\n"
                  "of Prometheus node_exporter; its name must end with .prom there");
  sub->add_option("--every", o->every,
                  "repeat the command at this interval (10s, 2m) until a signal ends it");
  sub->add_option("PID", o->pids, "the processes to judge; exit 4 if one has published nothing");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                return o->every ? attach_again_and_again(*o) : attach_to(*o);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
