#include "conformance/rules/state_rules.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Groups = std::initializer_list<std::span<const NamedRule>>;

constexpr std::size_t kShownEach = 2;

bool has(Groups groups, std::string_view requirement) {
  return std::ranges::any_of(groups, [&](const auto& group) {
    return std::ranges::find(group, requirement, &NamedRule::requirement) != group.end();
  });
}

bool rests_on_states(std::string_view requirement) {
  return has(
      {header_rules(), payload_rules(), publish_rules(), update_rules(), reference_data_rules()},
      requirement);
}
bool rests_on_records(std::string_view requirement) { return has({record_rules()}, requirement); }
// On what was seen after single operations. That cannot be judged without the others.
bool rests_on_operations(std::string_view requirement) {
  return has({driven_resource_rules(), driven_process_rules(), driven_fork_rules(),
              driven_thread_rules(), driven_record_rules(), driven_key_map_rules()},
             requirement);
}

std::vector<BrokenRow> broken_by(const Image& image, Groups groups) {
  Timeline t;
  t.mode = Mode::kWrap;
  t.page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  t.processes.emplace_back().pid = image.key.pid;
  t.processes.back().images.push_back(image);
  std::vector<BrokenRow> out;
  for (const ImageEvidence& e : evidence_of(t)) {
    for (const auto& group : groups) {
      for (const NamedRule& row : group) {
        Finding f = row.rule(e);
        if (f.outcome != Outcome::kFail && f.outcome != Outcome::kWarn) continue;
        out.push_back({row.requirement, std::move(f.signature)});
      }
    }
  }
  return out;
}

Finding not_judged(std::uint64_t count, const char* what, const char* remedy) {
  return unobservable(fmt::format("{} {}{} neither kept nor judged: there were too many, or they "
                                  "were too large",
                                  count, what, count == 1 ? " was" : "s were"),
                      remedy);
}

}  // namespace

std::vector<BrokenRow> broken_by_states(const Image& states) {
  return broken_by(states, {header_rules(), payload_rules(), publish_rules(), update_rules(),
                            reference_data_rules()});
}

std::vector<BrokenRow> broken_by_records(const Image& samples) {
  return broken_by(samples, {record_rules()});
}

std::vector<BrokenRow> BrokenRows::unshown(const std::vector<BrokenRow>& rows) const {
  std::vector<BrokenRow> out;
  for (const BrokenRow& row : rows) {
    const auto times = shown_.find(row);
    if (times == shown_.end() || times->second < kShownEach) out.push_back(row);
  }
  return out;
}

void BrokenRows::shown(const std::vector<BrokenRow>& rows) {
  for (const BrokenRow& row : rows) ++shown_[row];
}

void BrokenRows::shown_often(const std::vector<BrokenRow>& rows) {
  for (const BrokenRow& row : rows) shown_[row] = kShownEach;
}

void add_dropped(const std::vector<BrokenRow>& rows, std::vector<std::string>& dropped) {
  for (const BrokenRow& row : rows) {
    if (std::ranges::find(dropped, row.requirement) != dropped.end()) continue;
    dropped.emplace_back(row.requirement);
  }
}

std::optional<Finding> rests_on_dropped(const Image& image, std::string_view requirement) {
  constexpr const char* kLessOften =
      "a program that changes its context less often while it is observed";
  constexpr const char* kFewerRecords =
      "a program whose threads change their contexts less often while it is observed";
  if (rests_on_states(requirement) && image.snapshots_dropped > image.snapshots_judged) {
    return not_judged(image.snapshots_dropped - image.snapshots_judged, "state", kLessOften);
  }
  if (rests_on_records(requirement) && image.threads_dropped > image.threads_judged) {
    return not_judged(image.threads_dropped - image.threads_judged, "look at a thread",
                      kFewerRecords);
  }
  if (rests_on_operations(requirement) && image.snapshots_dropped + image.threads_dropped > 0) {
    return unobservable("not all that was seen after operations was kept: there was too much",
                        image.snapshots_dropped > 0 ? kLessOften : kFewerRecords);
  }
  if (std::ranges::find(image.rows_dropped, requirement) != image.rows_dropped.end()) {
    return unobservable(
        "what seemed to break it, as did some of what was kept, was too much to be "
        "kept",
        kLessOften);
  }
  return std::nullopt;
}

}  // namespace ctxconf::conformance
