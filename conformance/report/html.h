// The report as one HTML page: no other file, no network, and all of it readable without the
// script, which only searches and filters.
#pragma once

#include <string>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

// Every text of the run is shown as text, on one line; its policy lets a browser load nothing and
// run only the script that was built in. Long texts, lists and dumps are cut, and counted.
std::string to_html(const RunResult& run);

}  // namespace ctxconf::conformance
