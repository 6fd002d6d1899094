// For tests: what a scene with one question showed, and where.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "conformance/rules/reader_rules.h"

namespace ctxconf::conformance {

inline constexpr std::uint64_t kHeader = 0x1000;  // in the process
inline constexpr std::uint64_t kPayload = 0x2000;
inline constexpr const char* kRereads = "pctx.reader.rereads-timestamp";

// The session, which must outlive the evidence, has one scene, and gets the operation. `traits`:
// the capabilities of the adapter.
inline SceneEvidence only_scene(Session& session, const Operation& operation,
                                const nlohmann::json& traits) {
  session.operations = {operation};
  SceneEvidence out;
  out.session = &session;
  out.scene = &session.checks.front();
  out.operations = {&session.operations.front()};
  out.traits = ReaderTraits(traits);
  return out;
}

}  // namespace ctxconf::conformance
