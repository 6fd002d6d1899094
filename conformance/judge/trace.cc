#include "conformance/judge/trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "conformance/judge/gather.h"
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

// Everything of a recording but its processes and sessions.
Timeline without_parts(Timeline& timeline) {
  auto processes = std::exchange(timeline.processes, {});
  auto sessions = std::exchange(timeline.sessions, {});
  Timeline out = timeline;
  timeline.processes = std::move(processes);
  timeline.sessions = std::move(sessions);
  return out;
}

// The session with those of its scenes that the result names.
Session named_scenes(const Session& session, const RequirementResult& result) {
  const auto is_named = [&](const CheckRun& c) {
    return std::ranges::any_of(result.findings, [&](const Finding& f) {
      return f.outcome == result.outcome && f.image_name == scene_name(session, c);
    });
  };
  Session out;
  out.group = session.group;
  out.repeat = session.repeat;
  out.root = session.root;
  out.hello = session.hello;
  out.faults = session.faults;
  out.ending = session.ending;
  std::map<std::size_t, std::uint32_t> numbers;  // of the checks that are kept, by those before
  for (std::size_t i = 0; i < session.checks.size(); ++i) {
    if (!is_named(session.checks[i])) continue;
    numbers.emplace(i, static_cast<std::uint32_t>(out.checks.size()));
    out.checks.push_back(session.checks[i]);
  }
  for (const Operation& o : session.operations) {
    const bool is_hello = &o == &session.operations.front();
    const auto number = numbers.find(o.check);
    if (number == numbers.end() && !is_hello) continue;
    out.operations.push_back(o);
    out.operations.back().check = number == numbers.end() ? 0 : number->second;
  }
  return out;
}

// Keeps the scenes of a reader's run that the result names.
std::vector<Session> scenes_with(const std::vector<Session>& all, const RequirementResult& result) {
  std::vector<Session> out;
  for (const Session& s : all) {
    Session kept = named_scenes(s, result);
    if (!kept.checks.empty()) out.push_back(std::move(kept));
  }
  return out;
}

// Keeps the sessions in which the images were.
std::vector<Session> sessions_with(const std::vector<Session>& all,
                                   const std::set<ImageKey>& images) {
  std::vector<Session> out;
  for (const Session& s : all) {
    const auto in_session = [&](const ImageKey& key) { return key.session == s.root.session; };
    if (std::ranges::any_of(images, in_session)) out.push_back(s);
  }
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
  Timeline part = without_parts(timeline);
  part.partial = true;
  part.processes = processes_with(timeline.processes, images, /*only_these=*/true);
  if (timeline.mode == Mode::kReader) {
    part.sessions = scenes_with(timeline.sessions, result);
    if (is_judged_alike(part, result)) return to_json(part, limit);
  }
  part.sessions = sessions_with(timeline.sessions, images);
  if (is_judged_alike(part, result)) return to_json(part, limit);
  part.processes = processes_with(timeline.processes, images, /*only_these=*/false);
  part.sessions = timeline.sessions;
  if (is_judged_alike(part, result)) return to_json(part, limit);
  if (!is_judged_alike(timeline, result)) return std::nullopt;
  return to_json(timeline, limit);
}

}  // namespace ctxconf::conformance
