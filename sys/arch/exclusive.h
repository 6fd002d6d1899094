// An attempt to store by load-exclusive and store-exclusive, for every processor: a trap between
// the two makes the store fail, so a thread must run through both.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ctxconf::sys::arch {

struct ExclusiveAttempt {
  static constexpr std::size_t kMostExits = 4;

  std::uint64_t load = 0;   // the address of the load-exclusive
  std::uint64_t store = 0;  // the address of the store-exclusive
  std::uint32_t code = 0;   // of the store-exclusive
  // Where it can lead: the address after the store, and to the targets of its branches.
  std::array<std::uint64_t, kMostExits> exits{};
  std::size_t exit_count = 0;

  std::uint64_t after_store() const { return exits[0]; }
};

// The attempt that begins or has its store at `pc` of a stopped thread that the caller traces.
// Always nothing on a processor without such instructions.
std::optional<ExclusiveAttempt> attempt_from(pid_t tid, std::uint64_t pc);
std::optional<ExclusiveAttempt> attempt_to(pid_t tid, std::uint64_t pc);

enum class Attempted { kNothing, kFailed, kStored };
struct AttemptResult {
  Attempted outcome = Attempted::kNothing;  // kNothing: the thread is not at after_store()
  std::uint8_t words = 0;                   // that were stored to, of those of set_watches()
};
AttemptResult result_of(pid_t tid, const ExclusiveAttempt& attempt);

// Breakpoints of the processor, in this thread alone. Returns false and sets errno on failure.
bool set_breakpoints(pid_t tid, std::span<const std::uint64_t> at);
bool clear_breakpoints(pid_t tid);

}  // namespace ctxconf::sys::arch
