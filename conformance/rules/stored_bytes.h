// The code that stored the bytes that a finding shows.
#pragma once

#include "conformance/evidence/timeline.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// Names in `at` and `code` who stored the first marked bytes of a header or record, if these stores
// were recorded; or else who stored the pointer to a payload with such bytes. Does nothing if the
// finding names its code, and if nobody is known to have stored them.
void name_who_stored(const Image& image, Finding& f);

}  // namespace ctxconf::conformance
