// `ctxconf run`: asks a program under test for one group of checks after the other, and judges what
// was recorded.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <ranges>

#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/protocol.h"
#include "conformance/testee/testee.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

constexpr int kMostCrashes = 3;  // of a group

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

// Ids among the selected that one of the globs names.
std::vector<std::string> ids_of(const std::vector<const Requirement*>& selected,
                                const std::vector<std::string_view>& globs) {
  std::vector<std::string> out;
  for (const Requirement* r : selected) {
    if (!r->has_mode(Mode::kRun)) continue;
    if (std::ranges::any_of(globs, [&](auto g) { return glob_matches(g, r->id); })) {
      out.push_back(r->id);
    }
  }
  return out;
}

class Run {
 public:
  Run(const TesteeOptions& options, const std::vector<const Requirement*>& selected,
      Timeline& timeline, bool show_progress)
      : options_(options), selected_(selected), timeline_(timeline), progress_(show_progress) {}

  // False: nothing more can be asked, fault() says why.
  bool drive(std::span<const Group> groups) {
    for (const Group& group : groups) {
      if (!drive(group)) return false;
    }
    return true;
  }

  const std::string& adapter_fault() const { return adapter_fault_; }
  const std::string& harness_fault() const { return harness_fault_; }
  bool interrupted() const { return interrupted_; }
  const nlohmann::json& capabilities() const { return capabilities_; }
  // Starts the adapter once to learn what it declares.
  bool learn_capabilities() {
    Timeline asked;  // it says nothing about requirements
    Testee testee(options_, "hello", asked);
    const auto started = testee.start();
    if (started) capabilities_ = testee.capabilities();
    testee.end();
    if (!started && started.error() == Stop::kInterrupted) interrupted_ = true;
    return !take_faults(testee);
  }

 private:
  bool is_wanted(const Check& check) const {
    return !ids_of(selected_, check.requirements).empty() || !ids_of(selected_, check.also).empty();
  }

  bool has_all(const Check& check) {
    for (const auto capability : check.needs) {
      if (is_declared(capabilities_, capability)) continue;
      SkippedCheck skipped;
      skipped.name = check.name;
      skipped.requirements = ids_of(selected_, check.requirements);
      for (auto& id : ids_of(selected_, check.also)) skipped.requirements.push_back(std::move(id));
      skipped.missing = capability;
      timeline_.skipped.push_back(std::move(skipped));
      return false;
    }
    return true;
  }

  std::unique_ptr<Testee> start(const Group& group) {
    TesteeOptions options = options_;
    if (group.records && options.recording.stores) {
      options.recording.record_stores = true;
      options.recording.stores = false;
      options.recording.no_stores = "the records of threads were watched instead";
    }
    add_injections(group, options.recording);
    auto testee = std::make_unique<Testee>(std::move(options), std::string(group.name), timeline_);
    if (const auto started = testee->start(); !started) {
      testee->end();
      if (started.error() == Stop::kInterrupted) interrupted_ = true;
      take_faults(*testee);
      return nullptr;
    }
    return testee;
  }

  bool take_faults(const Testee& testee) {
    if (adapter_fault_.empty()) adapter_fault_ = testee.adapter_fault();
    if (harness_fault_.empty()) harness_fault_ = testee.harness_fault();
    return interrupted_ || !adapter_fault_.empty() || !harness_fault_.empty();
  }

  void add_injections(const Group& group, WrapOptions& recording) {
    const std::string_view specs = group.injections;
    if (specs.empty()) return;
    recording.first_injection = timeline_.injections.size();
    recording.hide_vdso = true;
    for (const auto part : std::views::split(specs, ' ')) {
      auto spec = parse_injection(std::string_view(part.begin(), part.end()));
      if (!spec) {
        harness_fault_ = sys::to_string(spec.error());
        continue;
      }
      timeline_.injections.push_back(to_injection(*spec));
      recording.injections.push_back(std::move(*spec));
    }
  }

  bool drive(const Group& group) {
    if (*group.injections != '\0' && options_.recording.no_filter) return true;
    std::vector<const Check*> checks;
    for (const Check& check : group.checks) {
      if (is_wanted(check) && has_all(check)) checks.push_back(&check);
    }
    std::unique_ptr<Testee> testee;
    int crashes = 0;
    for (const Check* check : checks) {
      if (testee == nullptr) {
        testee = start(group);
        if (testee == nullptr) return false;
      }
      auto requirements = ids_of(selected_, check->requirements);
      if (crashes >= kMostCrashes) {
        testee->skip_check(
            std::string(check->name), std::move(requirements),
            fmt::format("not run: {} checks of this group had ended in a crash", crashes));
        continue;
      }
      if (progress_) fmt::print(stderr, "\r\033[K{}/{}\r", group.name, check->name);
      testee->begin_check(std::string(check->name), std::move(requirements));
      const Driven driven = check->drive(*testee);
      if (driven) continue;
      testee->end_check(driven.error());
      if (driven.error() == Stop::kInterrupted) interrupted_ = true;
      if (driven.error() == Stop::kRefused) continue;
      if (driven.error() == Stop::kCrashed || driven.error() == Stop::kHung) ++crashes;
      testee->end();
      if (take_faults(*testee)) return false;
      testee.reset();
    }
    if (testee != nullptr) {
      testee->end();
      if (take_faults(*testee)) return false;
    }
    return true;
  }

  const TesteeOptions& options_;
  const std::vector<const Requirement*>& selected_;
  Timeline& timeline_;
  bool progress_;
  nlohmann::json capabilities_ = nlohmann::json::object();
  std::string adapter_fault_;
  std::string harness_fault_;
  bool interrupted_ = false;
};

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
  Run run(testee, prepared.selected, timeline, show_progress);
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
  std::string unreachable;
  if (!run.adapter_fault().empty()) unreachable = "the adapter " + run.adapter_fault();
  return conclude_run(options, prepared, timeline, "run", unreachable);
}

}  // namespace ctxconf::conformance
