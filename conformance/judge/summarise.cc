#include "conformance/judge/summarise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "conformance/judge/fault_matrix.h"
#include "conformance/judge/gather.h"
#include "conformance/judge/judge.h"
#include "conformance/rules/operation_pictures.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/repetitions.h"
#include "conformance/rules/rule.h"
#include "conformance/text/counts.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

std::string times_of(const Injection& i) {
  return fmt::format("{}, {} {}", i.spec, i.times, i.times == 1 ? "time" : "times");
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

// ---- notes

// "adapter_cpp 1, SDK otel_ctx_writer 0.1.0 (cpp)" and what it declares; hostile.
std::vector<std::string> adapter_notes(const Timeline& t) {
  if (t.sessions.empty()) return {};
  const auto hello = value_of_kept_line(t.sessions.front().hello);
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

// One oddity of an adapter over all its sessions.
struct OddityCount {
  std::uint64_t count = 0;
  std::string first;
  std::set<std::uint32_t> repeats;

  void add(const Session& s, std::uint64_t more, const std::string& text) {
    if (count == 0) first = text;
    count += more;
    repeats.insert(s.repeat);
  }
};

// "3 lines that are wrong"; a number says nothing about repeats that are not kept.
std::string how_many(const InRepeats& in_repeats, std::uint64_t count, std::string_view one,
                     std::string_view many) {
  if (in_repeats.any()) return std::string(many);
  return count == 1 ? fmt::format("1 {}", one) : fmt::format("{} {}", count, many);
}

// How often the target was moved at a moment of the reader's reading, and how often not.
std::string moments_note(const Timeline& t) {
  std::uint64_t came = 0;
  std::uint64_t missed = 0;
  for (const Session& s : t.sessions) {
    for (const Operation& o : s.operations) {
      if (!o.question) continue;
      missed += o.question->missed.size();
      came += static_cast<std::uint64_t>(std::ranges::count_if(
          o.question->calls, [](const ReaderCall& c) { return !c.held.empty(); }));
    }
  }
  if (missed == 0) return {};
  return fmt::format("the reader was held at {} of {} planned moments; {} were not reached", came,
                     came + missed, missed);
}

// How the answers fell where the target changed without end; a pass does not show it otherwise.
void add_repetitions(const std::vector<SceneEvidence>& scenes, RunResult& out) {
  std::map<std::string, Repetition> all;
  for (const SceneEvidence& scene : scenes) {
    const auto one = repetition_of(scene);
    if (one) all[scene_name(*scene.session, *scene.scene)] += *one;
  }
  for (const auto& [where, sum] : all) out.notes.push_back(where + ": " + sum.text());
}

// What is odd about the adapter and decides nothing.
void add_adapter_notes(const Timeline& t, RunResult& out) {
  const InRepeats in_repeats(t);
  OddityCount noise;
  OddityCount left_behind;
  OddityCount stayed;
  std::map<std::string, std::set<std::uint32_t>> codes;
  for (const Session& s : t.sessions) {
    const Oddities odd = oddities_of(s);
    if (odd.noise) noise.add(s, s.noise_lines, s.noise);
    if (odd.left_behind) left_behind.add(s, s.left_behind.size(), s.left_behind.front());
    if (odd.stayed) stayed.add(s, 1, {});
    if (!odd.exit_code.empty()) codes[odd.exit_code].insert(s.repeat);
  }
  if (noise.count > 0) {
    out.notes.push_back(
        fmt::format("the adapter wrote {}{}, the first: {}",
                    how_many(in_repeats, noise.count, "line that is not a protocol message",
                             "lines that are not protocol messages"),
                    in_repeats.text(noise.repeats), noise.first));
  }
  if (left_behind.count > 0) {
    out.notes.push_back(
        fmt::format("warning: {} killed{}, the first: {}",
                    how_many(in_repeats, left_behind.count, "process outlived the adapter and was",
                             "processes outlived the adapter and were"),
                    in_repeats.text(left_behind.repeats), left_behind.first));
  }
  if (stayed.count > 0) {
    const auto times = stayed.count == 1 ? ", once" : fmt::format(", {} times", stayed.count);
    out.notes.push_back("warning: the adapter did not exit in time after bye and was killed" +
                        (in_repeats.any() ? in_repeats.text(stayed.repeats) : times));
  }
  for (const auto& [code, repeats] : codes) {
    out.notes.push_back("warning: after bye the adapter " + code + in_repeats.text(repeats));
  }
}

// ---- problems

// Adds adapters that ended or hung where no selected requirement reports it: in bye, or in a check
// that is for other requirements.
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

// Adds what a reader did to its targets, and that it used too much memory: each once, with the
// scenes.
void add_harm(const std::vector<SceneEvidence>& scenes, RunResult& out) {
  constexpr std::size_t kMostScenes = 3;  // that are named
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;
  struct Harm {
    ImageKey reader;
    std::set<std::string> known;
    std::vector<std::string> scenes;  // with amounts, in order
  };
  std::map<std::string, Harm> all;
  const auto add = [&](const SceneEvidence& scene, const std::string& what,
                       const std::string& amount = {}) {
    Harm& harm = all[what];
    if (harm.scenes.empty()) harm.reader = scene.session->root;
    const std::string where = scene_name(*scene.session, *scene.scene);
    if (harm.known.insert(where).second) harm.scenes.push_back(where + amount);
  };
  for (const SceneEvidence& scene : scenes) {
    if (!scene.scene->harm.empty()) add(scene, scene.scene->harm);
    if (const auto excess = memory_excess(scene)) {
      add(scene,
          fmt::format("used more than {} MiB of memory for one answer",
                      excess->limit_bytes / kMebibyte),
          fmt::format(" ({} MiB)", excess->used_bytes / kMebibyte));
    }
  }
  for (const auto& [what, harm] : all) {
    const std::size_t named = std::min(kMostScenes, harm.scenes.size());
    std::string listed = fmt::format(
        "{}", fmt::join(harm.scenes.begin(),
                        harm.scenes.begin() + static_cast<std::ptrdiff_t>(named), ", "));
    if (harm.scenes.size() > named) {
      listed += fmt::format(" and {} more", harm.scenes.size() - named);
    }
    out.problems.push_back({.outcome = Outcome::kFail,
                            .image = harm.reader,
                            .text = fmt::format("the reader {}; in {}", what, listed),
                            .harm = what});
  }
}

bool is_fault_signal(int signo) {
  return signo == SIGSEGV || signo == SIGBUS || signo == SIGILL || signo == SIGFPE ||
         signo == SIGABRT || signo == SIGSYS || signo == SIGTRAP;
}

// A requirement about faults has said that the image did not live through one.
bool is_explained(const RunResult& out, const ImageKey& image) {
  return std::ranges::any_of(out.results, [&](const RequirementResult& r) {
    const RequirementRule* rule = rule_of(r.requirement->id);
    return rule != nullptr && rule->is_about_faults() &&
           std::ranges::any_of(r.findings, [&](const Finding& f) {
             return f.image == image &&
                    (f.outcome == Outcome::kFail || f.outcome == Outcome::kWarn) &&
                    f.kind == FindingKind::kDiedOfFault;
           });
  });
}

// A crash or a hang. `cell`: null outside cells. The text of the problem does not name the cell.
struct BadEnding {
  RunProblem problem;
  const FaultCell* cell = nullptr;
};

// A program that dies or hangs of a call does so whatever the call's error: one problem each.
void add_joined(const std::vector<BadEnding>& endings, RunResult& out) {
  std::vector<RunProblem> joined;
  std::map<std::tuple<Outcome, std::string, std::string>, std::size_t> known;
  for (const auto& [problem, cell] : endings) {
    if (cell == nullptr) {
      joined.push_back(problem);
      continue;
    }
    const auto [at, is_new] =
        known.emplace(std::tuple(problem.outcome, cell->step, problem.text), joined.size());
    if (is_new) {
      joined.push_back(problem);
      joined.back().text += ", under " + cell->name();
    } else {
      joined[at->second].text += ", " + cell->fault;
    }
  }
  out.problems.insert(out.problems.end(), std::move_iterator(joined.begin()),
                      std::move_iterator(joined.end()));
}

// CMD itself, or a process that published, died of a signal that was not ours.
bool is_crash(const Timeline& t, const Process& p, const FaultCell* cell, bool published,
              const RunResult& out) {
  if (!p.killed_by || p.ended_by_us || p.images.empty()) return false;
  if (cell != nullptr && explains_death(*cell, *p.killed_by)) return false;
  // The findings of a check say so of an adapter.
  const auto of_process = [&](const Session& s) {
    return s.root.session == p.session && s.root.pid == p.pid;
  };
  if (std::ranges::any_of(t.sessions, of_process)) return false;
  const bool root = t.mode == Mode::kWrap && is_root(t, p);
  if (!root && !(published && is_fault_signal(*p.killed_by))) return false;
  return !is_explained(out, p.images.back().key);
}

RunProblem crash_of(const Process& p, const FaultCell* cell, bool published) {
  const Image& image = p.images.back();
  RunProblem out;
  out.outcome = Outcome::kCrash;
  out.image = image.key;
  // The pid in one of several runs says nothing.
  out.text = fmt::format("{}{} died of {}{}", image.executable,
                         cell != nullptr ? "" : fmt::format(" ({})", p.pid),
                         signal_name(*p.killed_by), published ? "" : " without having published");
  return out;
}

void add_crashes(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                 const RunResult& out, std::vector<BadEnding>& endings) {
  for (const Process& p : t.processes) {
    const FaultCell* const cell = cell_of(t, p.session);
    const bool published = std::ranges::any_of(
        evidence, [&](const ImageEvidence& e) { return e.process == &p && e.published(); });
    if (!is_crash(t, p, cell, published, out)) continue;
    endings.push_back({crash_of(p, cell, published), cell});
  }
}

void add_hangs(const Timeline& t, std::vector<BadEnding>& endings) {
  for (const FaultCell& cell : t.cells) {
    if (cell.hang.empty() || explains_hang(cell)) continue;
    RunProblem problem;
    problem.outcome = Outcome::kTimeout;
    problem.image.session = cell.session;
    problem.text = "the program did not end by itself";
    endings.push_back({std::move(problem), &cell});
  }
  if (!t.hang.empty()) {
    RunProblem problem;
    problem.outcome = Outcome::kTimeout;
    problem.text = "the program was ended as a runaway: " + t.hang;
    endings.push_back({std::move(problem), nullptr});
  }
}

// One problem for each cell, which the matrix needs, and all others.
std::vector<RunProblem> unjoined(const std::vector<BadEnding>& endings, const RunResult& run) {
  std::vector<RunProblem> out;
  out.reserve(endings.size() + run.problems.size());
  for (const BadEnding& e : endings) out.push_back(e.problem);
  out.insert(out.end(), run.problems.begin(), run.problems.end());
  return out;
}

// ---- images and operations

// Under a fault not all is judged, and what is wrong without it as well is told once.
bool is_plain(const ImageEvidence& e) { return e.cell == nullptr && !e.faulted; }

// Adds pictures of the operations in which something is wrong, and of the first publication and the
// first update in which nothing is.
void add_pictures(const std::vector<ImageEvidence>& evidence, RunResult& out) {
  for (const ImageEvidence& e : evidence) {
    std::vector<EventLocation> wrong;
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

// Says which of the processes that were named to attach published nothing. Empty: none.
std::string silent_processes(const Timeline& t, const std::vector<ImageEvidence>& evidence) {
  if (t.mode != Mode::kAttach || t.target == std::vector<std::string>{"--all"}) return {};
  std::vector<std::int32_t> silent;
  for (const Process& p : t.processes) {
    const bool published = std::ranges::any_of(evidence, [&](const ImageEvidence& e) {
      return e.process == &p && (e.published() || e.uses_threads);
    });
    if (!published) silent.push_back(p.pid);
  }
  if (silent.empty()) return {};
  return fmt::format("process {}{}: neither a context nor otel_thread_ctx_v1 was seen",
                     silent.front(),
                     silent.size() == 1 ? "" : fmt::format(" and {} more", silent.size() - 1));
}

bool has_failed(const RunResult& run, const ImageKey& image) {
  return std::ranges::any_of(run.results, [&](const RequirementResult& r) {
    return std::ranges::any_of(r.findings, [&](const Finding& f) {
      return f.image == image && f.outcome >= Outcome::kFail;
    });
  });
}

// Says which process that attach saw has a context of which no reader can read anything, although
// no requirement fails. Empty: none.
std::string unreadable_context(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                               const RunResult& run) {
  if (t.mode != Mode::kAttach) return {};
  const auto found = std::ranges::find_if(evidence, [&](const ImageEvidence& e) {
    return e.published() && !e.was_read() && !has_failed(run, e.image->key);
  });
  if (found == evidence.end()) return {};
  return fmt::format("process {} has a context, and no reader can read anything of it",
                     found->process->pid);
}

// Payloads that readers accept and no rule judges, because not all of them was kept. Empty: none.
// In a cell the program publishes what it published without a fault.
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
  return fmt::format("{} of up to {} bytes {} not judged: only {} MiB of large ones are kept",
                     count == 1 ? "a payload" : fmt::format("{} payloads", count), largest,
                     count == 1 ? "was" : "were", kMostPayload >> 20U);
}

// Why something of the program was never seen, or was seen and neither judged nor kept. Empty:
// nothing.
std::string unseen(const Timeline& t) {
  const auto had_context = [](const Image& i) {
    return std::ranges::any_of(i.snapshots,
                               [](const Snapshot& s) { return !s.candidates.empty(); });
  };
  for (const Process& p : t.processes) {
    if (cell_of(t, p.session) != nullptr) continue;
    for (const Image& i : p.images) {
      if (!i.unread.empty() &&
          (had_context(i) || std::ranges::any_of(i.calls, is_context_naming))) {
        return fmt::format("process {} has a context, and {}", p.pid, i.unread);
      }
      if (i.unexamined > 0) {
        return fmt::format("process {} has {} named OTEL_CTX than ctxconf examines", p.pid,
                           counted(i.unexamined, "more mapping"));
      }
      if (i.states_unjudged() > 0) {
        return fmt::format(
            "{} states of process {} were neither kept nor judged: they were too many, or too "
            "large; observe it for a shorter time (--for)",
            i.states_unjudged(), p.pid);
      }
      if (i.samples_unjudged() > 0) {
        return fmt::format(
            "{} samples of threads of process {} were neither kept nor judged: they were too many; "
            "observe it for a shorter time (--for)",
            i.samples_unjudged(), p.pid);
      }
    }
  }
  return {};
}

// The deepest that any image was looked at: what a mode may record, it records only where it is
// asked for, and the host and the program let it.
Level level_of(const Timeline& t, const std::vector<const Requirement*>& selected) {
  if (t.mode != Mode::kWrap && t.mode != Mode::kRun) return deepest_recorded(t.mode);
  const auto any_image = [&](const auto& is) {
    return std::ranges::any_of(t.processes,
                               [&](const Process& p) { return std::ranges::any_of(p.images, is); });
  };
  if (any_image([](const Image& i) { return !i.races.empty(); })) return Level::kRace;
  const auto has_steps = [](const Image& i) {
    return !i.step_traces.empty() || !i.slot_step_traces.empty();
  };
  if (any_image(has_steps)) return Level::kSteps;
  const auto has_stores = [](const Image& i) {
    return i.stores_unseen.empty() || !i.watches.empty() || !i.record_watches.empty();
  };
  if (any_image(has_stores)) return Level::kStores;
  const auto asks_for_calls = [&t](const Requirement* r) {
    return r->level >= Level::kSyscalls && r->has_mode(t.mode) && !is_about_threads(*r);
  };
  const bool asked = std::ranges::any_of(selected, asks_for_calls);
  if (asked && any_image([](const Image& i) { return i.calls_unseen.empty(); })) {
    return Level::kSyscalls;
  }
  return Level::kSnapshot;
}

ImageSummary summary(const Process& p, const Image& i, const std::vector<ImageEvidence>& evidence) {
  ImageSummary s;
  s.key = i.key;
  s.parent = p.parent;
  s.executable = i.executable;
  s.command_line = i.command_line;
  s.libc = i.libc;
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
    s.notes.push_back(fmt::format("{} states were not kept, {} of them without being judged",
                                  i.snapshots_dropped, i.states_unjudged()));
  }
  return s;
}

// The images that read. A shell script in front of an adapter runs many others in each session.
void add_readers(const Timeline& t, const std::vector<ImageEvidence>& evidence, RunResult& out) {
  constexpr std::size_t kMostPrograms = 5;  // that are named
  std::set<ImageKey> readers;
  for (const Session& s : t.sessions) readers.insert(s.root);
  std::map<std::string, std::size_t> others;
  std::size_t count = 0;
  for (const Process& p : t.processes) {
    for (const Image& i : p.images) {
      if (readers.contains(i.key)) {
        out.images.push_back(summary(p, i, evidence));
      } else {
        ++others[i.executable];
        ++count;
      }
    }
  }
  if (count == 0) return;
  std::vector<std::pair<std::size_t, std::string>> most;
  most.reserve(others.size());
  for (auto& [executable, times] : others) most.emplace_back(times, executable);
  std::ranges::sort(most, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string names;
  for (std::size_t i = 0; i < std::min(kMostPrograms, most.size()); ++i) {
    names += fmt::format("{}{} ({})", i == 0 ? "" : ", ", most[i].second, most[i].first);
  }
  if (most.size() > kMostPrograms) {
    names += " and " + counted(most.size() - kMostPrograms, "more program");
  }
  out.notes.push_back(fmt::format("the adapter also ran {}", names));
}

void add_images(const Timeline& t, const std::vector<ImageEvidence>& evidence, RunResult& out) {
  if (t.mode == Mode::kReader) return add_readers(t, evidence, out);
  for (const Process& p : t.processes) {
    if (!t.cells.empty() && p.session != 0) continue;  // its cell says what became of it
    for (const Image& i : p.images) out.images.push_back(summary(p, i, evidence));
  }
}

std::string libc_of(const std::vector<ImageSummary>& images) {
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::string_view> names;
  const bool any = std::ranges::any_of(images, &ImageSummary::published);
  for (const ImageSummary& image : images) {
    if (image.libc.empty() || image.published != any) continue;
    if (std::ranges::find(names, image.libc) == names.end()) names.emplace_back(image.libc);
  }
  const bool all = names.size() <= kMostNamed;
  if (!all) names.resize(kMostNamed);
  return fmt::format("{}{}", fmt::join(names, ", "), all ? "" : ", ...");
}

// ---- the run

std::optional<TargetEnd> end_of(const Process& p) {
  using enum TargetEnd::How;
  if (p.killed_by) {
    return TargetEnd{.how = p.ended_by_us ? kKilledByUs : kKilled, .number = *p.killed_by};
  }
  if (p.exit_code) return TargetEnd{.how = kExited, .number = *p.exit_code};
  return std::nullopt;
}

void add_run(const Timeline& t, const std::vector<const Requirement*>& selected, RunResult& out) {
  out.suite_version = t.suite_version;
  out.mode = to_string(t.mode);
  out.target = t.target;
  out.kernel = t.kernel;
  out.arch = t.arch;
  out.suite_libc = t.libc;
  out.level = to_string(level_of(t, selected));
  out.reading = t.reading;
  out.started_at = t.started_at;
  out.seconds = t.seconds;
  out.host = t.host;
  out.notes = t.notes;
  if (t.mode == Mode::kWrap && !t.processes.empty()) {
    out.target_ended = end_of(t.processes.front());
    if (out.target_ended) out.target_ending = ending_of(t.processes.front());
  }
}

void add_injections(const Timeline& t, RunResult& out) {
  for (const Injection& i : t.injections) {
    out.injections.push_back(times_of(i));
    if (i.times > 0 || is_beside_another(t, i)) continue;
    out.notes.push_back((t.mode == Mode::kRun ? "the failure " : "--inject ") + i.spec +
                        " was never applied: no such call was made for a publication, and nothing "
                        "can be concluded about it");
  }
}

// Null: it was not selected.
const RequirementResult* result_of_limit(const RunResult& run) {
  const auto found = std::ranges::find_if(run.results, [](const RequirementResult& r) {
    const RequirementRule* rule = rule_of(r.requirement->id);
    return rule != nullptr && rule->is_of_file_size_limit;
  });
  return found == run.results.end() ? nullptr : &*found;
}

void add_harness_fault(const Timeline& t, RunResult& out) {
  if (t.harness_fault.empty()) return;
  RunProblem problem;
  problem.outcome = Outcome::kHarnessError;
  problem.text = "ctxconf failed; please report this bug: " + t.harness_fault;
  out.problems.push_back(std::move(problem));
}

}  // namespace

Oddities oddities_of(const Session& s) {
  Oddities out;
  out.noise = s.noise_lines > 0;
  out.left_behind = !s.left_behind.empty();
  const bool said_bye = !s.checks.empty() && s.checks.back().name == "bye" &&
                        s.checks.back().ending == CheckEnding::kDone;
  if (!said_bye) return out;
  out.stayed = s.ending.was_killed();
  if (s.ending.how == AdapterEnding::How::kExited) out.exit_code = s.ending.text;
  return out;
}

void summarise(const Timeline& t, const std::vector<ImageEvidence>& evidence,
               const std::vector<SceneEvidence>& scenes,
               const std::vector<const Requirement*>& selected, const Told& told, RunResult& out) {
  add_run(t, selected, out);
  for (auto& note : adapter_notes(t)) out.notes.push_back(std::move(note));
  add_injections(t, out);
  out.incomplete = not_judged(evidence);
  if (out.incomplete.empty()) out.incomplete = unseen(t);
  if (out.incomplete.empty()) out.incomplete = silent_processes(t, evidence);
  if (out.incomplete.empty()) out.incomplete = unreadable_context(t, evidence, out);
  add_images(t, evidence, out);
  out.libc = libc_of(out.images);
  add_harness_fault(t, out);
  std::vector<BadEnding> endings;
  add_crashes(t, evidence, out, endings);
  add_hangs(t, endings);
  add_joined(endings, out);
  add_ended_adapters(t, told.checks, out);
  add_harm(scenes, out);
  add_adapter_notes(t, out);
  if (auto note = moments_note(t); !note.empty()) out.notes.push_back(std::move(note));
  add_repetitions(scenes, out);
  add_pictures(evidence, out);
  out.faults = fault_matrix(t, told.tallies, unjoined(endings, out), result_of_limit(out));
}

}  // namespace ctxconf::conformance
