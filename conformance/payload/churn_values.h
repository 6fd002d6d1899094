// The values of `process.churn` (docs/testee-protocol.md). Each value contains its iteration, so
// that a reader can tell whether one payload mixes two iterations.
#pragma once

#include <cstdint>
#include <set>

#include "conformance/payload/payload.h"

namespace ctxconf::conformance {

// The numbers at the end of the string values of service.name and of all keys that begin with
// "ctxconf.": "-0000000017". A number with fewer than ten digits does not count, because an SDK may
// have truncated it. If there are several numbers, the payload mixes iterations.
std::set<std::uint64_t> numbers_in(const Payload& payload);

}  // namespace ctxconf::conformance
