#include "conformance/reader/target_harm.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/proc_dir.h"
#include "sys/proc_text.h"
#include "sys/process.h"

namespace ctxconf::conformance::reader {
namespace {

constexpr std::size_t kStatLimit = 16U << 10U;

std::optional<std::string> read_of(pid_t pid, const char* file) {
  const auto dir = sys::ProcDir::open(pid);
  if (!dir) return std::nullopt;
  auto text = dir->read_file(file, kStatLimit);
  if (!text) return std::nullopt;
  return std::move(*text);
}

// The last field of /proc/PID/stat: how the process has ended, as waitpid() says it.
int wait_status(pid_t pid) {
  const auto stat = read_of(pid, "stat");
  if (!stat) return 0;
  const auto end = stat->find_last_not_of(" \n");
  if (end == std::string::npos) return 0;
  const auto begin = stat->find_last_of(' ', end) + 1;
  int status = 0;
  std::from_chars(stat->data() + begin, stat->data() + end + 1, status);
  return status;
}

}  // namespace

TargetHarm::TargetHarm(const puppet::Script& script, bool keeps_tracing)
    : keeps_tracing_(keeps_tracing) {
  for (const puppet::Operation& o : script.operations) {
    const auto* const signal = std::get_if<puppet::Signal>(&o.what);
    const bool stops = signal != nullptr && signal->signal == SIGSTOP;
    const bool continues = signal != nullptr && signal->signal == SIGCONT;
    stops_ = stops_ || stops;
    continues_ = continues_ || continues;
    ends_ = ends_ || (signal != nullptr && !stops && !continues) ||
            std::holds_alternative<puppet::Exit>(o.what) ||
            std::holds_alternative<puppet::ExitThread>(o.what);
  }
}

std::optional<TargetHarm::Condition> TargetHarm::condition_of(pid_t tid) {
  const auto status = read_of(tid, "status");
  if (!status) return std::nullopt;
  return Condition{
      .state = std::string(sys::status_field(*status, "State").value_or("").substr(0, 1)),
      .tracer = sys::status_number<pid_t>(*status, "TracerPid").value_or(0)};
}

bool TargetHarm::Condition::has_ended() const {
  return state.empty() || state == "Z" || state == "X";
}

void TargetHarm::begin(pid_t process) {
  if (process <= 0 || processes_.contains(process)) return;
  auto now = condition_of(process);
  if (now && !now->has_ended()) processes_[process] = *std::move(now);
}

TargetHarm::Found TargetHarm::look_at(pid_t process, const Condition& before) {
  const auto threads = sys::thread_list(process);
  const auto leader = condition_of(process);
  if (!leader || leader->has_ended()) {
    const auto runs = [&](pid_t tid) {
      const auto other = tid == process ? std::nullopt : condition_of(tid);
      return other && !other->has_ended();
    };
    // When another thread calls exec, the first one ends before that takes its place.
    const bool goes_on =
        (threads && std::ranges::any_of(*threads, runs)) || (!leader && kill(process, 0) == 0);
    if (ends_ || goes_on) return {};
    const int status = wait_status(process);
    const std::string how =
        WIFSIGNALED(status) ? ": killed by " + signal_name(WTERMSIG(status)) : "";
    return {.what = "ended its target" + how, .may_end = false};
  }
  if (before.state == "T" && leader->state != "T" && leader->state != "t" && !continues_) {
    return {.what = "made its target run, which was stopped"};
  }
  for (const pid_t tid : threads.value_or(std::vector<pid_t>{process})) {
    if (well_.contains(tid)) continue;
    const auto now = condition_of(tid);
    if (!now) continue;
    const bool traced = now->tracer != 0 && now->tracer != before.tracer;
    if (now->state == "t" && traced) return {.what = "left its target stopped, as its tracer"};
    if (now->state == "T" && before.state != "T" && !stops_) {
      return {.what = "left its target stopped by a signal"};
    }
    if (traced && !keeps_tracing_) {
      return {.what =
                  "stays the tracer of its target, so that no debugger and no other reader "
                  "can stop that"};
    }
    well_.insert(tid);
  }
  return {};
}

TargetHarm::Found TargetHarm::look() {
  for (const auto& [process, before] : processes_) {
    if (auto found = look_at(process, before); !found.what.empty()) return found;
  }
  return {};
}

}  // namespace ctxconf::conformance::reader
