#include "conformance/judge/fault_matrix.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "conformance/faults/fault_cells.h"
#include "conformance/faults/injection.h"

namespace ctxconf::conformance {
namespace {

// A program that repeats a refused call more often is not stuck: it waits for the call to work.
constexpr std::uint64_t kTries = 3;

// "mmap(MAP_ANONYMOUS):error=ENOMEM:when=1" in the words of the matrix.
std::pair<std::string, std::string> parts_of(std::string_view spec) {
  const auto colon = spec.find(':');
  std::string step(spec.substr(0, colon));
  std::string_view result = colon == spec.npos ? std::string_view() : spec.substr(colon + 1);
  std::string_view when;
  if (const auto end = result.find(':'); end != result.npos) {
    when = result.substr(end + 1);
    result = result.substr(0, end);
  }
  if (step == "prctl(PR_SET_VMA)") step = "prctl";
  const bool clock = step == "clock_gettime" && result.starts_with("value=");
  if (clock) return {"clock", result == "value=0" ? "zero" : std::string(result.substr(6))};
  if (!when.empty()) step += ":" + std::string(when);
  return {step, std::string(result.substr(std::min(result.size(), result.find('=') + 1)))};
}

// The step and fault of a group of `run`.
std::pair<std::string, std::string> name_of(const Session& s) {
  std::string step;
  std::string fault;
  for (const std::string& spec : s.faults) {
    if (spec == kFileSizeLimit) return {spec, ""};
    if (spec == kSeemsNamed && s.faults.size() > 1) continue;
    const auto [call, result] = parts_of(spec);
    step += (step.empty() ? "" : "+") + call;
    if (result != fault) fault += (fault.empty() ? "" : "+") + result;
  }
  const bool update = s.group.starts_with("update") && step != "clock";
  return {update ? "update:" + step : step, fault};
}

bool was_answered(const Timeline& t, std::uint32_t session) {
  return std::ranges::any_of(t.processes, [&](const Process& p) {
    return p.session == session && std::ranges::any_of(p.images, [](const Image& i) {
             return std::ranges::any_of(i.calls, &SystemCall::injected);
           });
  });
}

void take_tally(const std::map<std::uint32_t, FaultTally>& tallies,
                const std::vector<RunProblem>& problems, FaultOutcome& out) {
  const auto tally = tallies.find(out.session);
  if (tally != tallies.end()) {
    if (tally->second.judged) out.outcome = Outcome::kPass;
    if (const auto& worst = tally->second.failed; !worst.empty()) {
      out.outcome = worst.rbegin()->first;
      out.requirements = worst.rbegin()->second;
    }
  }
  for (const RunProblem& p : problems) {
    if (p.image.session != out.session || p.outcome <= out.outcome) continue;
    out.outcome = p.outcome;
    out.requirements.clear();
    out.text = p.text;
  }
}

// Under the file size limit, its ending is judged by a requirement of the run without a fault.
void take_limit(const RequirementResult& r, FaultOutcome& out) {
  out.outcome = r.outcome;
  const bool silent = r.outcome == Outcome::kUnobservable || r.outcome == Outcome::kNa;
  if (silent && !r.findings.empty()) out.text = r.findings.front().saw;
  if (!silent && r.outcome != Outcome::kPass) out.requirements = {r.requirement->id};
}

std::vector<std::string> options_of(const FaultCell& cell) {
  if (cell.injections.empty()) {
    if (cell.clock_calls) return {"--hide-vdso"};
    return {"--faults=" + cell.name()};
  }
  std::vector<std::string> out;
  for (const Injection& i : cell.injections) {
    out.emplace_back("--inject");
    out.push_back(i.spec);
  }
  return out;
}

FaultOutcome outcome_of(const Timeline& t, const FaultCell& cell,
                        const std::map<std::uint32_t, FaultTally>& tallies,
                        const std::vector<RunProblem>& problems,
                        const RequirementResult* of_limit) {
  FaultOutcome out;
  out.session = cell.session;
  out.step = cell.step;
  out.fault = cell.fault;
  out.options = options_of(cell);
  if (!cell.left_out.empty()) {
    out.outcome = cell.no_such_call ? Outcome::kNa : Outcome::kUnobservable;
    out.text = cell.left_out;
    return out;
  }
  if (!cell.injections.empty() && !cell.was_applied()) {
    out.outcome = Outcome::kNa;
    out.text = "no such call was made for a publication";
  }
  if (cell.step == kFileSizeLimit && of_limit != nullptr) take_limit(*of_limit, out);
  take_tally(tallies, problems, out);
  // If the fault explains a death or a hang, it is not a problem of the run.
  const bool silent = out.outcome == Outcome::kPass || out.outcome == Outcome::kUnobservable;
  const bool died = out.outcome == Outcome::kCrash;
  for (const Process& p : t.processes) {
    const bool killed = p.session == cell.session && p.killed_by && !p.ended_by_us;
    if (!killed || !(died || (silent && is_root(t, p)))) continue;
    if (silent) out.outcome = Outcome::kInfo;
    out.text = "the program was " + ending_of(p);
  }
  if (!cell.hang.empty() && (silent || out.outcome == Outcome::kTimeout)) {
    if (silent) out.outcome = Outcome::kInfo;
    out.text = cell.hang;
  }
  if (out.outcome == Outcome::kUnobservable && out.text.empty()) {
    out.text = "no process published a context";
  }
  if (!out.text.empty()) out.output = cell.output;
  return out;
}

}  // namespace

bool is_without_fault(const Timeline& t, std::uint32_t session) {
  if (t.mode != Mode::kRun) return session == 0;
  const auto it =
      std::ranges::find(t.sessions, session, [](const Session& s) { return s.root.session; });
  return it == t.sessions.end() || it->faults.empty();
}

bool explains_death(const FaultCell& cell, int killed_by) {
  if (killed_by == SIGSEGV || killed_by == SIGBUS) return false;
  return std::ranges::any_of(cell.injections, has_refused_memory);
}

bool explains_hang(const FaultCell& cell) {
  return std::ranges::any_of(cell.injections, [](const Injection& i) {
    const bool is_given_time = i.call == "clock_gettime" && i.result >= 0;
    return i.times > kTries || (is_given_time && i.times > 0);
  });
}

std::vector<FaultOutcome> fault_matrix(const Timeline& t,
                                       const std::map<std::uint32_t, FaultTally>& tallies,
                                       const std::vector<RunProblem>& problems,
                                       const RequirementResult* of_limit) {
  std::vector<FaultOutcome> out;
  out.reserve(t.cells.size());
  for (const FaultCell& cell : t.cells) {
    out.push_back(outcome_of(t, cell, tallies, problems, of_limit));
  }
  for (const Session& s : t.sessions) {
    if (s.faults.empty()) continue;
    FaultOutcome one;
    one.session = s.root.session;
    std::tie(one.step, one.fault) = name_of(s);
    const bool came = s.faults.front() == kFileSizeLimit || was_answered(t, s.root.session);
    if (!came) {
      one.outcome = Outcome::kNa;
      one.text = "no such call was made for a publication";
    }
    take_tally(tallies, problems, one);
    const auto same = std::ranges::find_if(
        out, [&](const FaultOutcome& o) { return o.step == one.step && o.fault == one.fault; });
    if (same == out.end()) {
      out.push_back(std::move(one));
    } else if (same->outcome < one.outcome) {
      *same = std::move(one);
    }
  }
  return out;
}

}  // namespace ctxconf::conformance
