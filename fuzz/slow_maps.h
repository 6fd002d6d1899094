// A second parser of the text of /proc/PID/maps, written from the table of proc_pid_maps(5) with
// a regular grammar's columns: it splits, then reads each field by itself. For oracles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ctxconf::fuzz {

struct SlowMapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string permissions;  // "rw-p"
  std::uint64_t offset = 0;
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  std::uint64_t inode = 0;
  std::string name;
};

// Nothing for a line that is none.
std::optional<SlowMapping> slow_mapping(const std::string& line);

// Without their newlines; an empty line counts, nothing behind the last newline does not.
std::vector<std::string> slow_lines(const std::string& text);

// A path as it was before the kernel wrote its newlines as \012.
std::string slow_path(const std::string& name);

}  // namespace ctxconf::fuzz
