#include "conformance/testees/writer/clock.h"

#include <algorithm>
#include <atomic>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

std::uint64_t nanoseconds(const timespec& t) {
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t now_ns(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) die("clock_gettime");
  return nanoseconds(t);
}

std::uint64_t boot_ns() { return now_ns(CLOCK_BOOTTIME); }

std::uint64_t next_timestamp() {
  static std::atomic<std::uint64_t> last{0};
  std::uint64_t before = last;
  std::uint64_t value;
  do value = std::max(boot_ns(), before + 1);
  while (!last.compare_exchange_weak(before, value));
  return value;
}

}  // namespace ctxconf::testees
