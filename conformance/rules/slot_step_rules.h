// What the steps of a thread's context say for a requirement that other evidence decides as well.
#pragma once

#include <optional>

#include "conformance/rules/evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// For tctx.exit.no-dangling: a thread that ended gave its record back before it let go of it.
std::optional<Finding> released_at_exit(const ImageEvidence& evidence);

// What step traces of changes say of the valid byte as a switch, of a program that nobody drives.
Finding valid_cleared_first_by_steps(const ImageEvidence& evidence);
Finding valid_set_last_by_steps(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
