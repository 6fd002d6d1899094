// Answers requests of the testee protocol (docs/testee-protocol.md, "Readers"), a line of JSON for
// each, so that `ctxconf reader` can judge this reader.
#pragma once

#include <chrono>
#include <iosfwd>

#include "reader_ref/process_watch.h"

namespace ctxconf::reader {

struct ServeOptions {
  WatchOptions watch;  // `relist` is also for what is asked about
  // A process that cannot be read in this time is answered with `failed`.
  std::chrono::milliseconds answer_limit{5000};
};

// Reads requests until the end of `in` or until `bye`. False: `out` cannot be written.
bool serve(std::istream& in, std::ostream& out, const ServeOptions& options = {});

}  // namespace ctxconf::reader
