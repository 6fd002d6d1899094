#include "conformance/evidence/state_judge.h"

#include <algorithm>

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kShownEach = 2;

}  // namespace

bool JudgedSoFar::takes(std::uint64_t bytes, std::size_t most, std::uint64_t most_bytes) {
  is_over_ = is_over_ || count_ == most || bytes_ + bytes > most_bytes;
  if (is_over_) return false;
  ++count_;
  bytes_ += bytes;
  return true;
}

std::vector<BrokenRequirement> ShownAsBroken::unshown(
    const std::vector<BrokenRequirement>& broken) const {
  std::vector<BrokenRequirement> out;
  for (const BrokenRequirement& one : broken) {
    const auto times = shown_.find(one);
    if (times == shown_.end() || times->second < kShownEach) out.push_back(one);
  }
  return out;
}

void ShownAsBroken::shown(const std::vector<BrokenRequirement>& broken) {
  for (const BrokenRequirement& one : broken) ++shown_[one];
}

void ShownAsBroken::shown_often(const std::vector<BrokenRequirement>& broken) {
  for (const BrokenRequirement& one : broken) shown_[one] = kShownEach;
}

void add_dropped(const std::vector<BrokenRequirement>& broken, std::vector<std::string>& dropped) {
  for (const BrokenRequirement& one : broken) {
    if (std::ranges::find(dropped, one.requirement) != dropped.end()) continue;
    dropped.emplace_back(one.requirement);
  }
}

}  // namespace ctxconf::conformance
