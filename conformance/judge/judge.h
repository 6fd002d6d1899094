// From evidence to a result: every selected requirement against every image
// that published.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// The deepest level that this version records in one mode.
constexpr Level deepest_recorded(Mode mode) {
  switch (mode) {
    case Mode::kRun:
      return Level::kRace;
    case Mode::kWrap:
      return Level::kSteps;
    case Mode::kReader:
      return Level::kPuppet;
    default:
      return Level::kSnapshot;
  }
}

// Whether the recording of this mode decides the requirement.
inline bool is_recorded(const Requirement& r, Mode mode) {
  return r.level <= deepest_recorded(mode);
}

// Oddities of an adapter's process. They decide no requirement.
struct Oddities {
  bool noise = false;        // it wrote lines that are not protocol messages
  bool left_behind = false;  // processes outlived it
  bool stayed = false;       // it did not exit after bye
  std::string exit_code;     // after bye: "exited 5"; empty: 0, or none
  friend auto operator<=>(const Oddities&, const Oddities&) = default;
};
Oddities oddities_of(const Session& session);

// Fills what follows from the evidence: images, results, problems, notes, host.
// Expectations, totals and exit code come later (verdict/).
RunResult judge(const Timeline& timeline, const std::vector<const Requirement*>& selected);
// The same with evidence_of() the timeline.
RunResult judge(const Timeline& timeline, const std::vector<ImageEvidence>& evidence,
                const std::vector<const Requirement*>& selected);

}  // namespace ctxconf::conformance
