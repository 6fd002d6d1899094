// What ctxconf-trampoline and the tracer say to each other over one socket.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>

namespace ctxconf::sys {

// Command line: ctxconf-trampoline FD NAMESPACE PATH ARGV0 [ARG...], or ctxconf-trampoline idle

// It does nothing until it is killed: a program to exec that is there wherever ctxconf is.
inline constexpr const char* kIdleTrampoline = "idle";

// NAMESPACE: the program is process 1 of a new pid namespace, a child of the process that was
// started, which ends at once; or it stays where it is.
inline constexpr const char* kNewPidNamespace = "pid";
inline constexpr const char* kSameNamespace = "-";

// Trampoline to tracer, a byte: it runs, and is the process to seize. A tracer that seizes it
// earlier may meet the event of the exec that started it, and not only that of the program.
inline constexpr char kTrampolineRuns = 'r';

// Tracer to trampoline, once it has been seized.
struct TrampolineSettings {
  std::uint64_t file_size_limit = UINT64_MAX;  // UINT64_MAX: leave it
  std::int64_t boottime_offset_s = 0;          // 0: in the same time namespace
  std::uint32_t discard_output = 0;
  std::uint32_t filter_length = 0;  // 0: no filter
  std::array<sock_filter, 128> filter{};
};

enum class TrampolineStep : std::int32_t {
  kSettings,
  kLimit,
  kTime,
  kOutput,
  kFilter,
  kExec,
  kNamespace,  // instead of the byte
};

// Trampoline to tracer, when a step failed; the end of the stream when the exec worked.
struct TrampolineFailure {
  TrampolineStep step = TrampolineStep::kSettings;
  std::int32_t err = 0;
};

}  // namespace ctxconf::sys
