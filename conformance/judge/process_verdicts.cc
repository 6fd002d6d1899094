#include "conformance/judge/process_verdicts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "conformance/judge/judge.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostAttributes = 64;
constexpr std::size_t kMostBytes = 1024;  // of a key or a value

// Valid UTF-8 stays valid.
std::string shortened(const std::string& text) {
  if (text.size() <= kMostBytes) return text;
  std::size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end) + "…";
}

std::map<std::string, std::string> last_resource(const std::vector<ImageEvidence>& evidence) {
  std::map<std::string, std::string> out;
  for (auto e = evidence.rbegin(); e != evidence.rend() && out.empty(); ++e) {
    const Payload* const payload = last_payload(*e);
    if (payload == nullptr) continue;
    for (const Attribute& a : payload->resource) {
      if (out.size() < kMostAttributes) out.emplace(shortened(a.key), shortened(a.value));
    }
  }
  return out;
}

std::vector<BrokenVerdict> broken_in(const RunResult& run) {
  std::vector<BrokenVerdict> out;
  std::vector<BrokenVerdict> warnings;
  for (const RequirementResult& r : run.results) {
    if (r.outcome < Outcome::kWarn) continue;
    (r.outcome == Outcome::kWarn ? warnings : out)
        .push_back({r.requirement, r.outcome, r.findings.empty() ? "" : r.findings.front().saw});
  }
  std::ranges::move(warnings, std::back_inserter(out));
  return out;
}

std::string why_unread(const Process& process) {
  for (const Image& image : process.images) {
    if (!image.unread.empty()) return image.unread;
  }
  return {};
}

ProcessState process_state(const ProcessVerdict& verdict, const RunResult& run, bool strict) {
  const auto fails = [strict](const RequirementResult& r) {
    return is_unexpected_failure(r, strict);
  };
  if (std::ranges::any_of(run.results, fails)) return ProcessState::kBroken;
  if (!verdict.unread.empty()) return ProcessState::kUnread;
  if (!std::ranges::any_of(run.images, &ImageSummary::published)) return ProcessState::kNoContext;
  const Totals& t = verdict.totals;
  const bool judged = t.pass + t.info + t.warn > 0;
  return judged && verdict.incomplete.empty() ? ProcessState::kClean : ProcessState::kNotJudged;
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
  out.broken = broken_in(run);
  out.unread = why_unread(process);
  out.incomplete = run.incomplete;
  out.state = process_state(out, run, strict);
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
