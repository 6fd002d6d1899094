// Rules about calls that fail and clocks that misbehave (--inject, --hide-vdso).
#include <algorithm>
#include <array>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

std::span<const NamedRule> fault_rules() { return {}; }

bool is_about_faults(std::string_view requirement) {
  return std::ranges::find(fault_rules(), requirement, &NamedRule::requirement) !=
         fault_rules().end();
}

bool holds_under_faults(std::string_view requirement) {
  static constexpr std::array<std::string_view, 2> kOfTheClock = {
      "pctx.header.timestamp-nanoseconds", "pctx.header.timestamp-nonzero-at-rest"};
  static constexpr std::array<std::string_view, 2> kOfTheMapping = {
      "pctx.publish.mapping-private", "pctx.publish.mapping-protection"};
  if (std::ranges::find(kOfTheClock, requirement) != kOfTheClock.end()) return false;
  return requirement.starts_with("pctx.header.") || requirement.starts_with("pctx.payload.") ||
         requirement.starts_with("tctx.") ||
         std::ranges::find(kOfTheMapping, requirement) != kOfTheMapping.end();
}

}  // namespace ctxconf::conformance
