// The attribute cursor of abi/, driven for the oracle. It lives in a header and would
// be compiled as part of the oracle, which the engine does not look at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fuzz/slow_record.h"

namespace ctxconf::fuzz {

// What the cursor gave, at most as many entries as SlowEntries holds.
struct WalkedEntries {
  std::array<SlowEntry, 32768> list;
  std::size_t count = 0;
  std::size_t end = 0;
  std::size_t left = 0;
  bool values_where_they_should_be = true;
  bool goes_on_behind_the_end = false;
  bool exact = false;  // walks_exactly()
};
void walk_entries(std::span<const std::byte> area, WalkedEntries& out);

std::optional<SlowEntry> last_entry_of(std::span<const std::byte> area, std::uint8_t key);

}  // namespace ctxconf::fuzz
