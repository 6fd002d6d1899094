// Where in a program's code something happened: module and offset while it runs, function and
// source line when the observation is over and nobody waits for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/timeline.h"
#include "sys/code_place.h"
#include "sys/map_table.h"

namespace ctxconf::conformance {

struct CodeLimits {
  std::size_t places = 1024;    // of one image
  std::size_t maps_reads = 64;  // of one image; what lies in no mapping seen until then is nowhere
  std::size_t files = 64;       // held open, of all images
  sys::CodeLookUpLimits file;
  std::chrono::milliseconds all_files{15000};
};

// The files of all images, held open: a process may be gone, and its files replaced, before they
// are read.
class CodeFiles {
 public:
  explicit CodeFiles(CodeLimits limits = {}) : limits_(limits) {}
  const CodeLimits& limits() const { return limits_; }

  void hold(pid_t tid, const sys::MapEntry& entry);
  // Fills in symbols and source lines. A module whose name was that of two files gets none.
  // Returns what was in the way, a line a module.
  std::vector<std::string> name_places(std::span<Process> processes) const;

 private:
  struct Held {
    std::optional<sys::HeldFile> file;  // nothing: it could not be opened, or there are two
    std::uint64_t inode = 0;
    std::string problem;
  };
  CodeLimits limits_;
  std::map<std::string, Held> files_;  // by path
  std::size_t open_ = 0;
};

// Those of one image.
class CodePlaces {
 public:
  explicit CodePlaces(CodeFiles& files) : files_(&files) {}

  // The index that the place will have in Image::places: of the instruction that ends before
  // `pc`, as the trap of a watchpoint leaves it. Nothing: there were too many.
  std::optional<std::uint32_t> place_of(pid_t tid, std::uint64_t pc);
  std::vector<CodePlace> finish() && { return std::move(places_); }

 private:
  struct Mapping {
    sys::MapEntry entry;
    std::string link;  // in /proc/PID/map_files; empty: it cannot be seen there
  };
  std::vector<Mapping>::iterator known_at(std::uint64_t address);
  const sys::MapEntry* mapping_of(pid_t tid, std::uint64_t address);
  void forget_replaced(pid_t tid, std::uint64_t address);

  CodeFiles* files_;
  std::vector<CodePlace> places_;
  std::map<std::uint64_t, std::uint32_t> by_address_;
  std::vector<Mapping> mappings_;
  std::size_t maps_reads_ = 0;
};

}  // namespace ctxconf::conformance
