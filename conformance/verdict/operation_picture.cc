#include "conformance/verdict/operation_picture.h"

#include "conformance/text/words.h"

namespace ctxconf::conformance {
namespace {

using StepKind = PictureStep::Kind;

constexpr std::array<Word<Lane>, 7> kLaneWords = {{{Lane::kSignature, "signature"},
                                                   {Lane::kVersion, "version"},
                                                   {Lane::kSize, "payload_size"},
                                                   {Lane::kTimestamp, "monotonic_published_at_ns"},
                                                   {Lane::kPointer, "payload"},
                                                   {Lane::kPayload, "payload-bytes"},
                                                   {Lane::kCalls, "calls"}}};
constexpr std::array<Word<Finds>, 7> kFindsWords = {{{Finds::kUnknown, "unknown"},
                                                     {Finds::kNoMemory, "no-memory"},
                                                     {Finds::kNoTimestamp, "no-timestamp"},
                                                     {Finds::kNoContext, "no-context"},
                                                     {Finds::kOld, "old"},
                                                     {Finds::kNew, "new"},
                                                     {Finds::kNeither, "neither"}}};
constexpr std::array<Word<StepKind>, 5> kKindWords = {{{StepKind::kStore, "store"},
                                                       {StepKind::kPayload, "payload"},
                                                       {StepKind::kCall, "call"},
                                                       {StepKind::kFork, "fork"},
                                                       {StepKind::kMissing, "missing"}}};

}  // namespace

std::string_view to_string(Lane lane) { return word_of(kLaneWords, lane); }
std::optional<Lane> lane_from(std::string_view word) { return value_of(kLaneWords, word); }

std::string_view to_string(Finds finds) { return word_of(kFindsWords, finds); }
std::optional<Finds> finds_from(std::string_view word) { return value_of(kFindsWords, word); }

std::string_view to_string(StepKind kind) { return word_of(kKindWords, kind); }
std::optional<StepKind> picture_kind_from(std::string_view word) {
  return value_of(kKindWords, word);
}

}  // namespace ctxconf::conformance
