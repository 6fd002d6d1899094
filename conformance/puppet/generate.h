// One program of a seed, and the shortest that is judged in the same way.
#pragma once

#include <cstdint>
#include <functional>

#include "conformance/puppet/deviations.h"
#include "conformance/puppet/grammar.h"

namespace ctxconf::conformance::puppet {

struct Generated {
  const Deviation* deviation = nullptr;  // null: a legal program
  Plan plan;
  Script script;
};
// The same for the same numbers and surroundings. `index` of a deviant program also says in what
// it deviates: each deviation comes in turn.
Generated generate(std::uint64_t seed, std::uint64_t index, bool deviant, const Surroundings& host);

// Leaves out acts and makes what is left simpler as long as `still` says that it is judged as
// before. What comes out is as legal, or deviates in the same way.
Plan shrink(Plan plan, const std::function<bool(const Script&)>& still);

}  // namespace ctxconf::conformance::puppet
