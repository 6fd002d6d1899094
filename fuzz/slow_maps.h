// A second parser of the text of /proc/PID/maps, written from the table of proc_pid_maps(5) with
// the columns of a regular grammar: it splits, then reads each field by itself. For oracles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::fuzz {

struct SlowMapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string_view permissions;  // "rw-p"; points into the line, like the name
  std::uint64_t offset = 0;
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  std::uint64_t inode = 0;
  std::string_view name;
};

// Nothing if the line is invalid.
std::optional<SlowMapping> slow_mapping(std::string_view line);

// The lines have no newlines; an empty line counts, nothing after the last newline does not.
std::vector<std::string_view> slow_lines(std::string_view text);

// A path before the kernel escaped its newlines as \012.
std::string slow_path(std::string_view name);

}  // namespace ctxconf::fuzz
