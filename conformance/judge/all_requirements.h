// For tests: every requirement of the catalogue.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "conformance/requirements/catalogue.h"

namespace ctxconf::conformance {

inline std::vector<const Requirement*> all_requirements() {
  const auto requirements = select(Catalogue::builtin(), Selection{});
  EXPECT_TRUE(requirements);
  return requirements.value_or(std::vector<const Requirement*>());
}

}  // namespace ctxconf::conformance
