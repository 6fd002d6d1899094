#include "conformance/rules/state_rules.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "conformance/requirements/catalogue.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

// What is known of an image without looking at its context or its threads.
Image without_evidence(const Image& of) {
  Image out;
  out.key = of.key;
  out.executable = of.executable;
  out.elf64 = of.elf64;
  out.little_endian = of.little_endian;
  out.personality = of.personality;
  out.boottime_offset_ns = of.boottime_offset_ns;
  out.started_ns = of.started_ns;
  out.payloads = of.payloads;
  return out;
}

std::vector<BrokenRequirement> broken_by(Image image, RestsOn rests_on) {
  Timeline t;
  t.mode = Mode::kWrap;
  t.page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  t.processes.emplace_back().pid = image.key.pid;
  t.processes.back().images.push_back(std::move(image));
  std::vector<BrokenRequirement> out;
  for (const ImageEvidence& e : evidence_of(t)) {
    for (const RequirementRule& r : all_rules()) {
      if (r.rests_on != rests_on) continue;
      Finding f = r.rule(e);
      if (f.outcome != Outcome::kFail && f.outcome != Outcome::kWarn) continue;
      out.push_back({r.id, std::move(f.signature)});
    }
  }
  return out;
}

Finding not_judged(std::uint64_t count, const char* one, const char* many, const char* remedy) {
  return unobservable(fmt::format("{} {} neither kept nor judged: there were too many, or they "
                                  "were too large",
                                  count, count == 1 ? one : many),
                      remedy);
}

class RulesAboutStates : public StateJudge {
 public:
  std::vector<BrokenRequirement> broken_by_states(const Image& image,
                                                  std::vector<Snapshot> states) const override {
    Image alone = without_evidence(image);
    alone.snapshots = std::move(states);
    return broken_by(std::move(alone), RestsOn::kStates);
  }

  std::vector<BrokenRequirement> broken_by_records(
      const Image& image, std::vector<ModuleFacts> modules,
      std::span<const ThreadSample> samples) const override {
    constexpr std::ptrdiff_t kLastSnapshots = 3;  // the context may be gone in the last one
    Image alone = without_evidence(image);
    const auto& snapshots = image.snapshots;
    alone.snapshots.assign(snapshots.end() - std::min(kLastSnapshots, std::ssize(snapshots)),
                           snapshots.end());
    alone.modules = std::move(modules);
    alone.threads.assign(samples.begin(), samples.end());
    return broken_by(std::move(alone), RestsOn::kSamples);
  }
};

bool rests_on_naming_calls(const Requirement& r, const RequirementRule& rule) {
  const bool by_level =
      r.level == Level::kSyscalls || r.level == Level::kStores || r.level == Level::kSteps;
  return rule.rests_on_naming_calls || (by_level && r.otep == kProcessContext);
}

}  // namespace

const StateJudge& state_judge() {
  static const RulesAboutStates judge;
  return judge;
}

std::optional<Finding> rests_on_dropped(const Image& image, const RequirementRule& rule) {
  constexpr const char* kLessOften =
      "a program that changes its context less often while it is observed";
  constexpr const char* kFewerContexts = "a program with fewer mappings named OTEL_CTX";
  constexpr const char* kFewerRecords =
      "a program whose threads change their contexts less often while it is observed";
  if (image.looks_skipped > 0 && rule.rests_on == RestsOn::kStates) {
    return not_judged(image.looks_skipped, "look at a naming call was",
                      "looks at naming calls were", kFewerContexts);
  }
  if (image.states_unjudged() > 0 && rule.rests_on == RestsOn::kStates) {
    return not_judged(image.states_unjudged(), "state was", "states were", kLessOften);
  }
  if (image.samples_unjudged() > 0 && rule.rests_on == RestsOn::kSamples) {
    return not_judged(image.samples_unjudged(), "sample of a thread was", "samples of threads were",
                      kFewerRecords);
  }
  // What was seen after one operation cannot be judged without the others.
  if (image.snapshots_dropped + image.looks_skipped + image.threads_dropped > 0 &&
      rule.rests_on == RestsOn::kOperations) {
    return unobservable("too much evidence: some of what was seen after operations was not kept",
                        image.snapshots_dropped > 0 ? kLessOften : kFewerRecords);
  }
  if (std::ranges::find(image.requirements_dropped, rule.id) != image.requirements_dropped.end()) {
    return unobservable(
        "too much evidence: some states that seemed to break this requirement were not kept",
        kLessOften);
  }
  return std::nullopt;
}

std::optional<Finding> rests_on_dropped_calls(const Image& image, const Requirement& r,
                                              const RequirementRule& rule) {
  std::uint64_t dropped = rests_on_naming_calls(r, rule) ? image.calls_dropped : 0;
  if (rule.rests_on_other_calls) dropped += image.other_calls_dropped;
  if (dropped == 0) return {};
  return unobservable(fmt::format("{} system call{} not kept: there were too many", dropped,
                                  dropped == 1 ? " was" : "s were"),
                      "a program that makes fewer calls for its context while it is observed");
}

}  // namespace ctxconf::conformance
