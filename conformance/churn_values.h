// Values that say which update they belong to, so that a reader can tell from one payload alone
// whether it has some of two.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "conformance/payload.h"

namespace ctxconf::conformance {

// "checkout-0000000017", of the seventeenth. The number has ten digits, so that one which an SDK
// has cut off is no other number.
std::string numbered(const std::string& value, std::uint64_t number);

// The numbers in which the string values of service.name and of all keys that begin with "ctxconf."
// end, written so. More than one: the payload has parts of several updates.
std::set<std::uint64_t> numbers_in(const Payload& payload);

}  // namespace ctxconf::conformance
