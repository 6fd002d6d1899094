// The verdicts about each process as JSON, one line each; the schema of a line is
// process_line.schema.json.
#pragma once

#include <string>

#include "conformance/verdict/process_verdict.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// A line for each process, then one about the run. ASCII; long texts are cut.
std::string to_process_lines(const RunResult& run, const ProcessVerdicts& verdicts);

}  // namespace ctxconf::conformance
