#include "conformance/judge/process_verdicts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "conformance/judge/judge.h"
#include "conformance/rules/evidence.h"
#include "conformance/text/utf8.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/floor.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostAttributes = 64;
constexpr std::size_t kMostBytes = 1024;  // of a key or a value

std::map<std::string, std::string> last_resource(const std::vector<ImageEvidence>& evidence) {
  std::map<std::string, std::string> out;
  for (auto e = evidence.rbegin(); e != evidence.rend() && out.empty(); ++e) {
    const Payload* const payload = last_payload(*e);
    if (payload == nullptr) continue;
    for (const Attribute& a : payload->resource) {
      if (out.size() == kMostAttributes) break;
      out.emplace(shortened(a.key, kMostBytes), shortened(a.value, kMostBytes));
    }
  }
  return out;
}

std::vector<BrokenVerdict> broken_in(const RunResult& run) {
  std::vector<BrokenVerdict> out;
  std::vector<BrokenVerdict> warnings;
  for (const RequirementResult& r : run.results) {
    const std::string saw = r.findings.empty() ? "" : r.findings.front().saw;
    switch (r.outcome) {
      case Outcome::kWarn:
        warnings.push_back({r.requirement, Outcome::kWarn, saw});
        break;
      case Outcome::kFail:
      case Outcome::kTimeout:
      case Outcome::kCrash:
        out.push_back({r.requirement, Outcome::kFail, saw});
        break;
      case Outcome::kNa:
      case Outcome::kPass:
      case Outcome::kUnobservable:
      case Outcome::kInfo:
      case Outcome::kHarnessError:
        break;
    }
  }
  std::ranges::move(warnings, std::back_inserter(out));
  return out;
}

std::string why_unread(const Process& process) {
  for (const Image& image : process.images) {
    if (!image.unread.empty()) return image.unread;
  }
  return why_unseen(process);
}

bool shows_something(const ImageEvidence& e) { return e.published() || e.uses_threads; }

// Why not all of a process was judged. Empty: it was.
std::string why_incomplete(const std::vector<ImageEvidence>& evidence, const RunResult& run) {
  const auto fault = std::ranges::find(run.problems, Outcome::kHarnessError, &RunProblem::outcome);
  if (fault != run.problems.end()) return fault->text;
  const auto unjudged =
      std::ranges::find(run.results, Outcome::kHarnessError, &RequirementResult::outcome);
  if (unjudged != run.results.end()) {
    return "ctxconf itself failed to judge " + unjudged->requirement->id;
  }
  if (!run.incomplete.empty()) return run.incomplete;
  const auto shown = std::ranges::find_if(evidence, shows_something);
  if (shown == evidence.end()) return {};
  if (std::ranges::none_of(evidence, &ImageEvidence::was_read)) return threads_of(*shown);
  const auto is_decided = [](const RequirementResult& r) { return is_judged(r.outcome); };
  if (std::ranges::any_of(run.results, is_decided)) return {};
  return "no requirement could be judged";
}

ProcessState process_state(const ProcessVerdict& verdict,
                           const std::vector<ImageEvidence>& evidence, const RunResult& run,
                           bool strict) {
  const auto fails = [strict](const RequirementResult& r) {
    return is_unexpected_failure(r, strict);
  };
  if (std::ranges::any_of(run.results, fails)) return ProcessState::kBroken;
  if (!verdict.unread.empty()) return ProcessState::kUnread;
  if (std::ranges::none_of(evidence, shows_something)) return ProcessState::kNoContext;
  return verdict.incomplete.empty() ? ProcessState::kClean : ProcessState::kNotJudged;
}

ProcessVerdict verdict_of(const Timeline& one, const std::vector<const Requirement*>& selected,
                          bool strict) {
  const auto evidence = evidence_of(one);
  const RunResult run = judge(one, evidence, selected);
  const Process& process = one.processes.front();
  ProcessVerdict out;
  out.pid = process.pid;
  out.parent = process.parent;
  if (!process.images.empty()) out.executable = process.images.back().executable;
  out.resource = last_resource(evidence);
  out.totals = count(run);
  for (const RequirementResult& r : run.results) {
    if (r.outcome != Outcome::kNa) out.outcomes.emplace_back(r.requirement, r.outcome);
  }
  out.broken = broken_in(run);
  out.unread = why_unread(process);
  out.incomplete = why_incomplete(evidence, run);
  out.state = process_state(out, evidence, run, strict);
  return out;
}

}  // namespace

std::vector<ProcessVerdict> judge_each(Timeline& timeline,
                                       const std::vector<const Requirement*>& selected,
                                       bool strict) {
  std::vector<Process> processes = std::exchange(timeline.processes, {});
  Timeline one = timeline;
  std::vector<ProcessVerdict> out;
  out.reserve(processes.size());
  for (Process& process : processes) {
    one.processes.clear();
    one.processes.push_back(std::move(process));
    out.push_back(verdict_of(one, selected, strict));
    process = std::move(one.processes.front());
  }
  timeline.processes = std::move(processes);
  return out;
}

}  // namespace ctxconf::conformance
