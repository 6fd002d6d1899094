// The verdicts about each process in the text format of Prometheus, for the textfile collector of
// node_exporter. docs/fleets.md describes the metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "conformance/verdict/process_verdict.h"

namespace ctxconf::conformance {

inline constexpr std::size_t kMostLabelledProcesses = 100;  // of one state
inline constexpr std::size_t kMostExecutableLabel = 128;    // bytes before they are escaped
inline constexpr std::size_t kMostServiceLabel = 64;

struct ExpositionRun {
  std::string version;
  std::string commit;
  std::uint64_t ended_at = 0;  // seconds of CLOCK_REALTIME
  double seconds = 0;
};

std::string to_exposition(const ExpositionRun& run, const ProcessVerdicts& verdicts);

}  // namespace ctxconf::conformance
