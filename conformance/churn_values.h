// Values that say which update they belong to, so that a reader can tell from one payload alone
// whether it has some of two.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "conformance/payload.h"

namespace ctxconf::conformance {

// "checkout-17", of the seventeenth.
std::string numbered(const std::string& value, std::uint64_t number);

// The numbers that the string values of service.name and of all keys that begin with "ctxconf." end
// in. More than one: the payload has parts of several updates.
std::set<std::uint64_t> numbers_in(const Payload& payload);

}  // namespace ctxconf::conformance
