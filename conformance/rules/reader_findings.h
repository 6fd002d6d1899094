// What the rules about readers have in common: the answers that a scene claims, the reads of a
// question, and what a finding shows of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/reader_rules.h"

namespace ctxconf::conformance {

// Adds the answer, the calls and the memory of the question.
Finding in_scene(const SceneEvidence& scene, const Operation& operation, Finding f);
// "process_vm_readv of 4711 0x7f0000001000+32 (header) = 32"
std::string call_text(const ReaderCall& c, const ReaderQuestion& q);

// The answers that the scene claims for the requirement.
std::optional<Finding> answers(const SceneEvidence& scene, std::string_view requirement);
// The one with the worse outcome; `a` if both have the same.
std::optional<Finding> worse(std::optional<Finding> a, std::optional<Finding> b);

// Why no read was seen.
Finding no_reads(const SceneEvidence& scene);

inline constexpr const char* kTooManyCalls = "the reader made more calls than are recorded";
inline constexpr const char* kTooManyCallsRemedy = "a reader that copies more in one call";

Finding at_syscalls(Finding f);
// Null: the question does not show it.
const ShownMemory* shown(const ReaderQuestion& q, std::string_view name);
bool has_result(const Operation& operation, std::string_view result);
// Whether the call copied something.
bool is_copy(const ReaderCall& c);
// Copies of the target's memory that succeeded, in order.
std::vector<const ReaderCall*> reads_of(const ReaderQuestion& q, const MemoryRange& part);

}  // namespace ctxconf::conformance
