// What a run says of each process by itself. A host has many processes, so it keeps only the broken
// requirements, and the outcome of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/finding.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// The values are in the order in which reports list them, and indices of kProcessStates.
enum class ProcessState : std::uint8_t {
  kBroken,     // a requirement failed
  kNotJudged,  // it shows something that could not be judged, or only in part
  kUnread,     // it could not be examined
  kClean,
  kNoContext,
};
inline constexpr std::array kProcessStates = {ProcessState::kBroken, ProcessState::kNotJudged,
                                              ProcessState::kUnread, ProcessState::kClean,
                                              ProcessState::kNoContext};
std::string_view to_string(ProcessState state);  // "no_context"

struct BrokenVerdict {
  const Requirement* requirement = nullptr;  // in the catalogue, never null
  Outcome outcome = Outcome::kFail;          // or kWarn; a crash or a timeout is kFail
  std::string saw;                           // hostile
};

struct ProcessVerdict {
  std::int32_t pid = 0;
  std::int32_t parent = 0;  // 0: not known
  ProcessState state = ProcessState::kNoContext;
  std::string executable;  // of its last image; hostile; empty: not known
  std::string command;     // if the executable is not known: its name; hostile
  // The last Resource that was published: its first attributes, long ones cut; hostile.
  std::map<std::string, std::string> resource;
  Totals totals;
  std::vector<std::pair<const Requirement*, Outcome>> outcomes;  // without n/a
  std::vector<BrokenVerdict> broken;                             // failures first
  std::string unread;      // why it could not be examined; empty: it could
  std::string incomplete;  // why not all was judged; empty: it was; hostile

  const std::string& name() const { return executable.empty() ? command : executable; }
};

struct ProcessVerdicts {
  std::vector<ProcessVerdict> processes;  // by pid
  std::size_t without_context = 0;        // and not in `processes`
  std::size_t unread_omitted = 0;         // could not be examined, and not in `processes`
};

// How many processes of the host are in each state; the index is that of the state.
using StateCounts = std::array<std::size_t, kProcessStates.size()>;
StateCounts count(const ProcessVerdicts& verdicts);

}  // namespace ctxconf::conformance
