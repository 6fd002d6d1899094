// For tests: a run with the first requirements of the catalogue and these outcomes.
#pragma once

#include <initializer_list>

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

inline RunResult run_of(std::initializer_list<Outcome> outcomes) {
  RunResult run;
  const auto& requirements = Catalogue::builtin().specifications().front().requirements;
  for (const Outcome o : outcomes) {
    const Requirement* requirement = &requirements[run.results.size()];
    RequirementResult& result = run.results.emplace_back();
    result.requirement = requirement;
    result.outcome = o;
  }
  return run;
}

}  // namespace ctxconf::conformance
