// The part of a recording on which one requirement's outcome rests.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "conformance/evidence/timeline.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// The smallest recording, as JSON, that gives the requirement the outcome and the signature of
// `result`. It tries the images of the worst findings and their sessions; then the processes of
// these images and all sessions; then everything. Nothing if no recording gives that result, or it
// has more than `limit` bytes. `timeline` is the same afterwards.
std::optional<std::string> trace_of(Timeline& timeline, const RequirementResult& result,
                                    std::size_t limit);

}  // namespace ctxconf::conformance
