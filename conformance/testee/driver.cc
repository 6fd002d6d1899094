#include "conformance/testee/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <utility>

#include "conformance/faults/injection.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {
namespace {

// The ids of the selected requirements that match one of the globs.
std::vector<std::string> ids_of(const std::vector<const Requirement*>& selected,
                                const std::vector<std::string_view>& globs, Mode mode) {
  std::vector<std::string> out;
  for (const Requirement* r : selected) {
    if (!r->has_mode(mode)) continue;
    if (any_glob_matches(globs, r->id)) out.push_back(r->id);
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
    case Stop::kGaveUp:
      return CheckEnding::kDone;
    case Stop::kAdapterFault:
    case Stop::kInterrupted:
    case Stop::kHarnessFault:
      return std::nullopt;
  }
  return std::nullopt;
}

void take_faults(const Testee& testee, GroupRun& out) {
  if (out.adapter_fault.empty()) out.adapter_fault = testee.adapter_fault();
  if (out.harness_fault.empty()) out.harness_fault = testee.harness_fault();
  if (out.start_error == 0) out.start_error = testee.start_error();
  out.interrupted = out.interrupted || testee.interrupted();
}

template <class T>
void add_new(std::vector<T> from, std::vector<T>& to) {
  for (T& one : from) {
    if (std::ranges::find(to, one) == to.end()) to.push_back(std::move(one));
  }
}

}  // namespace

void append(Timeline part, Timeline& to) {
  const auto before = static_cast<std::uint32_t>(to.sessions.size());
  for (Process& p : part.processes) {
    p.session += before;
    for (Image& i : p.images) i.key.session = p.session;
    to.processes.push_back(std::move(p));
  }
  for (Session& s : part.sessions) {
    s.root.session += before;
    for (Operation& o : s.operations) {
      for (ImageView& v : o.after) v.image.session = s.root.session;
    }
    to.sessions.push_back(std::move(s));
  }
  for (Injection& i : part.injections) {
    const auto known = std::ranges::find(to.injections, i.spec, &Injection::spec);
    if (known == to.injections.end()) {
      to.injections.push_back(std::move(i));
    } else {
      known->times += i.times;
    }
  }
  add_new(std::move(part.skipped), to.skipped);
  add_new(std::move(part.notes), to.notes);
  to.stops += part.stops;
  to.partial = to.partial || part.partial;
  if (to.incomplete.empty()) to.incomplete = std::move(part.incomplete);
}

Driver::Driver(const TesteeOptions& options, std::vector<const Requirement*> selected)
    : options_(options), selected_(std::move(selected)) {}

GroupRun Driver::learn_capabilities() {
  GroupRun out;
  Timeline asked;  // evidence of no requirement
  Testee testee(options_, "hello", asked);
  const auto started = testee.start();
  if (started) capabilities_ = testee.capabilities();
  testee.end();
  out.interrupted = !started && started.error() == Stop::kInterrupted;
  take_faults(testee, out);
  return out;
}

bool Driver::is_left_out(const Group& group) const {
  return (*group.injections != '\0' && options_.recording.no_filter) ||
         (group.forks && !options_.recording.stores) ||
         (group.pid_namespace && !options_.pid_namespaces);
}

bool Driver::is_wanted(const Group& group, const Check& check) const {
  if (!ids_of(selected_, check.requirements, options_.mode).empty()) return true;
  const Level level = group.race                        ? Level::kRace
                      : group.steps || group.slot_steps ? Level::kSteps
                                                        : Level::kStatic;
  return level <= options_.deepest && !ids_of(selected_, check.also, options_.mode).empty();
}

std::string_view Driver::missing(const Check& check) const {
  for (const auto capability : check.needs) {
    if (!is_declared(capabilities_, capability)) return capability;
  }
  return {};
}

std::size_t Driver::checks_of(const Group& group) const {
  if (is_left_out(group)) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      group.checks, [&](const Check& c) { return is_wanted(group, c) && missing(c).empty(); }));
}

std::vector<const Check*> Driver::checks_to_ask(const Group& group, Timeline& part) const {
  std::vector<const Check*> out;
  for (const Check& check : group.checks) {
    if (!is_wanted(group, check)) continue;
    const auto lacks = missing(check);
    if (lacks.empty()) {
      out.push_back(&check);
      continue;
    }
    SkippedCheck skipped;
    skipped.name = check.name;
    skipped.requirements = ids_of(selected_, check.requirements, options_.mode);
    for (auto& id : ids_of(selected_, check.also, options_.mode))
      skipped.requirements.push_back(std::move(id));
    const Need need = need_from(lacks);
    skipped.capability = need.capability;
    skipped.must_be_absent = need.must_be_absent;
    part.skipped.push_back(std::move(skipped));
  }
  return out;
}

// The options of a group: what is recorded, and which calls fail.
TesteeOptions Driver::options_for(const Group& group, std::uint32_t repeat, GroupRun& out) const {
  TesteeOptions options = options_;
  options.repeat = repeat;
  auto& recording = options.recording;
  if (group.records && recording.stores) {
    recording.record_stores = true;
    recording.stores = false;
    recording.no_stores = "the record of each thread was watched instead of the header";
  }
  if (group.slot_steps && recording.stores) {
    recording.slot_steps = true;
    recording.stores = false;
    recording.no_stores =
        "the slot and the record of each thread were watched instead of the header";
    options.poisons_memory = true;
  }
  if (group.overwrites_freed) options.poisons_memory = true;
  if (group.race) {
    recording.stores = false;
    recording.no_filter = true;
    recording.no_calls = recording.no_stores =
        "nothing was recorded while a reader on another processor ran";
  }
  recording.steps = group.steps && recording.stores;
  recording.steps_at_once = false;
  if ((recording.steps || recording.slot_steps) && calls_.stepping) {
    recording.stepping = [&](std::uint64_t steps, double seconds) {
      calls_.stepping(group.name, steps, seconds);
    };
  }
  if (group.full_speed) {
    recording.no_filter = true;
    recording.no_calls = "in this group the testee runs at its own speed";
  }
  options.without_ptrace_right = group.without_ptrace_right;
  recording.forks = group.forks;
  recording.pid_namespace = group.pid_namespace;
  std::string specs = group.injections;
  if (specs.empty()) return options;
  options.file_size_limit = specs == kFileSizeLimit;
  if (options.file_size_limit) return options;
  if (!options.names_memory) specs += group.without_names;
  recording.hide_vdso = true;
  for (const auto word : std::views::split(std::string_view(specs), ' ')) {
    auto spec = parse_injection(std::string_view(word.begin(), word.end()));
    if (!spec) {
      out.harness_fault = sys::to_string(spec.error());
      continue;
    }
    if (recording.injections.size() == out.part.injections.size()) {
      out.part.injections.push_back(to_injection(*spec));
    }
    recording.injections.push_back(std::move(*spec));
  }
  return options;
}

GroupRun Driver::drive(const Group& group, std::uint32_t repeat) {
  GroupRun out;
  if (is_left_out(group)) return out;
  std::unique_ptr<Testee> testee;
  int crashes = 0;
  for (const Check* check : checks_to_ask(group, out.part)) {
    auto requirements = ids_of(selected_, check->requirements, options_.mode);
    if (crashes >= kMostCrashes) {
      CheckRun& left_out = out.part.sessions.back().checks.emplace_back();
      left_out.name = check->name;
      left_out.requirements = std::move(requirements);
      left_out.ending = CheckEnding::kNotRun;
      left_out.text = fmt::format("not run: the adapter ended or hung in {} checks of group {}",
                                  crashes, group.name);
      continue;
    }
    if (testee == nullptr) {
      if (group.before) group.before();
      testee = std::make_unique<Testee>(options_for(group, repeat, out), std::string(group.name),
                                        out.part);
      if (const auto started = testee->start(); !started) {
        testee->end();
        out.interrupted = started.error() == Stop::kInterrupted;
        take_faults(*testee, out);
        return out;
      }
    }
    if (calls_.begin) calls_.begin(group.name, check->name);
    testee->begin_check(std::string(check->name), std::move(requirements));
    const Driven driven = check->drive(*testee);
    const auto told = [&](std::optional<CheckEnding> ending) {
      ++out.asked;
      if (calls_.end) calls_.end(group.name, check->name, ending);
    };
    if (driven) {
      told(CheckEnding::kDone);
      continue;
    }
    if (driven.error() == Stop::kGaveUp) {
      testee->end();
      told(out.part.sessions.back().checks.back().ending);
    } else {
      told(ending_of(driven.error()));
      testee->end_check(driven.error());
    }
    out.interrupted = driven.error() == Stop::kInterrupted;
    if (driven.error() == Stop::kRefused) continue;
    if (driven.error() == Stop::kCrashed || driven.error() == Stop::kHung) ++crashes;
    testee->end();
    take_faults(*testee, out);
    if (!out.goes_on()) return out;
    testee.reset();
  }
  if (testee != nullptr) {
    testee->end();
    take_faults(*testee, out);
  }
  return out;
}

}  // namespace ctxconf::conformance
