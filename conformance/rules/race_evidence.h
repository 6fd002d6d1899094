// What a reader on another processor found during updates (level race).
#pragma once

#include <optional>

#include "conformance/rules/evidence.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// A failure, a pass, or unobservable: too few reads met an update. Nothing: no race was to
// take place in this image.
std::optional<Finding> mixed_read_in_race(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
