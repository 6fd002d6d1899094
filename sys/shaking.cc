#include "sys/shaking.h"

#include <cerrno>
#include <chrono>
#include <random>
#include <thread>

namespace ctxconf::sys {
namespace {

constexpr std::uint32_t kLongPauseOneIn = 64;  // of the pauses
constexpr std::chrono::microseconds kShortPause{2000};
constexpr std::chrono::microseconds kLongPause{20'000};

std::atomic<std::uint64_t> seed_of_threads;

}  // namespace

namespace detail {

std::atomic<bool> is_shaking;

void pause_by_chance(std::uint32_t one_in) {
  thread_local std::mt19937_64 random(seed_of_threads.fetch_add(1, std::memory_order_relaxed));
  if (random() % one_in != 0) return;
  const auto longest = random() % kLongPauseOneIn == 0 ? kLongPause : kShortPause;
  const int error = errno;
  std::this_thread::sleep_for(longest * static_cast<double>(random() % 1000) / 1000.0);
  errno = error;
}

}  // namespace detail

void begin_shaking(std::uint64_t seed) {
  seed_of_threads = seed;
  detail::is_shaking = true;
}

}  // namespace ctxconf::sys
