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

#include "conformance/observe/instructions.h"
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
  // `pc`, as the trap of a watchpoint leaves it. `code` is what stands at `pc`, 0 when that is not
  // known: while it stays the same the file is taken to be the same. Nothing: there were too many.
  std::optional<std::uint32_t> place_of(pid_t tid, std::uint64_t pc, std::uint64_t code);
  // Of the instruction at `from`, of a step that led to `to`.
  std::optional<std::uint32_t> place_of_step(pid_t tid, std::uint64_t from, std::uint64_t to) {
    // That which ends before the next; one that does not go straight on is known by its beginning.
    const bool straight = to > from && to - from < InstructionDecoder::kLongest;
    return place_of(tid, straight ? to : from + 1, 0);
  }
  // A library may have been replaced by one with the same code.
  void look_again() { ++looks_; }
  std::vector<CodePlace> finish() && { return std::move(places_); }

 private:
  struct Mapping {
    sys::MapEntry entry;
    std::string link;  // in /proc/PID/map_files; empty: it cannot be seen there
  };
  struct Known {
    std::uint32_t place = 0;
    std::uint64_t code = 0;
    std::size_t look = 0;
  };
  std::vector<Mapping>::iterator known_at(std::uint64_t address);
  const sys::MapEntry* mapping_of(pid_t tid, std::uint64_t address);
  void forget_replaced(pid_t tid, std::uint64_t address);

  CodeFiles* files_;
  std::vector<CodePlace> places_;
  std::map<std::uint64_t, Known> by_address_;
  std::vector<Mapping> mappings_;
  std::size_t maps_reads_ = 0;
  std::size_t looks_ = 0;
};

}  // namespace ctxconf::conformance
