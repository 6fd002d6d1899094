// What is kept of a run that is repeated: of repeats that say the same, the evidence of the first.
// Its units are numbered from 0, those of the first repeat before those of the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// Repeats that say something of their own; beyond, nothing is learned from more of them.
inline constexpr std::size_t kMostDiffering = 20;

class Repeats {
 public:
  // Each repeat has `units`, at least 1. `kept` is without sessions, and outlives this.
  Repeats(std::vector<const Requirement*> selected, std::size_t units, Timeline& kept);

  // Adds what was recorded of a unit; `whole`: it came to its end.
  void add(std::size_t unit, Timeline part, bool whole);
  // All units of a repeat are there, and all of those before it: it is to be ended.
  bool is_full() const { return without_gap_ && next_ % units_ == 0; }
  // Judges the repeat that is full alone. False: kMostDiffering are kept.
  bool end(std::uint32_t repeat);
  // Keeps what is there of a repeat that was not ended.
  void finish();

 private:
  std::vector<const Requirement*> selected_;
  std::size_t units_;
  std::size_t next_ = 0;  // unit to be added
  bool without_gap_ = true;
  Timeline& kept_;
  const Timeline empty_;
  Timeline current_;
  std::map<std::string, std::uint32_t> seen_;  // what a kept repeat says
};

}  // namespace ctxconf::conformance
