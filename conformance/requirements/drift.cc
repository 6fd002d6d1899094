#include "conformance/requirements/drift.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ctxconf::conformance {
namespace {

// Where a requirement's text was: its first line, and its first sentence from there on.
using Start = std::pair<int, int>;
Start start_of(const Requirement& r) { return {r.lines[0], (*r.sentences)[0]}; }
std::size_t length_of(const Requirement& r) {
  return static_cast<std::size_t>((*r.sentences)[1] - (*r.sentences)[0]) + 1;
}

// A requirement with more sentences is not searched for elsewhere.
constexpr std::size_t kLongestSearched = 64;

// Finds where the units with a given fingerprint begin.
class Search {
 public:
  void want(std::size_t length, const std::string& fingerprint) {
    if (length <= kLongestSearched) wanted_[length][fingerprint];
  }
  void run(std::span<const SourceUnit> units) {
    for (auto& [length, fingerprints] : wanted_) {
      for (std::size_t at = 0; at + length <= units.size(); ++at) {
        const auto hit = fingerprints.find(fingerprint_of(units.subspan(at, length)));
        if (hit != fingerprints.end()) hit->second.push_back(at);
      }
    }
  }
  std::span<const std::size_t> found(std::size_t length, const std::string& fingerprint) const {
    const auto fingerprints = wanted_.find(length);
    if (fingerprints == wanted_.end()) return {};
    const auto hit = fingerprints->second.find(fingerprint);
    return hit == fingerprints->second.end() ? std::span<const std::size_t>() : hit->second;
  }

 private:
  std::map<std::size_t, std::unordered_map<std::string, std::vector<std::size_t>>> wanted_;
};

struct Found {
  const Requirement* requirement;
  std::size_t begin, end;  // units
};

class Comparison {
 public:
  Comparison(const Specification& specification, const SourceText& text) : text_(text) {
    std::vector<const Requirement*> requirements;
    for (const Requirement& r : specification.requirements) {
      if (r.sentences && r.fingerprint) requirements.push_back(&r);
    }
    for (const Requirement* r : requirements) {
      if (in_its_lines(*r).empty()) search_.want(length_of(*r), *r->fingerprint);
    }
    search_.run(text.units());
    for (const Requirement* r : requirements) {
      if (const auto at = locate(*r)) found_.push_back({r, *at, *at + length_of(*r)});
    }
  }

  RequirementDrift compare(const Requirement& r) const {
    RequirementDrift out;
    out.requirement = &r;
    if (!r.sentences || !r.fingerprint) {
      const bool is_there = text_.has_section(r.anchor);
      out.kind = is_there ? DriftKind::kNoSentence : DriftKind::kVanished;
      return out;
    }
    const auto found = std::ranges::find(found_, &r, &Found::requirement);
    if (found == found_.end()) {
      look_around(r, out);
      return out;
    }
    out.location = text_.location_of(found->begin, length_of(r));
    out.section = section_of(*found);
    out.before_headings = text_.is_before_headings(out.location.lines[0]);
    const bool stays = !in_its_lines(r).empty() && text_.section_at(r.lines[0]) == r.anchor;
    if (!stays) out.kind = DriftKind::kMoved;
    return out;
  }

  bool found_anything() const { return !found_.empty(); }

 private:
  // The units at the requirement's lines, if they are still its source.
  std::span<const SourceUnit> in_its_lines(const Requirement& r) const {
    const auto chosen = text_.select(r.lines, *r.sentences);
    const bool same = !chosen.empty() && fingerprint_of(chosen) == *r.fingerprint;
    return same ? chosen : std::span<const SourceUnit>();
  }

  // If there are several: those in its lines, else in its section, else on the nearest line.
  std::optional<std::size_t> locate(const Requirement& r) const {
    const auto units = text_.units();
    if (const auto there = in_its_lines(r); !there.empty()) {
      return static_cast<std::size_t>(there.data() - units.data());
    }
    std::optional<std::size_t> best;
    const auto distance = [&](std::size_t at) {
      const int line = units[at].first;
      const bool elsewhere = text_.section_at(line) != r.anchor;
      return std::pair(elsewhere, std::abs(line - r.lines[0]));
    };
    for (const std::size_t at : search_.found(length_of(r), *r.fingerprint)) {
      if (!best || distance(at) < distance(*best)) best = at;
    }
    return best;
  }

  std::string section_of(const Found& f) const {
    return std::string(text_.section_at(text_.units()[f.begin].first));
  }

  // The section, or, after a renaming, the section that now has most of its sentences.
  std::string section_for(const std::string& anchor) const {
    if (text_.has_section(anchor)) return anchor;
    std::map<std::string, int> votes;
    for (const Found& f : found_) {
      if (f.requirement->anchor == anchor) ++votes[section_of(f)];
    }
    const auto most = std::ranges::max_element(votes, {}, [](const auto& v) { return v.second; });
    return most == votes.end() ? std::string() : most->first;
  }

  // Shows the text that now stands in place of the sentences of `r`.
  void look_around(const Requirement& r, RequirementDrift& out) const {
    out.section = section_for(r.anchor);
    out.kind = DriftKind::kVanished;
    if (out.section.empty()) return;
    auto [low, high] = text_.units_of_section(out.section);
    if (low == high) return;
    for (const Found& f : found_) {
      if (f.requirement->anchor != r.anchor || section_of(f) != out.section) continue;
      if (start_of(*f.requirement) < start_of(r)) low = std::max(low, f.end);
      if (start_of(*f.requirement) == start_of(r)) low = std::max(low, f.begin);
      if (start_of(*f.requirement) > start_of(r)) high = std::min(high, f.begin);
    }
    if (low == high) return;
    out.kind = DriftKind::kChanged;
    if (low > high) return;
    out.location = text_.location_of(low, high - low);
    for (const SourceUnit& unit : text_.units().subspan(low, high - low)) {
      out.text += (out.text.empty() ? "" : " ") + unit.text;
      if (out.text.size() > kLongestShownText) break;
    }
    if (out.text.size() > kLongestShownText) {
      std::size_t end = kLongestShownText;
      while (end > 0 && (static_cast<unsigned char>(out.text[end]) & 0xc0U) == 0x80) --end;
      out.text = out.text.substr(0, end) + "…";
    }
  }

  const SourceText& text_;
  Search search_;
  std::vector<Found> found_;
};

}  // namespace

std::string_view to_string(DriftKind kind) {
  constexpr std::string_view names[] = {"as-pinned", "no-sentence", "moved", "changed", "vanished"};
  return names[static_cast<std::size_t>(kind)];
}

int Drift::count(DriftKind kind) const {
  return static_cast<int>(std::ranges::count(requirements, kind, &RequirementDrift::kind));
}

bool Drift::is_clean() const {
  return count(DriftKind::kAsPinned) + count(DriftKind::kNoSentence) ==
         static_cast<int>(requirements.size());
}

sys::Result<Drift> drift_of(const Specification& specification, const SourceText& text) {
  const Comparison comparison(specification, text);
  const bool has_section = std::ranges::any_of(
      specification.requirements, [&](const Requirement& r) { return text.has_section(r.anchor); });
  if (!comparison.found_anything() && !has_section) {
    return sys::fail(
        "drift", 0,
        "it has no section and no sentence of OTEP " + std::to_string(specification.otep));
  }
  Drift out;
  for (const Requirement& r : specification.requirements)
    out.requirements.push_back(comparison.compare(r));
  return out;
}

}  // namespace ctxconf::conformance
