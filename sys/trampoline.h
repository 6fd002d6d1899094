// The messages between ctxconf-trampoline and the tracer, over one socket.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>

namespace ctxconf::sys {

// Command line: ctxconf-trampoline FD NAMESPACE PATH ARGV0 [ARG...], or ctxconf-trampoline idle

// It does nothing until it is killed: a program to exec that is always installed with ctxconf.
inline constexpr const char* kIdleTrampoline = "idle";

// NAMESPACE: the program is process 1 of a new PID namespace, a child of the started process, which
// ends at once; or the program stays in the same namespace.
inline constexpr const char* kNewPidNamespace = "pid";
inline constexpr const char* kSameNamespace = "-";

// Trampoline to tracer, one byte: it is running, and is the process to seize. A tracer that seizes
// it earlier may also get the event of the exec that started it.
inline constexpr char kTrampolineRuns = 'r';

// Tracer to trampoline, after the seize.
struct TrampolineSettings {
  std::uint64_t file_size_limit = UINT64_MAX;  // UINT64_MAX: unchanged
  std::int64_t boottime_offset_s = 0;          // 0: in the same time namespace
  std::uint32_t discard_output = 0;
  std::int32_t without_capability = -1;  // -1: as it is
  std::uint32_t filter_length = 0;       // 0: no filter
  std::array<sock_filter, 160> filter{};
};

enum class TrampolineStep : std::int32_t {
  kSettings,
  kLimit,
  kTime,
  kOutput,
  kFilter,
  kExec,
  kCapability,
  kNamespace,  // instead of the byte
};

// Trampoline to tracer if a step failed; end of stream if the exec succeeded.
struct TrampolineFailure {
  TrampolineStep step = TrampolineStep::kSettings;
  std::int32_t err = 0;
};

}  // namespace ctxconf::sys
