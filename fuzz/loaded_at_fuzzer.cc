// Finds the images of an ELF file in the mappings of that file. Input: mapped_input.h.
#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/mapped_input.h"
#include "sys/elf_budget.h"
#include "sys/elf_image.h"
#include "sys/map_table.h"
#include "sys/tls_variable.h"

namespace {

using namespace ctxconf;
using fuzz::page_start;
using sys::ElfSegment;
using sys::MapEntry;

constexpr std::size_t kMostLoads = 48;  // as kMostMappings

// With this bias the mapping is a part of the segment at its place, and may be run or written as
// the segment requires.
bool is_piece(const MapEntry& m, const ElfSegment& s, std::uint64_t bias) {
  const std::uint64_t begin = m.range.begin().raw();
  const std::uint64_t from = page_start(s.address) + bias;
  if (begin < from || begin >= s.address + s.memory_size + bias) return false;
  if (begin - from != m.offset - page_start(s.offset)) return false;
  return (m.executable && (s.flags & PF_X) != 0) || (m.writable && (s.flags & PF_W) != 0);
}

std::optional<std::uint64_t> slow_bias(std::span<const MapEntry> from,
                                       const std::vector<ElfSegment>& loads) {
  for (const ElfSegment& s : loads) {
    const MapEntry& m = from.front();
    if (m.offset < page_start(s.offset) || m.offset >= s.offset + s.file_size) continue;
    const std::uint64_t location = page_start(s.address) + (m.offset - page_start(s.offset));
    const std::uint64_t bias = m.range.begin().raw() - location;
    for (const ElfSegment& other : loads) {
      if (std::ranges::any_of(from, [&](const MapEntry& e) { return is_piece(e, other, bias); })) {
        return bias;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = fuzz::mapped_input(data, size);
  if (!input) return 0;
  const std::vector<MapEntry>& mappings = input->mappings;
  const auto image = sys::ElfImage::from_memory(input->file, "file");
  if (!image) return 0;
  std::vector<ElfSegment> loads;
  std::uint64_t highest = 0;
  for (const ElfSegment& s : image->segments()) {
    if (s.type != PT_LOAD) continue;
    loads.push_back(s);
    highest = std::max(highest, s.address + s.memory_size);
  }
  sys::ElfBudget budget;
  const auto found = sys::loaded_at(*image, mappings, budget);
  FUZZ_CHECK(found.size() <= mappings.size());
  if (loads.size() > kMostLoads) return 0;
  std::size_t first = 0;
  for (const auto& [location, bias] : found) {
    for (; first < location; ++first) {
      FUZZ_CHECK(!slow_bias(std::span(mappings).subspan(first), loads));
    }
    FUZZ_CHECK(first == location);
    FUZZ_CHECK(slow_bias(std::span(mappings).subspan(first), loads) == bias);
    ++first;
    while (first < mappings.size() && mappings[first].range.begin().raw() < highest + bias) ++first;
  }
  for (; first < mappings.size(); ++first) {
    FUZZ_CHECK(!slow_bias(std::span(mappings).subspan(first), loads));
  }
  return 0;
}
