// The clocks of timestamps.
#pragma once

#include <cstdint>
#include <ctime>

namespace ctxconf::testees {

std::uint64_t nanoseconds(const timespec& t);
std::uint64_t now_ns(clockid_t clock);
std::uint64_t boot_ns();

// Later than every value it gave before.
std::uint64_t next_timestamp();

}  // namespace ctxconf::testees
