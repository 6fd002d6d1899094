// For tests: whether a reader would find a context in a snapshot.
#pragma once

#include <algorithm>

#include "abi/process_header.h"
#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

inline bool has_valid_context(const Snapshot& s) {
  return std::ranges::any_of(s.candidates, [](const Candidate& c) {
    const auto h = abi::decode_process_header(c.memory.front().bytes);
    return h && abi::is_valid(*h);
  });
}

}  // namespace ctxconf::conformance
