// Files that the commands read and write.
#pragma once

#include <cstddef>
#include <string>

#include "conformance/command/output_folder.h"
#include "conformance/verdict/run_result.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// The whole file; "-" is stdin. Fails with EFBIG beyond `limit` bytes.
sys::Result<std::string> read_file(const std::string& path, std::size_t limit);
// Writes a temporary file and renames it, so that a reader never sees half of it.
sys::Result<> write_file(const std::string& path, const std::string& text);
// Writes result.json, junit.xml, report.html, summary.md and results.sarif; with `strict`, warnings
// are failures in junit.xml. After an error none of them is left.
sys::Result<> write_reports(const OutputFolder& folder, const RunResult& run, bool strict);
// Removes these reports of an earlier run from the folder of --out, if it exists. Returns 0, or the
// exit code after a complaint.
int remove_reports(const std::string& out);

}  // namespace ctxconf::conformance
