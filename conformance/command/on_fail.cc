#include "conformance/command/on_fail.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "conformance/command/print.h"
#include "conformance/judge/judge.h"
#include "conformance/report/wording.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/store_evidence.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/expectations.h"
#include "sys/spawn.h"

namespace ctxconf::conformance {
namespace {

const Image* image_with(const Timeline& t, const ImageKey& key) {
  for (const Process& p : t.processes) {
    for (const Image& i : p.images) {
      if (i.key == key) return &i;
    }
  }
  return nullptr;
}

std::string code_at(const Image& image, const std::optional<std::uint32_t>& location) {
  if (!location || *location >= image.locations.size()) return "code outside every file";
  return location_text(image.locations[*location]);
}

// The event at a place in the order of events.
std::string event_text(const Image& image, std::uint64_t order) {
  for (const Store& s : image.stores) {
    if (s.order == order) return code_at(image, s.location);
  }
  for (const StepTrace& trace : image.step_traces) {
    for (const ReaderView& view : trace.views) {
      if (view.order == order) return code_at(image, view.location);
    }
  }
  for (const SystemCall& c : image.calls) {
    if (c.entered_order == order) return "the call " + c.name;
  }
  return "an unknown event";
}

// If no single event is wrong: the call that named the context, or the last store.
std::uint64_t end_of_publication(const Image& image) {
  const auto named = std::ranges::find_if(image.calls, is_context_naming);
  if (named != image.calls.end()) return named->entered_order;
  return image.stores.empty() ? 0 : image.stores.back().order;
}

std::optional<FailureLocation> location_of_failure(const RunResult& run, const Timeline& t,
                                                   bool strict) {
  for (const RequirementResult& r : run.results) {
    const bool ended = r.outcome == Outcome::kCrash || r.outcome == Outcome::kTimeout;
    if (!is_unexpected_failure(r, strict) || ended || r.findings.empty()) continue;
    const Finding& f = r.findings.front();
    // This fails only under a fault; the run without it passes this place.
    if (cell_of(t, f.image.session) != nullptr) continue;
    const Image* image = image_with(t, f.image);
    if (image == nullptr) continue;
    std::uint64_t order = f.event ? f.event->order : 0;
    if (order == 0) order = end_of_publication(*image);
    if (order == 0) continue;
    FailureLocation out;
    out.requirement = r.requirement->id;
    out.at = {image->executable, image->key.image, order};
    out.text = event_text(*image, order);
    if (f.image.session > 0 && f.image.session <= t.sessions.size()) {
      out.group = t.sessions[f.image.session - 1].group;
    }
    return out;
  }
  return std::nullopt;
}

// While gdb runs, signals of the terminal are for gdb.
int run_gdb(pid_t process) {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  std::array<struct sigaction, 2> before{};
  sigaction(SIGINT, &ignore, &before[0]);
  sigaction(SIGQUIT, &ignore, &before[1]);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signo : {SIGINT, SIGQUIT, SIGPIPE}) sigaddset(&defaults, signo);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::string number = std::to_string(process);
  std::string gdb = "gdb";
  std::string option = "-p";
  std::array<char*, 4> words = {gdb.data(), option.data(), number.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, gdb.c_str(), nullptr, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  int status = 0;
  while (failed == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  sigaction(SIGINT, &before[0], nullptr);
  sigaction(SIGQUIT, &before[1], nullptr);
  return failed;
}

void end_process(pid_t process) {
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);  // ECHILD: not our child
}

}  // namespace

int check_on_fail(const JudgeOptions& options) {
  if (options.on_fail != "gdb") return 0;
  if (!sys::find_program("gdb", {})) {
    return complain(kExitUsage, "--on-fail gdb: there is no gdb in PATH",
                    "install gdb, or use --on-fail pause and look at the process elsewhere");
  }
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return complain(kExitUsage, "--on-fail gdb: stdin and stdout must be a terminal",
                    "use --on-fail pause, and gdb -p PID in a terminal");
  }
  return 0;
}

bool ends_at_failure(const JudgeOptions& options) { return options.on_fail != "continue"; }

bool shows_failure(const JudgeOptions& options, const Prepared& prepared,
                   const Timeline& timeline) {
  RunResult run = judge(timeline, prepared.selected);
  if (prepared.expectations) {
    const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
    apply(*prepared.expectations, today, {.strict = options.strict, .partial = true}, run);
  }
  return std::ranges::any_of(run.results, [&](const RequirementResult& r) {
    return is_unexpected_failure(r, options.strict);
  });
}

int stand_at_failure(const JudgeOptions& options, const RunResult& run, const Timeline& timeline,
                     int code, const RunAgain& again) {
  if (code != kExitFailed || (options.on_fail != "pause" && options.on_fail != "gdb")) return code;
  const auto location = location_of_failure(run, timeline, options.strict);
  if (!location) {
    return complain(
        code, "--on-fail " + options.on_fail + ": the report names no store or call to stop at",
        "the report says what was seen; to repeat a failure under a fault, use "
        "its `debug` line");
  }
  pid_t process = 0;
  pid_t thread = 0;
  const Timeline second = again(location->at, location->group,
                                [&](pid_t p, pid_t t) { std::tie(process, thread) = {p, t}; });
  if (process == 0) {
    return complain(code,
                    fmt::format("--on-fail {}: in the second run the program did not reach {}",
                                options.on_fail, inert(location->text, 500)),
                    "no process is left; try again with the same seed");
  }
  std::string text;
  for (const Process& p : second.processes) {
    for (const Image& i : p.images) {
      if (p.pid == process && i.key.image == location->at.image)
        text = event_text(i, location->at.order);
    }
  }
  tell(fmt::format("ctxconf: {}: process {} is stopped after {}, thread {}\n",
                   location->requirement, process, inert(text, 500), thread));
  if (text != location->text) {
    tell(fmt::format("  this run took another path: in the first run the failure came after {}\n",
                     inert(location->text, 500)));
  }
  if (options.on_fail == "pause") {
    tell(fmt::format("  the process stays: gdb -p {0} attaches to it, kill -KILL {0} ends it\n",
                     process));
    return code;
  }
  if (const int failed = run_gdb(process); failed != 0) {
    complain(code, std::string("gdb: ") + std::strerror(failed));
  }
  end_process(process);
  return code;
}

}  // namespace ctxconf::conformance
