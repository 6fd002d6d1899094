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

std::atomic<std::uint64_t> seed_of_all;
std::atomic<std::uint32_t> threads_so_far;

std::mt19937_64 random_of_next_thread() {
  const std::uint64_t seed = seed_of_all;
  std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U),
                      threads_so_far.fetch_add(1)};
  return std::mt19937_64(words);
}

}  // namespace

namespace detail {

std::atomic<bool> is_shaking;

void pause_by_chance(std::uint32_t one_in) {
  thread_local std::mt19937_64 random = random_of_next_thread();
  if (random() % one_in != 0) return;
  const auto longest = random() % kLongPauseOneIn == 0 ? kLongPause : kShortPause;
  const int error = errno;
  std::this_thread::sleep_for(longest * static_cast<double>(random() % 1000) / 1000.0);
  errno = error;
}

}  // namespace detail

void begin_shaking(std::uint64_t seed) {
  seed_of_all = seed;
  detail::is_shaking = true;
}

}  // namespace ctxconf::sys
