// The report as JUnit XML, for CI systems that show test results.
#pragma once

#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

struct JunitOptions {
  bool strict = false;  // warnings are failures
};

// A test case is a requirement. If several images published, it is a requirement in one image,
// named by its executable (a pid would be a new test each time). Problems of the expectations file
// are test cases too. A run that ends badly without a failed requirement has a test case for its
// exit code, so that the report is never green if the run was not.
std::string to_junit(const RunResult& run, const JunitOptions& options);

}  // namespace ctxconf::conformance
