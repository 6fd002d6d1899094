// The attribute cursor of abi/, driven for the oracle. It lives in a header and would
// be compiled as part of the oracle, which the engine does not look at.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// The cursor beside the second parser, entry for entry; aborts where they differ. The first byte
// that no whole entry covers.
std::size_t check_entries(std::span<const std::byte> area);

}  // namespace ctxconf::fuzz
