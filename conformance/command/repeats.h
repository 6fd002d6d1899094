// Repeats of a run. If several repeats have the same result, only the evidence of the first is
// kept. Units are numbered from 0, in order of repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"

namespace ctxconf::conformance {

// The most distinct repeats that are kept; more teach nothing new.
inline constexpr std::size_t kMostDiffering = 20;

class Repeats {
 public:
  // Each repeat has `units` units, at least 1. `kept` has no sessions yet and must outlive this.
  Repeats(std::vector<const Requirement*> selected, std::size_t units, Timeline& kept);

  // Adds the recording of a unit; `whole`: the unit ran to its end.
  void add(std::size_t unit, Timeline part, bool whole);
  // All units of this repeat and of those before it are there: call end().
  bool is_full() const { return without_gap_ && next_ % units_ == 0; }
  // Judges the full repeat alone. Returns false when kMostDiffering repeats are kept.
  bool end(std::uint32_t repeat);
  // Keeps the units of an unfinished repeat.
  void finish();

 private:
  std::vector<const Requirement*> selected_;
  std::size_t units_;
  std::size_t next_ = 0;  // unit to add
  bool without_gap_ = true;
  Timeline& kept_;
  const Timeline empty_;
  Timeline current_;
  std::map<std::string, std::uint32_t> seen_;  // gist of a kept repeat: its number
};

}  // namespace ctxconf::conformance
