// Rules about readers: pure functions from what a scene showed to a finding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/reader_answers.h"
#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

// What one scene of a session showed.
struct SceneEvidence {
  const Session* session = nullptr;
  const CheckRun* scene = nullptr;
  std::vector<const Operation*> operations;  // with a question, in order
  ReaderTraits traits{nlohmann::json::object()};
  // The process that reads for the adapter, if the adapter has not started it.
  std::optional<std::int64_t> foreign_reader;
};

// The scenes of a session of `reader`, in order; of all sessions, or none in other modes.
std::vector<SceneEvidence> scenes_of(const Session& session);
std::vector<SceneEvidence> scenes_of(const Timeline& timeline);

// How much memory a reading process used for one answer, and how much it may use.
struct MemoryExcess {
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;
};
// The largest excess over the limit among the answers of the scene. Answers that are judged for
// their memory do not count. Nothing: no process exceeded its limit.
std::optional<MemoryExcess> memory_excess(const SceneEvidence& scene);

// Nothing: the scene says nothing about the requirement.
using ReaderRuleFunction = std::optional<Finding> (*)(const SceneEvidence& scene,
                                                      std::string_view requirement);

struct ReaderRule {
  std::string_view id;
  ReaderRuleFunction rule = nullptr;
  // A member of the capability "reader" without which the requirement does not apply; empty: none.
  std::string_view trait;
};

// Null when this version has no check for the requirement.
const ReaderRule* reader_rule_of(std::string_view id);
std::span<const ReaderRule> reader_rules();

}  // namespace ctxconf::conformance
