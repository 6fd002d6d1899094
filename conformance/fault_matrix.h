// What became of each fault of a run: of the cells of `wrap --faults`, and of the groups of
// `ctxconf run` that have one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// What the rows say of one cell or session, and do not say without a fault.
struct FaultTally {
  bool judged = false;                                       // a row has passed or is contradicted
  std::map<Outcome, std::vector<std::string>> contradicted;  // ids
};

// By the number of a cell or session. Of `run` the results and problems are asked.
std::vector<FaultOutcome> fault_matrix(const Timeline& timeline,
                                       const std::map<std::uint32_t, FaultTally>& tallies,
                                       const RunResult& run);

// Whether the processes of this number ran without a fault.
bool is_without_fault(const Timeline& timeline, std::uint32_t session);

// Whether that a program dies or hangs of a cell says nothing against it: what has no memory may be
// its runtime, which then ends it, but does not go on with an address that it did not get; who
// waits for a clock, or for a call to work, may wait until it does.
bool explains_death(const FaultCell& cell, int killed_by);
bool explains_hang(const FaultCell& cell);

}  // namespace ctxconf::conformance
