// The part of a recording on which one requirement's outcome rests.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "conformance/evidence/timeline.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// A recording as JSON that gives the requirement the outcome and the signature of `result`: of the
// images that its worst findings are about and their sessions, where that is enough; else of their
// processes and all sessions; else all. Nothing when none does, or it has more than `limit` bytes.
// `timeline` is as before.
std::optional<std::string> trace_of(Timeline& timeline, const RequirementResult& result,
                                    std::size_t limit);

}  // namespace ctxconf::conformance
