#include "conformance/testee/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <utility>

#include "conformance/observe/injection.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {
namespace {

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

std::optional<CheckEnding> ending_of(Stop stop) {
  switch (stop) {
    case Stop::kCrashed:
      return CheckEnding::kCrash;
    case Stop::kHung:
      return CheckEnding::kTimeout;
    case Stop::kRefused:
      return CheckEnding::kRefused;
    case Stop::kAdapterFault:
    case Stop::kInterrupted:
    case Stop::kHarnessFault:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Driver::Driver(const TesteeOptions& options, std::vector<const Requirement*> selected,
               Timeline& timeline)
    : options_(options), selected_(std::move(selected)), timeline_(timeline) {}

bool Driver::learn_capabilities() {
  Timeline asked;  // it says nothing about requirements
  Testee testee(options_, "hello", asked);
  const auto started = testee.start();
  if (started) capabilities_ = testee.capabilities();
  testee.end();
  if (!started && started.error() == Stop::kInterrupted) interrupted_ = true;
  return !take_faults(testee);
}

bool Driver::drive(std::span<const Group> groups, std::uint32_t repeat) {
  return std::ranges::all_of(groups, [&](const Group& group) { return drive(group, repeat); });
}

bool Driver::is_wanted(const Check& check) const {
  return !ids_of(selected_, check.requirements).empty() || !ids_of(selected_, check.also).empty();
}

bool Driver::has_all(const Check& check) {
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

// What is recorded of a group, and which calls fail.
TesteeOptions Driver::options_for(const Group& group, std::uint32_t repeat) {
  TesteeOptions options = options_;
  options.repeat = repeat;
  auto& recording = options.recording;
  if (group.records && recording.stores) {
    recording.record_stores = true;
    recording.stores = false;
    recording.no_stores = "the records of threads were watched instead";
  }
  recording.steps = group.steps && recording.stores;
  recording.steps_at_once = false;
  const std::string_view specs = group.injections;
  if (specs.empty()) return options;
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
  return options;
}

bool Driver::take_faults(const Testee& testee) {
  if (adapter_fault_.empty()) adapter_fault_ = testee.adapter_fault();
  if (harness_fault_.empty()) harness_fault_ = testee.harness_fault();
  return interrupted_ || !adapter_fault_.empty() || !harness_fault_.empty();
}

bool Driver::drive(const Group& group, std::uint32_t repeat) {
  if (*group.injections != '\0' && options_.recording.no_filter) return true;
  std::vector<const Check*> checks;
  for (const Check& check : group.checks) {
    if (is_wanted(check) && has_all(check)) checks.push_back(&check);
  }
  std::unique_ptr<Testee> testee;
  int crashes = 0;
  for (const Check* check : checks) {
    auto requirements = ids_of(selected_, check->requirements);
    if (crashes >= kMostCrashes) {
      CheckRun& left_out = timeline_.sessions.back().checks.emplace_back();
      left_out.name = check->name;
      left_out.requirements = std::move(requirements);
      left_out.ending = CheckEnding::kNotRun;
      left_out.text = fmt::format("not run: the adapter ended or hung in {} checks of group {}",
                                  crashes, group.name);
      continue;
    }
    if (testee == nullptr) {
      testee =
          std::make_unique<Testee>(options_for(group, repeat), std::string(group.name), timeline_);
      if (const auto started = testee->start(); !started) {
        testee->end();
        if (started.error() == Stop::kInterrupted) interrupted_ = true;
        take_faults(*testee);
        return false;
      }
    }
    if (on_check_) on_check_(group.name, check->name);
    testee->begin_check(std::string(check->name), std::move(requirements));
    const Driven driven = check->drive(*testee);
    const auto told = [&](std::optional<CheckEnding> ending) {
      if (on_check_end_) on_check_end_(group.name, check->name, ending);
    };
    if (driven) {
      told(CheckEnding::kDone);
      continue;
    }
    told(ending_of(driven.error()));
    testee->end_check(driven.error());
    if (driven.error() == Stop::kInterrupted) interrupted_ = true;
    if (driven.error() == Stop::kRefused) continue;
    if (driven.error() == Stop::kCrashed || driven.error() == Stop::kHung) ++crashes;
    testee->end();
    if (take_faults(*testee)) return false;
    testee.reset();
  }
  if (testee == nullptr) return true;
  testee->end();
  return !take_faults(*testee);
}

}  // namespace ctxconf::conformance
