#include "conformance/observe/attach.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "conformance/observe/threads.h"
#include "sys/access_watchdog.h"
#include "sys/all_signals_blocked.h"
#include "sys/confinement.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};
// With all processes, a larger payload is a large one (SnapshotLimits::large_payloads).
constexpr std::uint64_t kPayloadOfEach = std::uint64_t{64} << 10U;
constexpr std::chrono::milliseconds kStopDeadline{500};
constexpr std::chrono::milliseconds kRound{100};  // for the threads of one process

struct AttachedProcess {
  sys::ProcessFacts facts;
  std::unique_ptr<SnapshotRecorder> recorder;  // null: the process is gone
  std::unique_ptr<ThreadRecorder> threads;     // one for each recorder
  std::map<pid_t, sys::RemoteAddr> pointers;   // of its threads, where known
  pid_t looked_at_last = 0;
  Process process;
  std::shared_ptr<sys::AccessBudget> budget;
};

// What happened to a process since the last look at it.
enum class Identity { kSame, kExeced, kGone };
Identity identity_of(const sys::ProcessFacts& was) {
  const auto now = sys::process_facts(was.pid);
  if (!now || now->start_ticks != was.start_ticks || now->state == 'Z') return Identity::kGone;
  // Do not compare the command line: a program may overwrite it to set its title.
  return now->executable == was.executable ? Identity::kSame : Identity::kExeced;
}

void look_at_thread(AttachedProcess& w, pid_t tid) {
  const auto known = w.pointers.find(tid);
  if (known != w.pointers.end() && w.threads->sample_if_asleep(tid, known->second)) return;
  const auto stop = sys::ThreadStop::stop(tid, kStopDeadline, w.facts.pid);
  const auto pointer =
      stop ? stop->thread_pointer() : sys::Result<sys::RemoteAddr>(std::unexpected(stop.error()));
  if (!pointer) {
    if (pointer.error().err != ESRCH) w.threads->unread(sys::to_string(pointer.error()));
    return;
  }
  if (pointer->raw() == 0) return;
  w.pointers[tid] = *pointer;
  w.threads->sample(tid, *pointer);
}

// Stops threads that are running or whose TLS is not known yet. When the time of a round is over it
// ends, and the next round continues there.
void look_at_threads(AttachedProcess& w) {
  w.threads->look_at_modules();
  if (!w.threads->wants_threads()) return;
  const auto tids = sys::thread_list(w.facts.pid);
  if (!tids || tids->empty()) return;
  std::erase_if(w.pointers,
                [&](const auto& p) { return !std::ranges::binary_search(*tids, p.first); });
  const auto end = Clock::now() + kRound;
  const auto first = std::ranges::upper_bound(*tids, w.looked_at_last) - tids->begin();
  for (std::size_t i = 0; i < tids->size() && Clock::now() < end; ++i) {
    const pid_t tid = (*tids)[(static_cast<std::size_t>(first) + i) % tids->size()];
    w.looked_at_last = tid;
    look_at_thread(w, tid);
  }
}

void start_image(AttachedProcess& w, ImageKey key, const SnapshotLimits& limits,
                 ModuleCache& modules) {
  w.recorder = std::make_unique<SnapshotRecorder>(key, limits);
  w.threads = std::make_unique<ThreadRecorder>(key.pid, modules, *w.recorder);
  w.pointers.clear();
  // Take the context before the threads too: with many threads it may be gone after them.
  w.recorder->take(Moment::kStart, SnapshotDepth::kThorough);
  look_at_threads(w);
  w.recorder->take(Moment::kPeriodic, SnapshotDepth::kQuick);
}

void end_image(AttachedProcess& w, std::string ending) {
  w.process.images.push_back(std::move(*w.recorder).finish(std::move(ending)));
  w.process.images.back().calls_unseen = "attach sees no system calls";
  w.threads->add_to(w.process.images.back(), true);
  w.recorder.reset();
  w.threads.reset();
}

// Checks what happened to the process; the evidence of a new image must not be mixed with the old.
void follow(AttachedProcess& w, const SnapshotLimits& limits, ModuleCache& modules) {
  const Identity identity = identity_of(w.facts);
  if (identity == Identity::kSame) return;
  if (identity == Identity::kExeced) w.recorder->replaced_unseen();
  end_image(w, identity == Identity::kGone ? "ended while it was observed" : "replaced by exec");
  auto facts = sys::process_facts(w.facts.pid);
  if (identity == Identity::kGone || !facts) return;
  w.facts = std::move(*facts);
  const ImageKey key{w.facts.pid, static_cast<std::uint32_t>(w.process.images.size())};
  start_image(w, key, limits, modules);
}

void add_unread(pid_t pid, std::string why, Attached& attached) {
  if (attached.unread.size() == kMostUnread) {
    ++attached.unread_omitted;
    return;
  }
  attached.unread.push_back({pid, sys::command_name(pid), std::move(why)});
}

sys::Result<std::vector<pid_t>> publishing_processes(pid_t unexamined, Timeline& timeline,
                                                     Attached& attached) {
  CTX_ASSIGN_OR_RETURN(all, sys::process_list());
  const std::vector<std::string> prefixes(abi::kMappingNamePrefixes.begin(),
                                          abi::kMappingNamePrefixes.end());
  std::vector<pid_t> out;
  std::size_t refused = 0;
  for (const pid_t pid : all) {
    if (pid == getpid() || pid == unexamined) continue;
    const auto found = sys::find_all_mappings(pid, prefixes);
    if (!found) {
      if (found.error().err == ESRCH) continue;
      ++refused;
      add_unread(pid, sys::to_string(found.error()), attached);
    } else if (found->empty()) {
      if (has_memory(sys::ProcessMemory(pid))) ++attached.without_context;
    } else {
      out.push_back(pid);
    }
  }
  timeline.notes.push_back(std::to_string(all.size()) + " processes examined, " +
                           std::to_string(out.size()) + " with a mapping named OTEL_CTX");
  if (refused > 0) {
    const bool has_right = sys::Confinement::of_this_process().traces_any_user;
    timeline.notes.push_back(
        std::to_string(refused) + (refused == 1 ? " process" : " processes") +
        " could not be examined (" +
        (has_right ? "--json says why" : "run as their user, or as root with CAP_SYS_PTRACE") +
        ")");
  }
  // Process 1 lives as long as the PID namespace.
  if (access("/proc/1", F_OK) != 0 && errno == ENOENT) {
    timeline.notes.emplace_back(
        "/proc hides the processes of other users (hidepid), so they were not examined (run as "
        "root with CAP_SYS_PTRACE)");
  }
  return out;
}

// Limits for all processes.
SnapshotLimits together(SnapshotLimits limits) {
  limits.payload_kept = std::min(limits.payload_kept, kPayloadOfEach);
  limits.large_of_all = std::make_shared<ByteBudget>(limits.large_payloads);
  return limits;
}

std::string why_left_out(const AttachOptions& options, const sys::AccessBudget& budget,
                         bool is_late) {
  std::string why = "one of its pages could not be read in time";
  if (budget.is_used_up()) {
    const auto most = options.memory_budget + options.watch_for;
    why = "copies of its memory took " + std::to_string(most.count()) + " ms in all";
  }
  if (is_late) {
    why = "a look at its memory took " + std::to_string(options.late_look.count()) +
          " ms after the time for all processes was over";
  }
  return why + " (userfaultfd, FUSE)";
}

// Runs `work` in a thread of its own. False: it waits for a page, or stays where the budget was
// used up, for ever, with everything that `work` holds.
bool is_done_in_time(std::chrono::milliseconds deadline,
                     const std::shared_ptr<sys::AccessBudget>& budget, std::function<void()> work) {
  struct Outcome {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    bool stuck = false;
  };
  const auto outcome = std::make_shared<Outcome>();
  const auto tell = [outcome](bool Outcome::* what) {
    const std::scoped_lock lock(outcome->mutex);
    (*outcome).*what = true;
    outcome->changed.notify_all();
  };
  const auto watched = [deadline, budget, tell, work] {
    {
      const sys::AccessWatchdog dog(
          deadline, [tell](pid_t) { tell(&Outcome::stuck); }, sys::AfterStuck::kStays, budget);
      work();
    }
    tell(&Outcome::done);
  };
  try {
    const sys::AllSignalsBlocked blocked;
    std::thread(watched).detach();
  } catch (const std::system_error&) {
    work();
    return true;
  }
  std::unique_lock lock(outcome->mutex);
  outcome->changed.wait(lock, [&] { return outcome->done || outcome->stuck; });
  return outcome->done;
}

}  // namespace

sys::Result<Attached> record_attach(const AttachOptions& options, Timeline& timeline) {
  const bool all = options.pids.empty();
  const SnapshotLimits limits = all ? together(options.limits) : options.limits;
  const sys::AccessWatchdog dog(options.memory_deadline, [&](pid_t pid) {
    if (options.unreachable) options.unreachable(pid);
  });
  std::vector<pid_t> pids = options.pids;
  Attached out;
  if (all) {
    CTX_ASSIGN_OR_RETURN(found, publishing_processes(options.unexamined, timeline, out));
    pids = std::move(found);
  }
  // What the work uses must live as long as the work, which may be longer than this call.
  const auto modules = std::make_shared<ModuleCache>();
  std::vector<std::shared_ptr<AttachedProcess>> watched;
  sys::AccessBudget everything(options.time_for_all + options.watch_for);
  everything.begin();
  const auto comes_back = [&](pid_t pid, const std::shared_ptr<sys::AccessBudget>& budget,
                              const std::function<void()>& work) {
    if (!all) {
      work();
      return true;
    }
    const bool is_late = everything.is_used_up();
    if (is_late) budget->allow_only(options.late_look);
    const auto deadline =
        is_late ? std::min(options.memory_deadline, options.late_look) : options.memory_deadline;
    if (is_done_in_time(deadline, budget, work)) return true;
    out.left_a_thread = true;
    std::string why = why_left_out(options, *budget, is_late);
    timeline.notes.push_back("process " + std::to_string(pid) + " was left out: " + why);
    add_unread(pid, std::move(why), out);
    if (timeline.incomplete.empty()) timeline.incomplete = timeline.notes.back();
    return false;
  };
  const auto each = [&](const std::function<void(AttachedProcess&)>& work) {
    std::erase_if(watched, [&](const std::shared_ptr<AttachedProcess>& w) {
      return !comes_back(w->facts.pid, w->budget, [w, modules, work] { work(*w); });
    });
  };

  for (const pid_t pid : pids) {
    auto w = std::make_shared<AttachedProcess>();
    w->budget = std::make_shared<sys::AccessBudget>(options.memory_budget + options.watch_for);
    auto missing = std::make_shared<std::optional<sys::Error>>();
    const auto start = [w, missing, modules, pid, limits] {
      auto facts = sys::process_facts(pid);
      if (!facts) {
        *missing = std::move(facts).error();
        return;
      }
      w->facts = std::move(*facts);
      start_image(*w, ImageKey{pid, 0}, limits, *modules);
    };
    if (!comes_back(pid, w->budget, start)) continue;
    if (!*missing) {
      watched.push_back(std::move(w));
    } else if (!all) {
      return std::unexpected(**std::move(missing));
    } else if ((*missing)->err != ESRCH) {
      add_unread(pid, sys::to_string(**missing), out);
    }
  }
  const auto end = Clock::now() + options.watch_for;
  auto took = Clock::duration::zero();
  const auto look = [modules, limits](AttachedProcess& w) {
    if (w.recorder) follow(w, limits, *modules);
    if (!w.recorder) return;
    look_at_threads(w);
    w.recorder->take(Moment::kPeriodic, SnapshotDepth::kQuick);
  };
  while (Clock::now() < end) {
    // If a look is expensive, look less often: a tenth of the time, but at least twice.
    const auto pause =
        std::max<Clock::duration>(kTick, std::min(9 * took, (end - Clock::now()) / 2));
    std::this_thread::sleep_until(std::min(Clock::now() + pause, end));
    const auto from = Clock::now();
    each(look);
    took = Clock::now() - from;
  }
  each([modules, limits](AttachedProcess& w) {
    if (w.recorder) follow(w, limits, *modules);
    if (!w.recorder) return;
    look_at_threads(w);
    w.recorder->take(Moment::kEnd, SnapshotDepth::kThorough);
    end_image(w, "running");
  });
  for (const auto& w : watched) {
    w->process.pid = w->facts.pid;
    w->process.parent = w->facts.parent;
    timeline.processes.push_back(std::move(w->process));
  }
  return out;
}

}  // namespace ctxconf::conformance
