#include "conformance/requirements/catalogue.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>

#include "conformance/requirements/builtin_files.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kLevels[] = {"static", "snapshot", "syscalls", "stores",
                                        "steps",  "race",     "puppet",   "none"};
constexpr std::string_view kModes[] = {"attach", "wrap", "run", "elf", "reader"};
constexpr std::string_view kStrengths[] = {"MUST", "SHOULD", "MAY"};
constexpr std::string_view kBases[] = {"keyword", "step", "table", "implied", "undecided"};
constexpr std::string_view kSeverities[] = {"error", "warning", "info"};
constexpr std::string_view kRoles[] = {"writer", "reader"};
constexpr std::string_view kReadings[] = {"reader-visible", "strict"};

constexpr std::size_t kLongestId = 200;

// The result is at most `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  std::vector<std::size_t> requirement(b.size() + 1);
  for (std::size_t j = 0; j < requirement.size(); ++j) requirement[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = requirement[0];
    requirement[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = requirement[j];
      requirement[j] = std::min({requirement[j] + 1, requirement[j - 1] + 1, replaced});
    }
    if (std::ranges::min(requirement) >= limit) return limit;
  }
  return requirement.back();
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_id_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

// The ids of requirements (pctx.group.name) that a sentence mentions. Groups (pctx.group) and
// undecided points (open.pctx.name) do not count.
std::vector<std::string_view> mentioned_requirements(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t dot = text.find("ctx."); dot != text.npos; dot = text.find("ctx.", dot + 1)) {
    if (dot == 0 || (text[dot - 1] != 'p' && text[dot - 1] != 't')) continue;
    const std::size_t begin = dot - 1;
    if (begin > 0 && is_word(text[begin - 1])) continue;
    if (text.substr(0, begin).ends_with("open.")) continue;
    std::size_t end = dot + 3;
    int groups = 0;
    while (end + 1 < text.size() && text[end] == '.' && is_id_character(text[end + 1])) {
      ++end;
      while (end < text.size() && is_id_character(text[end])) ++end;
      ++groups;
    }
    if (groups >= 2) found.push_back(text.substr(begin, end - begin));
  }
  return found;
}

const Specification* specification_of(std::span<const Specification> all, int otep) {
  const auto at = std::ranges::find(all, otep, &Specification::otep);
  return at == all.end() ? nullptr : &*at;
}

std::string known_revisions(const Catalogue& catalogue) {
  std::string known;
  for (const Specification& s : catalogue.specifications()) {
    known += (known.empty() ? "" : ", ") + std::to_string(s.otep) + "=" + s.revision;
  }
  return known;
}

sys::Result<> must_match(const Catalogue& catalogue, const char* option,
                         const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (catalogue.has_match(pattern)) continue;
    std::string detail = std::string(option) + " " + pattern + " matches no requirement";
    const std::string near = catalogue.nearest(pattern);
    detail += near.empty() ? "; `ctxconf list` shows all" : "; did you mean " + near + "?";
    return sys::fail("select requirements", EINVAL, std::move(detail));
  }
  return {};
}

}  // namespace

std::string_view to_string(Level l) { return kLevels[static_cast<std::size_t>(l)]; }
std::string_view to_string(Mode m) { return kModes[static_cast<std::size_t>(m)]; }
std::string_view to_string(Strength s) { return kStrengths[static_cast<std::size_t>(s)]; }
std::string_view to_string(Basis b) { return kBases[static_cast<std::size_t>(b)]; }
std::string_view to_string(Severity s) { return kSeverities[static_cast<std::size_t>(s)]; }
std::string_view to_string(Role r) { return kRoles[static_cast<std::size_t>(r)]; }
std::string_view to_string(Reading r) { return kReadings[static_cast<std::size_t>(r)]; }

std::optional<Reading> reading_from(std::string_view text) {
  for (const Reading r : {Reading::kReaderVisible, Reading::kStrict}) {
    if (text == to_string(r)) return r;
  }
  return std::nullopt;
}

Severity severity_by_rule(Strength strength, Basis basis, bool unnoticed, Reading reading) {
  if (strength == Strength::kMay) return Severity::kInfo;
  const bool open = basis == Basis::kImplied || basis == Basis::kUndecided;
  if (strength == Strength::kShould || open) return Severity::kWarning;
  return unnoticed && reading == Reading::kReaderVisible ? Severity::kWarning : Severity::kError;
}

Severity severity_in(const Requirement& requirement, Reading reading) {
  if (requirement.severity_because) return requirement.severity;
  return severity_by_rule(requirement.strength, requirement.basis,
                          requirement.unnoticed.has_value(), reading);
}

Severity severity_unnoticed(const Requirement& requirement, Reading reading) {
  const Severity usual = severity_in(requirement, reading);
  return reading == Reading::kReaderVisible ? std::max(usual, Severity::kWarning) : usual;
}

std::optional<Level> level_from(std::string_view name) {
  const auto* at = std::ranges::find(kLevels, name);
  if (at == std::end(kLevels)) return std::nullopt;
  return static_cast<Level>(at - kLevels);
}

bool Requirement::has_mode(Mode m) const { return std::ranges::find(modes, m) != modes.end(); }

const Catalogue& Catalogue::builtin() {
  static const Catalogue catalogue = [] {
    std::vector<Specification> specifications;
    const auto must = [](auto result) {
      if (result) return *std::move(result);
      std::fprintf(stderr, "the built-in catalogue is not valid: %s\n",
                   sys::to_string(result.error()).c_str());
      std::abort();
    };
    // A test has checked their texts.
    for (const BuiltinFile& file : builtin_files()) {
      specifications.push_back(must(parse_checked_specification(file.text, file.name)));
    }
    return must(from(std::move(specifications)));
  }();
  return catalogue;
}

sys::Result<Catalogue> Catalogue::from(std::vector<Specification> specifications) {
  std::map<std::string_view, const Requirement*> ids;
  for (const Specification& s : specifications) {
    for (const Requirement& r : s.requirements) {
      if (!ids.emplace(r.id, &r).second) {
        return sys::fail("catalogue", 0, r.id + ": id used twice");
      }
    }
  }
  const auto is_missing = [&](std::string_view id) {
    const int otep = id.starts_with("pctx.") ? 4719 : 4947;
    return specification_of(specifications, otep) != nullptr && !ids.contains(id);
  };
  for (const auto& [id, r] : ids) {
    std::vector<std::pair<std::string_view, std::string_view>> members = {
        {"text", r->text}, {"check", r->check}, {"mutant", r->mutant}};
    for (const std::string& v : r->variants) members.emplace_back("variants", v);
    for (const auto& [member, text] : members) {
      for (const std::string_view mentioned : mentioned_requirements(text)) {
        if (!is_missing(mentioned)) continue;
        return sys::fail("catalogue", 0,
                         std::string(id) + ": " + std::string(member) +
                             ": refers to unknown requirement " + std::string(mentioned));
      }
    }
  }
  Catalogue catalogue;
  catalogue.specifications_ = std::move(specifications);
  return catalogue;
}

const Requirement* Catalogue::find(std::string_view id) const {
  for (const Specification& s : specifications_) {
    const auto at = std::ranges::find(s.requirements, id, &Requirement::id);
    if (at != s.requirements.end()) return &*at;
  }
  return nullptr;
}

std::string Catalogue::nearest(std::string_view id) const {
  if (id.size() > kLongestId) return "";
  // A third of the letters may differ; a more distant suggestion would not help.
  std::size_t best = std::max<std::size_t>(2, id.size() / 3) + 1;
  std::string near;
  for (const Specification& s : specifications_) {
    for (const Requirement& r : s.requirements) {
      const auto [shorter, longer] = std::minmax({id.size(), r.id.size()});
      if (longer - shorter >= best) continue;
      const std::size_t distance = edit_distance(id, r.id, best);
      if (distance >= best) continue;
      best = distance;
      near = r.id;
    }
  }
  return near;
}

bool Catalogue::has_match(std::string_view glob) const {
  return std::ranges::any_of(specifications_, [&](const Specification& s) {
    return std::ranges::any_of(s.requirements,
                               [&](const Requirement& r) { return glob_matches(glob, r.id); });
  });
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  // Only the last star is tried again: it can match everything that an earlier star could match. At
  // most |pattern| * |text| steps.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

SpecSelection default_spec() { return {{{4719, "2026-04-07"}, {4947, "2026-07-17"}}}; }

sys::Result<SpecSelection> parse_spec(const Catalogue& catalogue, std::string_view text) {
  SpecSelection selection;
  const std::string known = "known: " + known_revisions(catalogue);
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == item.npos) {
      return sys::fail("--spec", EINVAL,
                       "\"" + std::string(item) + "\" is not OTEP=REVISION; " + known);
    }
    const std::string_view otep = item.substr(0, equals);
    const std::string_view revision = item.substr(equals + 1);
    bool known_otep = false;
    const Specification* found = nullptr;
    for (const Specification& s : catalogue.specifications()) {
      if (std::to_string(s.otep) != otep) continue;
      known_otep = true;
      if (s.revision == revision) found = &s;
    }
    if (found == nullptr) {
      return sys::fail("--spec", EINVAL,
                       (known_otep ? "revision " + std::string(revision) + " of " : "") + "OTEP " +
                           std::string(otep) + " is unknown; " + known);
    }
    for (const auto& [chosen, _] : selection.revisions) {
      if (chosen != found->otep) continue;
      return sys::fail("--spec", EINVAL, "OTEP " + std::string(otep) + " is named twice");
    }
    selection.revisions.emplace_back(found->otep, found->revision);
    if (comma == text.npos) return selection;
    text.remove_prefix(comma + 1);
  }
}

sys::Result<std::vector<const Requirement*>> select(const Catalogue& catalogue,
                                                    const Selection& selection) {
  CTX_RETURN_IF_ERROR(must_match(catalogue, "--only", selection.only));
  CTX_RETURN_IF_ERROR(must_match(catalogue, "--skip", selection.skip));
  std::vector<const Requirement*> requirements;
  int named = 0;
  int other_spec = 0;
  int other_role = 0;
  int excluded = 0;
  int too_deep = 0;
  int skipped = 0;
  for (const Specification& s : catalogue.specifications()) {
    const bool chosen =
        std::ranges::find(selection.spec.revisions, std::pair(s.otep, s.revision)) !=
        selection.spec.revisions.end();
    for (const Requirement& r : s.requirements) {
      if (!selection.only.empty() && !any_glob_matches(selection.only, r.id)) continue;
      ++named;
      if (!chosen) {
        ++other_spec;
      } else if (r.role != selection.role) {
        ++other_role;
      } else if (r.level == Level::kNone) {
        ++excluded;
      } else if (r.level != Level::kPuppet && r.level > selection.deepest) {
        ++too_deep;
      } else if (any_glob_matches(selection.skip, r.id)) {
        ++skipped;
      } else {
        requirements.push_back(&r);
      }
    }
  }
  if (!requirements.empty()) return requirements;
  std::string detail = "none is left of " + std::to_string(named);
  const auto because = [&](int count, const std::string& why) {
    if (count != 0) detail += "; " + std::to_string(count) + " " + why;
  };
  because(other_spec, "not in the set chosen by --spec");
  because(other_role, selection.role == Role::kWriter ? "about readers (use `ctxconf reader`)"
                                                      : "about writers");
  because(excluded, "excluded (`ctxconf explain` says why)");
  because(too_deep, "above --level " + std::string(to_string(selection.deepest)));
  because(skipped, "left out by --skip");
  return sys::fail("select requirements", EINVAL, std::move(detail));
}

}  // namespace ctxconf::conformance
