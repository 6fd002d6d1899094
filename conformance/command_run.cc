// `ctxconf run`: asks a program under test for one group of checks after the other, and judges what
// was recorded.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <sstream>

#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/driver.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

std::optional<std::string> settled_seed(const std::string& given) {
  if (given.empty()) {
    std::uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) return std::nullopt;
    return fmt::format("{:08x}", seed);
  }
  const bool hex =
      given.size() <= 16 && given.find_first_not_of("0123456789abcdef") == std::string::npos;
  return hex ? std::optional(given) : std::nullopt;
}

// A command line in a sentence.
std::string shown(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 200;
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  if (out.size() > kMost) out = out.substr(0, kMost) + "...";
  return "`" + out + "`";
}

}  // namespace

int command_run(const JudgeOptions& options, const RunCommand& command) {
  if (command.adapter.empty()) {
    return complain(kExitUsage, "run: no adapter", "ctxconf run [options] -- ADAPTER [ARGS]");
  }
  const auto seed = settled_seed(command.seed);
  if (!seed) {
    return complain(kExitUsage, "--seed: " + command.seed + " is no seed",
                    "up to 16 digits of lower-case hex, as a report prints it");
  }
  const Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  const auto trampoline = sys::find_trampoline();
  if (!trampoline) {
    return complain(kExitHarnessError, sys::to_string(trampoline.error()),
                    "install ctxconf-trampoline beside ctxconf");
  }
  const auto& host = sys::Capabilities::of_this_host();
  if (!host.has(sys::kHostPtrace)) {
    return complain(kExitUnreachable, "run needs ptrace, which this host refuses",
                    "`ctxconf doctor` says what would allow it");
  }
  Timeline timeline = begin_timeline(options, Mode::kRun, command.adapter);
  TesteeOptions testee;
  testee.argv = command.adapter;
  testee.descriptor3 = command.channel == "fd3";
  testee.seed = *seed;
  testee.spec = prepared.spec;
  auto& recording = testee.recording;
  recording.trampoline = *trampoline;
  recording.timeout_scale = options.timeout_scale;
  recording.unreachable = give_up_on;
  recording.no_filter = !host.has(sys::kHostSeccompTrace);
  recording.stores = host.has(sys::kHostWatchpoints) && !recording.no_filter;
  if (!recording.stores) {
    recording.no_stores = recording.no_filter ? "this host has no system call filter for tracers"
                                              : "this host has no watchpoints for tracers";
  }
  timeline.watches_lifetime = recording.stores;
  const bool show_progress = isatty(STDERR_FILENO) != 0 && !options.console.quiet;
  const auto begin = std::chrono::steady_clock::now();
  Driver run(testee, prepared.selected, timeline);
  if (show_progress) {
    run.on_check([](std::string_view group, std::string_view check) {
      fmt::print(stderr, "\r\033[K{}/{}\r", group, check);
    });
  }
  if (run.learn_capabilities() && run.drive(process_groups()) && run.drive(thread_groups())) {
    run.drive(record_groups());
  }
  if (show_progress) fmt::print(stderr, "\r\033[K");
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timeline.notes.push_back("seed " + *seed);
  if (run.interrupted()) timeline.notes.emplace_back("the run was interrupted");
  if (!run.harness_fault().empty()) {
    return complain(kExitHarnessError, run.harness_fault(), "a bug in ctxconf: please report it");
  }
  // Its first line says what is wrong, the others are evidence.
  std::string unreachable;
  if (const std::string& fault = run.adapter_fault(); !fault.empty()) {
    unreachable = "the adapter " + shown(command.adapter) + " " + fault.substr(0, fault.find('\n'));
    std::istringstream lines(fault);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) timeline.notes.push_back(line);
  }
  return conclude_run(options, prepared, timeline, "run", unreachable);
}

}  // namespace ctxconf::conformance
