// Drives the attribute cursor of abi/ for the oracle. The cursor is in a header and would be
// compiled as part of the oracle, which the engine does not instrument.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// Compares the cursor with the second parser, entry by entry; aborts if they differ. Returns the
// first byte that no whole entry covers.
std::size_t check_entries(std::span<const std::byte> area);

}  // namespace ctxconf::fuzz
