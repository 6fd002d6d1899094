#include "conformance/reader/usable_time.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "sys/process.h"

namespace ctxconf::conformance::reader {
namespace {

// A thread of it runs, waits for a processor, or is stopped by its tracer at a call.
bool is_awake(pid_t process) {
  const auto threads = sys::thread_list(process);
  return threads && std::ranges::any_of(*threads, [](pid_t thread) {
           const char state = sys::thread_state(thread);
           return state == 'R' || state == 't';
         });
}

}  // namespace

std::chrono::nanoseconds processor_time(const std::vector<pid_t>& processes) {
  std::chrono::nanoseconds sum{};
  for (const pid_t pid : processes) {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) continue;
    sum += std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  return sum;
}

std::chrono::nanoseconds UsableTime::by_now(const std::vector<pid_t>& processes) {
  using std::chrono::steady_clock;
  if (steady_clock::now() < now_ + kInterval) return sum_;
  const auto before = std::exchange(now_, steady_clock::now());
  const auto ran_before = std::exchange(ran_, processor_time(processes));
  if (!ran_before) return sum_;  // the first time
  // ctxconf itself may have waited.
  const auto all = std::min<std::chrono::nanoseconds>(now_ - before, 2 * kInterval);
  const bool is_waiting = std::ranges::any_of(processes, is_awake);
  sum_ += is_waiting ? std::clamp<std::chrono::nanoseconds>(*ran_ - *ran_before, {}, all) : all;
  return sum_;
}

}  // namespace ctxconf::conformance::reader
