// Every requirement that a run of a mode is judged by.
#pragma once

#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"

namespace ctxconf::fuzz {

inline const std::vector<const conformance::Requirement*>& all_rows(conformance::Mode mode) {
  using namespace conformance;
  const auto rows_of = [](Role role) {
    Selection selection;
    selection.role = role;
    return *select(Catalogue::builtin(), selection);
  };
  static const auto writers = rows_of(Role::kWriter);
  static const auto readers = rows_of(Role::kReader);
  return mode == Mode::kReader ? readers : writers;
}

}  // namespace ctxconf::fuzz
