// Where in a program's code something happened: module and offset while it runs, function and
// source line when the observation is over and nobody waits for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/observe/instructions.h"
#include "conformance/timeline.h"
#include "sys/code_place.h"
#include "sys/code_stack.h"
#include "sys/map_table.h"

namespace ctxconf::conformance {

struct CodeLimits {
  std::size_t places = 1024;    // of one image
  std::size_t maps_reads = 64;  // of one image; what lies in no mapping seen until then is nowhere
  std::size_t files = 64;       // held open, of all images
  std::size_t stacks = 1024;    // of all images
  std::size_t stack_bytes = 4096;
  std::size_t stacks_of_place = 8;  // from where one instruction is reached
  sys::CodeLookUpLimits file;
  std::chrono::milliseconds all_files{15000};
};

// Places that were named, so that the same file is not read again.
class KnownPlaces {
 public:
  struct Key {
    sys::FileIdentity file;
    std::string path;
    std::uint64_t offset = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  const sys::CodeLocation* find(const Key& key) const;
  void add(Key key, sys::CodeLocation location);

 private:
  std::map<Key, sys::CodeLocation> locations_;
};

// The files of all images, held open: a process may be gone, and its files replaced, before they
// are read.
class CodeFiles {
 public:
  explicit CodeFiles(CodeLimits limits = {}, KnownPlaces* known = nullptr)
      : limits_(limits), known_(known) {}
  const CodeLimits& limits() const { return limits_; }

  void hold(pid_t tid, const sys::MapEntry& entry);
  // `code` are the mappings that its callers may be in. The number is for CodePlace::stack; 0:
  // there were too many.
  std::uint32_t keep(sys::StackCopy stack, std::shared_ptr<const std::vector<sys::MapEntry>> code);
  // Fills in symbols and source lines. A module whose name was that of two files gets none.
  // Returns what was in the way, a line a module.
  std::vector<std::string> name_places(std::span<Process> processes) const;

 private:
  struct Stack {
    sys::StackCopy copy;
    std::shared_ptr<const std::vector<sys::MapEntry>> code;
  };
  using Clock = std::chrono::steady_clock;
  using ByModule = std::map<std::string, std::vector<CodePlace*>>;
  void name(const ByModule& places, Clock::time_point end,
            std::vector<std::string>& problems) const;
  void add_callers(std::span<CodePlace* const> places, Clock::time_point end,
                   std::vector<std::string>& problems) const;
  sys::CodeLookUpLimits until(Clock::time_point end) const;

  struct Held {
    std::optional<sys::HeldFile> file;  // nothing: it could not be opened, or there are two
    std::uint64_t inode = 0;
    std::string problem;
  };
  CodeLimits limits_;
  KnownPlaces* known_;                 // null: nothing is known before
  std::map<std::string, Held> files_;  // by path
  std::vector<Stack> stacks_;
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
  std::optional<std::uint32_t> place_at(pid_t tid, std::uint64_t pc, std::uint64_t code);
  std::uint32_t with_stack(pid_t tid, std::uint64_t pc, std::uint32_t place);
  std::uint32_t keep_stack(pid_t tid, sys::StackCopy stack);
  void forget_replaced(pid_t tid, std::uint64_t address);

  CodeFiles* files_;
  std::vector<CodePlace> places_;
  std::map<std::uint64_t, Known> by_address_;
  // The same place, reached from elsewhere: by stack pointer and the word there, which of a
  // function that has not pushed anything is its return address.
  struct Variants {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> places;
    std::optional<std::uint32_t> other;  // of all that are too many
  };
  std::map<std::uint32_t, Variants> variants_;
  std::shared_ptr<const std::vector<sys::MapEntry>> code_;  // mapped as such, from files
  std::vector<Mapping> mappings_;
  std::size_t maps_reads_ = 0;
  std::size_t looks_ = 0;
};

}  // namespace ctxconf::conformance
