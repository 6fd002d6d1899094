// What the steps of a thread's context say for a row that other evidence decides as well.
#pragma once

#include <optional>

#include "conformance/rules/evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// For tctx.exit.no-dangling: a thread that ended gave its record back before it let go of it.
std::optional<Finding> released_at_exit(const ImageEvidence& e);

}  // namespace ctxconf::conformance
