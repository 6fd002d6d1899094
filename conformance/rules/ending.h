// What is seen of a process that is about to end.
#pragma once

#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

// Whether the state was first seen at exit. A look that was due may still follow the one at exit.
inline bool begins_at_exit(const Snapshot& snapshot) {
  return !snapshot.moments.empty() && snapshot.moments.front() == Moment::kExit;
}

}  // namespace ctxconf::conformance
