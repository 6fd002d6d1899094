// Invented runs for the tests of the reports.
#pragma once

#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Eight requirements of both OTEPs.
const Catalogue& sample_catalogue();

// One process published; each outcome occurs once or twice; one hexdump is marked.
RunResult ordinary_run();
// Nothing was published: exit 4.
RunResult silent_run();
// Two images published and a third did not; two of them have the same failure.
RunResult run_of_two_images();
// An expected failure and a stale expectations file.
RunResult run_with_expectations();
// Every text that a testee controls is as hostile as possible.
RunResult hostile_run();
// Far more findings, texts and bytes than a report may print.
RunResult huge_run();

// Terminal escapes, tags and their ends, NUL, bidi, bytes that are not UTF-8, and Markdown links,
// fences and mentions, in one string.
std::string hostile_text();

}  // namespace ctxconf::conformance
