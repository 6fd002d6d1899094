// How scenes judge answers about golden vectors: one record for each requirement that is not judged
// in the usual way. The table is neither in the catalogue nor in the vectors, because it is about
// the questions of `ctxconf reader` alone: the catalogue also serves commands that play no scenes,
// and a vector says only what its bytes mean.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

// What the answer about a record decides for one requirement: a mistake in something else must not
// show there.
struct Compared {
  bool ids = true;
  bool flags = false;
  bool names = true;
};

// Which answers decide, in addition to those that the vector permits.
enum class VectorClaim : std::uint8_t {
  kAsTheVector,
  kAnyAnswer,    // ... any: a reader may report what comes before the mistake
  kAnyBesides,   // ... any, if the vector is also about another requirement, which decides
  kLargeRecord,  // whether the reader survives it, and the ids if the vector is about them
};

struct VectorRequirement {
  std::string_view id;
  Compared compared = {};
  VectorClaim claim = VectorClaim::kAsTheVector;
  // It matters that nothing can be read after the record.
  bool is_about_the_end = false;
  // What it is about, so that a scene that shows it does not take this for granted.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::optional<Premise> subject = {};
  // It is about all that a usual context has.
  bool is_usual = false;
};

inline constexpr auto kVectorRequirements = std::to_array<VectorRequirement>({
    {.id = "pctx.reader.decodes-process-context", .subject = Premise::kField2, .is_usual = true},
    {.id = "pctx.reader.any-value-kinds", .subject = Premise::kKinds},
    {.id = "pctx.reader.no-required-attributes", .subject = Premise::kFewAttributes},
    {.id = "pctx.reader.resource-absent", .subject = Premise::kNoResource},
    {.id = "pctx.reader.follows-pointer", .subject = Premise::kElsewhere},
    {.id = "pctx.reader.survives-bad-payload", .claim = VectorClaim::kAnyAnswer},
    {.id = "tctx.reader.attrs-read-when-needed",
     .compared = {.names = false},
     .is_about_the_end = true},
    {.id = "tctx.reader.header-read-28", .compared = {.names = false}, .is_about_the_end = true},
    {.id = "tctx.reader.key-map-missing", .compared = {.names = false}},
    {.id = "tctx.reader.zero-ids-no-link", .compared = {.names = false}},
    {.id = "tctx.reader.trace-flags", .compared = {.flags = true, .names = false}},
    {.id = "tctx.reader.zero-ids-keep-attributes", .compared = {.ids = false}},
    {.id = "tctx.reader.last-occurrence-odd", .claim = VectorClaim::kAnyBesides},
    {.id = "tctx.reader.large-record-ids",
     .compared = {.names = false},
     .claim = VectorClaim::kLargeRecord},
    {.id = "tctx.reader.large-record-survives", .claim = VectorClaim::kLargeRecord},
});

// The usual way, for the other requirements.
inline VectorRequirement vector_requirement(std::string_view id) {
  const auto it = std::ranges::find(kVectorRequirements, id, &VectorRequirement::id);
  return it == kVectorRequirements.end() ? VectorRequirement{} : *it;
}

}  // namespace ctxconf::conformance::reader
