// A run for tests: the first rows of the catalogue, which ended like this.
#pragma once

#include <initializer_list>

#include "conformance/report/run_result.h"
#include "conformance/requirements/catalogue.h"

namespace ctxconf::conformance {

inline RunResult run_of(std::initializer_list<Outcome> outcomes) {
  RunResult run;
  const auto& rows = Catalogue::builtin().specifications().front().requirements;
  for (const Outcome o : outcomes) {
    const Requirement* row = &rows[run.results.size()];
    RequirementResult& result = run.results.emplace_back();
    result.requirement = row;
    result.outcome = o;
  }
  return run;
}

}  // namespace ctxconf::conformance
