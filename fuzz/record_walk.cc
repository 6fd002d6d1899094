#include "fuzz/record_walk.h"

#include "abi/thread_record.h"

namespace ctxconf::fuzz {

void walk_entries(std::span<const std::byte> area, WalkedEntries& out) {
  out.count = 0;
  out.values_where_they_should_be = true;
  abi::AttributeCursor cursor(area);
  while (const auto entry = cursor.next()) {
    if (out.count == out.list.size()) return;
    out.list[out.count++] = {entry->key, entry->offset, entry->value.size()};
    if (entry->value.data() != area.data() + entry->offset + 2 ||
        cursor.offset() != entry->offset + 2 + entry->value.size()) {
      out.values_where_they_should_be = false;
    }
  }
  out.end = cursor.offset();
  out.left = cursor.left();
  out.goes_on_behind_the_end = cursor.next().has_value();
  out.exact = abi::walks_exactly(area);
}

std::optional<SlowEntry> last_entry_of(std::span<const std::byte> area, std::uint8_t key) {
  const auto found = abi::last_occurrence(area, key);
  if (!found) return std::nullopt;
  return SlowEntry{found->key, found->offset, found->value.size()};
}

}  // namespace ctxconf::fuzz
