// The report for people: what was observed, what is wrong, and what could not be observed.
#pragma once

#include <cstddef>
#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

enum class Colour { kAuto, kAlways, kNever };

struct ConsoleOptions {
  // 0: problems in full; 1: also the ids that were not judged, the host's gaps, more evidence;
  // 2: also what passed.
  int verbosity = 0;
  bool quiet = false;  // one line per problem, and the summary
  Colour colour = Colour::kAuto;
  bool is_terminal = false;  // used by kAuto
  std::size_t width = 100;   // prose is wrapped here, but not commands or bytes; 0: no wrapping
};

// Ends in a newline. Has no control characters except newlines and ctxconf's own colours.
std::string to_console(const RunResult& run, const ConsoleOptions& options);

// One finding in full, as on the console but without colours, for other formats.
std::string finding_text(const RunResult& run, const RequirementResult& result,
                         const Finding& finding);

}  // namespace ctxconf::conformance
