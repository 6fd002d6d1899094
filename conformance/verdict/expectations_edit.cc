#include "conformance/verdict/expectations_edit.h"

#include <algorithm>
#include <map>
#include <set>

namespace ctxconf::conformance {
namespace {

bool needs_line(Outcome o, bool strict) {
  return o == Outcome::kFail || o == Outcome::kTimeout || o == Outcome::kCrash ||
         (strict && o == Outcome::kWarn);
}

ExpectVerb verb_for(Outcome o) {
  return o == Outcome::kFail || o == Outcome::kWarn ? ExpectVerb::kFail : ExpectVerb::kCrash;
}

// The image without its pid, which changes with each run: "12 /bin/app" becomes "* /bin/app".
std::string image_glob(std::string_view name) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == name.npos || name[digits] != ' ') return quoted_glob(name);
  std::string glob = quoted_glob(name.substr(digits));
  glob.insert(1, "*");
  return glob;
}

std::string line_for(ExpectVerb verb, const std::string& id, const std::string& image,
                     const std::set<std::string>& signatures) {
  std::string line(to_string(verb));
  line.append(line.size() < 8 ? 8 - line.size() : 1, ' ');
  line += " " + id + "  issue=" + std::string(kIssuePlaceholder);
  if (!image.empty()) line += " image=" + image;
  // Several ways to fail have no common text to compare with.
  if (signatures.size() == 1 && !signatures.begin()->empty()) {
    line += " saw=" + quoted_glob(*signatures.begin());
  }
  return line;
}

std::string judged_line(const std::string& id) { return "judged   " + id; }

// The lines for the failures of one requirement: one line if it failed or crashed everywhere alike,
// else one line per image.
std::vector<std::string> lines_for(const std::string& id, const std::vector<const Observed*>& all,
                                   bool by_image) {
  struct Kind {
    ExpectVerb verb = ExpectVerb::kFail;
    std::set<std::string> signatures;
  };
  const auto add = [](Kind& kind, const Observed& o) {
    const ExpectVerb verb = verb_for(o.outcome);
    if (verb == ExpectVerb::kCrash && kind.verb != verb) kind = {verb, {}};
    if (verb == kind.verb) kind.signatures.emplace(trimmed(o.signature));
  };
  by_image = by_image || std::ranges::any_of(all, [&](const Observed* o) {
               return verb_for(o->outcome) != verb_for(all.front()->outcome);
             });
  std::map<std::string, Kind> kinds;
  for (const Observed* o : all) {
    add(kinds[by_image && !o->image.empty() ? image_glob(o->image) : ""], *o);
  }
  // A finding without an image cannot have its own line next to those with an image.
  if (kinds.size() > 1 && kinds.contains("")) {
    for (const Observed* o : all) add(kinds[""], *o);
    kinds.erase(std::next(kinds.begin()), kinds.end());
  }
  std::vector<std::string> lines;
  lines.reserve(kinds.size());
  for (const auto& [image, kind] : kinds) {
    lines.push_back(line_for(kind.verb, id, image, kind.signatures));
  }
  return lines;
}

// Groups them by requirement, in the order of the requirements.
std::vector<std::pair<std::string, std::vector<const Observed*>>> by_requirement(
    std::span<const Observed> all, bool strict) {
  std::vector<std::pair<std::string, std::vector<const Observed*>>> groups;
  std::map<std::string_view, std::size_t> at;
  for (const Observed& o : all) {
    if (!needs_line(o.outcome, strict)) continue;
    const auto [where, fresh] = at.emplace(o.id, groups.size());
    if (fresh) groups.push_back({o.id, {}});
    groups[where->second].second.push_back(&o);
  }
  return groups;
}

// Mistakes that make editing unsafe. A missing issue is not one of them: `update` right after
// `init` must work.
std::vector<ExpectationProblem> obstacles(const Expectations& e) {
  std::vector<ExpectationProblem> found;
  for (const ExpectationProblem& p : e.problems) {
    if (p.exit_code == 2) found.push_back(p);
  }
  return found;
}

}  // namespace

std::string init_expectations(std::span<const Observed> all, std::span<const std::string> judged,
                              bool strict) {
  std::string text =
      "# ctxconf-expect 1\n"
      "# Known failures. Replace each " +
      std::string(kIssuePlaceholder) +
      " by the address of its issue,\n"
      "# and add the last day on which the failure is accepted: until=YYYY-MM-DD\n";
  for (const auto& [id, observed] : by_requirement(all, strict)) {
    for (const std::string& line : lines_for(id, observed, false)) text += line + "\n";
  }
  if (!judged.empty()) text += "# These requirements must be judged, whether they pass or fail.\n";
  for (const std::string& id : judged) text += judged_line(id) + "\n";
  return text;
}

Edited update_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                           std::span<const Observed> all, std::span<const std::string> judged,
                           bool strict) {
  Edited edited;
  edited.text = text;
  const Expectations expectations = parse_expectations(text, file, catalogue);
  edited.problems = obstacles(expectations);
  if (!edited.problems.empty()) return edited;
  for (auto& [id, observed] : by_requirement(all, strict)) {
    bool listed = false;
    std::erase_if(observed, [&](const Observed* o) {
      bool covered = false;
      for (const Expectation& e : expectations.lines) {
        if (!e.names(o->id)) continue;
        listed = listed || e.verb != ExpectVerb::kNaOk || e.image.has_value();
        if (e.verb == ExpectVerb::kNaOk) continue;
        covered = covered || e.covers_image(o->image);
      }
      return covered;
    });
    // A line for all images would contradict the lines that name an image.
    if (listed) std::erase_if(observed, [](const Observed* o) { return o->image.empty(); });
    if (observed.empty()) continue;
    for (const std::string& line : lines_for(id, observed, listed)) edited.added.push_back(line);
  }
  for (const std::string& id : judged) {
    if (expectations.judged_line(id) == nullptr) edited.added.push_back(judged_line(id));
  }
  if (edited.added.empty()) return edited;
  if (!edited.text.ends_with('\n')) edited.text += '\n';
  for (const std::string& line : edited.added) edited.text += line + "\n";
  // An na-ok line contradicts a line for a failure of the same requirement.
  if (obstacles(parse_expectations(edited.text, file, catalogue)).empty()) return edited;
  edited.text = text;
  edited.added.clear();
  for (const Expectation& e : expectations.lines) {
    const auto failed = std::ranges::find_if(all, [&](const Observed& o) {
      return needs_line(o.outcome, strict) && e.verb == ExpectVerb::kNaOk && e.names(o.id);
    });
    if (failed == all.end()) continue;
    edited.problems.push_back({.line = e.line,
                               .exit_code = 2,
                               .text = "na-ok " + e.pattern + " contradicts a line for " +
                                       failed->id + ", which applies now and did not pass",
                               .mend = comment_out(file, e.line)});
  }
  return edited;
}

Edited prune_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                          std::span<const Observed> all, bool partial) {
  Edited edited;
  edited.text = text;
  const Expectations expectations = parse_expectations(text, file, catalogue);
  edited.problems = obstacles(expectations);
  if (!edited.problems.empty()) return edited;
  std::set<int> stale;
  for (const ExpectationProblem& p : expectations.problems) stale.insert(p.line);
  for (const Expectation& e : expectations.lines) {
    if (fate_of(e, all).fate != Fate::kPassed) continue;
    if (partial) {
      edited.kept.push_back(e.line);
    } else {
      stale.insert(e.line);
    }
  }
  edited.text.clear();
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    if (!stale.contains(number)) edited.text += text.substr(0, size);
    text.remove_prefix(size);
  }
  edited.removed.assign(stale.begin(), stale.end());
  return edited;
}

std::vector<ExpectationProblem> lint_expectations(std::string_view text, std::string_view file,
                                                  const Catalogue& catalogue, Date today) {
  const Expectations expectations = parse_expectations(text, file, catalogue);
  std::multimap<int, ExpectationProblem> by_line;
  const auto add = [&](const std::vector<ExpectationProblem>& problems) {
    for (const ExpectationProblem& p : problems) by_line.emplace(p.line, p);
  };
  add(expectations.problems);
  add(expectations.unexplained);
  add(expired(expectations, today));
  std::vector<ExpectationProblem> problems;
  problems.reserve(by_line.size());
  for (auto& [_, p] : by_line) problems.push_back(std::move(p));
  return problems;
}

}  // namespace ctxconf::conformance
