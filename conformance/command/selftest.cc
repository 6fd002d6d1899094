// The selftest: each mutant must be caught by the requirements that it breaks and by no others; no
// requirement may report a legal variant.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/generated_programs.h"
#include "conformance/command/has_check.h"
#include "conformance/command/judging.h"
#include "conformance/command/print.h"
#include "conformance/evidence/timeline.h"
#include "conformance/judge/judge.h"
#include "conformance/report/escape.h"
#include "conformance/report/result_json.h"
#include "conformance/text/json_line.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/version.h"
#include "sys/child.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"
#include "sys/shaking.h"
#include "sys/trampoline_file.h"

namespace ctxconf::conformance {
namespace {

struct SelftestCommand {
  std::string directory;  // where the programs and mutants.json are; empty: next to ctxconf
  std::vector<std::string> only;
  std::vector<std::string> commands;  // those of kZooCommands; empty: all
  unsigned jobs = 0;                  // 0: kJobsPerProcessor
  bool all_scenes = false;
  std::optional<std::uint64_t> shaken;  // the seed
  double timeout_scale = 1;
  std::string json;  // a file for VerdictLines; empty: none
  bool verbose = false;
};

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Programs for wrap and elf; adapters for run, by OTEP; adapters of readers.
constexpr std::array kZoo = {"mutants.json", "driven_process_mutants.json",
                             "driven_thread_mutants.json", "driven_record_mutants.json",
                             "reader_mutants.json"};
constexpr const char* kHowToNameZoo =
    "--dir DIR names the directory with mutants.json and its programs";
constexpr std::array kZooCommands = {"wrap", "run", "elf", "reader"};
constexpr int kCannotBeShownHere = 77;
// To judge every recording again would take a tenth longer.
constexpr std::size_t kProgramsForOneWhole = 4;
// Most programs wait for time to pass, and use little of it.
constexpr unsigned kJobsPerProcessor = 3;
constexpr std::chrono::seconds kDeadline(180);  // of one run of ctxconf

struct Entry {
  std::string name;
  bool mutant = false;
  std::string
      command;  // "wrap" runs the program, "run" and "reader" drive it, "elf" reads the file
  std::string program;
  std::vector<std::string> args;
  std::vector<std::string> wrap_args;
  std::vector<std::string> requirements;
  std::map<std::string, std::string> expect;  // id: outcome
  std::map<std::string, std::string> host_may_add;
  std::string harm;         // what the run must say that a reader does to its target
  bool all_scenes = false;  // a reader that ends or hangs does so in scenes of other topics too
  bool may_skip = false;
  bool again_whole = true;  // judged again from its whole recording
};

enum class Verdict { kKilled, kClean, kMissed, kFalseAlarm, kSkipped, kBroken };

struct Outcomes {
  Verdict verdict = Verdict::kBroken;
  bool unseen = false;  // no failure: something was not seen while it existed
  std::string text;     // one line on what was wrong
  std::string report;   // of ctxconf
  bool again = false;   // judged a second time, with longer pauses
  std::chrono::steady_clock::duration time{};
};

Outcomes outcome(Verdict verdict, std::string text = {}) {
  Outcomes out;
  out.verdict = verdict;
  out.text = std::move(text);
  return out;
}

Outcomes unseen(Verdict verdict, std::string text) {
  Outcomes out = outcome(verdict, std::move(text));
  out.unseen = true;
  return out;
}

sys::Result<std::vector<Entry>> parse_zoo(const std::string& text, const char* file,
                                          bool all_scenes) {
  const Json doc = Json::parse(text, nullptr, false);
  const auto wrong = [&](const std::string& what) { return sys::fail(file, EINVAL, what); };
  if (!doc.is_object() || doc.value("version", 0) != 1 || !doc.contains("mutants") ||
      !doc["mutants"].is_array()) {
    return wrong("not a list of mutants, version 1");
  }
  const auto strings = [](const Json& entry, const char* name) {
    std::vector<std::string> out;
    if (entry.contains(name) && entry[name].is_array()) {
      for (const auto& s : entry[name]) {
        if (s.is_string()) out.push_back(s.get<std::string>());
      }
    }
    return out;
  };
  std::vector<Entry> out;
  for (const auto& p : doc["mutants"]) {
    if (!p.is_object()) return wrong("a program is not an object");
    Entry e;
    e.name = p.value("name", "");
    e.mutant = p.value("kind", "") == "mutant";
    e.command = p.value("command", "wrap");
    e.program = p.value("program", "");
    e.args = strings(p, "args");
    e.wrap_args = strings(p, "wrap_args");
    if (all_scenes && e.command == "reader") {
      std::erase_if(e.wrap_args, [](const std::string& a) { return a.starts_with("--only="); });
    }
    e.requirements = strings(p, "requirements");
    e.all_scenes = all_scenes;
    e.harm = p.value("harm", "");
    e.may_skip = p.value("may_skip", false);
    if (e.name.empty() || e.program.empty()) return wrong("a program has no name or file");
    if (std::ranges::find(kZooCommands, e.command) == kZooCommands.end()) {
      return wrong(e.name + ": unknown command " + e.command);
    }
    for (const auto& [member, to] :
         {std::pair{"expect", &e.expect}, std::pair{"host_may_add", &e.host_may_add}}) {
      if (!p.contains(member) || !p[member].is_object()) continue;
      for (const auto& [id, outcome] : p[member].items()) {
        if (Catalogue::builtin().find(id) == nullptr)
          return wrong(e.name + ": unknown requirement " + id);
        if (!outcome.is_string() || !outcome_from(outcome.get<std::string>())) {
          return wrong(e.name + ": unknown outcome for " + id);
        }
        (*to)[id] = outcome.get<std::string>();
      }
    }
    if (e.mutant && e.expect.empty() && e.harm.empty()) {
      return wrong(e.name + ": a mutant that breaks no requirement and does no harm");
    }
    e.again_whole = out.size() % kProgramsForOneWhole == 0;
    out.push_back(std::move(e));
  }
  return out;
}

bool is_broken(Outcome o) {
  return o != Outcome::kPass && o != Outcome::kNa && o != Outcome::kUnobservable;
}

bool is_end(Outcome o) { return o == Outcome::kCrash || o == Outcome::kTimeout; }

// A reader that ends or hangs where it is wrong. All scenes have several such places, and after
// some of them the rest of a group is not asked.
bool ends_anywhere(const Entry& entry) {
  return entry.all_scenes && std::ranges::any_of(entry.expect, [](const auto& want) {
           return is_end(outcome_from(want.second).value_or(Outcome::kPass));
         });
}

// Programs that pause between their steps, so that a periodic look finds each step. On a busy
// machine the looks come late.
bool has_pauses(const Entry& entry) {
  return entry.command == "wrap" &&
         (entry.program == "process_writer" || entry.program == "ctypes_writer.py" ||
          entry.program.starts_with("thread_"));
}
constexpr const char* kLongPause = "3000";  // milliseconds
constexpr const char* kShortRace = "0.03";  // seconds; for programs that do not test races

// What the runs of all entries share.
struct Runs {
  std::string self;       // ctxconf
  std::string directory;  // of the programs
  std::string scratch;
  int interrupt = -1;  // readable once a signal asks to end
  std::optional<std::uint64_t> shaken;
  double timeout_scale = 1;
};

// The ctxconf command line for an entry; `dir` gets its results.
std::vector<std::string> command_line(const Entry& entry, const Runs& runs, const std::string& dir,
                                      bool slowly) {
  const std::string& directory = runs.directory;
  std::vector<std::string> out = {runs.self, entry.command, "--color", "never", "-v", "--out", dir};
  if (runs.shaken) out.insert(out.end(), {"--shake", std::to_string(*runs.shaken)});
  if (entry.command == "elf") {
    out.push_back(directory + "/" + entry.program);
    for (const auto& file : entry.args) out.emplace_back(directory).append("/").append(file);
    return out;
  }
  out.insert(out.end(), entry.wrap_args.begin(), entry.wrap_args.end());
  if (runs.timeout_scale != 1) {
    out.insert(out.end(), {"--timeout-scale", fmt::format("{}", runs.timeout_scale)});
  }
  const auto is_race = [](const std::string& arg) { return arg.starts_with("--race"); };
  if (entry.command == "run" && std::ranges::none_of(entry.wrap_args, is_race)) {
    out.insert(out.end(), {"--race", kShortRace});
  }
  out.insert(out.end(), {"--", directory + "/" + entry.program});
  out.insert(out.end(), entry.args.begin(), entry.args.end());
  if (slowly) out.insert(out.end(), {"--pause", kLongPause});
  return out;
}

std::string first_saw(const RequirementResult& r) {
  return r.findings.empty() ? "" : r.findings.front().saw;
}

// The difference after a recording is judged again, or empty.
std::string replayed_otherwise(const std::string& path,
                               const std::vector<const RequirementResult*>& results) {
  const auto text = read_file(path, kLongestTimeline);
  if (!text) return sys::to_string(text.error());
  const auto timeline = timeline_from_json(*text);
  if (!timeline) return path + ": " + sys::to_string(timeline.error());
  std::vector<const Requirement*> requirements;
  requirements.reserve(results.size());
  for (const auto* r : results) requirements.push_back(r->requirement);
  const RunResult again = judge(*timeline, requirements);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RequirementResult& first = *results[i];
    const auto second =
        std::ranges::find(again.results, first.requirement, &RequirementResult::requirement);
    const std::string& id = first.requirement->id;
    if (second == again.results.end()) return fmt::format("{}: {} is not judged", path, id);
    const auto said = [](const RequirementResult& r) {
      return fmt::format("{}: {}", to_string(r.outcome), first_saw(r));
    };
    if (said(first) != said(*second)) {
      return fmt::format("{}: {} is {}; when it was recorded: {}", path, id, said(*second),
                         said(first));
    }
  }
  return {};
}

// Checks the trace of each broken requirement, and the whole recording if the entry says so or a
// broken program has no trace.
std::string replayed_otherwise(const Entry& entry, const std::string& dir, const RunResult& run) {
  std::vector<const RequirementResult*> all;
  all.reserve(run.results.size());
  bool has_trace = false;
  for (const auto& r : run.results) {
    all.push_back(&r);
    if (r.trace_path.empty()) {
      const bool broken = r.outcome == Outcome::kFail || r.outcome == Outcome::kWarn;
      if (broken) return r.requirement->id + " has no trace";
      continue;
    }
    has_trace = true;
    if (auto wrong = replayed_otherwise(r.trace_path, {&r}); !wrong.empty()) return wrong;
  }
  if (!entry.again_whole && (has_trace || !entry.mutant)) return {};
  return replayed_otherwise(dir + "/timeline.json", all);
}

// What a run shows that the entry does not say. Empty lists: all is as it says.
struct Differences {
  std::vector<std::string> missed;      // what was to be reported
  std::vector<std::string> unexpected;  // what was reported
  std::vector<std::string> unseen;      // requirements of a legal program that were not judged
  bool all_unseen = true;               // nothing missed was reported otherwise
};

bool host_may_add(const Entry& entry, const RequirementResult& r) {
  const auto may = entry.host_may_add.find(r.requirement->id);
  return may != entry.host_may_add.end() && to_string(r.outcome) == may->second;
}

void compare_result(const Entry& entry, const RequirementResult& r, Differences& out) {
  const std::string& id = r.requirement->id;
  if (const auto want = entry.expect.find(id); want != entry.expect.end()) {
    if (to_string(r.outcome) == want->second) return;
    out.missed.push_back(fmt::format("{} is {}, want {}", id, to_string(r.outcome), want->second));
    out.all_unseen = out.all_unseen && !is_broken(r.outcome);
  } else if (host_may_add(entry, r)) {
    return;
  } else if (is_broken(r.outcome)) {
    out.unexpected.push_back(fmt::format("{} is {}: {}", id, to_string(r.outcome), first_saw(r)));
  } else if (!entry.mutant && r.outcome == Outcome::kUnobservable &&
             std::ranges::find(entry.requirements, id) != entry.requirements.end()) {
    out.unseen.push_back(id);
  }
}

Differences compare(const Entry& entry, const RunResult& run) {
  Differences out;
  const bool ends = ends_anywhere(entry);
  for (const auto& r : run.results) {
    if (!ends || !is_end(r.outcome)) compare_result(entry, r, out);
  }
  bool harmed = false;
  for (const auto& p : run.problems) {
    if (ends && is_end(p.outcome)) continue;
    if (!entry.harm.empty() && p.harm == entry.harm) {
      harmed = true;
    } else {
      out.unexpected.push_back(fmt::format("{}: {}", to_string(p.outcome), p.text));
    }
  }
  if (!entry.harm.empty() && !harmed) {
    out.missed.push_back(fmt::format("the run does not say that the reader {}", entry.harm));
    out.all_unseen = false;
  }
  return out;
}

// A legal program that does nothing, or fails, would always be clean.
Outcomes verdict_without_differences(const Entry& entry, const RunResult& run,
                                     const Differences& found) {
  if (!found.unseen.empty()) {
    return unseen(Verdict::kBroken,
                  found.unseen.front() + " was not judged, and mutants.json does not say so");
  }
  if (!entry.mutant && entry.command == "wrap" &&
      !(run.target_ended && run.target_ended->exited_with(0))) {
    return outcome(Verdict::kBroken, "the program " + run.target_ending.value_or("did not run"));
  }
  return outcome(entry.mutant ? Verdict::kKilled : Verdict::kClean);
}

Outcomes verdict_on(const Entry& entry, const RunResult& run, const Differences& found) {
  const bool shows_nothing =
      entry.expect.empty() ? !found.unseen.empty() : found.missed.size() == entry.expect.size();
  if (entry.may_skip && shows_nothing && found.all_unseen && found.unexpected.empty()) {
    return unseen(Verdict::kSkipped, entry.expect.empty()
                                         ? found.unseen.front() + " cannot be judged on this host"
                                         : "it breaks nothing on this host");
  }
  if (!found.missed.empty()) {
    const auto verdict = entry.mutant ? Verdict::kMissed : Verdict::kFalseAlarm;
    const bool nothing_else = found.all_unseen && found.unexpected.empty();
    return nothing_else ? unseen(verdict, found.missed.front())
                        : outcome(verdict, found.missed.front());
  }
  if (!found.unexpected.empty()) {
    return outcome(Verdict::kFalseAlarm, found.unexpected.front());
  }
  return verdict_without_differences(entry, run, found);
}

// One run of ctxconf about an entry.
struct Ran {
  std::string report;
  std::optional<int> exit_code;
  sys::Result<RunResult> result;
};

sys::Result<Ran> run_ctxconf(const Entry& entry, const Runs& runs, const std::string& dir,
                             bool slowly) {
  sys::ChildOptions child;
  child.argv = command_line(entry, runs, dir, slowly);
  child.deadline =
      std::chrono::duration_cast<std::chrono::milliseconds>(kDeadline * runs.timeout_scale);
  child.interrupt = runs.interrupt;
  CTX_ASSIGN_OR_RETURN(ran, sys::run_child(child));
  const auto text = read_file(dir + "/result.json", kLongestResultJson);
  return Ran{.report = ran.output + ran.errors,
             .exit_code = ran.exit_code,
             .result = text ? result_from_json(*text, Catalogue::builtin())
                            : sys::Result<RunResult>(std::unexpected(text.error()))};
}

Outcomes skipped_or_broken(const Entry& entry, std::string text) {
  return outcome(entry.may_skip ? Verdict::kSkipped : Verdict::kBroken, std::move(text));
}

Outcomes judge_run(const Entry& entry, const Ran& ran, const std::string& dir) {
  if (!ran.result) {
    return outcome(Verdict::kBroken,
                   fmt::format("no result (exit {}): {}", ran.exit_code.value_or(-1),
                               sys::to_string(ran.result.error())));
  }
  const RunResult& run = *ran.result;
  if (run.target_ended && run.target_ended->exited_with(kCannotBeShownHere)) {
    return skipped_or_broken(entry, "the program says that this host cannot show it");
  }
  if (entry.command != "elf") {
    if (auto wrong = replayed_otherwise(entry, dir, run); !wrong.empty()) {
      return outcome(Verdict::kBroken, "replay: " + wrong);
    }
  }
  return verdict_on(entry, run, compare(entry, run));
}

Outcomes judge_once(const Entry& entry, const Runs& runs, bool slowly) {
  const std::string program = runs.directory + "/" + entry.program;
  if (access(program.c_str(), entry.command == "elf" ? R_OK : X_OK) != 0) {
    return skipped_or_broken(entry, entry.program + " was not built");
  }
  const std::string dir = runs.scratch + "/" + entry.name;
  auto ran = run_ctxconf(entry, runs, dir, slowly);
  if (!ran) {
    return outcome(Verdict::kBroken,
                   "ctxconf could not be started: " + sys::to_string(ran.error()));
  }
  Outcomes out = judge_run(entry, *ran, dir);
  out.report = std::move(ran->report);
  return out;
}

Outcomes judge_entry(const Entry& entry, const Runs& runs) {
  const auto begun = std::chrono::steady_clock::now();
  Outcomes out = judge_once(entry, runs, /*slowly=*/false);
  if (out.unseen && has_pauses(entry)) {
    out = judge_once(entry, runs, /*slowly=*/true);
    out.again = true;
  }
  out.time = std::chrono::steady_clock::now() - begun;
  return out;
}

struct VerdictWords {
  const char* shown;
  const char* in_json;
};

VerdictWords words(Verdict v) {
  switch (v) {
    case Verdict::kKilled:
      return {"killed", "killed"};
    case Verdict::kClean:
      return {"clean", "clean"};
    case Verdict::kMissed:
      return {"MISSED", "missed"};
    case Verdict::kFalseAlarm:
      return {"FALSE ALARM", "false-alarm"};
    case Verdict::kSkipped:
      return {"skipped", "skipped"};
    case Verdict::kBroken:
      break;
  }
  return {"BROKEN", "broken"};
}

// A file with a line of JSON about this host, and one about each program as soon as it is judged,
// so that a selftest which does not end leaves what it knows.
class VerdictLines {
 public:
  // An empty path: nothing is written.
  static sys::Result<VerdictLines> open(const std::string& path, std::size_t programs) {
    VerdictLines out;
    if (path.empty()) return out;
    out.file_ = sys::Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!out.file_.is_open()) return sys::fail("open", errno, path);
    utsname host{};
    uname(&host);
    out.write({{"kind", "selftest"},
               {"suite_version", kVersionText},
               {"commit", kCommitText},
               {"kernel", host.release},
               {"arch", host.machine},
               {"programs", programs}});
    return out;
  }

  void add(const Entry& e, const Outcomes& o) {
    if (!file_.is_open()) return;
    const std::chrono::duration<double> time = o.time;
    nlohmann::ordered_json line = {{"kind", "program"},
                                   {"name", e.name},
                                   {"mutant", e.mutant},
                                   {"command", e.command},
                                   {"verdict", words(o.verdict).in_json},
                                   {"seconds", std::round(time.count() * 1000) / 1000}};
    if (!o.text.empty()) line["text"] = json_text(o.text);
    write(line);
  }

  // Of the first line that could not be written; 0: all were.
  int error() const { return error_; }

 private:
  void write(const nlohmann::ordered_json& line) {
    if (error_ == 0) error_ = sys::write_all(file_.get(), dumped(line) + "\n");
  }

  sys::Fd file_;
  int error_ = 0;
};

// What the programs prove about one requirement.
struct Proof {
  int broken = 0;
  int killed = 0;
  int skipped = 0;  // broken programs that this host cannot show
  int legal = 0;
  int clean = 0;
};

void add_proofs(const Entry& e, Verdict verdict, std::map<std::string, Proof>& proofs) {
  if (!e.mutant) {
    for (const auto& id : e.requirements) {
      ++proofs[id].legal;
      proofs[id].clean += verdict == Verdict::kClean ? 1 : 0;
    }
    return;
  }
  for (const auto& [id, outcome] : e.expect) {
    ++proofs[id].broken;
    proofs[id].killed += verdict == Verdict::kKilled ? 1 : 0;
    proofs[id].skipped += verdict == Verdict::kSkipped ? 1 : 0;
  }
}

struct RequirementCounts {
  int all = 0;        // with a rule
  int unproven = 0;   // caught no broken program
  int not_shown = 0;  // have none that is broken on this host
};

// Prints what was proven of every requirement, or of those that lack proof.
RequirementCounts print_matrix(const std::map<std::string, Proof>& proofs, bool all) {
  RequirementCounts out;
  if (all) fmt::print("\n{:<44} {:<9} {:<8} {}\n", "requirement", "level", "killed", "clean");
  for (const auto& spec : Catalogue::builtin().specifications()) {
    for (const auto& r : spec.requirements) {
      if (!has_check(r)) {
        if (!all) continue;
        const auto why = r.excluded.value_or("there is no check for it yet");
        fmt::print("{:<44} {:<9} not checked: {}\n", r.id, to_string(r.level), why);
        continue;
      }
      ++out.all;
      const auto known = proofs.find(r.id);
      const Proof p = known == proofs.end() ? Proof() : known->second;
      const bool hidden = p.killed == 0 && p.skipped > 0;
      out.not_shown += hidden ? 1 : 0;
      out.unproven += p.killed == 0 && !hidden ? 1 : 0;
      if (p.killed > 0 && !all) continue;
      fmt::print("{:<44} {:<9} {:<8} {}{}\n", r.id, to_string(r.level),
                 fmt::format("{}/{}", p.killed, p.broken), fmt::format("{}/{}", p.clean, p.legal),
                 hidden          ? "  not shown: its broken program breaks nothing on this host"
                 : p.killed == 0 ? "  UNPROVEN: it has caught no broken program"
                                 : "");
    }
  }
  if (all) fmt::print("\n");
  return out;
}

// What is expected of the program, for its line.
std::string expectation(const Entry& e) {
  std::string out;
  for (const auto& [id, outcome] : e.expect) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", id, outcome);
  }
  if (!e.harm.empty()) return out + (out.empty() ? "" : ", ") + e.harm;
  if (out.empty() && !e.requirements.empty()) return "keeps " + e.requirements.front();
  return out;
}

// Prints what the programs of each command took, one after the other.
void print_times(const std::vector<Entry>& zoo, const std::vector<Outcomes>& outcomes) {
  std::string again;
  std::string times;
  for (const std::string command : kZooCommands) {
    int programs = 0;
    std::chrono::duration<double> sum{};
    for (std::size_t i = 0; i < zoo.size(); ++i) {
      if (zoo[i].command != command) continue;
      ++programs;
      sum += outcomes[i].time;
      if (outcomes[i].again) again += (again.empty() ? "" : ", ") + zoo[i].name;
    }
    if (programs == 0) continue;
    times += fmt::format("{}{} {:.0f} s ({} program{})", times.empty() ? "" : ", ", command,
                         sum.count(), programs, programs == 1 ? "" : "s");
  }
  fmt::print("time, summed over all jobs: {}\n", times);
  if (!again.empty()) fmt::print("judged a second time, with longer pauses: {}\n", again);
}

// `requirements`: if all programs were judged.
void print_totals(const std::map<Verdict, int>& counts,
                  const std::optional<RequirementCounts>& requirements) {
  const auto count = [&](Verdict verdict) {
    const auto known = counts.find(verdict);
    return known == counts.end() ? 0 : known->second;
  };
  fmt::print(
      "{} broken programs killed, {} legal programs clean, {} skipped, {} missed, {} false "
      "alarms, {} could not be judged\n",
      count(Verdict::kKilled), count(Verdict::kClean), count(Verdict::kSkipped),
      count(Verdict::kMissed), count(Verdict::kFalseAlarm), count(Verdict::kBroken));
  if (requirements) {
    fmt::print("{} of {} requirements with a check have caught a broken program\n",
               requirements->all - requirements->unproven - requirements->not_shown,
               requirements->all);
    if (requirements->not_shown > 0) {
      fmt::print("{} more have no program that is broken on this host\n", requirements->not_shown);
    }
  }
}

// The programs that are to be judged. Returns 0, or the exit code after a complaint.
int read_zoo(const SelftestCommand& c, const std::string& directory, std::vector<Entry>& zoo) {
  for (const char* name : kZoo) {
    const auto text = read_file(directory + "/" + name, 16U << 20U);
    if (!text) {
      return complain(kExitUsage, "selftest: " + sys::to_string(text.error()), kHowToNameZoo);
    }
    auto entries = parse_zoo(*text, name, c.all_scenes);
    if (!entries) return complain(kExitUsage, sys::to_string(entries.error()));
    zoo.insert(zoo.end(), entries->begin(), entries->end());
  }
  std::erase_if(zoo, [&](const Entry& e) {
    return (!c.only.empty() && !any_glob_matches(c.only, e.name)) ||
           (!c.commands.empty() && std::ranges::find(c.commands, e.command) == c.commands.end());
  });
  if (zoo.empty()) return complain(kExitUsage, "selftest: --only and --command match no program");
  return 0;
}

int selftest(const SelftestCommand& c) {
  std::error_code error;
  const std::string self = fs::read_symlink("/proc/self/exe", error).string();
  std::string directory = c.directory;
  if (directory.empty()) {
    const auto found = sys::program_folder_with({kZoo.front()}, F_OK);
    if (!found)
      return complain(kExitUsage, "selftest: " + sys::to_string(found.error()), kHowToNameZoo);
    directory = *found;
  }
  std::vector<Entry> zoo;
  if (const int code = read_zoo(c, directory, zoo); code != 0) return code;
  const bool whole = c.only.empty() && c.commands.empty();
  if (std::ranges::any_of(zoo, [](const Entry& e) { return e.command != "elf"; })) {
    if (const int code = check_ptrace("selftest"); code != 0) return code;
  }
  auto lines = VerdictLines::open(c.json, zoo.size());
  if (!lines) {
    return complain(kExitUsage, "selftest: --json: " + sys::to_string(lines.error()),
                    "name a file in a directory that exists and that you may write to");
  }

  // A signal that asks this process to end first ends its children and removes its folder.
  const sys::EndingSignals signals;
  const sys::Fd interrupt = signals.descriptor();
  std::string scratch = (fs::temp_directory_path(error) / "ctxconf-selftest-XXXXXX").string();
  if (mkdtemp(scratch.data()) == nullptr) {
    return complain(kExitUnreachable,
                    "selftest: cannot make " + scratch + ": " + std::strerror(errno),
                    "name a folder in which files can be made: TMPDIR=FOLDER");
  }
  const Runs runs{.self = self,
                  .directory = directory,
                  .scratch = scratch,
                  .interrupt = interrupt.get(),
                  .shaken = c.shaken,
                  .timeout_scale = c.timeout_scale};
  std::vector<Outcomes> outcomes(zoo.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> done = 0;
  std::mutex output;
  const bool progress = isatty(STDERR_FILENO) != 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < zoo.size() && signals.pending() == 0; i = next++) {
      outcomes[i] = judge_entry(zoo[i], runs);
      ++done;
      const std::scoped_lock lock(output);
      if (signals.pending() == 0) lines->add(zoo[i], outcomes[i]);
      if (progress) {
        tell(fmt::format("\r\033[K{} of {} {}\r", done.load(), zoo.size(), zoo[i].name));
      }
    }
  };
  const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
  const unsigned jobs = c.jobs != 0 ? c.jobs : kJobsPerProcessor * processors;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::min<unsigned>(jobs, 64); ++i) threads.emplace_back(work);
  for (auto& t : threads) t.join();
  if (progress) tell("\r\033[K");
  fs::remove_all(scratch, error);
  if (const int signo = signals.pending(); signo != 0) {
    return complain_ended("selftest", signo);
  }

  std::map<Verdict, int> counts;
  std::map<std::string, Proof> proofs;  // by requirement
  for (std::size_t i = 0; i < zoo.size(); ++i) {
    const Entry& e = zoo[i];
    const Outcomes& o = outcomes[i];
    ++counts[o.verdict];
    add_proofs(e, o.verdict, proofs);
    const bool right = o.verdict == Verdict::kKilled || o.verdict == Verdict::kClean;
    if (right && !c.verbose) continue;
    fmt::print("{:<11} {:<44} {}\n", words(o.verdict).shown, e.name, expectation(e));
    if (!o.text.empty()) {
      fmt::print("            {}\n", escape(o.text, Escape::kTerminal));
    }
    if (!right && o.verdict != Verdict::kSkipped) fmt::print("{}\n", o.report);
  }
  RequirementCounts requirements;
  if (whole) requirements = print_matrix(proofs, c.verbose);
  std::fflush(stdout);
  print_times(zoo, outcomes);
  print_totals(counts, whole ? std::optional(requirements) : std::nullopt);
  const bool clean = counts[Verdict::kMissed] == 0 && counts[Verdict::kFalseAlarm] == 0 &&
                     counts[Verdict::kBroken] == 0 && requirements.unproven == 0;
  if (lines->error() != 0) {
    return complain(kExitUnreachable,
                    "selftest: cannot write " + c.json + ": " + std::strerror(lines->error()));
  }
  return clean ? kExitClean : kExitFailed;
}

struct SelftestOptions {
  SelftestCommand selftest;
  GeneratedProgramsCommand generated;
};

}  // namespace

Command selftest_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<SelftestOptions>();
  CLI::App* sub = app.add_subcommand(
      "selftest", "judge the broken and the legal programs, and check each verdict");
  sub->add_option("--dir", o->selftest.directory, "the directory of mutants.json and its programs");
  sub->add_option("--only", o->selftest.only,
                  "run only programs whose name matches this glob (repeatable)")
      ->allow_extra_args(false);
  sub->add_option("--command", o->selftest.commands,
                  "run only programs for this command: wrap, run, elf or reader (repeatable)")
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"wrap", "run", "elf", "reader"}));
  sub->add_option("--jobs", o->selftest.jobs,
                  "run N programs at once, at most 64; default: three per processor, one with\n"
                  "--generate");
  sub->add_flag("--all-scenes", o->selftest.all_scenes,
                "show all scenes to each reader, not only those related to its mistake");
  sub->add_option("--shake", o->selftest.shaken,
                  "let ctxconf pause at random moments, as on a busy machine; SEED chooses them")
      ->type_name("SEED");
  sub->add_flag("-v", o->selftest.verbose,
                "print a line for every program and every requirement, not only for those judged "
                "wrongly or skipped");
  auto* json = sub->add_option("--json", o->selftest.json,
                               "write a line of JSON about each program to this file as soon as "
                               "it is judged");
  auto* scale = sub->add_option("--timeout-scale", o->selftest.timeout_scale,
                                "multiply every time limit by this factor")
                    ->check(CLI::Range(0.01, 1000.0));
  auto* generate = sub->add_option(
      "--generate", o->generated.count,
      "generate N legal programs and N that deviate in one way, and judge these instead");
  sub->add_option("--seed", o->generated.seed, "the seed of the generated programs, in hexadecimal")
      ->needs(generate);
  sub->add_flag("--show", o->generated.show,
                "print the scripts of the generated programs, and do not run them")
      ->needs(generate);
  sub->add_option("--keep", o->generated.keep,
                  "write the scripts that are judged wrongly to this directory")
      ->needs(generate)
      ->check(CLI::ExistingDirectory);
  sub->add_option("--script", o->generated.scripts,
                  "judge these scripts or folders; the first line of a script says what it breaks")
      ->allow_extra_args(false)
      ->excludes(generate, json, scale);
  generate->excludes(json, scale);
  sub->footer(
      "Exit codes: 0 every verdict is right, 1 a verdict is wrong, a program could not be judged,\n"
      "or a requirement caught no broken program, 2 usage, or a file that cannot be read or is\n"
      "malformed, 3 /proc is not mounted, no process can be started or traced, or stdout, the\n"
      "file of --json, a script for --keep or a file in TMPDIR could not be written, 70 a bug in\n"
      "ctxconf.");

  return {.app = sub,
          .run =
              [o, generate](const Words& /*program*/) {
                if (!o->generated.show) {
                  if (const int code = check_children("selftest"); code != 0) return code;
                }
                if (!std::isfinite(o->selftest.timeout_scale)) {
                  return complain(kExitUsage, "--timeout-scale: not a number");
                }
                if (o->selftest.shaken) sys::begin_shaking(*o->selftest.shaken);
                if (generate->count() == 0 && o->generated.scripts.empty()) {
                  return selftest(o->selftest);
                }
                o->generated.only = o->selftest.only;
                o->generated.jobs = o->selftest.jobs;
                o->generated.verbose = o->selftest.verbose;
                return command_generated_programs(o->generated);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
