// Removes the program's words from a run, for a report that others may see.
#pragma once

#include <array>
#include <cstdint>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Without the key, nobody can guess names by comparing hashes.
using RedactionKey = std::array<std::uint8_t, 32>;
RedactionKey random_redaction_key();

// Every text that can quote the program becomes `redacted-` and 12 digits of a hash: executables,
// arguments, values of attributes, code locations, what was seen, notes. The same text and key give
// the same hash. Evidence and bytes are left out; the offsets of their marks stay.
// These stay: ids, outcomes, counts, pids, addresses of dumps, the first attribute's key,
// signatures and remedies (they are ours), the reason of a requirement that was not judged or
// passed if it has only words of the requirements, the host, ctxconf's own options and file names,
// and the lines of the expectations file without quoted text.
RunResult redacted(RunResult run, const RedactionKey& key);

}  // namespace ctxconf::conformance
