// What is kept of a run that is repeated: of repeats that say the same, the evidence of the first.
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
  // `kept` is without sessions, and outlives this.
  Repeats(std::vector<const Requirement*> selected, Timeline& kept);

  // Adds what was recorded of a group in the repeat that runs.
  void add(Timeline part);
  // All groups of this repeat are there: judges it alone. False: kMostDiffering are kept.
  bool end(std::uint32_t repeat);
  // Keeps what is there of a repeat that was not ended.
  void finish();

 private:
  std::vector<const Requirement*> selected_;
  Timeline& kept_;
  const Timeline empty_;
  Timeline current_;
  std::map<std::string, std::uint32_t> seen_;  // what a kept repeat says
};

}  // namespace ctxconf::conformance
