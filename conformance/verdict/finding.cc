#include "conformance/verdict/finding.h"

#include <algorithm>
#include <iterator>

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kOutcomes[] = {"na",   "pass",    "unobservable", "info",         "warn",
                                          "fail", "timeout", "crash",        "harness-error"};
constexpr std::string_view kNaReasons[] = {"capability", "revision", "arch", "mode"};

}  // namespace

std::string_view to_string(Outcome o) { return kOutcomes[static_cast<std::size_t>(o)]; }

std::optional<Outcome> outcome_from(std::string_view name) {
  const auto* at = std::ranges::find(kOutcomes, name);
  if (at == std::end(kOutcomes)) return std::nullopt;
  return static_cast<Outcome>(at - kOutcomes);
}

std::string_view to_string(NaReason r) { return kNaReasons[static_cast<std::size_t>(r)]; }

std::optional<NaReason> na_reason_from(std::string_view name) {
  const auto* at = std::ranges::find(kNaReasons, name);
  if (at == std::end(kNaReasons)) return std::nullopt;
  return static_cast<NaReason>(at - kNaReasons);
}

}  // namespace ctxconf::conformance
