// The requirements that rest on what a reader can copy of a process, and what a few of its states
// say about them.
#pragma once

#include <optional>

#include "conformance/evidence/state_judge.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

struct Requirement;      // requirements/catalogue.h
struct RequirementRule;  // rules/rule.h

// Judges the states that a recording cannot keep.
const StateJudge& state_judge();

// Why a pass of the requirement would rest on states or samples of the image that nobody has
// judged; nothing: it does not.
std::optional<Finding> rests_on_dropped(const Image& image, const RequirementRule& rule);
// The same for system calls that were not kept.
std::optional<Finding> rests_on_dropped_calls(const Image& image, const Requirement& requirement,
                                              const RequirementRule& rule);

}  // namespace ctxconf::conformance
