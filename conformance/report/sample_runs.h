// Made-up runs for the tests of the reports.
#pragma once

#include <string>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

// Eight rows under both OTEPs.
const Catalogue& sample_catalogue();

// One process that published, each outcome once or twice, a marked hexdump.
RunResult ordinary_run();
// Nothing was published: exit 4.
RunResult silent_run();
// Two images published and a third did not; the same failure in two of them.
RunResult run_of_two_images();
// An expected failure and a stale expectations file.
RunResult run_with_expectations();
// Every text that a testee controls is as bad as it can be.
RunResult hostile_run();
// Far more findings, texts and bytes than any report may print.
RunResult huge_run();

// Terminal escapes, tags and their ends, NUL, bidi, bytes that are no UTF-8, and what Markdown
// takes for links, fences and mentions, in one string.
std::string hostile_text();

}  // namespace ctxconf::conformance
