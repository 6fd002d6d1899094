// Makes the program of a seed, and the shortest program with the same judgement.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "conformance/puppet/deviations.h"
#include "conformance/puppet/grammar.h"

namespace ctxconf::conformance::puppet {

struct Generated {
  const Deviation* deviation = nullptr;  // null: a legal program
  Plan plan;
  Script script;
};
// The same numbers and surroundings give the same program. `index` also selects the deviation of a
// deviant program: the deviations take turns.
Generated generate(std::uint64_t seed, std::uint64_t index, bool deviant, const Surroundings& host);

// A legal program that neither ends early nor exits, and what a reader finds between its acts.
Script generate_whole(std::uint64_t seed, std::uint64_t index, const Surroundings& host,
                      std::vector<Moment>& moments);

// Leaves out acts and simplifies the rest as long as `still` says that the judgement is the same.
// The result is legal, or deviates in the same way.
Plan shrink(Plan plan, const std::function<bool(const Script&)>& still);

}  // namespace ctxconf::conformance::puppet
