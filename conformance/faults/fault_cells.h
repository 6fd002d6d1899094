// The cells of the fault matrix (`wrap --faults`): one run per fault.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/faults/injection.h"

namespace ctxconf::conformance {

inline constexpr const char* kTimeNamespaceStep = "time-namespace";
inline constexpr const char* kClockCallsStep = "clock-by-calls";
// Makes naming of anonymous memory seem to succeed.
inline constexpr const char* kSeemsNamed = "prctl(PR_SET_VMA):value=0";
inline constexpr std::chrono::seconds kNamespaceOffset{86400};

struct CellPlan {
  std::string step;  // as in FaultCell
  std::string fault;
  std::vector<InjectionSpec> injections;
  bool clock_calls = false;      // WrapOptions::hide_vdso
  bool file_size_limit = false;  // under RLIMIT_FSIZE=0
  bool time_namespace = false;   // in its own time namespace
  std::string name() const { return fault.empty() ? step : step + "/" + fault; }
};

// All cells. The first, kClockCallsStep, injects nothing: it shows which calls can fail.
// `names_memory`: whether the kernel names anonymous memory. If not, naming calls seem to succeed
// under a fault that leaves no memfd, so that verdicts are the same on every kernel.
std::vector<CellPlan> fault_cells(bool names_memory);

// Whether the fault would occur in a program that makes the calls of `recorded`, which was recorded
// without faults. A fault that follows another fault, and one of the clock, count as reached,
// because not all of them are recorded.
bool is_reached(const CellPlan& plan, const std::vector<Process>& recorded);

}  // namespace ctxconf::conformance
