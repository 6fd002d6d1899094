#include "conformance/observe/wrap.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/recording.h"
#include "sys/access_watchdog.h"
#include "sys/process.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAfterPublication{10000};
constexpr milliseconds kWithoutPublication{30000};
constexpr milliseconds kTermGrace{2000};

Clock::duration scaled(const WrapOptions& options, milliseconds d) {
  return std::chrono::duration_cast<Clock::duration>(d * options.timeout_scale);
}

Clock::time_point deadline_of(const WrapOptions& options, const Recording& recording) {
  if (options.run_for) return recording.begun() + scaled(options, *options.run_for);
  if (const auto published = recording.published()) {
    return *published + scaled(options, kAfterPublication);
  }
  return recording.begun() + scaled(options, kWithoutPublication);
}

// Until the program has ended, by itself or because its time was up.
sys::Result<> follow(const WrapOptions& options, Recording& recording, Timeline& timeline) {
  std::optional<Clock::time_point> end_by;  // without the time that job control takes
  while (true) {
    if (recording.paused()) break;
    const auto now = Clock::now();
    const auto deadline = deadline_of(options, recording);
    if (!recording.runaway().empty()) {
      timeline.hang = recording.runaway();
      if (!end_by) recording.last_look();
      recording.terminate(/*politely=*/false);
      break;
    }
    if (!end_by && (now >= deadline || recording.interrupted())) {
      if (recording.interrupted()) {
        timeline.notes.emplace_back("the observation was interrupted");
      } else {
        const auto ran = std::chrono::duration_cast<milliseconds>(now - recording.begun()).count();
        timeline.notes.push_back("the program still ran after " + std::to_string(ran / 1000) + "." +
                                 std::to_string(ran % 1000 / 100) + " s and was ended");
      }
      recording.last_look();
      recording.terminate(/*politely=*/true);
      end_by = Clock::now() - recording.late() + scaled(options, kTermGrace);
    }
    const auto until = end_by ? *end_by + recording.late() : deadline;
    if (end_by && now >= until) break;
    CTX_TRY(more, recording.step(until));
    if (!more) break;
  }
  return recording.finish();
}

}  // namespace

sys::Result<> record_wrap(const WrapOptions& options, Timeline& timeline) {
  timeline.watches_lifetime = options.stores && options.watch_lifetime;
  timeline.clock_calls = options.hide_vdso;
  for (const auto& spec : options.injections) timeline.injections.push_back(to_injection(spec));
  CTX_TRY(recording, Recording::start(options, {}, timeline));
  auto followed = follow(options, recording, timeline);
  if (!followed) followed.error().op = kFollowing;
  return followed;
}

sys::Result<FaultRun> run_with_file_size_limit(const WrapOptions& options) {
  sys::Launch launch;
  launch.argv = options.argv;
  launch.no_filter = options.no_filter;
  launch.file_size_limit = 0;
  launch.discard_output = true;
  CTX_TRY(tracee, sys::Tracee::launch(launch, options.trampoline));

  const auto dog = watchdog(options);
  FaultRun run;
  run.fault = "RLIMIT_FSIZE=0";
  const pid_t root = tracee.root();
  // The program may be a launcher: what any of its processes dies of counts.
  const auto limit = options.run_for.value_or(kAfterPublication);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(limit * options.timeout_scale);
  std::map<pid_t, std::pair<std::string, std::string>> struck;  // process: call, file
  bool ended_by_us = false;
  const auto look = [&](pid_t pid) {
    SnapshotRecorder r(ImageKey{pid, 0}, options.limits);
    r.take(Moment::kExit, Look::kQuick);
    run.published = run.published || r.last_publication_ns() != 0;
  };
  std::size_t started = 0;
  while (true) {
    auto event = tracee.next(deadline);
    if (!event) {
      if (event.error().err == ECHILD) break;
      return std::unexpected(std::move(event).error());
    }
    if (!*event || tracee.tasks() > options.max_tasks ||
        tracee.processes().size() > options.max_alive || started > options.max_processes) {
      ended_by_us = true;
      break;
    }
    std::visit(
        [&](const auto& e) {
          using E = std::decay_t<decltype(e)>;
          if constexpr (std::is_same_v<E, sys::SignalStop>) {
            if (e.signo == SIGXFSZ) {
              if (const auto call = tracee.syscall_of(e.tid)) {
                const bool sizes = call->nr == SYS_ftruncate || call->nr == SYS_fallocate;
                std::string file;
                if (auto links = sys::descriptors_to(e.process, "")) {
                  for (const auto& l : *links) {
                    if (std::cmp_equal(l.fd, call->args[0])) file = l.link;
                  }
                }
                struck[e.process] = {
                    sizes ? "ftruncate" : "system call " + std::to_string(call->nr), file};
              }
            }
            (void)tracee.resume(e.tid, e.signo);
          } else if constexpr (std::is_same_v<E, sys::Exiting>) {
            if (e.whole_process) look(e.process);
            (void)tracee.resume(e.tid);
          } else if constexpr (std::is_same_v<E, sys::Gone>) {
            const bool hit = e.killed_by == SIGXFSZ && struck.contains(e.process) &&
                             struck[e.process].second.starts_with(abi::kMemfdFile);
            if (e.process == root || hit) {
              if (run.killed_by != SIGXFSZ || hit) {
                run.exit_code = e.exit_code;
                run.killed_by = e.killed_by;
                if (struck.contains(e.process)) {
                  std::tie(run.last_syscall, run.last_file) = struck[e.process];
                }
              }
            }
          } else if constexpr (std::is_same_v<E, sys::Execed>) {
            (void)tracee.resume(e.process);
          } else {
            if constexpr (std::is_same_v<E, sys::NewTask>) ++started;
            (void)tracee.resume(e.tid);
          }
        },
        **event);
  }
  for (const pid_t pid : tracee.processes()) look(pid);
  CTX_CHECK(tracee.end());
  run.ended_by_us = ended_by_us && !run.exit_code && !run.killed_by;
  return run;
}

}  // namespace ctxconf::conformance
