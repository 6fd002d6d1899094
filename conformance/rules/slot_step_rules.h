// What the steps of a thread's context say for a requirement that other evidence decides as well.
#pragma once

#include <optional>

#include "conformance/rules/evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// For tctx.exit.no-dangling: a thread that ended gave its record back before it let go of it.
std::optional<Finding> released_at_exit(const ImageEvidence& evidence);

// Judges by step traces how a program that nobody drives uses the valid byte as a switch.
Finding valid_cleared_first_by_steps(const ImageEvidence& evidence);
Finding valid_set_last_by_steps(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
