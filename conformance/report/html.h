// The report as one HTML page. It needs no other file and no network. All of it is readable without
// the script, which only searches and filters.
#pragma once

#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Every text of the run is shown as text, on one line. The page's policy lets a browser load
// nothing and run only the built-in script. Long texts, lists and dumps are cut; the page says how
// much is missing.
std::string to_html(const RunResult& run);

}  // namespace ctxconf::conformance
