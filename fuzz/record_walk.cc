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

std::size_t encode_entries(std::span<const std::byte> area, const SlowEntries& entries,
                           std::span<std::byte> out) {
  abi::AttributeEncoder encoder(out);
  for (std::size_t i = 0; i < entries.count; ++i) {
    const SlowEntry& e = entries.list[i];
    if (!encoder.append(static_cast<std::uint8_t>(e.key), area.subspan(e.offset + 2, e.length)))
      break;
  }
  return encoder.size();
}

}  // namespace ctxconf::fuzz
