// What the threads of `thread.churn` show when they end: contexts that can be judged without
// knowing which of them was the last one (docs/testee-protocol.md).
#pragma once

#include <cstddef>
#include <optional>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

struct ChurnedContexts {
  std::optional<Finding> fault;  // ids and an attribute that are not of one context
  std::size_t judged = 0;
};
ChurnedContexts churned_contexts(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
