#include "conformance/judge/gather.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/reader_rules.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/state_rules.h"
#include "conformance/rules/stored_bytes.h"

namespace ctxconf::conformance {
namespace {

Outcome by_severity(Severity s) {
  switch (s) {
    case Severity::kError:
      return Outcome::kFail;
    case Severity::kWarning:
      return Outcome::kWarn;
    case Severity::kInfo:
      return Outcome::kInfo;
  }
  return Outcome::kFail;
}

// An image of a cell is asked if its fault came. If none could come, only the clock is different.
bool is_asked_in_its_cell(const ImageEvidence& e, const RequirementRule& rule) {
  if (e.cell == nullptr) return true;
  if (e.faulted) return is_judged_under_faults(rule, e);
  return e.cell->injections.empty() &&
         (rule.is_about_faults() || rule.clock_cell == ClockCell::kJudged);
}

std::vector<const ImageEvidence*> testees_of(const std::vector<ImageEvidence>& evidence) {
  std::vector<const ImageEvidence*> out;
  for (const auto& e : evidence) {
    if (e.session != nullptr && e.image->key == e.session->session->root) out.push_back(&e);
  }
  return out;
}

std::vector<const ImageEvidence*> asked_of(const Timeline& t,
                                           const std::vector<ImageEvidence>& evidence,
                                           const Requirement& r, const RequirementRule& rule) {
  if (rule.asked_of == AskedOf::kTestee && t.mode == Mode::kRun) return testees_of(evidence);
  std::vector<const ImageEvidence*> out;
  std::vector<const ImageEvidence*> faulted;
  for (const auto& e : evidence) {
    const bool concerned = is_about_threads(r) ? e.uses_threads : e.published();
    const bool is_subject = e.cell != nullptr && e.faulted && rule.is_about_faults();
    if ((concerned || is_subject) && is_asked_in_its_cell(e, rule)) out.push_back(&e);
    if (e.faulted) faulted.push_back(&e);
  }
  const bool only_faulted = rule.is_about_faults() && t.cells.empty() && !faulted.empty();
  return only_faulted ? faulted : out;
}

Finding not_judged_under_faults(const Timeline& t) {
  std::string specs;
  for (const Injection& i : t.injections) {
    if (i.times > 0) specs += (specs.empty() ? "" : ", ") + i.spec;
  }
  return unobservable(
      "fault injection changed results of this program's calls, which may explain it: " + specs,
      "the same command without --inject");
}

Finding ask(const Timeline& t, const ImageEvidence& e, const Requirement& r,
            const RequirementRule& rule) {
  const bool judged = !e.faulted || is_judged_under_faults(rule, e);
  Finding f = judged ? rule.rule(e) : not_judged_under_faults(t);
  const bool has_none = f.outcome == Outcome::kNa && f.na_reason == NaReason::kCapability;
  const bool says_nothing_is_wrong =
      f.outcome == Outcome::kPass || f.outcome == Outcome::kInfo || has_none;
  if (says_nothing_is_wrong) {
    auto why = rests_on_dropped(*e.image, rule);
    if (!why) why = rests_on_dropped_calls(*e.image, r, rule);
    if (why) f = *std::move(why);
  }
  if (f.outcome == Outcome::kFail) {
    name_who_stored(*e.image, f);
    f.outcome =
        by_severity(f.unnoticed ? severity_unnoticed(r, t.reading) : severity_in(r, t.reading));
  }
  f.image = e.image->key;
  f.image_name = e.name();
  return f;
}

}  // namespace

std::vector<Finding> gather_scenes(const Timeline& t, const std::vector<SceneEvidence>& scenes,
                                   const Requirement& r) {
  const ReaderRule& rule = *reader_rule_of(r.id);
  std::vector<Finding> out;
  for (const SceneEvidence& scene : scenes) {
    auto f = rule.rule(scene, r.id);
    if (!f) continue;
    if (!rule.trait.empty() && !scene.traits.says(rule.trait)) {
      f = not_applicable(NaReason::kCapability,
                         fmt::format("the adapter does not declare reader.{}", rule.trait));
    }
    if (f->outcome == Outcome::kFail) f->outcome = by_severity(severity_in(r, t.reading));
    f->image = scene.session->root;
    f->image_name = scene_name(*scene.session, *scene.scene);
    out.push_back(*std::move(f));
  }
  return out;
}

std::string scene_name(const Session& session, const CheckRun& scene) {
  return session.group + "/" + scene.name;
}

bool is_about_threads(const Requirement& r) { return r.otep == kThreadContext; }

std::vector<Finding> gather(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                            const Requirement& r) {
  const RequirementRule& rule = *rule_of(r.id);
  std::vector<Finding> out;
  for (const ImageEvidence* e : asked_of(t, evidence, r, rule)) {
    out.push_back(ask(t, *e, r, rule));
  }
  return out;
}

}  // namespace ctxconf::conformance
