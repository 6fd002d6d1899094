// Finds the images of an ELF file in the mappings of that file. Input: 2 bytes, the size of the
// text; lines as in /proc/PID/maps, all treated as mappings of the file; the file.
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/check.h"
#include "sys/elf_budget.h"
#include "sys/elf_image.h"
#include "sys/map_table.h"
#include "sys/tls_variable.h"

namespace {

using namespace ctxconf;
using sys::ElfSegment;
using sys::MapEntry;

// Within the limits for hostile files, so that every image is found.
constexpr std::size_t kMostMappings = 48;
constexpr std::size_t kMostLoads = 48;

std::uint64_t page_start(std::uint64_t address) {
  return address & ~(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - 1);
}

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
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t text_size = std::min<std::size_t>(data[0] | data[1] << 8U, bytes.size());
  std::vector<MapEntry> read;
  sys::for_each_mapping({reinterpret_cast<const char*>(bytes.data()), text_size},
                        [&](sys::Result<MapEntry> entry) {
                          if (entry) read.push_back(std::move(*entry));
                          return read.size() < kMostMappings;
                        });
  // The kernel lists them by address, and they do not overlap.
  const sys::MapTable table(std::move(read));
  std::vector<MapEntry> mappings;
  for (const MapEntry& entry : table.entries()) {
    if (mappings.empty() || mappings.back().range.end() <= entry.range.begin()) {
      mappings.push_back(entry);
    }
  }
  const auto image = sys::ElfImage::from_memory(bytes.subspan(text_size), "file");
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
