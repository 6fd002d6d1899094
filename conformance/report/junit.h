// The report as JUnit XML, for CI systems that show test results.
#pragma once

#include <string>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

struct JunitOptions {
  bool strict = false;  // warnings are failures
};

// A test case is a requirement; when more than one image published it is a requirement in one
// image, named by its executable (never by a pid, which would be a new test each time). Problems
// of the expectations file are test cases too, and a run that ends badly without any failed
// requirement has one for its exit code: a report is never green when the run was not.
std::string to_junit(const RunResult& run, const JunitOptions& options);

}  // namespace ctxconf::conformance
