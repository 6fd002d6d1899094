#include "conformance/verdict/operation_picture.h"

#include <span>
#include <utility>

namespace ctxconf::conformance {
namespace {

template <class T>
using Word = std::pair<T, std::string_view>;
using Kind = PictureStep::Kind;

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
constexpr std::array<Word<Kind>, 5> kKindWords = {{{Kind::kStore, "store"},
                                                   {Kind::kPayload, "payload"},
                                                   {Kind::kCall, "call"},
                                                   {Kind::kFork, "fork"},
                                                   {Kind::kMissing, "missing"}}};

template <class T>
std::string_view word_of(std::span<const Word<T>> words, T value) {
  for (const auto& [one, word] : words) {
    if (one == value) return word;
  }
  return "";
}

template <class T>
std::optional<T> value_of(std::span<const Word<T>> words, std::string_view text) {
  for (const auto& [value, word] : words) {
    if (word == text) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Lane lane) { return word_of<Lane>(kLaneWords, lane); }
std::optional<Lane> lane_from(std::string_view word) { return value_of<Lane>(kLaneWords, word); }

std::string_view to_string(Finds finds) { return word_of<Finds>(kFindsWords, finds); }
std::optional<Finds> finds_from(std::string_view word) {
  return value_of<Finds>(kFindsWords, word);
}

std::string_view to_string(Kind kind) { return word_of<Kind>(kKindWords, kind); }
std::optional<Kind> picture_kind_from(std::string_view word) {
  return value_of<Kind>(kKindWords, word);
}

}  // namespace ctxconf::conformance
