// The input of a fuzz target as a file and its mappings: 2 bytes, the size of the text; lines as in
// /proc/PID/maps, all treated as mappings of the file; the file.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/map_table.h"

namespace ctxconf::fuzz {

struct MappedInput {
  std::vector<sys::MapEntry> mappings;  // at most kMostMappings; ascending, without overlaps
  std::span<const std::byte> file;
};

// Within the limits for hostile files, so that every image is found.
inline constexpr std::size_t kMostMappings = 48;

// Nothing: the input is too short.
inline std::optional<MappedInput> mapped_input(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return std::nullopt;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t text_size = std::min<std::size_t>(data[0] | data[1] << 8U, bytes.size());
  std::vector<sys::MapEntry> read;
  sys::for_each_mapping({reinterpret_cast<const char*>(bytes.data()), text_size},
                        [&](sys::Result<sys::MapEntry> entry) {
                          if (entry) read.push_back(std::move(*entry));
                          return read.size() < kMostMappings;
                        });
  // The kernel lists them by address, and they do not overlap.
  const sys::MapTable table(std::move(read));
  MappedInput out{.mappings = {}, .file = bytes.subspan(text_size)};
  for (const sys::MapEntry& entry : table.entries()) {
    if (out.mappings.empty() || out.mappings.back().range.end() <= entry.range.begin()) {
      out.mappings.push_back(entry);
    }
  }
  return out;
}

// Does not use the reader's own arithmetic.
inline std::uint64_t page_start(std::uint64_t address) {
  return address & ~(static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - 1);
}

}  // namespace ctxconf::fuzz
