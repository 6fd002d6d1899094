// A run without the words of the program that was judged, for a report that others may see.
#pragma once

#include <array>
#include <cstdint>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

// Without it nobody can try names until a hash fits.
using RedactionKey = std::array<std::uint8_t, 32>;
RedactionKey random_redaction_key();

// Every text that can quote the program becomes `redacted-` and 12 digits of a hash, the same for
// the same text and key: executables, arguments, values of attributes, code places, what was seen,
// notes. Evidence and bytes are left out, and their marks kept as offsets.
// What stays: ids, outcomes, counts, pids, addresses of dumps, the first attribute's key,
// signatures and remedies (they are ours), a reason of what was not judged or passed if all of its
// words are words of the requirements, the host, ctxconf's own options and file names, and the
// lines of the expectations file without what they quote.
RunResult redacted(RunResult run, const RedactionKey& key);

}  // namespace ctxconf::conformance
