// For tests: what all files of expectations have in common.
#pragma once

#include <chrono>
#include <string>

#include "conformance/verdict/expectations.h"

namespace ctxconf::conformance {

inline constexpr Date kToday{std::chrono::year(2026), std::chrono::month(6), std::chrono::day(15)};
inline const std::string kFirstLine = "# ctxconf-expect 1\n";

}  // namespace ctxconf::conformance
