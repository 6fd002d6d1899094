// What a result says of the run itself: its images, problems and notes.
#pragma once

#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/judge/settle.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/reader_rules.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Call it when `results` is filled.
void summarise(const Timeline& timeline, const std::vector<ImageEvidence>& evidence,
               const std::vector<SceneEvidence>& scenes,
               const std::vector<const Requirement*>& selected, const Told& told, RunResult& out);

}  // namespace ctxconf::conformance
