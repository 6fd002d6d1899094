// Where in a program's code something happened: module and offset while it runs; function and
// source line after the observation, when nobody waits.
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

#include "conformance/evidence/timeline.h"
#include "conformance/observe/instructions.h"
#include "sys/code_location.h"
#include "sys/code_stack.h"
#include "sys/map_table.h"

namespace ctxconf::conformance {

struct CodeLimits {
  std::size_t locations = 1024;  // of one image
  // How often maps is read for one image; after that, addresses in no known mapping have no
  // location.
  std::size_t maps_reads = 64;
  std::size_t files = 64;     // held open, of all images
  std::size_t stacks = 1024;  // of all images
  std::size_t stack_bytes = 4096;
  std::size_t stacks_of_location = 8;  // different callers for one instruction
  sys::CodeLookUpLimits file;
  std::chrono::milliseconds all_files{15000};
};

// Locations that already have names, so that a file is not read twice.
class KnownLocations {
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

// The files of all images, held open: when they are read, a process may be gone and its files
// replaced.
class CodeFiles {
 public:
  explicit CodeFiles(CodeLimits limits = {}, KnownLocations* known = nullptr)
      : limits_(limits), known_(known) {}
  const CodeLimits& limits() const { return limits_; }

  void hold(pid_t tid, const sys::MapEntry& entry);
  // `code`: the mappings in which its callers may be. Returns the number for
  // InstructionLocation::stack; 0: there were too many.
  std::uint32_t keep(sys::StackCopy stack, std::shared_ptr<const std::vector<sys::MapEntry>> code);
  // Fills in symbols and source lines. A module gets none if two files had its name. Returns the
  // problems, one line per module.
  std::vector<std::string> name_locations(std::span<Process> processes) const;

 private:
  struct Stack {
    sys::StackCopy copy;
    std::shared_ptr<const std::vector<sys::MapEntry>> code;
  };
  using Clock = std::chrono::steady_clock;
  using ByModule = std::map<std::string, std::vector<InstructionLocation*>>;
  void name(const ByModule& locations, Clock::time_point end,
            std::vector<std::string>& problems) const;
  void add_callers(std::span<InstructionLocation* const> locations, Clock::time_point end,
                   std::vector<std::string>& problems) const;
  sys::CodeLookUpLimits until(Clock::time_point end) const;

  struct Held {
    std::optional<sys::HeldFile> file;  // nothing: it could not be opened, or there are two
    std::uint64_t inode = 0;
    std::string problem;
  };
  CodeLimits limits_;
  KnownLocations* known_;              // null: nothing is known yet
  std::map<std::string, Held> files_;  // by path
  std::vector<Stack> stacks_;
  std::size_t open_ = 0;
};

// The locations of one image.
class CodeLocations {
 public:
  explicit CodeLocations(CodeFiles& files) : files_(&files) {}

  // The index that the location will have in Image::locations. It is the location of the
  // instruction that ends before `pc`, as the trap of a watchpoint leaves it. `code` is what is at
  // `pc`, 0 if unknown: while it does not change, we assume that the file is the same. Nothing:
  // there were too many.
  std::optional<std::uint32_t> location_of(pid_t tid, std::uint64_t pc, std::uint64_t code);
  // The location of the instruction at `from`, in a step that led to `to`.
  std::optional<std::uint32_t> location_of_step(pid_t tid, std::uint64_t from, std::uint64_t to) {
    // The instruction that ends before the next one; after a jump, its start.
    const bool straight = to > from && to - from < InstructionDecoder::kLongest;
    return location_of(tid, straight ? to : from + 1, 0);
  }
  // A library may have been replaced by one with the same code.
  void look_again() { ++looks_; }
  std::vector<InstructionLocation> finish() && { return std::move(locations_); }

 private:
  struct Mapping {
    sys::MapEntry entry;
    std::string link;  // in /proc/PID/map_files; empty: not visible there
  };
  struct Known {
    std::uint32_t location = 0;
    std::uint64_t code = 0;
    std::size_t look = 0;
  };
  std::vector<Mapping>::iterator known_at(std::uint64_t address);
  const sys::MapEntry* mapping_of(pid_t tid, std::uint64_t address);
  std::optional<std::uint32_t> location_at(pid_t tid, std::uint64_t pc, std::uint64_t code);
  std::uint32_t with_stack(pid_t tid, std::uint64_t pc, std::uint32_t location);
  std::uint32_t keep_stack(pid_t tid, sys::StackCopy stack);
  void forget_replaced(pid_t tid, std::uint64_t address);

  CodeFiles* files_;
  std::vector<InstructionLocation> locations_;
  std::map<std::uint64_t, Known> by_address_;
  // The same location with other callers, told apart by the stack pointer and the word there: in a
  // function that has not pushed anything, that word is its return address.
  struct Variants {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> locations;
    std::optional<std::uint32_t> other;  // one for all callers beyond the limit
  };
  std::map<std::uint32_t, Variants> variants_;
  std::shared_ptr<const std::vector<sys::MapEntry>> code_;  // file mappings with code
  std::vector<Mapping> mappings_;
  std::size_t maps_reads_ = 0;
  std::size_t looks_ = 0;
};

}  // namespace ctxconf::conformance
