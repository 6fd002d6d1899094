// The report as SARIF 2.1.0, for code scanning and for editors.
#pragma once

#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// A rule is a requirement that was judged. A result is a requirement that is broken, at one place:
// images that break it at the same place are one result. Crashes, hangs, problems of the
// expectations file and what had to be judged but was not are results too, and a run that ends
// badly without any other error has a result for its exit code. Faults of ctxconf and notes are
// notifications. The first location of a result is always a line or a file, unless neither is
// known: see docs/reports.md.
std::string to_sarif(const RunResult& run);

}  // namespace ctxconf::conformance
