// Changes that make exactly one thing in a legal program wrong.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "conformance/puppet/grammar.h"

namespace ctxconf::conformance::puppet {

struct Deviation {
  std::string_view name;
  std::string_view how;
  std::string_view must;                 // the requirement that must report it
  std::vector<std::string_view> follow;  // requirements that it may break as well
  // Changes the plan of a legal program; false: the program has no place for it.
  bool (*apply)(Plan& plan, Rng& rng);
  bool needs_names = false;           // invisible on a host that cannot name mappings
  Threads threads = Threads::kNever;  // of the legal program
  bool may_die = false;               // of a store to memory that is not there
};
std::span<const Deviation> deviations();
std::vector<Deviation> thread_deviations();  // those of OTEP 4947

}  // namespace ctxconf::conformance::puppet
