#include "conformance/rules/stored_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/rules/header_operations.h"
#include "conformance/rules/store_evidence.h"

namespace ctxconf::conformance {
namespace {

struct MarkedBytes {
  std::uint64_t address = 0;
  std::span<const std::uint8_t> bytes;
};

std::vector<MarkedBytes> marked_in(const Finding& f) {
  std::vector<MarkedBytes> out;
  for (const Hexdump& dump : f.hexdumps) {
    for (const Hexdump::Mark& mark : dump.marks) {
      if (mark.offset >= dump.bytes.size() || mark.length == 0) continue;
      const auto rest = std::span(dump.bytes).subspan(mark.offset);
      out.push_back({dump.address + mark.offset,
                     rest.first(std::min<std::uint64_t>(mark.length, rest.size()))});
    }
  }
  return out;
}

// Whether the store to a word of the memory at `base` left these bytes there. `after` is what
// begins at `base`; word 0 begins at the multiple of 8 before it.
bool left(std::uint64_t base, std::uint8_t words, std::span<const std::byte> after,
          const MarkedBytes& marked) {
  constexpr std::uint64_t kWatchedWord = 8;
  if (marked.address < base || marked.address - base >= after.size()) return false;
  const std::uint64_t word = (marked.address - base / kWatchedWord * kWatchedWord) / kWatchedWord;
  if (word >= 8 * sizeof words || ((words >> word) & 1U) == 0) return false;
  const auto there = after.subspan(marked.address - base);
  const std::size_t size = std::min(there.size(), marked.bytes.size());
  return std::ranges::equal(
      there.first(size), marked.bytes.first(size),
      [](std::byte a, std::uint8_t b) { return std::to_integer<std::uint8_t>(a) == b; });
}

bool announces(const Image& image, const Store& s, const MarkedBytes& marked) {
  constexpr unsigned kPointer = 3;
  const auto header = header_of(image, s.after);
  if (!header || ((s.words >> kPointer) & 1U) == 0 || marked.address < header->payload)
    return false;
  return marked.address - header->payload < header->payload_size;
}

void name_store(const Image& image, const std::optional<std::uint32_t>& location, std::int32_t tid,
                const char* how, Finding& f) {
  name_code(image, location, f);
  if (f.code.empty()) return;
  f.at = fmt::format("{}{}, thread {}", how, location_text(image.locations[*location]), tid);
}

}  // namespace

void name_who_stored(const Image& image, Finding& f) {
  if (!f.at.empty() || !f.code.empty()) return;
  for (const MarkedBytes& marked : marked_in(f)) {
    for (const Store& s : std::views::reverse(image.stores)) {
      if (s.tid == 0 || !left(s.header, s.words, s.after, marked)) continue;
      return name_store(image, s.location, s.tid, "", f);
    }
    for (const RecordStore& s : std::views::reverse(image.record_stores)) {
      if (s.tid == 0 || !left(s.record, s.words, s.after, marked)) continue;
      return name_store(image, s.location, s.tid, "", f);
    }
    for (const Store& s : std::views::reverse(image.stores)) {
      if (s.tid == 0 || !announces(image, s, marked)) continue;
      return name_store(image, s.location, s.tid, "pointer to it stored by ", f);
    }
  }
}

}  // namespace ctxconf::conformance
