// Which requirements this version judges.
#pragma once

#include "conformance/judge/judge.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/rules/reader_rules.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// Whether a rule judges the requirement.
inline bool has_check(const Requirement& r) {
  if (r.role == Role::kReader) {
    return is_recorded(r, Mode::kReader) && reader_rule_of(r.id) != nullptr;
  }
  return is_recorded(r, Mode::kRun) && rule_of(r.id) != nullptr;
}

}  // namespace ctxconf::conformance
