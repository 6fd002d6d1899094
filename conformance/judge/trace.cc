#include "conformance/judge/trace.h"

#include <algorithm>
#include <set>
#include <utility>

#include "conformance/judge/judge.h"

namespace ctxconf::conformance {
namespace {

std::set<ImageKey> images_of(const RequirementResult& result) {
  std::set<ImageKey> out;
  for (const Finding& f : result.findings) {
    if (f.outcome == result.outcome) out.insert(f.image);
  }
  return out;
}

// Everything of a recording but its processes.
Timeline without_processes(Timeline& timeline) {
  auto processes = std::exchange(timeline.processes, {});
  Timeline out = timeline;
  timeline.processes = std::move(processes);
  return out;
}

std::vector<Process> processes_with(const std::vector<Process>& all,
                                    const std::set<ImageKey>& images, bool only_these) {
  std::vector<Process> out;
  for (const Process& p : all) {
    const auto wanted = [&](const Image& i) { return images.contains(i.key); };
    if (std::ranges::none_of(p.images, wanted)) continue;
    Process kept;
    kept.pid = p.pid;
    kept.parent = p.parent;
    kept.session = p.session;
    kept.exit_code = p.exit_code;
    kept.killed_by = p.killed_by;
    kept.ended_by_us = p.ended_by_us;
    for (const Image& i : p.images) {
      if (!only_these || wanted(i)) kept.images.push_back(i);
    }
    out.push_back(std::move(kept));
  }
  return out;
}

bool is_judged_alike(const Timeline& timeline, const RequirementResult& result) {
  const RunResult run = judge(timeline, {result.requirement});
  if (run.results.size() != 1) return false;
  const RequirementResult& other = run.results.front();
  if (other.outcome != result.outcome || other.findings.empty() != result.findings.empty()) {
    return false;
  }
  return result.findings.empty() ||
         other.findings.front().signature == result.findings.front().signature;
}

}  // namespace

std::optional<std::string> trace_of(Timeline& timeline, const RequirementResult& result,
                                    std::size_t limit) {
  const auto images = images_of(result);
  Timeline part = without_processes(timeline);
  part.partial = true;
  for (const bool only_these : {true, false}) {
    part.processes = processes_with(timeline.processes, images, only_these);
    if (!is_judged_alike(part, result)) continue;
    return to_json(part, limit);
  }
  if (!is_judged_alike(timeline, result)) return std::nullopt;
  return to_json(timeline, limit);
}

}  // namespace ctxconf::conformance
