// A bounded copy of what one process could write at one moment, to answer a question that can only
// be asked later: what did this memory hold then?
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/map_table.h"
#include "sys/remote_addr.h"

namespace ctxconf::conformance {

class MemoryCopy {
 public:
  // Copies at most `limit` bytes of private writable memory: first the mappings with one of
  // `first`, then the heap, then smaller mappings before larger ones. Reads through `tid`, any
  // thread of the process. Nothing when its mappings cannot be listed.
  static std::optional<MemoryCopy> of(pid_t tid, const std::vector<std::uint64_t>& first,
                                      std::uint64_t limit);

  // The range as it was then, as read_block() would have read it; nothing if that is unknown.
  // `readable` ends at memory that was not mapped.
  std::optional<MemoryBlock> block(sys::RemoteAddr at, std::uint64_t wanted, std::uint64_t keep,
                                   std::uint64_t read) const;

  // The first address at which these bytes were then.
  std::optional<sys::RemoteAddr> find(std::span<const std::byte> bytes) const;
  // Whether it is certain that the memory had neither these bytes nor a piece of them that is not
  // in `known`. Reads memory through `tid` that was not writable, and assumes that it has not
  // changed.
  bool lacks(pid_t tid, std::span<const std::byte> bytes, std::span<const std::byte> known) const;

 private:
  struct Piece {
    std::uint64_t size = 0;
    std::vector<std::byte> bytes;  // empty: all zero
  };
  void add(pid_t tid, const sys::MapEntry& entry, std::uint64_t limit);

  sys::MapTable maps_;
  std::map<std::uint64_t, Piece> pieces_;  // disjoint, by start
  std::vector<sys::RemoteRange> fixed_;    // readable but not writable
  std::uint64_t copied_ = 0;
  std::uint64_t looked_at_ = 0;
  bool complete_ = true;  // all other readable memory was copied
};

}  // namespace ctxconf::conformance
