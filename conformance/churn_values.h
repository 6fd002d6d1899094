// The values of `process.churn` (docs/testee-protocol.md): they say which iteration they belong to,
// so that a reader can tell from one payload alone whether it has some of two.
#pragma once

#include <cstdint>
#include <set>

#include "conformance/payload.h"

namespace ctxconf::conformance {

// The numbers in which the string values of service.name and of all keys that begin with "ctxconf."
// end: "-0000000017". One with fewer than ten digits is none, because an SDK may have cut it off.
// More than one: the payload has parts of several iterations.
std::set<std::uint64_t> numbers_in(const Payload& payload);

}  // namespace ctxconf::conformance
