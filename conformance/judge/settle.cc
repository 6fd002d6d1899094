#include "conformance/judge/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "conformance/judge/gather.h"
#include "conformance/judge/judge.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/reader_findings.h"
#include "conformance/rules/reader_rules.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

bool is_silent(const Finding& f) {
  return f.outcome == Outcome::kUnobservable || f.outcome == Outcome::kNa;
}

// `check`: a CheckRun or a SkippedCheck.
bool is_for(const auto& check, const Requirement& r) {
  return std::ranges::find(check.requirements, r.id) != check.requirements.end();
}

// ---- faults

bool is_of_fault(const Timeline& t, const Finding& f) {
  return !is_without_fault(t, f.image.session);
}

// Another finding, of a run without a fault, fails or passes in the same way.
bool is_known_without_fault(const Timeline& t, const std::vector<Finding>& findings,
                            const Finding& f) {
  return std::ranges::any_of(findings, [&](const Finding& other) {
    return !is_of_fault(t, other) && other.outcome == f.outcome && other.signature == f.signature;
  });
}

void add_to_tally(const RequirementRule& rule, const Finding& f, bool is_new, FaultTally& tally) {
  tally.judged = true;
  if (!is_new) return;
  auto& requirements = tally.failed[f.outcome];
  if (requirements.empty() || requirements.back() != rule.id) requirements.emplace_back(rule.id);
}

// Keeps the findings in cells that say something which the others do not.
void leave_out_repeated(const Timeline& t, const RequirementRule& rule,
                        std::vector<Finding>& findings) {
  const auto decides = [&](const Finding& f) {
    return !is_silent(f) || (!is_of_fault(t, f) && !rule.is_about_faults());
  };
  if (std::ranges::any_of(findings, decides)) {
    std::erase_if(findings, [&](const Finding& f) { return is_of_fault(t, f) && is_silent(f); });
  }
  const auto passes = [](const Finding& f) { return f.outcome == Outcome::kPass; };
  const bool passes_anyway = std::ranges::any_of(
      findings, [&](const Finding& f) { return passes(f) && !is_of_fault(t, f); });
  if (passes_anyway) {
    std::erase_if(findings, [&](const Finding& f) { return passes(f) && is_of_fault(t, f); });
  }
  const auto has_none = [](const Finding& f) { return f.kind == FindingKind::kNoSuchFault; };
  if (!std::ranges::all_of(findings, has_none)) {
    std::erase_if(findings, [&](const Finding& f) { return is_silent(f) && has_none(f); });
  }
}

// Keeps what a fault changes: a failure or a pass that is there without a fault as well is
// told once.
void settle_cells(const Timeline& t, const RequirementRule& rule, std::vector<Finding>& findings,
                  std::map<std::uint32_t, FaultTally>& tallies) {
  std::vector<Finding> kept;
  for (const Finding& f : findings) {
    const bool fails = !is_silent(f) && f.outcome != Outcome::kPass;
    const bool known = fails && is_of_fault(t, f) && is_known_without_fault(t, findings, f);
    if (is_of_fault(t, f) && !is_silent(f)) {
      add_to_tally(rule, f, fails && !known, tallies[f.image.session]);
    }
    if (!known || t.cells.empty()) kept.push_back(f);
  }
  findings = std::move(kept);
  if (!t.cells.empty()) leave_out_repeated(t, rule, findings);
}

// ---- images that say nothing

// An image that never attached a context (a launcher, a helper) says nothing against one that
// did.
void leave_out_silent_images(std::vector<Finding>& findings) {
  if (!std::ranges::all_of(findings, is_silent)) {
    std::erase_if(findings, is_silent);
    return;
  }
  // One that was looked for says why it does not show.
  const auto has_level = [](const Finding& f) { return !f.level.empty(); };
  if (std::ranges::any_of(findings, has_level)) std::erase_if(findings, std::not_fn(has_level));
}

// ---- why there is nothing to see

Finding nobody_to_ask(const Timeline& t, const Requirement& r) {
  if (t.mode == Mode::kReader) {
    return unobservable("no scene that shows it was played to the end",
                        "a run that is not cut short");
  }
  if (is_about_threads(r)) {
    return not_applicable(
        NaReason::kCapability,
        "no thread context: neither the symbol otel_thread_ctx_v1 in a module nor "
        "a threadlocal.* attribute");
  }
  return unobservable("no process published a context",
                      "a program that publishes a process context while it is observed");
}

// If no session has anything to say, keeps the findings of the sessions that were asked for this
// requirement, and of these the ones that know why there is nothing.
void keep_those_asked(const Timeline& t, const Requirement& r, std::vector<Finding>& findings) {
  if (!std::ranges::all_of(findings, is_silent)) return;
  using SessionProcess = std::pair<std::uint32_t, std::int32_t>;
  std::set<SessionProcess> asked;
  for (const Session& s : t.sessions) {
    for (const CheckRun& c : s.checks) {
      if (is_for(c, r)) asked.emplace(s.root.session, s.root.pid);
    }
  }
  const auto is_asked = [&](const Finding& f) {
    return asked.contains(SessionProcess(f.image.session, f.image.pid));
  };
  if (std::ranges::any_of(findings, is_asked)) std::erase_if(findings, std::not_fn(is_asked));
  const auto is_na = [](const Finding& f) { return f.outcome == Outcome::kNa; };
  if (std::ranges::any_of(findings, is_na)) std::erase_if(findings, std::not_fn(is_na));
}

// Nothing that was asked of the program could have shown it.
std::optional<Finding> not_declared(const Timeline& t, const Requirement& r) {
  const auto is_for_this = [&](const auto& check) { return is_for(check, r); };
  const auto skipped = std::ranges::find_if(t.skipped, is_for_this);
  if (skipped == t.skipped.end()) return std::nullopt;
  for (const Session& s : t.sessions) {
    if (std::ranges::any_of(s.checks, is_for_this)) return std::nullopt;
  }
  return not_applicable(
      NaReason::kCapability,
      (skipped->must_be_absent ? "the adapter declares " : "the adapter does not declare ") +
          skipped->capability);
}

// A context was refused that every SDK takes, so that nothing shows what the requirement is about.
std::optional<Finding> not_attached(const Timeline& t, const Requirement& r) {
  const RequirementRule& reports = rule_of_refused_contexts();
  if (!is_about_threads(r) || r.id == reports.id) return std::nullopt;
  const CheckRun* refused = nullptr;
  bool attached = false;
  for (const Session& s : t.sessions) {
    attached = attached || has_attached(s);
    for (const CheckRun& c : s.checks) {
      if (ends_with_refused_context(s, c) && (refused == nullptr || is_for(c, r))) refused = &c;
    }
  }
  if (refused == nullptr || (attached && !is_for(*refused, r))) return std::nullopt;
  return not_applicable(NaReason::kCapability,
                        fmt::format("a context was refused, which {} reports", reports.id));
}

// Why no operation of the checks that are for this requirement showed anything: in each of them the
// SDK refused one by design. Nothing where calls failed, which is another reason.
std::optional<Finding> refused_by_design(const std::vector<ImageEvidence>& evidence,
                                         const Requirement& r) {
  constexpr std::size_t kMessageKept = 200;
  const DrivenOperation* refused = nullptr;
  std::map<const CheckRun*, bool> refuses;
  for (const ImageEvidence& e : evidence) {
    if (e.session == nullptr || !e.session->session->faults.empty()) continue;
    for (const DrivenOperation& d : e.session->operations) {
      if (d.check == nullptr || !is_for(*d.check, r)) continue;
      const bool by_design = d.error_kind == "rejected" || d.error_kind == "unsupported";
      refuses[d.check] = refuses[d.check] || by_design;
      if (by_design && refused == nullptr) refused = &d;
    }
  }
  const auto all_refuse = std::ranges::all_of(refuses, [](const auto& of) { return of.second; });
  if (refused == nullptr || !all_refuse) return std::nullopt;
  return not_applicable(
      NaReason::kCapability,
      fmt::format("the SDK refuses {} by design: {}", refused->op,
                  text_member(refused->reply["error"], "message").substr(0, kMessageKept)));
}

// The first of these reasons that holds, where no finding says anything.
std::optional<Finding> reason_for_silence(const Timeline& t,
                                          const std::vector<ImageEvidence>& evidence,
                                          const Requirement& r,
                                          const std::optional<Finding>& undeclared,
                                          const std::vector<Finding>& findings) {
  if (!std::ranges::all_of(findings, is_silent)) return std::nullopt;
  if (undeclared) return undeclared;
  if (auto refused = not_attached(t, r)) return refused;
  if (t.mode != Mode::kRun || findings.front().outcome != Outcome::kUnobservable) {
    return std::nullopt;
  }
  return refused_by_design(evidence, r);
}

// ---- checks

// Whether the way in which the check ended is a finding of the requirement; `found`: it has one.
bool decides(const Session& s, const CheckRun& c, const Requirement& r, bool found) {
  if (c.ending == CheckEnding::kDone) return false;
  if (ends_with_refused_context(s, c)) return r.id == rule_of_refused_contexts().id && !found;
  return is_for(c, r);
}

Finding finding_of(const Session& s, const CheckRun& c) {
  Finding f =
      failed(c.text, ends_with_refused_context(s, c) ? "refused a request that every SDK accepts"
                                                     : "refused what it declared");
  switch (c.ending) {
    case CheckEnding::kRefused:
    case CheckEnding::kDone:
      break;
    case CheckEnding::kTimeout:
      f.outcome = Outcome::kTimeout;
      f.signature = "no reply";
      break;
    case CheckEnding::kCrash:
    case CheckEnding::kNotRun:
      f.outcome = Outcome::kCrash;
      f.signature = c.ending == CheckEnding::kCrash ? "died" : "not run";
      if (c.ending == CheckEnding::kCrash) f.kind = FindingKind::kEndedCheck;
      break;
  }
  f.image = s.root;
  f.image_name = fmt::format("{} ({})", s.root.pid, s.group);
  f.evidence = c.details;
  f.evidence.insert(f.evidence.begin(), "check " + s.group + "/" + c.name);
  return f;
}

// With what the reader was shown when it died or hung.
Finding with_last_question(const Session& s, const CheckRun& c, Finding f) {
  if (f.outcome != Outcome::kCrash && f.outcome != Outcome::kTimeout) return f;
  for (const SceneEvidence& scene : scenes_of(s)) {
    if (scene.scene != &c || scene.operations.empty()) continue;
    const Operation& last = *scene.operations.back();
    if (last.reply.empty()) return in_scene(scene, last, std::move(f));
  }
  return f;
}

// A check that did not finish decides the requirements that it is for. Adds it to `told`.
std::vector<Finding> ended_checks(const Timeline& t, const Requirement& r,
                                  std::set<const CheckRun*>& told) {
  std::vector<Finding> out;
  for (const Session& s : t.sessions) {
    for (const CheckRun& c : s.checks) {
      if (!decides(s, c, r, !out.empty())) continue;
      Finding f = finding_of(s, c);
      if (t.mode == Mode::kReader) f = with_last_question(s, c, std::move(f));
      out.push_back(std::move(f));
      told.insert(&c);
    }
  }
  return out;
}

// The rule has said what the process died of, which says more than that the check ended so.
void leave_out_told_deaths(std::vector<Finding>& findings) {
  const auto is_told = [&](const Finding& f) {
    return f.kind == FindingKind::kEndedCheck &&
           std::ranges::any_of(findings, [&](const Finding& other) {
             return other.kind == FindingKind::kDiedOfFault && other.image == f.image;
           });
  };
  std::vector<Finding> kept;
  for (const Finding& f : findings) {
    if (!is_told(f)) kept.push_back(f);
  }
  findings = std::move(kept);
}

// What each repeat says by itself, where they differ: "in 20 repeats: 19 pass, 1 fail".
std::string repeats_of(const Timeline& t, const std::vector<Finding>& findings) {
  std::map<std::uint32_t, Outcome> of_repeat;
  for (const Session& s : t.sessions) {
    for (const Finding& f : findings) {
      if (f.image.session != s.root.session || f.image.pid != s.root.pid || is_silent(f)) continue;
      const auto [it, added] = of_repeat.emplace(s.repeat, f.outcome);
      if (!added) it->second = std::max(it->second, f.outcome);
    }
  }
  std::map<Outcome, std::uint32_t> counts;
  std::uint32_t all = 0;
  for (const auto& [repeat, outcome] : of_repeat) {
    counts[outcome] += times_of(t, repeat);
    all += times_of(t, repeat);
  }
  if (counts.size() < 2) return {};
  std::string out = fmt::format("in {} repeats:", all);
  for (const auto& [outcome, count] : counts)
    out += fmt::format(" {} {}", count, to_string(outcome));
  return out;
}

// Leaves the findings that decide, or one that says why there is nothing to see. Returns
// repeats_of() them.
std::string settle_asked(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                         const Requirement& r, const std::optional<Finding>& undeclared,
                         std::vector<Finding>& findings,
                         std::map<std::uint32_t, FaultTally>& tallies) {
  if (t.mode == Mode::kReader) {
    leave_out_silent_images(findings);
    return repeats_of(t, findings);
  }
  const RequirementRule& rule = *rule_of(r.id);
  leave_out_told_deaths(findings);
  settle_cells(t, rule, findings, tallies);
  std::string repeats = repeats_of(t, findings);
  if (is_about_threads(r) || rule.is_about_faults() || t.mode == Mode::kRun) {
    leave_out_silent_images(findings);
  }
  if (t.mode == Mode::kRun) keep_those_asked(t, r, findings);
  if (auto why = reason_for_silence(t, evidence, r, undeclared, findings)) {
    why->image = findings.front().image;
    why->image_name = findings.front().image_name;
    findings = {std::move(*why)};
  }
  return repeats;
}

}  // namespace

std::uint32_t times_of(const Timeline& t, std::uint32_t repeat) {
  const auto it = std::ranges::find(t.repeats, repeat, &RepeatCount::repeat);
  return it == t.repeats.end() ? 1 : it->times;
}

std::optional<Finding> decided_by_run(const Requirement& r, Mode mode) {
  if (!r.has_mode(mode)) {
    return not_applicable(NaReason::kMode,
                          fmt::format("{} does not judge this; {} does", to_string(mode),
                                      r.modes.empty() ? "nothing" : to_string(r.modes.front())));
  }
  if (!is_recorded(r, mode)) {
    Finding f =
        unobservable(fmt::format("needs level {}; this version records up to level {}",
                                 to_string(r.level), to_string(deepest_recorded(mode))),
                     fmt::format("a version of ctxconf that records level {}", to_string(r.level)));
    return f;
  }
  if (rule_of(r.id) == nullptr && reader_rule_of(r.id) == nullptr) {
    return unobservable("this version has no check for it", "a newer version of ctxconf");
  }
  return std::nullopt;
}

RequirementResult settle(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                         const Requirement& r, std::optional<Finding> decided,
                         std::vector<Finding> findings, Told& told) {
  RequirementResult out;
  out.requirement = &r;
  const RequirementRule* const rule = rule_of(r.id);
  out.holds_without_context = rule != nullptr && rule->holds_without_context;
  out.findings = ended_checks(t, r, told.checks);
  const auto undeclared = decided ? std::nullopt : not_declared(t, r);
  if (!decided && findings.empty()) decided = undeclared ? undeclared : nobody_to_ask(t, r);
  std::string repeats;
  if (!decided) {
    std::ranges::move(findings, std::back_inserter(out.findings));
    repeats = settle_asked(t, evidence, r, undeclared, out.findings, told.tallies);
  } else if (out.findings.empty()) {  // an adapter that did not live to show anything says more
    if (!evidence.empty()) {
      decided->image = evidence.front().image->key;
      decided->image_name = evidence.front().name();
    }
    out.findings.push_back(*std::move(decided));
  }
  for (Finding& f : out.findings) f.requirement = r.id;
  std::ranges::sort(out.findings, [](const Finding& a, const Finding& b) {
    return a.outcome != b.outcome ? a.outcome > b.outcome : a.image < b.image;
  });
  if (!repeats.empty()) out.findings.front().evidence.push_back(repeats);
  out.outcome = out.findings.front().outcome;
  return out;
}

}  // namespace ctxconf::conformance
