// The result of each fault of a run: cells of `wrap --faults`, and groups of `ctxconf run` with a
// fault.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// The verdicts about one cell or session that differ from those without a fault.
struct FaultTally {
  bool judged = false;                                 // a requirement passed or is broken
  std::map<Outcome, std::vector<std::string>> failed;  // ids
};

// The results, by number of cell or session. `problems`: those of the run, one for each cell,
// before equal ones are joined. `of_limit`: the result that judges the program under the file size
// limit; null: it was not selected.
std::vector<FaultOutcome> fault_matrix(const Timeline& timeline,
                                       const std::map<std::uint32_t, FaultTally>& tallies,
                                       const std::vector<RunProblem>& problems,
                                       const RequirementResult* of_limit);

// Whether the processes of this session ran without a fault.
bool is_without_fault(const Timeline& timeline, std::uint32_t session);

// Whether it is acceptable that the program dies or hangs in this cell. Without memory its runtime
// may end it, but must not use an address that it did not get. A program that waits for a clock, or
// for a call to succeed, may wait for ever.
bool explains_death(const FaultCell& cell, int killed_by);
bool explains_hang(const FaultCell& cell);

}  // namespace ctxconf::conformance
