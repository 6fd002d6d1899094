// The mappings of a process at one moment, from the text of /proc/PID/maps (proc_pid_maps(5)).
// Pure: no I/O; allocates only the entries.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct MapEntry {
  RemoteRange range;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  bool shared = false;  // 's' in the fourth column; false is 'p'
  std::uint64_t offset = 0;
  std::uint32_t dev_major = 0;
  std::uint32_t dev_minor = 0;
  std::uint64_t inode = 0;
  std::string name;  // as maps prints it, escapes (\012) kept; empty for unnamed memory

  friend bool operator==(const MapEntry&, const MapEntry&) = default;
};

// "rw-p"
std::string permissions(const MapEntry& entry);
// The beginning of the page with this address, or of a file's page with this offset.
std::uint64_t page_of(std::uint64_t address);
// The entry as /proc/PID/maps prints it, without the newline.
std::string to_maps_line(const MapEntry& entry);
// Its name without escapes: the path, if it is a file's.
std::string path_of(const MapEntry& entry);
// Its name in /proc/PID/map_files.
std::string map_files_name(const MapEntry& entry);

// One line without its newline. Refuses lines over kMaxMapsLine bytes and NUL bytes. The kernel
// escapes only the newlines of a path: a CR belongs to the name.
inline constexpr std::size_t kMaxMapsLine = 64U << 10U;
Result<MapEntry> parse_maps_line(std::string_view line);

// Calls `visit` for every line of `text`; a bad line is passed as its error, and the walk
// continues. Stops early when `visit` returns false.
void for_each_mapping(std::string_view text, const std::function<bool(Result<MapEntry>)>& visit);

// Cuts text that arrives in pieces at line ends. Drops a line of more than kMaxMapsLine bytes that
// spans pieces; only a deep path makes one, not a memory name that a process chooses.
class LinePieces {
 public:
  LinePieces();
  // Space for the next piece: at least 64 KiB. Invalidates what added() returned.
  std::span<char> space();
  // Adds the first `n` bytes of space() to the text; returns the complete lines.
  std::string_view added(std::size_t n);
  // Call it at the end of the text: returns a last line without its newline, or nothing.
  std::string_view rest() const;

 private:
  std::unique_ptr<char[]> buffer_;  // only pages that text reaches are touched
  std::size_t begin_ = 0;           // of the unfinished line
  std::size_t end_ = 0;
  bool dropping_ = false;
};

// Finds the lines whose name begins with one of the prefixes, and parses only those.
class MappingFinder {
 public:
  explicit MappingFinder(std::vector<std::string> prefixes);
  bool matches(std::string_view name) const;
  // `lines` are whole lines; a malformed line does not match.
  void find_in(std::string_view lines, std::vector<MapEntry>& found) const;

 private:
  std::vector<std::string> prefixes_;
  std::string needle_;  // common to all prefixes; empty if there is nothing in common
};

class MapTable {
 public:
  MapTable() = default;
  // Sorts by address. Keeps overlapping entries (a torn read) in their original order.
  explicit MapTable(std::vector<MapEntry> entries);
  // All lines of `text`, or the error of the first malformed line.
  static Result<MapTable> parse(std::string_view text);

  const std::vector<MapEntry>& entries() const { return entries_; }
  // The entry that contains the address, or null; if entries overlap, the lowest.
  const MapEntry* find(RemoteAddr a) const;
  // How many bytes from the start of `range` are in readable entries without a gap.
  std::uint64_t readable_prefix(RemoteRange range) const;

 private:
  std::vector<MapEntry> entries_;
  bool overlapping_ = false;
};

}  // namespace ctxconf::sys
