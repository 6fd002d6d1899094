#include "conformance/verdict/floor.h"

#include <algorithm>
#include <map>

namespace ctxconf::conformance {
namespace {

// "n/a (capability): the adapter does not declare it"
std::string how_it_ended(const RequirementResult& r) {
  std::string out(to_string(r.outcome));
  if (r.findings.empty()) return out;
  const Finding& f = r.findings.front();
  if (r.outcome == Outcome::kNa) out += " (" + std::string(to_string(f.na_reason)) + ")";
  if (!f.saw.empty()) out += ": " + f.saw;
  return out;
}

bool cannot_be_needed(const RequirementResult& r) {
  return r.outcome == Outcome::kNa && !r.findings.empty() &&
         std::ranges::all_of(r.findings,
                             [](const Finding& f) { return f.na_reason == NaReason::kArch; });
}

std::string remedy_of(const RequirementResult& r) {
  return r.findings.empty() ? "" : r.findings.front().remedy;
}

}  // namespace

bool is_judged(Outcome o) {
  return o != Outcome::kNa && o != Outcome::kUnobservable && o != Outcome::kHarnessError;
}

bool Floor::must_be_observable(std::string_view id) const {
  return any_glob_matches(observable, id);
}

std::vector<std::pair<std::string, Outcome>> judged_in(const RunResult& run) {
  std::vector<std::pair<std::string, Outcome>> out;
  for (const RequirementResult& r : run.results) {
    if (is_judged(r.outcome)) out.emplace_back(r.requirement->id, r.outcome);
  }
  return out;
}

void apply_floor(const Floor& floor, const Expectations* expectations, RunResult& run) {
  run.floor.clear();
  const auto add = [&](const std::string& id, std::string why, const RequirementResult& r) {
    run.floor.push_back({id, std::move(why), how_it_ended(r), remedy_of(r)});
  };
  const std::map<std::string, Outcome, std::less<>> before(floor.baseline.begin(),
                                                           floor.baseline.end());
  for (const RequirementResult& r : run.results) {
    const std::string& id = r.requirement->id;
    // One reason per requirement is enough.
    if (r.outcome == Outcome::kUnobservable && floor.must_be_observable(id)) {
      add(id, "--require-observable asks for it", r);
      continue;
    }
    if (is_judged(r.outcome) || cannot_be_needed(r)) continue;
    if (const auto was = before.find(id); was != before.end()) {
      add(id, "judged in " + floor.baseline_file + ", as " + std::string(to_string(was->second)),
          r);
      continue;
    }
    if (expectations == nullptr) continue;
    if (const JudgedLine* line = expectations->judged_line(id)) {
      add(id,
          expectations->file + ", line " + std::to_string(line->line) + ": judged " + line->pattern,
          r);
    }
  }
  const auto is_selected = [&](const auto& is) {
    return std::ranges::any_of(run.results,
                               [&](const RequirementResult& r) { return is(r.requirement->id); });
  };
  for (const auto& [id, outcome] : floor.baseline) {
    if (is_selected([&](const std::string& own) { return own == id; })) continue;
    run.floor.push_back(
        {id, "judged in " + floor.baseline_file + ", as " + std::string(to_string(outcome)),
         "not selected",
         "remove the option that leaves it out: --only, --skip, --level or --spec"});
  }
  for (const std::string& glob : floor.observable) {
    if (is_selected([&](const std::string& id) { return glob_matches(glob, id); })) continue;
    run.floor.push_back({glob, "--require-observable asks for it",
                         "no requirement that matches it was selected",
                         "`ctxconf list` shows the ids"});
  }
}

}  // namespace ctxconf::conformance
