#include "conformance/verdict/exit_code.h"

#include <algorithm>
#include <functional>

#include "conformance/text/counts.h"
#include "conformance/verdict/floor.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kNamed = 3;

// "a, b, c and 4 more"
template <class List, class Id>
std::string names(const List& all, Id id) {
  std::string out;
  for (std::size_t i = 0; i < std::min(kNamed, all.size()); ++i) {
    out += (i == 0 ? "" : ", ") + std::invoke(id, all[i]);
  }
  if (all.size() > kNamed) out += " and " + std::to_string(all.size() - kNamed) + " more";
  return out;
}

std::string names(const std::vector<const RequirementResult*>& results) {
  return names(results, [](const RequirementResult* r) { return r->requirement->id; });
}

// Whether the result says only that no process published a context: that it is missing, or that the
// program survives something without one.
bool is_mere_absence(const RequirementResult& r) {
  if (r.requirement->role == Role::kReader) return false;
  return (r.outcome == Outcome::kInfo && r.requirement->otep == kProcessContext) ||
         r.holds_without_context;
}

bool fails(Outcome o, bool strict) {
  return o == Outcome::kFail || o == Outcome::kCrash || o == Outcome::kTimeout ||
         (strict && o == Outcome::kWarn);
}

bool is_expected_failure(const RequirementResult& r) {
  return r.expected == Expected::kAsExpected && fails(r.outcome, true);
}

std::string below(const std::vector<FloorProblem>& floor) {
  return counted(floor.size(), "requirement") +
         " had to be judged but could not be: " + names(floor, &FloorProblem::requirement);
}

struct Conclusion {
  int code = kExitClean;
  std::string reason;
};

Conclusion decide(const ExitOptions& options, const RunResult& run, const Totals& totals) {
  const auto where = [&](auto&& predicate) {
    std::vector<const RequirementResult*> found;
    for (const RequirementResult& r : run.results) {
      if (predicate(r)) found.push_back(&r);
    }
    return found;
  };
  const auto problem = [&](int code) -> const ExpectationProblem* {
    const auto at =
        std::ranges::find(run.expectation_problems, code, &ExpectationProblem::exit_code);
    return at == run.expectation_problems.end() ? nullptr : &*at;
  };
  const auto from_file = [](const ExpectationProblem& p) {
    return "expectations file" + (p.line == 0 ? "" : ", line " + std::to_string(p.line)) + ": " +
           p.text;
  };
  const std::string of = " of " + counted(run.results.size(), "requirement");

  const auto broken = where([](const RequirementResult& r) {
    return r.outcome == Outcome::kHarnessError ||
           std::ranges::any_of(
               r.findings, [](const Finding& f) { return f.outcome == Outcome::kHarnessError; });
  });
  if (!broken.empty()) {
    return {kExitHarnessError, "ctxconf itself failed to judge " + names(broken)};
  }
  const auto ours = std::ranges::find(run.problems, Outcome::kHarnessError, &RunProblem::outcome);
  if (ours != run.problems.end()) return {kExitHarnessError, ours->text};
  if (const auto* p = problem(kExitUsage)) return {kExitUsage, from_file(*p)};
  if (!options.unreachable.empty()) return {kExitUnreachable, options.unreachable};
  if (!options.unwritten.empty()) return {kExitUnreachable, options.unwritten};
  if (run.results.empty()) return {kExitUsage, "no requirement was selected"};

  const auto failed =
      where([&](const RequirementResult& r) { return is_unexpected_failure(r, options.strict); });
  if (!failed.empty()) {
    return {kExitFailed,
            std::to_string(failed.size()) + of + " failed unexpectedly: " + names(failed)};
  }
  if (!run.problems.empty()) return {kExitFailed, run.problems.front().text};
  if (const auto* p = problem(kExitFailed)) return {kExitFailed, from_file(*p)};
  if (const auto* p = problem(kExitStale)) return {kExitStale, from_file(*p)};

  const auto judged = where([](const RequirementResult& r) { return is_judged(r.outcome); });
  const bool published = std::ranges::any_of(run.images, &ImageSummary::published);
  const bool absent = !published && std::ranges::all_of(judged, [](const RequirementResult* r) {
    return is_mere_absence(*r);
  });
  if (judged.empty() || absent) {
    return {kExitNotJudged,
            "none" + of + " could be judged" +
                (judged.empty() ? "" : " except " + names(judged) + ", judged without a context") +
                (published || is_about_readers(run) ? "" : ": no published context was seen")};
  }
  if (!run.floor.empty()) return {kExitNotJudged, below(run.floor)};
  if (!options.incomplete.empty()) return {kExitNotJudged, options.incomplete};
  if (const auto* p = problem(kExitNotJudged)) return {kExitNotJudged, from_file(*p)};

  std::string reason = std::to_string(judged.size()) + of + " judged, ";
  reason += totals.expected_failures == 0
                ? "none failed"
                : counted(static_cast<std::size_t>(totals.expected_failures), "failed", "") +
                      " as expected";
  if (totals.warn > 0 && !options.strict) {
    reason += ", " + counted(static_cast<std::size_t>(totals.warn), "warning");
  }
  return {kExitClean, reason};
}

}  // namespace

int unwritten_code(int code) {
  return code == kExitHarnessError || code == kExitUsage ? code : kExitUnreachable;
}

bool is_about_readers(const RunResult& run) {
  return !run.results.empty() && std::ranges::all_of(run.results, [](const auto& r) {
    return r.requirement->role == Role::kReader;
  });
}

Totals& Totals::operator+=(const Totals& other) {
  for (int Totals::* const number :
       {&Totals::pass, &Totals::fail, &Totals::warn, &Totals::info, &Totals::na,
        &Totals::unobservable, &Totals::crash, &Totals::timeout, &Totals::harness_error,
        &Totals::expected_failures, &Totals::selected}) {
    this->*number += other.*number;
  }
  return *this;
}

Totals count(const RunResult& run) {
  Totals t;
  for (const RequirementResult& r : run.results) {
    ++t.selected;
    if (is_expected_failure(r)) ++t.expected_failures;
    switch (r.outcome) {
      case Outcome::kPass:
        ++t.pass;
        break;
      case Outcome::kNa:
        ++t.na;
        break;
      case Outcome::kUnobservable:
        ++t.unobservable;
        break;
      case Outcome::kInfo:
        ++t.info;
        break;
      case Outcome::kWarn:
        ++t.warn;
        break;
      case Outcome::kFail:
        ++t.fail;
        break;
      case Outcome::kTimeout:
        ++t.timeout;
        break;
      case Outcome::kCrash:
        ++t.crash;
        break;
      case Outcome::kHarnessError:
        ++t.harness_error;
        break;
    }
  }
  for (const RunProblem& p : run.problems) {
    if (p.outcome == Outcome::kFail) ++t.fail;
    if (p.outcome == Outcome::kCrash) ++t.crash;
    if (p.outcome == Outcome::kTimeout) ++t.timeout;
    if (p.outcome == Outcome::kHarnessError) ++t.harness_error;
  }
  return t;
}

bool is_unexpected_failure(const RequirementResult& r, bool strict) {
  return fails(r.outcome, strict) && r.expected != Expected::kAsExpected;
}

void conclude(const ExitOptions& options, RunResult& run) {
  run.totals = count(run);
  Conclusion c = decide(options, run, run.totals);
  run.exit_code = c.code;
  run.exit_reason = std::move(c.reason);
}

}  // namespace ctxconf::conformance
