// Counts the answers of a reader to a question that is repeated while its target changes between
// two contents. For a reader whose reads are not seen, nothing else shows what it does meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "conformance/rules/reader_rules.h"

namespace ctxconf::conformance {

struct Repetition {
  std::uint64_t first = 0;   // answers with the first content, and nothing of the other one
  std::uint64_t second = 0;  // the same for the second one
  std::uint64_t none = 0;    // without any: the reader met a change
  std::uint64_t other = 0;   // a mixture
  // A payload was copied more than once for the answer; nothing: no read was seen.
  std::optional<std::uint64_t> looked_again;

  std::uint64_t answers() const { return first + second + none + other; }
  // "40 answers: 17 with one content, 15 with the other, 8 with none, 0 mixed (hits: 8, misses:
  // 32)"
  std::string text() const;
  Repetition& operator+=(const Repetition& more);
  friend bool operator==(const Repetition&, const Repetition&) = default;
};

// Nothing: the scene does not repeat a question, or there was no answer.
std::optional<Repetition> repetition_of(const SceneEvidence& scene);

// Adds it to what the scene says about a requirement.
std::optional<Finding> with_repetition(std::optional<Finding> f, const SceneEvidence& scene);

}  // namespace ctxconf::conformance
