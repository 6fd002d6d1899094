// Answers requests of the testee protocol (docs/testee-protocol.md, "Readers"), a line of JSON for
// each, so that `ctxconf reader` can judge this reader.
#pragma once

#include <iosfwd>

namespace ctxconf::reader {

// Reads requests until the end of `in` or until `bye`. False: `out` cannot be written.
bool serve(std::istream& in, std::ostream& out);

}  // namespace ctxconf::reader
