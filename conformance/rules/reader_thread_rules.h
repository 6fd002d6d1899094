// Rules about how a reader reads the slot and the record of a thread. See reader_rules.h.
#pragma once

#include <span>

#include "conformance/rules/reader_rules.h"

namespace ctxconf::conformance {

// A part of reader_rules().
std::span<const ReaderRule> reader_thread_rules();

}  // namespace ctxconf::conformance
