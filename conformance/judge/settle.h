// The findings of one requirement become one verdict.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/judge/fault_matrix.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Checks and faults that the verdicts so far have mentioned.
struct Told {
  std::set<const CheckRun*> checks;  // that did not finish
  std::map<std::uint32_t, FaultTally> tallies;
};

// Why no image is asked, whatever the recording holds; nothing: the rule decides.
std::optional<Finding> decided_by_run(const Requirement& r, Mode mode);

// How many repeats one that is kept stands for.
std::uint32_t times_of(const Timeline& timeline, std::uint32_t repeat);

// `decided`: from decided_by_run; where it is there, `findings` is empty. Adds to `told`.
RequirementResult settle(const Timeline& timeline, const std::vector<ImageEvidence>& evidence,
                         const Requirement& r, std::optional<Finding> decided,
                         std::vector<Finding> findings, Told& told);

}  // namespace ctxconf::conformance
