#include "conformance/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "conformance/fault_matrix.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/operation_pictures.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/state_rules.h"

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

// Requirements that no image has to be asked for: nil when the rule decides.
std::optional<Finding> decided_by_run(const Requirement& r, Mode mode) {
  if (!r.has_mode(mode)) {
    return not_applicable(NaReason::kMode,
                          fmt::format("not judged by {}: needs {}", to_string(mode),
                                      r.modes.empty() ? "nothing" : to_string(r.modes.front())));
  }
  if (!is_recorded(r, mode)) {
    Finding f =
        unobservable(fmt::format("needs level {}; this version records up to level {}",
                                 to_string(r.level), to_string(deepest_recorded(mode))),
                     fmt::format("a version of ctxconf that records level {}", to_string(r.level)));
    return f;
  }
  if (rule_for(r.id) == nullptr) {
    return unobservable("this version has no check for it", "a newer version of ctxconf");
  }
  return std::nullopt;
}

constexpr const char* kDied = "died";  // signature: the adapter, in a check

bool is_about_threads(const Requirement& r) { return r.id.starts_with("tctx."); }

// An image of a cell is asked where its fault came, or where it has none that could come: only its
// time is another one.
bool speaks_of(const ImageEvidence& e, const Requirement& r) {
  if (e.cell == nullptr) return true;
  if (e.faulted) return is_about_faults(r.id) || holds_under_faults(e, r.id);
  return e.cell->injections.empty() && (is_about_faults(r.id) || r.id.starts_with("pctx.header."));
}

std::vector<const ImageEvidence*> asked_of(const std::vector<ImageEvidence>& evidence,
                                           const Requirement& r) {
  std::vector<const ImageEvidence*> out;
  const bool is_run = !evidence.empty() && evidence.front().timeline->mode == Mode::kRun;
  if (is_driven(r.id) && is_run) {
    for (const auto& e : evidence) {
      if (e.session != nullptr && e.image->key == e.session->session->root) out.push_back(&e);
    }
    return out;
  }
  for (const auto& e : evidence) {
    const bool concerned = is_about_threads(r) ? e.uses_threads : e.published();
    const bool faulted = e.cell != nullptr && e.faulted && is_about_faults(r.id);
    if ((concerned || faulted) && speaks_of(e, r)) out.push_back(&e);
  }
  const bool cells = !evidence.empty() && !evidence.front().timeline->cells.empty();
  if (!is_about_faults(r.id) || cells) return out;
  std::vector<const ImageEvidence*> faulted;
  for (const auto& e : evidence) {
    if (e.faulted) faulted.push_back(&e);
  }
  return faulted.empty() ? out : faulted;
}

std::string times_of(const Injection& i) {
  return fmt::format("{}, {} {}", i.spec, i.times, i.times == 1 ? "time" : "times");
}

Finding not_judged_under_faults(const Timeline& t) {
  std::string specs;
  for (const Injection& i : t.injections) {
    if (i.times > 0) specs += (specs.empty() ? "" : ", ") + i.spec;
  }
  return unobservable(
      "calls of this program were answered from outside, which may explain it: " + specs,
      "the same command without --inject");
}

bool is_silent(const Finding& f) {
  return f.outcome == Outcome::kUnobservable || f.outcome == Outcome::kNa;
}

// What a fault changes: what is contradicted, or passes, without one as well is told once, and what
// cannot be seen under one says nothing that the others do not.
void settle_cells(const Timeline& t, const Requirement& r, std::vector<Finding>& findings,
                  std::map<std::uint32_t, FaultTally>& tallies) {
  const auto of_fault = [&](const Finding& f) { return !is_without_fault(t, f.image.session); };
  const auto is_known = [&](const Finding& f) {
    return std::ranges::any_of(findings, [&](const Finding& other) {
      return !of_fault(other) && other.outcome == f.outcome && other.signature == f.signature;
    });
  };
  std::vector<Finding> kept;
  for (const Finding& f : findings) {
    const bool contradicts = !is_silent(f) && f.outcome != Outcome::kPass;
    const bool known = contradicts && of_fault(f) && is_known(f);
    if (of_fault(f) && !is_silent(f)) {
      FaultTally& tally = tallies[f.image.session];
      tally.judged = true;
      if (contradicts && !known) {
        auto& rows = tally.contradicted[f.outcome];
        if (rows.empty() || rows.back() != r.id) rows.push_back(r.id);
      }
    }
    if (!known || t.cells.empty()) kept.push_back(f);
  }
  findings = std::move(kept);
  if (t.cells.empty()) return;
  const auto decides = [&](const Finding& f) {
    return !is_silent(f) || (!of_fault(f) && !is_about_faults(r.id));
  };
  if (std::ranges::any_of(findings, decides)) {
    std::erase_if(findings, [&](const Finding& f) { return of_fault(f) && is_silent(f); });
  }
  const auto passes = [](const Finding& f) { return f.outcome == Outcome::kPass; };
  const bool passes_anyway =
      std::ranges::any_of(findings, [&](const Finding& f) { return passes(f) && !of_fault(f); });
  if (passes_anyway) {
    std::erase_if(findings, [&](const Finding& f) { return passes(f) && of_fault(f); });
  }
  const auto has_none = [](const Finding& f) { return f.saw == kNoSuchFault; };
  if (!std::ranges::all_of(findings, has_none)) {
    std::erase_if(findings, [&](const Finding& f) { return is_silent(f) && has_none(f); });
  }
}

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

Finding nobody_to_ask(const Requirement& r) {
  if (is_about_threads(r)) {
    return not_applicable(
        NaReason::kCapability,
        "no thread context: neither the symbol otel_thread_ctx_v1 in a module nor "
        "a threadlocal.* attribute");
  }
  return unobservable("no process published a context",
                      "a program that publishes a process context while it is observed");
}

// Nothing that was asked of the program could have shown it.
std::optional<Finding> not_declared(const Timeline& t, const Requirement& r) {
  const auto is_for = [&](const auto& check) {
    return std::ranges::find(check.requirements, r.id) != check.requirements.end();
  };
  const auto skipped = std::ranges::find_if(t.skipped, is_for);
  if (skipped == t.skipped.end()) return std::nullopt;
  for (const Session& s : t.sessions) {
    if (std::ranges::any_of(s.checks, is_for)) return std::nullopt;
  }
  return not_applicable(NaReason::kCapability, "the adapter does not declare " + skipped->missing);
}

// What must not be refused is a matter of this row, whatever was to be shown with it.
constexpr const char* kTakesContexts = "tctx.attach.visible";

bool is_for(const CheckRun& c, const Requirement& r) {
  return std::ranges::find(c.requirements, r.id) != c.requirements.end();
}

// A context was refused that every SDK takes, so that nothing shows what the row is about.
std::optional<Finding> not_attached(const Timeline& t, const Requirement& r) {
  if (!is_about_threads(r) || r.id == kTakesContexts) return std::nullopt;
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
                        fmt::format("a context was refused, of which {} speaks", kTakesContexts));
}

// A check that did not come to its end decides the rows that it is for. Adds it to `told`.
void add_ended_checks(const Timeline& t, RequirementResult& result,
                      std::set<const CheckRun*>& told) {
  for (const Session& s : t.sessions) {
    for (const CheckRun& c : s.checks) {
      if (c.ending == CheckEnding::kDone) continue;
      const bool refuses_context = ends_with_refused_context(s, c);
      if (refuses_context ? result.requirement->id != kTakesContexts || !result.findings.empty()
                          : !is_for(c, *result.requirement)) {
        continue;
      }
      Finding f = contradicted(
          c.text, refuses_context ? "refused what every SDK takes" : "refused what it declared");
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
          f.signature = c.ending == CheckEnding::kCrash ? kDied : "not run";
          break;
      }
      f.image = s.root;
      f.image_name = fmt::format("{} ({})", s.root.pid, s.group);
      f.evidence = c.details;
      f.evidence.insert(f.evidence.begin(), "check " + s.group + "/" + c.name);
      result.findings.push_back(std::move(f));
      told.insert(&c);
    }
  }
}

// An adapter that ended or hung where no selected row is to say so: in bye, or in a check of which
// only what it shows besides was selected.
void add_ended_adapters(const Timeline& t, const std::set<const CheckRun*>& told, RunResult& out) {
  for (const Session& s : t.sessions) {
    for (const CheckRun& c : s.checks) {
      const bool crash = c.ending == CheckEnding::kCrash;
      if ((!crash && c.ending != CheckEnding::kTimeout) || told.contains(&c)) continue;
      RunProblem problem;
      problem.outcome = crash ? Outcome::kCrash : Outcome::kTimeout;
      problem.image = s.root;
      problem.text = fmt::format("the adapter in {}/{}: {}", s.group, c.name, c.text);
      out.notes.insert(out.notes.end(), c.details.begin(), c.details.end());
      out.problems.push_back(std::move(problem));
    }
  }
}

// How many repeats one that is kept stands for.
std::uint32_t times_of(const Timeline& t, std::uint32_t repeat) {
  const auto it = std::ranges::find(t.repeats, repeat, &RepeatCount::repeat);
  return it == t.repeats.end() ? 1 : it->times;
}

// Which repeats say something, with all that are not kept because they say the same.
class InRepeats {
 public:
  explicit InRepeats(const Timeline& t) : timeline_(t) {
    std::set<std::uint32_t> all;
    for (const Session& s : t.sessions) all.insert(s.repeat);
    all_ = count(all);
  }
  bool any() const { return all_ > 1; }
  // "" without repeats, ", in 3 of 4 repeats" with.
  std::string text(const std::set<std::uint32_t>& some) const {
    return any() ? fmt::format(", in {} of {} repeats", count(some), all_) : "";
  }

 private:
  std::uint32_t count(const std::set<std::uint32_t>& repeats) const {
    std::uint32_t out = 0;
    for (const std::uint32_t repeat : repeats) out += times_of(timeline_, repeat);
    return out;
  }

  const Timeline& timeline_;
  std::uint32_t all_ = 0;
};

// The rule has said what the process died of, which says more than that the check ended so.
void leave_out_told_deaths(std::vector<Finding>& findings) {
  const auto is_told = [&](const Finding& f) {
    return f.outcome == Outcome::kCrash && f.signature == kDied &&
           std::ranges::any_of(findings, [&](const Finding& other) {
             return other.signature == kDiedOfFault && other.image == f.image;
           });
  };
  std::vector<Finding> kept;
  for (const Finding& f : findings) {
    if (!is_told(f)) kept.push_back(f);
  }
  findings = std::move(kept);
}

// What is odd about the adapter and decides nothing.
void add_adapter_notes(const Timeline& t, RunResult& out) {
  const InRepeats in_repeats(t);
  std::uint64_t noise_lines = 0;
  std::string noise;
  std::set<std::uint32_t> noisy;
  std::size_t left_behind = 0;
  std::string left;
  std::set<std::uint32_t> leaving;
  std::size_t stayed = 0;
  std::set<std::uint32_t> staying;
  std::map<std::string, std::set<std::uint32_t>> codes;
  for (const Session& s : t.sessions) {
    const Oddities odd = oddities_of(s);
    if (odd.noise) {
      if (noise_lines == 0) noise = s.noise;
      noise_lines += s.noise_lines;
      noisy.insert(s.repeat);
    }
    if (odd.left_behind) {
      if (left_behind == 0) left = s.left_behind.front();
      left_behind += s.left_behind.size();
      leaving.insert(s.repeat);
    }
    if (odd.stayed) {
      ++stayed;
      staying.insert(s.repeat);
    }
    if (!odd.exit_code.empty()) codes[odd.exit_code].insert(s.repeat);
  }
  // A number says nothing about repeats that are not kept.
  const auto lines = in_repeats.any()   ? "lines that are"
                     : noise_lines == 1 ? "1 line that is"
                                        : fmt::format("{} lines that are", noise_lines);
  const auto processes =
      in_repeats.any()   ? "processes outlived the adapter and were"
      : left_behind == 1 ? "1 process outlived the adapter and was"
                         : fmt::format("{} processes outlived the adapter and were", left_behind);
  if (noise_lines > 0) {
    out.notes.push_back(fmt::format("the adapter wrote {} no protocol{}, the first: {}", lines,
                                    in_repeats.text(noisy), noise));
  }
  if (left_behind > 0) {
    out.notes.push_back(fmt::format("warning: {} killed{}, the first: {}", processes,
                                    in_repeats.text(leaving), left));
  }
  if (stayed > 0) {
    const auto times = stayed == 1 ? ", once" : fmt::format(", {} times", stayed);
    out.notes.push_back("warning: the adapter did not exit in time after bye and was killed" +
                        (in_repeats.any() ? in_repeats.text(staying) : times));
  }
  for (const auto& [code, repeats] : codes) {
    out.notes.push_back("warning: after bye the adapter " + code + in_repeats.text(repeats));
  }
}

bool is_fault_signal(int signo) {
  return signo == SIGSEGV || signo == SIGBUS || signo == SIGILL || signo == SIGFPE ||
         signo == SIGABRT || signo == SIGSYS || signo == SIGTRAP;
}

// A row about faults has said that the image did not live through one.
bool is_explained(const RunResult& out, const ImageKey& image) {
  return std::ranges::any_of(out.results, [&](const RequirementResult& r) {
    return is_about_faults(r.requirement->id) &&
           std::ranges::any_of(r.findings, [&](const Finding& f) {
             return f.image == image &&
                    (f.outcome == Outcome::kFail || f.outcome == Outcome::kWarn) &&
                    f.signature == kDiedOfFault;
           });
  });
}

std::string under(const FaultCell& cell) { return ", under " + cell.name(); }

// A program that dies or hangs of a call does so whatever the call's error: one problem each.
void join_problems_of_cells(const Timeline& t, RunResult& out) {
  std::vector<RunProblem> joined;
  std::map<std::tuple<Outcome, std::string, std::string>, std::size_t> known;
  for (RunProblem& p : out.problems) {
    const auto cell = std::ranges::find(t.cells, p.image.session, &FaultCell::session);
    if (cell == t.cells.end() || !p.text.ends_with(under(*cell))) {
      joined.push_back(std::move(p));
      continue;
    }
    auto text = p.text.substr(0, p.text.size() - under(*cell).size());
    const auto [at, is_new] =
        known.emplace(std::tuple(p.outcome, cell->step, std::move(text)), joined.size());
    if (is_new) {
      joined.push_back(std::move(p));
    } else {
      joined[at->second].text += ", " + cell->fault;
    }
  }
  out.problems = std::move(joined);
}

// CMD itself, or a process that published, died of a signal that was not ours.
void add_crashes(const Timeline& t, const std::vector<ImageEvidence>& evidence, RunResult& out) {
  for (const Process& p : t.processes) {
    if (!p.killed_by || p.ended_by_us || p.images.empty()) continue;
    const auto cell = std::ranges::find(t.cells, p.session, &FaultCell::session);
    if (cell != t.cells.end() && explains_death(*cell, *p.killed_by)) continue;
    const bool published = std::ranges::any_of(
        evidence, [&](const ImageEvidence& e) { return e.process == &p && e.published(); });
    const bool root = t.mode == Mode::kWrap && is_root(t, p);
    // That is in the findings of a check.
    const auto of_process = [&](const Session& s) {
      return s.root.session == p.session && s.root.pid == p.pid;
    };
    if (std::ranges::any_of(t.sessions, of_process)) continue;
    if (!root && !(published && is_fault_signal(*p.killed_by))) continue;
    if (is_explained(out, p.images.back().key)) continue;
    // Of one of several runs the number says nothing.
    const Image& image = p.images.back();
    const bool of_cell = cell != t.cells.end();
    RunProblem problem;
    problem.outcome = Outcome::kCrash;
    problem.image = image.key;
    problem.text =
        fmt::format("{}{} died of {}{}{}", image.executable,
                    of_cell ? "" : fmt::format(" ({})", p.pid), signal_name(*p.killed_by),
                    published ? "" : " without having published", of_cell ? under(*cell) : "");
    out.problems.push_back(std::move(problem));
  }
  for (const FaultCell& cell : t.cells) {
    if (cell.hang.empty() || explains_hang(cell)) continue;
    RunProblem problem;
    problem.outcome = Outcome::kTimeout;
    problem.image.session = cell.session;
    problem.text = "the program did not end by itself" + under(cell);
    out.problems.push_back(std::move(problem));
  }
  if (!t.hang.empty()) {
    RunProblem problem;
    problem.outcome = Outcome::kTimeout;
    problem.text = "the program was ended as a runaway: " + t.hang;
    out.problems.push_back(std::move(problem));
  }
}

// Where no session says anything: those speak that were asked for this, and of these the ones that
// know why there is nothing.
void keep_those_asked(const Timeline& t, const Requirement& r, std::vector<Finding>& findings) {
  if (!std::ranges::all_of(findings, is_silent)) return;
  using SessionProcess = std::pair<std::uint32_t, std::int32_t>;
  std::set<SessionProcess> asked;
  for (const Session& s : t.sessions) {
    for (const CheckRun& c : s.checks) {
      if (std::ranges::find(c.requirements, r.id) != c.requirements.end()) {
        asked.emplace(s.root.session, s.root.pid);
      }
    }
  }
  const auto is_asked = [&](const Finding& f) {
    return asked.contains(SessionProcess(f.image.session, f.image.pid));
  };
  if (std::ranges::any_of(findings, is_asked)) std::erase_if(findings, std::not_fn(is_asked));
  const auto is_na = [](const Finding& f) { return f.outcome == Outcome::kNa; };
  if (std::ranges::any_of(findings, is_na)) std::erase_if(findings, std::not_fn(is_na));
}

// Why no operation of the checks that are for this row showed anything: in each of them the SDK
// refused one by design. Nothing where calls failed, which is another reason.
std::optional<Finding> refused_by_design(const std::vector<ImageEvidence>& evidence,
                                         const Requirement& r) {
  constexpr std::size_t kMessageKept = 200;
  const DrivenOperation* refused = nullptr;
  std::map<const CheckRun*, bool> refuses;
  for (const ImageEvidence& e : evidence) {
    if (e.session == nullptr || !e.session->session->faults.empty()) continue;
    for (const DrivenOperation& d : e.session->operations) {
      if (!d.op.starts_with("process.") || d.check == nullptr) continue;
      if (std::ranges::find(d.check->requirements, r.id) == d.check->requirements.end()) continue;
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

// Why there was nothing to see, where no finding says anything.
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

// "adapter_cpp 1, SDK otel_ctx_writer 0.1.0 (cpp)" and what it declares; hostile.
std::vector<std::string> adapter_notes(const Timeline& t) {
  if (t.sessions.empty()) return {};
  const auto hello = nlohmann::json::parse(t.sessions.front().hello, nullptr, false);
  if (!hello.is_object()) return {};
  const auto text = [&](const char* object, const char* member) -> std::string {
    if (!hello.contains(object) || !hello[object].is_object()) return {};
    const auto& o = hello[object];
    return o.contains(member) && o[member].is_string() ? o[member].get<std::string>() : "";
  };
  std::string who = "adapter " + text("adapter", "name") + " " + text("adapter", "version");
  if (!text("sdk", "name").empty()) {
    who += fmt::format(", SDK {} {} ({})", text("sdk", "name"), text("sdk", "version"),
                       text("sdk", "language"));
  }
  constexpr std::size_t kMostShown = 64;
  std::string declares;
  if (hello.contains("caps") && hello["caps"].is_object()) {
    std::size_t count = 0;
    for (const auto& [name, value] : hello["caps"].items()) {
      if (++count > kMostShown) break;
      declares += (declares.empty() ? "it declares " : ", ") + name.substr(0, kMostShown);
    }
  }
  if (declares.empty()) declares = "it declares nothing";
  return {who.substr(0, 200), std::move(declares)};
}

// run: in each of its sessions another of its faults came first, like the one that ended the
// publication.
bool is_beside_another(const Timeline& t, const Injection& injection) {
  std::set<std::uint32_t> faulted;
  for (const Process& p : t.processes) {
    for (const Image& i : p.images) {
      if (std::ranges::any_of(i.calls, &SystemCall::injected)) faulted.insert(p.session);
    }
  }
  bool any = false;
  for (const Session& s : t.sessions) {
    if (std::ranges::find(s.faults, injection.spec) == s.faults.end()) continue;
    if (!faulted.contains(s.root.session)) return false;
    any = true;
  }
  return any;
}

// Under a fault not all is judged, and what is wrong without it as well is told once.
bool is_plain(const ImageEvidence& e) { return e.cell == nullptr && !e.faulted; }

// Of the operations in which something is wrong, and of the first publication and the first update
// in which nothing is.
void add_pictures(const std::vector<ImageEvidence>& evidence, RunResult& out) {
  for (const ImageEvidence& e : evidence) {
    std::vector<EventPlace> wrong;
    for (RequirementResult& r : out.results) {
      for (Finding& f : r.findings) {
        if (!f.event || f.image != e.image->key) continue;
        wrong.push_back(*f.event);
        f.operation = picture_of(e, *f.event);
      }
    }
    if (!is_plain(e) || out.operations.size() == 2) continue;
    for (OperationPicture& picture : pictures_without(e, wrong)) {
      const bool known = std::ranges::any_of(out.operations, [&](const OperationSummary& o) {
        return o.picture.is_update == picture.is_update;
      });
      if (!known) out.operations.push_back({e.image->key, e.name(), std::move(picture)});
    }
  }
}

// What readers accept and rows say nothing of: payloads of which not all was kept. Empty: none. In
// a cell the program publishes what it published without a fault.
std::string not_judged(const std::vector<ImageEvidence>& evidence) {
  std::size_t count = 0;
  std::uint64_t largest = 0;
  for (const ImageEvidence& e : evidence) {
    if (e.cell != nullptr) continue;
    for (const Context* c : e.first_sights) {
      const MemoryBlock* b = c->payload_block;
      if (b == nullptr || c->payload != nullptr || b->readable <= c->payload_bytes.size()) continue;
      ++count;
      largest = std::max(largest, b->wanted);
    }
  }
  if (count == 0) return {};
  return fmt::format("{} of up to {} bytes {} not judged: of one process {} MiB are kept",
                     count == 1 ? "a payload" : fmt::format("{} payloads", count), largest,
                     count == 1 ? "was" : "were", kMostPayload >> 20U);
}

// The deepest that any image was looked at: what a mode may record, it records only where it is
// asked for, and the host and the program let it.
Level level_of(const Timeline& t, const std::vector<const Requirement*>& selected) {
  if (t.mode != Mode::kWrap) return deepest_recorded(t.mode);
  const auto any_image = [&](const auto& is) {
    return std::ranges::any_of(t.processes,
                               [&](const Process& p) { return std::ranges::any_of(p.images, is); });
  };
  if (any_image([](const Image& i) { return !i.slot_walks.empty(); })) return Level::kSteps;
  const auto has_stores = [](const Image& i) {
    return i.stores_unseen.empty() || !i.watches.empty();
  };
  if (any_image(has_stores)) return Level::kStores;
  const auto asks_for_calls = [](const Requirement* r) {
    return r->level >= Level::kSyscalls && r->has_mode(Mode::kWrap) && !is_about_threads(*r);
  };
  const bool asked = std::ranges::any_of(selected, asks_for_calls);
  if (asked && any_image([](const Image& i) { return i.calls_unseen.empty(); })) {
    return Level::kSyscalls;
  }
  return Level::kSnapshot;
}

}  // namespace

Oddities oddities_of(const Session& s) {
  Oddities out;
  out.noise = s.noise_lines > 0;
  out.left_behind = !s.left_behind.empty();
  const bool said_bye = !s.checks.empty() && s.checks.back().name == "bye" &&
                        s.checks.back().ending == CheckEnding::kDone;
  if (!said_bye) return out;
  out.stayed = s.ending.starts_with("killed by");
  if (s.ending.starts_with("exited ") && s.ending != "exited 0") out.exit_code = s.ending;
  return out;
}

RunResult judge(const Timeline& t, const std::vector<const Requirement*>& selected) {
  RunResult out;
  out.suite_version = t.suite_version;
  out.mode = to_string(t.mode);
  out.target = t.target;
  out.kernel = t.kernel;
  out.arch = t.arch;
  out.libc = t.libc;
  out.level = to_string(level_of(t, selected));
  out.reading = t.reading;
  out.started_at = t.started_at;
  out.seconds = t.seconds;
  out.host = t.host;
  out.notes = t.notes;
  for (auto& note : adapter_notes(t)) out.notes.push_back(std::move(note));
  for (const Injection& i : t.injections) {
    out.injections.push_back(times_of(i));
    if (i.times > 0 || is_beside_another(t, i)) continue;
    out.notes.push_back((t.mode == Mode::kRun ? "the failure " : "--inject ") + i.spec +
                        " was never applied: no such call was made for a publication, and nothing "
                        "can be concluded about it");
  }

  const auto evidence = evidence_of(t);
  out.incomplete = not_judged(evidence);
  for (const Process& p : t.processes) {
    for (const Image& i : p.images) {
      if (!t.cells.empty() && p.session != 0) continue;  // its cell says what became of it
      ImageSummary s;
      s.key = i.key;
      s.parent = p.parent;
      s.executable = i.executable;
      s.command_line = i.command_line;
      const bool killed = &i == &p.images.back() && p.killed_by;
      s.ending = killed ? ending_of(p) : i.ending;
      s.notes = i.notes;
      for (const auto& shot : i.snapshots) s.snapshots += shot.times;
      const auto e = std::ranges::find(evidence, &i, &ImageEvidence::image);
      s.published = e != evidence.end() && e->published();
      if (s.published) s.context = summary_of(*e);
      if (e != evidence.end()) {
        if (const auto threads = threads_of(*e); !threads.empty()) s.notes.push_back(threads);
      }
      if (i.snapshots_dropped > 0) {
        const auto unjudged =
            i.snapshots_dropped - std::min(i.snapshots_judged, i.snapshots_dropped);
        s.notes.push_back(fmt::format("{} states were not kept, {} of them without being judged",
                                      i.snapshots_dropped, unjudged));
      }
      out.images.push_back(std::move(s));
    }
  }
  if (t.mode == Mode::kWrap && !t.processes.empty()) {
    if (auto ending = ending_of(t.processes.front()); !ending.empty()) {
      out.target_ending = std::move(ending);
    }
  }
  std::set<const CheckRun*> told;
  std::map<std::uint32_t, FaultTally> tallies;
  for (const Requirement* r : selected) {
    RequirementResult result;
    result.requirement = r;
    std::string repeats;
    const auto asked = asked_of(evidence, *r);
    auto decided = decided_by_run(*r, t.mode);
    const auto undeclared = decided ? std::nullopt : not_declared(t, *r);
    if (!decided && asked.empty()) decided = undeclared;
    if (!decided && asked.empty()) decided = nobody_to_ask(*r);
    add_ended_checks(t, result, told);
    if (decided && !result.findings.empty()) {
      // That the adapter did not live to show anything says more.
    } else if (decided) {
      if (!evidence.empty()) {
        decided->image = evidence.front().image->key;
        decided->image_name = evidence.front().name();
      }
      result.findings.push_back(std::move(*decided));
    } else {
      for (const ImageEvidence* e : asked) {
        const bool judged = !e->faulted || is_about_faults(r->id) || holds_under_faults(*e, r->id);
        Finding f = judged ? rule_for(r->id)(*e) : not_judged_under_faults(t);
        if (f.outcome == Outcome::kPass) {
          if (auto why = rests_on_dropped(*e->image, r->id)) f = *std::move(why);
        }
        if (f.outcome == Outcome::kFail) {
          f.outcome = by_severity(f.unnoticed ? severity_unnoticed(*r, t.reading)
                                              : severity_in(*r, t.reading));
        }
        f.image = e->image->key;
        f.image_name = e->name();
        result.findings.push_back(std::move(f));
      }
      leave_out_told_deaths(result.findings);
      settle_cells(t, *r, result.findings, tallies);
      repeats = repeats_of(t, result.findings);
      if (is_about_threads(*r) || is_about_faults(r->id) || t.mode == Mode::kRun) {
        leave_out_silent_images(result.findings);
      }
      if (t.mode == Mode::kRun) keep_those_asked(t, *r, result.findings);
      if (auto why = reason_for_silence(t, evidence, *r, undeclared, result.findings)) {
        why->image = result.findings.front().image;
        why->image_name = result.findings.front().image_name;
        result.findings = {std::move(*why)};
      }
    }
    for (Finding& f : result.findings) f.requirement = r->id;
    std::ranges::sort(result.findings, [](const Finding& a, const Finding& b) {
      return a.outcome != b.outcome ? a.outcome > b.outcome : a.image < b.image;
    });
    if (!repeats.empty()) result.findings.front().evidence.push_back(repeats);
    result.outcome = result.findings.front().outcome;
    out.results.push_back(std::move(result));
  }
  if (!t.harness_fault.empty()) {
    RunProblem problem;
    problem.outcome = Outcome::kHarnessError;
    problem.text = "ctxconf could not go on, a bug in it that you may report: " + t.harness_fault;
    out.problems.push_back(std::move(problem));
  }
  add_crashes(t, evidence, out);
  add_ended_adapters(t, told, out);
  add_adapter_notes(t, out);
  add_pictures(evidence, out);
  out.faults = fault_matrix(t, tallies, out);
  join_problems_of_cells(t, out);
  return out;
}

}  // namespace ctxconf::conformance
