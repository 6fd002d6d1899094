// The report as Markdown, for the summary of a CI job.
#pragma once

#include <cstddef>
#include <string>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// GitHub refuses a summary above 1 MiB. The report says how much is left out.
inline constexpr std::size_t kLongestMarkdown = std::size_t{512} << 10;

// Texts of the run appear only in code spans and blocks, where nothing is markup, a link or a
// mention.
std::string to_markdown(const RunResult& run);

}  // namespace ctxconf::conformance
