// The report for people: what was looked at, what is wrong, what could not be seen.
#pragma once

#include <cstddef>
#include <string>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

enum class Colour { kAuto, kAlways, kNever };

struct ConsoleOptions {
  // 0: problems in full; 1: also the ids that were not judged, the host's gaps, more evidence;
  // 2: also what passed.
  int verbosity = 0;
  bool quiet = false;  // one line a problem, and the summary
  Colour colour = Colour::kAuto;
  bool is_terminal = false;  // what kAuto goes by
  std::size_t width = 100;   // prose is wrapped here, commands and bytes never; 0: nowhere
};

// Ends in a newline; has no control characters but newlines and our own colours.
std::string to_console(const RunResult& run, const ConsoleOptions& options);

// One finding in full, as the console shows it, without colours: for the bodies of other formats.
std::string finding_text(const RunResult& run, const RequirementResult& result,
                         const Finding& finding);

}  // namespace ctxconf::conformance
