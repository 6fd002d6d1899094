// The contexts with which the threads of `thread.churn` end. They can be judged without knowing
// which one was the last (docs/testee-protocol.md).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "conformance/rules/driven_threads.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

struct ChurnedContexts {
  std::optional<Finding> fault;  // ids, or ids and an attribute, of different contexts
  std::size_t judged = 0;
};
// `samples`: all of the session.
ChurnedContexts churned_contexts(const ImageEvidence& evidence,
                                 const std::vector<DrivenSample>& samples);

}  // namespace ctxconf::conformance
