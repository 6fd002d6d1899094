#include "conformance/observe/attach.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/rules/state_rules.h"
#include "conformance/text/ascii.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

using std::chrono::milliseconds;

int attach_to(const JudgeOptions& options, const std::vector<std::string>& pids, bool all) {
  if (all == !pids.empty()) {
    return complain(kExitUsage, "attach: give a pid or --all",
                    "ctxconf attach [options] PID | --all");
  }
  AttachOptions attach;
  attach.limits.judge = &state_judge();
  for (const auto& text : pids) {
    const auto pid = number_from<pid_t>(text);
    if (!pid || *pid <= 0) return complain(kExitUsage, "attach: " + text + " is not a process id");
    attach.pids.push_back(*pid);
  }
  std::ranges::sort(attach.pids);
  attach.pids.erase(std::ranges::unique(attach.pids).begin(), attach.pids.end());
  if (options.run_for) attach.watch_for = *options.run_for;
  for (milliseconds* limit : {&attach.watch_for, &attach.memory_deadline, &attach.memory_budget,
                              &attach.time_for_all, &attach.late_look}) {
    *limit = std::chrono::duration_cast<milliseconds>(*limit * options.timeout_scale);
  }
  attach.unreachable = give_up_on;
  const Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  if (const int code = check_proc("attach"); code != 0) return code;
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
  // A process that cannot be read is unreachable; that does not mean that it has no context.
  std::string unreachable;
  std::string unread;
  std::size_t readable = 0;
  for (const auto& p : timeline.processes) {
    const bool unseen =
        std::ranges::all_of(p.images, [](const Image& image) { return image.snapshots.empty(); });
    if (!all && unseen)
      unreachable = fmt::format("process {} ended before it could be examined", p.pid);
    for (const auto& image : p.images) {
      if (image.unread.empty()) {
        ++readable;
      } else {
        unread = fmt::format("process {} {}", p.pid, image.unread);
      }
    }
  }
  // With --all, the others are judged.
  if (!unread.empty() && (!all || readable == 0)) unreachable = unread;
  const int code = conclude_run(options, prepared, timeline, "attach", unreachable);
  if (!recorded->left_a_thread) return code;
  std::fflush(nullptr);
  _exit(code);
}

struct AttachCommand {
  CommonOptions common;
  std::vector<std::string> pids;
  bool all = false;
};

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
  sub->add_option("PID", o->pids, "the processes to judge; exit 4 if one has published nothing");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                return attach_to(o->common.judge, o->pids, o->all);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
