// Random pauses between the steps of a recorder, as a busy scheduler makes them. A test mode: what
// is recorded, and how it is judged, must not depend on how fast the recorder is.
#pragma once

#include <atomic>
#include <cstdint>

namespace ctxconf::sys {

namespace detail {
extern std::atomic<bool> is_shaking;
void pause_by_chance(std::uint32_t one_in);
}  // namespace detail

// All threads pause from now on. The pauses of a thread follow from `seed` and the number of
// threads that reached shake() before it.
void begin_shaking(std::uint64_t seed);

// Called between two steps of the recorder: one time in `one_in` it pauses for up to 2 ms, and
// rarely for up to 20 ms.
inline void shake(std::uint32_t one_in = 32) {
  if (detail::is_shaking.load(std::memory_order_relaxed)) detail::pause_by_chance(one_in);
}

}  // namespace ctxconf::sys
