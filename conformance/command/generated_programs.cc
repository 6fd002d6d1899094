#include "conformance/command/generated_programs.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "conformance/command/files.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/evidence/timeline.h"
#include "conformance/judge/judge.h"
#include "conformance/observe/known_files.h"
#include "conformance/puppet/generate.h"
#include "conformance/puppet/record_script.h"
#include "conformance/puppet/script.h"
#include "conformance/report/escape.h"
#include "conformance/rules/rule.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"
#include "sys/fd.h"

namespace ctxconf::conformance {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using puppet::Script;

constexpr std::size_t kLongestRegression = std::size_t{4} << 20U;
constexpr unsigned kMostShrunk = 3;  // per disagreement and process

// What a script must show: the requirement that it breaks, and those that it may break as well.
// Without one it is legal.
struct Claim {
  std::string must;
  std::set<std::string> follow;
  bool dies = false;  // by a signal, on purpose
};

struct Judgement {
  std::map<std::string, Outcome> outcomes;  // by requirement
  std::map<std::string, std::string> saw;
  std::vector<std::string> problems;  // of the run, and why the script stopped
};

class Bench {
 public:
  static std::optional<Bench> make() {
    Bench out;
    const auto programs = puppet::find_puppets();
    if (!programs) {
      complain(kExitUnreachable, sys::to_string(programs.error()), puppet::kHowToInstallPuppets);
      return std::nullopt;
    }
    out.programs_ = *programs;
    out.options_.console.quiet = true;
    out.prepared_ = prepare(out.options_);
    out.wrap_.stores = true;
    out.wrap_.hide_vdso = true;
    out.wrap_.known_files = std::make_shared<KnownFiles>();
    Timeline nothing;
    if (prepare_recording(out.options_, Prepared(), "selftest --generate", out.wrap_, nothing) !=
        0) {
      return std::nullopt;
    }
    out.host_.names_anonymous = sys::Capabilities::of_this_host().has(sys::kHostAnonVmaName);
    return out;
  }

  const puppet::Surroundings& host() const { return host_; }

  Judgement judge_script(const Script& script) const {
    Judgement out;
    Timeline timeline = begin_timeline(options_, Mode::kWrap, {"ctxconf-puppet"});
    timeline.clock_calls = wrap_.hide_vdso;
    timeline.watches_lifetime = wrap_.watch_lifetime;
    puppet::PuppetOptions how;
    how.wrap = wrap_;
    how.player.programs = programs_;
    const auto played = record_script(script, how, timeline);
    if (!played) {
      out.problems.push_back("not recorded: " + sys::to_string(played.error()));
      return out;
    }
    if (played->problem) {
      out.problems.push_back(fmt::format("the script stopped at operation {}: {}",
                                         played->problem->line, played->problem->text));
    }
    const RunResult run = judge(timeline, prepared_.selected);
    for (const auto& r : run.results) {
      out.outcomes[r.requirement->id] = r.outcome;
      if (!r.findings.empty()) out.saw[r.requirement->id] = r.findings.front().saw;
    }
    for (const auto& p : run.problems) {
      out.problems.push_back(fmt::format("{}: {}", to_string(p.outcome), p.text));
    }
    return out;
  }

 private:
  std::string programs_;
  JudgeOptions options_;
  Prepared prepared_;
  WrapOptions wrap_;
  puppet::Surroundings host_;
};

bool fails(Outcome o) { return o >= Outcome::kWarn; }

// Where the judge disagrees with the claim.
struct Disagreement {
  std::string id;    // of the requirement; empty: a problem of the run
  std::string text;  // does not change while a script shrinks
  friend bool operator==(const Disagreement&, const Disagreement&) = default;
};

std::vector<Disagreement> disagreements(const Judgement& j, const Claim& claim) {
  std::vector<Disagreement> out;
  for (const auto& p : j.problems) {
    if (claim.dies) continue;
    std::string words = p;
    std::erase_if(words, [](char c) { return c >= '0' && c <= '9'; });
    out.push_back({.id = "", .text = "problem: " + words});
  }
  for (const auto& [id, outcome] : j.outcomes) {
    if (id == claim.must || claim.follow.contains(id) || !fails(outcome)) continue;
    out.push_back({.id = id, .text = fmt::format("{} is {}", id, to_string(outcome))});
  }
  if (!claim.must.empty()) {
    const auto found = j.outcomes.find(claim.must);
    const Outcome outcome = found == j.outcomes.end() ? Outcome::kNa : found->second;
    if (!fails(outcome)) {
      out.push_back(
          {.id = claim.must,
           .text = fmt::format("{} is {}, but should be broken", claim.must, to_string(outcome))});
    }
  }
  return out;
}

// A script does not name its deviation.
bool may_die_of(std::string_view requirement) {
  return std::ranges::any_of(puppet::deviations(), [&](const puppet::Deviation& d) {
    return d.may_die && d.must == requirement;
  });
}

Claim claim_of(const puppet::Deviation* deviation, const Script& script) {
  Claim out;
  const auto* last = script.operations.empty()
                         ? nullptr
                         : std::get_if<puppet::Signal>(&script.operations.back().what);
  out.dies = last != nullptr || (deviation != nullptr && deviation->may_die);
  if (deviation == nullptr) return out;
  out.must = deviation->must;
  for (const auto requirement : deviation->follow) out.follow.emplace(requirement);
  return out;
}

struct Wrong {
  std::string program;  // "legal 12", "deviant 7 (forkable)"
  std::string what;     // the disagreement
  std::string saw;
  std::string script;  // shrunk
  std::size_t operations = 0;
};

struct Tally {
  std::uint64_t legal = 0;
  std::uint64_t deviant = 0;
  std::map<std::string, std::uint64_t> productions;
  std::map<std::string, std::uint64_t> pairs;                                 // "a + b"
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> deviations;  // made, seen
  std::map<std::string, std::map<std::string, std::uint64_t>>
      requirements;                                   // id: outcome of legal ones
  std::map<std::string, std::uint64_t> broken;        // id: deviants that break it
  std::map<std::string, std::string> reasons;         // id: why not judged
  std::map<std::string, std::uint64_t> wrong_counts;  // by disagreement
  std::vector<Wrong> wrong;
};

Json to_json(const Tally& t) {
  Json wrong = Json::array();
  for (const auto& w : t.wrong) {
    wrong.push_back({w.program, w.what, w.saw, w.script, w.operations});
  }
  return {
      {"legal", t.legal},         {"deviant", t.deviant},       {"productions", t.productions},
      {"pairs", t.pairs},         {"deviations", t.deviations}, {"requirements", t.requirements},
      {"broken", t.broken},       {"reasons", t.reasons},       {"wrong_counts", t.wrong_counts},
      {"wrong", std::move(wrong)}};
}

void add(Tally& t, const Json& from) {
  t.legal += from["legal"].get<std::uint64_t>();
  t.deviant += from["deviant"].get<std::uint64_t>();
  const auto sum = [&from](const char* name, auto& to) {
    for (const auto& [key, n] : from[name].items()) to[key] += n.template get<std::uint64_t>();
  };
  sum("productions", t.productions);
  sum("pairs", t.pairs);
  sum("broken", t.broken);
  sum("wrong_counts", t.wrong_counts);
  for (const auto& [key, made] : from["deviations"].items()) {
    t.deviations[key].first += made[0].get<std::uint64_t>();
    t.deviations[key].second += made[1].get<std::uint64_t>();
  }
  for (const auto& [id, outcomes] : from["requirements"].items()) {
    for (const auto& [outcome, n] : outcomes.items()) {
      t.requirements[id][outcome] += n.get<std::uint64_t>();
    }
  }
  for (const auto& [id, why] : from["reasons"].items()) t.reasons[id] = why.get<std::string>();
  for (const auto& w : from["wrong"]) {
    t.wrong.push_back({w[0].get<std::string>(), w[1].get<std::string>(), w[2].get<std::string>(),
                       w[3].get<std::string>(), w[4].get<std::size_t>()});
  }
}

// One program: runs it, counts it, and shrinks it where the judge and the grammar disagree.
void try_program(const Bench& bench, std::uint64_t seed, std::uint64_t index, bool deviant,
                 Tally& tally) {
  const auto program = puppet::generate(seed, index, deviant, bench.host());
  const Claim claim = claim_of(program.deviation, program.script);
  const Judgement judged = bench.judge_script(program.script);
  ++(deviant ? tally.deviant : tally.legal);
  for (auto a = program.plan.used.begin(); a != program.plan.used.end(); ++a) {
    ++tally.productions[std::string(*a)];
    for (auto b = std::next(a); b != program.plan.used.end(); ++b) {
      ++tally.pairs[fmt::format("{} + {}", *a, *b)];
    }
  }
  for (const auto& [id, outcome] : judged.outcomes) {
    if (deviant && fails(outcome)) ++tally.broken[id];
    if (!deviant) ++tally.requirements[id][std::string(to_string(outcome))];
    const bool unjudged = outcome == Outcome::kNa || outcome == Outcome::kUnobservable;
    if (unjudged && judged.saw.contains(id)) tally.reasons[id] = judged.saw.at(id);
  }
  const auto found = disagreements(judged, claim);
  if (program.deviation != nullptr) {
    auto& counts = tally.deviations[std::string(program.deviation->name)];
    ++counts.first;
    const auto must = judged.outcomes.find(claim.must);
    if (must != judged.outcomes.end() && fails(must->second)) ++counts.second;
  }
  for (const auto& what : found) {
    const std::string name = program.deviation == nullptr
                                 ? what.text
                                 : fmt::format("{}: {}", program.deviation->name, what.text);
    if (++tally.wrong_counts[name] > kMostShrunk) continue;
    Wrong wrong;
    wrong.program = program.deviation == nullptr
                        ? fmt::format("legal {}", index)
                        : fmt::format("deviant {} ({})", index, program.deviation->name);
    wrong.what = what.text;
    const auto plan = puppet::shrink(program.plan, [&](const Script& script) {
      const auto again =
          disagreements(bench.judge_script(script), claim_of(program.deviation, script));
      return std::ranges::find(again, what) != again.end();
    });
    puppet::Plan copy = plan;
    const Script script = script_of(copy);
    const auto last = bench.judge_script(script);
    wrong.operations = script.operations.size();
    wrong.script = puppet::to_json(script);
    if (const auto saw = last.saw.find(what.id); saw != last.saw.end()) wrong.saw = saw->second;
    if (what.id.empty() && !last.problems.empty()) wrong.saw = last.problems.front();
    tally.wrong.push_back(wrong);
  }
}

// Why a requirement has nothing to say about any of them.
std::string never_reached(const Requirement& r, const Tally& tally) {
  if (r.excluded) return *r.excluded;
  if (!r.has_mode(Mode::kWrap)) return "only an adapter shows it (run)";
  if (!is_recorded(r, Mode::kWrap)) {
    return fmt::format("level {} is recorded by run alone", to_string(r.level));
  }
  if (rule_of(r.id) == nullptr) return "it has no check";
  const auto why = tally.reasons.find(r.id);
  return why == tally.reasons.end() ? "not selected" : why->second;
}

void print_tables(const Tally& tally) {
  fmt::print("\nproductions: how many programs have each\n");
  std::size_t unused = 0;
  for (const auto& p : puppet::productions()) {
    const auto n = tally.productions.find(std::string(p.id));
    const auto count = n == tally.productions.end() ? 0 : n->second;
    unused += count == 0 ? 1 : 0;
    fmt::print("{:>8} {:<28} {}\n", count, p.id, p.sentence);
  }
  const std::size_t all = puppet::productions().size();
  fmt::print("{} of {} productions used, {} of {} pairs of them\n", all - unused, all,
             tally.pairs.size(), all * (all - 1) / 2);
  fmt::print("\ndeviations: made, seen by the requirement that must report it\n");
  for (const auto& d : puppet::deviations()) {
    const auto n = tally.deviations.find(std::string(d.name));
    const auto counts =
        n == tally.deviations.end() ? std::pair<std::uint64_t, std::uint64_t>() : n->second;
    fmt::print("{:>6} {:>6} {:<28} {:<42} {}\n", counts.first, counts.second, d.name, d.must,
               d.how);
  }
  fmt::print("\nrequirements: legal programs that keep it, deviant ones that break it\n");
  std::vector<std::string> never;
  for (const auto& spec : Catalogue::builtin().specifications()) {
    for (const auto& r : spec.requirements) {
      if (r.role != Role::kWriter) continue;
      const auto requirement = tally.requirements.find(r.id);
      const auto said = [&](const char* outcome) -> std::uint64_t {
        if (requirement == tally.requirements.end()) return 0;
        const auto n = requirement->second.find(outcome);
        return n == requirement->second.end() ? 0 : n->second;
      };
      const auto broken = tally.broken.find(r.id);
      const auto breaks = broken == tally.broken.end() ? 0 : broken->second;
      const auto keeps = said("pass") + said("info");
      if (keeps == 0 && breaks == 0) {
        never.push_back(fmt::format("{:<44} {}", r.id, never_reached(r, tally)));
        continue;
      }
      const auto info = said("info");
      fmt::print("{:<44} {:>6} {:>6}{}{}\n", r.id, keeps, breaks,
                 info > 0 ? fmt::format("  info: {}", info) : "",
                 breaks == 0 ? "  no deviation breaks it" : "");
    }
  }
  fmt::print("\nrequirements that no program reaches, and why\n");
  for (const auto& line : never) fmt::print("{}\n", escape(line, Escape::kTerminal));
}

// False if a script could not be written to `keep`.
bool print_and_keep_wrong(const Tally& tally, const std::string& keep, const std::string& seed) {
  bool written = true;
  std::set<std::string> shown;
  auto sorted = tally.wrong;
  std::ranges::sort(sorted, {}, &Wrong::operations);
  for (const auto& w : sorted) {
    const auto from = w.program.find('(');
    const std::string kind = from == std::string::npos ? "" : w.program.substr(from);
    if (!shown.insert(kind + w.what).second) continue;
    fmt::print("\nDISAGREES {} of seed {}: {}\n  saw: {}\n", w.program, seed, w.what,
               escape(w.saw, Escape::kTerminal));
    fmt::print("  {} operations:\n{}\n", w.operations, w.script);
    if (!keep.empty()) {
      std::string name = w.program + " " + w.what.substr(0, w.what.find(','));
      std::ranges::replace_if(
          name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '-');
      const auto kept = write_file(
          fmt::format("{}/{}.jsonl", keep, name),
          fmt::format("# {} of seed {}: {}\n# {}\n{}", w.program, seed, w.what, w.saw, w.script));
      if (!kept) {
        complain(kExitUnreachable, "selftest: --keep: " + sys::to_string(kept.error()));
        written = false;
      }
    }
  }
  if (!tally.wrong_counts.empty()) fmt::print("\ndisagreements:\n");
  for (const auto& [what, n] : tally.wrong_counts) fmt::print("{:>6} {}\n", n, what);
  return written;
}

// --- scripts that were found ---

struct Regression {
  std::string path;
  Claim claim;
  Script script;
};

// "# legal", or "# breaks ID, may break ID ID" is its first line.
std::optional<Regression> read_regression(const std::string& path) {
  Regression out;
  out.path = path;
  const auto text = read_file(path, kLongestRegression);
  if (!text) {
    complain(kExitUsage, sys::to_string(text.error()));
    return std::nullopt;
  }
  const std::string first = text->substr(0, text->find('\n'));
  std::istringstream words(first);
  std::string word;
  words >> word >> word;
  bool known = word == "legal";
  if (word == "breaks") {
    words >> out.claim.must;
    known = Catalogue::builtin().find(out.claim.must) != nullptr;
    while (words >> word) {
      if (word != "may" && word != "break") out.claim.follow.insert(word);
    }
  }
  const auto script = puppet::script_from_json(*text);
  if (!known || !script) {
    complain(kExitUsage,
             path + (script ? ": its first line says neither '# legal' nor '# breaks ID'"
                            : fmt::format(":{}: {}", script.error().line, script.error().text)));
    return std::nullopt;
  }
  out.script = *script;
  out.claim.dies = claim_of(nullptr, out.script).dies || may_die_of(out.claim.must);
  return out;
}

int judge_regressions(const GeneratedProgramsCommand& c) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& path : c.scripts) {
    if (!fs::is_directory(path, error)) {
      paths.push_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.path().extension() == ".jsonl") paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  std::vector<Regression> all;
  for (const auto& path : paths) {
    auto one = read_regression(path);
    if (!one) return kExitUsage;
    all.push_back(std::move(*one));
  }
  if (all.empty()) return complain(kExitUsage, "selftest: --script names no script");
  const auto bench = Bench::make();
  if (!bench) return kExitUnreachable;
  std::size_t wrong = 0;
  for (const auto& one : all) {
    const auto judged = bench->judge_script(one.script);
    const auto found = disagreements(judged, one.claim);
    wrong += found.empty() ? 0 : 1;
    fmt::print("{:<10} {}\n", found.empty() ? "agrees" : "DISAGREES", one.path);
    for (const auto& what : found) {
      const auto saw = judged.saw.find(what.id);
      fmt::print("  {}{}\n", what.text,
                 saw == judged.saw.end() ? "" : ": " + escape(saw->second, Escape::kTerminal));
    }
    if (c.verbose) {
      for (const auto& [id, outcome] : judged.outcomes) {
        if (outcome == Outcome::kNa) continue;
        const auto saw = judged.saw.find(id);
        fmt::print("  {:<44} {:<12} {}\n", id, to_string(outcome),
                   saw == judged.saw.end() ? "" : escape(saw->second, Escape::kTerminal));
      }
      for (const auto& p : judged.problems) fmt::print("  {}\n", escape(p, Escape::kTerminal));
    }
  }
  fmt::print("{} scripts, {} judged differently from what their first line says\n", all.size(),
             wrong);
  return wrong == 0 ? kExitClean : kExitFailed;
}

bool wanted(const GeneratedProgramsCommand& c, std::uint64_t index, bool deviant) {
  if (c.only.empty()) return true;
  const auto& all = puppet::deviations();
  const std::string_view name = deviant ? all[index % all.size()].name : "legal";
  return any_glob_matches(c.only, name);
}

}  // namespace

int command_generated_programs(const GeneratedProgramsCommand& c) {
  if (!c.scripts.empty()) return judge_regressions(c);
  const auto given = hex_number(c.seed);
  if (!given) return complain(kExitUsage, "selftest: --seed is not a 64-bit hexadecimal number");
  const std::uint64_t seed = *given;
  if (c.show) {
    const puppet::Surroundings host;
    for (std::uint64_t i = 0; i < c.count; ++i) {
      for (const bool deviant : {false, true}) {
        if (!wanted(c, i, deviant)) continue;
        const auto program = puppet::generate(seed, i, deviant, host);
        fmt::print("# {} {}{}{}\n{}", deviant ? "deviant" : "legal", i, deviant ? ": " : "",
                   deviant ? program.deviation->how : "", puppet::to_json(program.script));
      }
    }
    return kExitClean;
  }
  const auto bench = Bench::make();
  if (!bench) return kExitUnreachable;
  const auto began = std::chrono::steady_clock::now();
  // Processes: one records one program at a time.
  const unsigned jobs =
      std::clamp(c.jobs != 0 ? c.jobs : std::thread::hardware_concurrency(), 1U, 64U);
  std::fflush(nullptr);
  struct Worker {
    pid_t pid = -1;
    sys::Fd tally;
  };
  const pid_t self = getpid();
  std::vector<Worker> workers;
  for (unsigned w = 0; w < jobs; ++w) {
    sys::Fd file(memfd_create("ctxconf-tally", MFD_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(0);
      Tally tally;
      for (std::uint64_t i = w; i < 2 * c.count; i += jobs) {
        if (wanted(c, i / 2, i % 2 != 0)) try_program(*bench, seed, i / 2, i % 2 != 0, tally);
      }
      const auto text = to_json(tally).dump(-1, ' ', false, Json::error_handler_t::replace);
      _exit(sys::write_all(file.get(), text) == 0 ? 0 : 1);
    }
    if (pid > 0) workers.push_back({pid, std::move(file)});
  }
  bool whole = workers.size() == jobs;
  for (const Worker& w : workers) {
    int status = 0;
    whole = waitpid(w.pid, &status, 0) == w.pid && status == 0 && whole;
  }
  Tally tally;
  for (const Worker& w : workers) {
    if (!whole) break;
    const auto text =
        read_file(fmt::format("/proc/self/fd/{}", w.tally.get()), std::size_t{1} << 30U);
    const Json part = text ? Json::parse(*text, nullptr, false) : Json();
    whole = part.is_object();
    if (whole) add(tally, part);
  }
  if (!whole) return complain(kExitHarnessError, "selftest: a process that runs programs died");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (c.verbose || c.only.empty()) print_tables(tally);
  const bool written = print_and_keep_wrong(tally, c.keep, c.seed);
  std::uint64_t wrong = 0;
  for (const auto& [what, n] : tally.wrong_counts) wrong += n;
  const auto programs = tally.legal + tally.deviant;
  fmt::print("\n{} legal programs and {} that deviate in one way, seed {}: {} judged wrongly\n",
             tally.legal, tally.deviant, c.seed, wrong);
  fmt::print("{:.1f} programs a second on {} processes\n",
             took.count() > 0 ? static_cast<double>(programs) / took.count() : 0.0, jobs);
  const int code = wrong == 0 ? kExitClean : kExitFailed;
  return written ? code : unwritten_code(code);
}

}  // namespace ctxconf::conformance
