// The debug registers that make the processor trap stores of a stopped thread that the caller
// traces: DR0 to DR7 (Intel SDM, volume 3, 18.2), DBGWVR<n>_EL1 and DBGWCR<n>_EL1 (Arm ARM, D2.10).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sys/remote_addr.h"

namespace ctxconf::sys {

inline constexpr std::size_t kWordBytes = 8;  // of one watched word
using WatchedWords = std::array<RemoteAddr, 4>;

namespace arch {

// Returns false and sets errno on failure, here and below. ENOSPC or EBUSY: others hold the
// registers, or there are fewer.
bool set_watches(pid_t tid, const WatchedWords& words);
bool disable_watches(pid_t tid);
bool enable_watches(pid_t tid);  // the ones that were set

// Bit i: word i was touched, as the processor noted it; reading clears it. Always 0 on a processor
// that notes nothing.
std::uint8_t take_touched(pid_t tid);
struct Touched {
  std::uint8_t words = 0;
  bool in_full = true;  // false: nothing tells how many bytes it stores, so there may be others
};
// The same for the trap at which the thread has stopped. Nothing: it is not about these words. No
// words: it is, but its instruction stores to none of them, and would trap again.
std::optional<Touched> take_touched(pid_t tid, const siginfo_t& trap);
// Whether the trap of a store can still be pending.
bool may_be_due(pid_t tid);

// Whether the instruction at `pc`, which made the store to `words`, has more to store to them.
// `code`: the eight bytes there, 0 when they could not be copied.
bool stores_on(pid_t tid, std::uint64_t pc, std::uint8_t words, std::uint64_t code);

}  // namespace arch
}  // namespace ctxconf::sys
