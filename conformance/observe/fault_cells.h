// The cells of the fault matrix (`wrap --faults`): what each further run of a program takes away.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "conformance/observe/injection.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

inline constexpr const char* kTimeNamespaceStep = "time-namespace";
inline constexpr const char* kClockCallsStep = "clock-by-calls";
inline constexpr std::chrono::seconds kNamespaceOffset{86400};

struct CellPlan {
  std::string step;  // as in FaultCell
  std::string fault;
  std::vector<InjectionSpec> injections;
  bool clock_calls = false;      // WrapOptions::hide_vdso
  bool file_size_limit = false;  // under RLIMIT_FSIZE=0
  bool time_namespace = false;   // in one of its own
  std::string name() const { return fault.empty() ? step : step + "/" + fault; }
};

// All of them. The first, kClockCallsStep, takes nothing away: it shows which calls there are to
// fail. `names_memory`: the kernel names anonymous memory; where it does not, naming calls seem to
// work beside a fault that leaves no memfd, so that verdicts are the same on each kernel.
std::vector<CellPlan> fault_cells(bool names_memory);

// Whether its fault would come, in a program that makes the calls of `recorded`, which were not
// answered. What only follows another fault is taken to come, and so is a reading of the clock: not
// all of them are recorded.
bool is_reached(const CellPlan& plan, const std::vector<Process>& recorded);

}  // namespace ctxconf::conformance
