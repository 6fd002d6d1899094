#include "conformance/reader/play_scene.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "conformance/evidence/reader_answers.h"
#include "conformance/reader/premises.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/target_harm.h"
#include "conformance/reader/usable_time.h"
#include "conformance/text/json_line.h"
#include "sys/memory_reader.h"
#include "sys/process.h"
#include "sys/remote_addr.h"

namespace ctxconf::conformance::reader {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kBesidePolling{500};  // in addition to two looks of a reader that polls
constexpr milliseconds kLatestLook{20'000};
constexpr milliseconds kLatestState{20'000};
constexpr milliseconds kBetweenStates{1};
constexpr milliseconds kBetweenCounts{1};
constexpr milliseconds kLettingGo{3000};  // of a target

// A member of /proc/PID/status in bytes; 0: it cannot be read.
std::uint64_t status_bytes(pid_t pid, std::string_view name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == name && file >> kib) return kib << 10U;
  }
  return 0;
}

// The resident sizes of those processes whose peak begins anew now.
std::map<pid_t, std::uint64_t> begin_peaks(const std::vector<pid_t>& processes) {
  std::map<pid_t, std::uint64_t> out;
  for (const pid_t pid : processes) {
    std::ofstream file("/proc/" + std::to_string(pid) + "/clear_refs");
    if (file << "5\n" && file.flush()) out[pid] = status_bytes(pid, "VmRSS:");
  }
  return out;
}

// Takes the sizes of the process that has grown most since then.
void take_peaks(const std::map<pid_t, std::uint64_t>& sizes, ReaderQuestion& out) {
  for (const auto& [pid, before] : sizes) {
    const std::uint64_t peak = std::max(status_bytes(pid, "VmHWM:"), before);
    if (peak - before < out.peak_bytes - out.before_bytes) continue;
    out.before_bytes = before;
    out.peak_bytes = peak;
  }
}

bool needs_thirty_two_bits(const Scene& scene) {
  return std::ranges::any_of(
      scene.host, [](const std::string& fact) { return fact.ends_with(kThirtyTwoBitProgram); });
}

// A signal or a tracer has stopped it.
bool is_stopped(pid_t thread) {
  const char state = sys::thread_state(thread);
  return state == 'T' || state == 't';
}

class Stage {
 public:
  Stage(const Scene& scene, const StageOptions& options, Testee& testee)
      : scene_(scene), options_(options), testee_(testee) {}

  Driven play();

 private:
  TargetOptions target_options();
  // Makes operations; false: they stopped, and the check says why.
  bool move(Operations operations);
  Driven on(const Play& act);
  Driven on(const Question& act);
  Driven on(const Wait& act);
  Driven on(const AskWitness& act);
  Driven forget(pid_t process);

  std::uint64_t number(const puppet::Value& value) const {
    return target_->value_of(value).value_or(0);
  }
  MemoryRange range(const Part& part) const { return {number(part.at), number(part.size)}; }
  ReaderCallRecorder::Watch watch_of(const Question& question, pid_t process, pid_t thread);
  std::vector<ShownMemory> shown_by(const Question& question, pid_t process) const;
  Testee::Answer<Json> ask_once(const Question& question, pid_t process, pid_t thread,
                                ReaderQuestion& out);
  Testee::Answer<Json> request(const Question& question, pid_t process, pid_t thread);
  Testee::Answer<Json> watch(const Question& question, pid_t process, pid_t thread);
  bool is_satisfied(const AnswerClaim& claim, const Json& reply) const;
  bool is_satisfied(const Question& question, const Json& reply) const;
  Driven wait_for_report(milliseconds looks, const std::function<bool()>& is_known);
  Driven ask(Question question, pid_t process, pid_t thread);
  Driven wait_for_state(pid_t process, char state);
  void unshown_by_load(std::string what) {
    is_unshown_by_load_ = true;
    testee_.check().unshown = std::move(what);
    testee_.check().remedy = "a machine that is less busy";
  }
  Driven check_premises();
  TargetHarm harm_to(const puppet::Script& script) const {
    return {script, ReaderTraits(testee_.capabilities()).says("keeps_tracing")};
  }
  // What the reader has done to the target.
  Driven look_for_harm();
  Driven wait_for_release(TargetHarm::Found& found);

  const Scene& scene_;
  const StageOptions& options_;
  Testee& testee_;
  std::unique_ptr<Target> target_;
  std::optional<Stop> stopped_;                       // the adapter, while a target was moved
  std::map<std::pair<pid_t, pid_t>, Json> believed_;  // by a reader that is only watched
  std::set<std::pair<pid_t, pid_t>> repeated_;        // of these, those that change without end
  std::set<pid_t> watched_;
  bool is_unshown_by_load_ = false;
  bool is_contradicted_ = false;  // an answer did not satisfy the premise of its question
  std::optional<TargetHarm> harm_;
  std::set<pid_t> asked_;  // processes
};

TargetOptions Stage::target_options() {
  return {.programs = options_.programs,
          .timeout_scale = options_.timeout_scale,
          .meanwhile =
              [this](Clock::time_point until) {
                const auto pumped = testee_.pump(until);
                if (!pumped && !stopped_) stopped_ = pumped.error();
                return pumped.has_value();
              },
          .wake_for = [this](int fd, short events) { return testee_.wake_for(fd, events); }};
}

bool Stage::move(Operations operations) {
  const auto played = target_->play(operations.from, operations.to);
  if (played && *played) return true;
  CheckRun& check = testee_.check();
  if (check.unshown.empty() && !stopped_) {
    check.unshown = "the scene could not be played: " +
                    (played ? target_->problem() : to_string(played.error()));
    // The program was made at the build, so it is this host that refuses it.
    if (needs_thirty_two_bits(scene_)) check.remedy = "a kernel that runs 32-bit programs";
  }
  return false;
}

Driven Stage::on(const Play& act) {
  if (act.operations.from < target_->played()) return {};  // before the reader was started
  (void)move(act.operations);
  if (stopped_) return std::unexpected(*stopped_);
  return {};
}

Driven Stage::on(const Wait& act) {
  const auto until = Clock::now() + act.duration;
  const auto counted = [&] {
    return act.counter ? number_at(target_->pid(), number(*act.counter)) : 0;
  };
  const std::uint64_t before = counted();
  while (Clock::now() < until) {
    if (counted() >= before + kEnoughRounds) break;
    const auto next = act.counter ? Clock::now() + kBetweenCounts : until;
    CTX_RETURN_IF_ERROR(testee_.pump(std::min(next, until)));
  }
  return {};
}

Driven Stage::forget(pid_t process) {
  if (!testee_.can("reader.forget")) return {};
  // It may have forgotten a process that has ended, so a refusal says nothing.
  const auto reply = testee_.ask("reader.forget", {{"pid", process}});
  if (!reply) return std::unexpected(reply.error());
  watched_.erase(process);
  return {};
}

ReaderCallRecorder::Watch Stage::watch_of(const Question& question, pid_t process, pid_t thread) {
  ReaderCallRecorder::Watch out;
  out.process = process;
  out.thread = thread;
  if (question.counter) out.counter = number(*question.counter);
  for (const auto& [name, part] : question.shown) {
    if (name == (thread != 0 ? "slot" : "header")) out.looked_at = range(part);
  }
  for (const Hold& h : question.holds) {
    out.holds.push_back(
        {.name = h.name,
         .before = h.when == Hold::When::kBefore,
         .part = range(h.part),
         .nth = h.nth,
         .play = [this, operations = h.operations, stopped = h.unless_stopped ? thread : 0] {
           if (stopped != 0 && is_stopped(stopped)) return;
           target_->hold(true);
           (void)move(operations);
           target_->hold(false);
         }});
  }
  return out;
}

std::vector<ShownMemory> Stage::shown_by(const Question& question, pid_t process) const {
  std::vector<ShownMemory> out;
  const sys::ProcessMemory memory(process);
  for (const auto& [name, part] : question.shown) {
    const MemoryRange r = range(part);
    ShownMemory& s =
        out.emplace_back(ShownMemory{.name = name, .at = r.at, .size = r.size, .bytes = {}});
    s.bytes.resize(std::min<std::uint64_t>(r.size, kMaxShownBytes));
    s.bytes.resize(memory.read_some(sys::RemoteAddr(r.at), s.bytes).value_or(0));
  }
  return out;
}

bool Stage::is_satisfied(const AnswerClaim& claim, const Json& reply) const {
  return problem_with(claim, reply, ReaderTraits(testee_.capabilities())).empty();
}

bool Stage::is_satisfied(const Question& question, const Json& reply) const {
  if (question.premise && !is_satisfied(*question.premise, reply)) return false;
  return std::ranges::all_of(question.claims, [&](const AnswerClaim& c) {
    return c.info || c.warning || is_satisfied(c, reply);
  });
}

// A refusal is an answer that no claim allows.
Testee::Answer<Json> Stage::request(const Question& question, pid_t process, pid_t thread) {
  switch (question.about) {
    case Question::About::kRecord:
      return testee_.ask("reader.record",
                         {{"hex", question.record}, {"key_map", question.key_map}});
    case Question::About::kProcess:
      return testee_.ask("reader.process", {{"pid", process}});
    case Question::About::kThread:
      break;
  }
  Json members = {{"pid", process}, {"tid", thread}};
  if (!question.second_trace_id.empty()) {
    members["second_source"] = {{"trace_id", question.second_trace_id},
                                {"span_id", question.second_span_id}};
  }
  return testee_.ask("reader.thread", std::move(members));
}

// Waits until the reader has reported what it should, or has had the time for that. On a busy
// machine it looks later than it says.
Driven Stage::wait_for_report(milliseconds looks, const std::function<bool()>& is_known) {
  UsableTime usable;
  const auto had_time = [&] {
    const bool has_looked = options_.calls->has_looked().value_or(true);
    const auto time = has_looked ? looks : std::max(looks, kLatestLook);
    return usable.by_now(testee_.processes()) >= time * options_.timeout_scale;
  };
  bool is_over = false;
  const auto is_done = [&] { return is_over = is_known() || had_time(); };
  const auto longest = looks + options_.longest_wait;
  CTX_RETURN_IF_ERROR(testee_.wait_until(longest, is_done, UsableTime::kInterval));
  if (!is_over && !is_known()) {
    unshown_by_load(fmt::format(
        "the reader did not have the time to look twice within {} s: it waited for a processor, or "
        "for ctxconf at its calls",
        std::chrono::round<std::chrono::seconds>(longest * options_.timeout_scale).count()));
  }
  return {};
}

// What a reader reports by itself, once it has looked twice.
Testee::Answer<Json> Stage::watch(const Question& question, pid_t process, pid_t thread) {
  if (watched_.insert(process).second) {
    CTX_RETURN_IF_ERROR(testee_.request("reader.watch", {{"pid", process}}));
  }
  const std::pair key(process, thread);
  const auto take = [&] {
    for (Json& event : testee_.take_events()) {
      const std::pair about(event.value("pid", pid_t{0}), event.value("tid", pid_t{0}));
      believed_[about] = std::move(event);
    }
  };
  const Json& declared = testee_.capabilities()["reader.watch"];
  const auto looks = milliseconds(2 * declared.value("poll_ms", 1000)) + kBesidePolling;
  // While the target changes without end, each report counts, once the first one was right.
  const bool counts = question.repeated && repeated_.contains(key);
  if (question.repeated) repeated_.insert(key);
  const auto is_known = [&] {
    take();
    return believed_.contains(key) && (counts || is_satisfied(question, believed_[key]));
  };
  CTX_RETURN_IF_ERROR(wait_for_report(looks, is_known));
  Json reply = believed_.contains(key) ? believed_[key] : Json{{"result", "absent"}};
  testee_.last_operation()->reply = dumped(reply);
  return reply;
}

Testee::Answer<Json> Stage::ask_once(const Question& question, pid_t process, pid_t thread,
                                     ReaderQuestion& out) {
  out.process = process;
  out.thread = thread;
  out.shown = shown_by(question, process);
  out.counted = question.counter.has_value();
  out.repeated = question.repeated;
  const auto readers = testee_.processes();
  const auto sizes = begin_peaks(readers);
  const auto before = processor_time(readers);
  if (process != 0 && harm_) {
    harm_->begin(process);
    asked_.insert(process);
  }
  if (question.records_calls) options_.calls->begin(watch_of(question, process, thread));
  const bool asks =
      question.about == Question::About::kRecord ||
      testee_.can(question.about == Question::About::kThread ? "reader.thread" : "reader.process");
  auto reply = asks ? request(question, process, thread) : watch(question, process, thread);
  options_.calls->end(out);
  out.processor_ns = static_cast<std::uint64_t>((processor_time(readers) - before).count());
  take_peaks(sizes, out);
  return reply;
}

Driven Stage::ask(Question question, pid_t process, pid_t thread) {
  for (unsigned attempt = 1;; ++attempt) {
    ReaderQuestion recorded;
    const auto reply = ask_once(question, process, thread, recorded);
    // False if the reader keeps the target stopped, or had no time to look.
    const bool played = testee_.check().unshown.empty();
    const bool is_last = !reply || !played || attempt >= question.attempts ||
                         is_satisfied(question, *reply) || reply->value("result", "") == "accept";
    const bool hit = recorded.missed.empty();
    if (is_last && played) recorded.claims = question.claims;
    if (Operation* const operation = testee_.last_operation()) {
      operation->question = std::move(recorded);
    }
    if (!reply) return std::unexpected(reply.error());
    if (stopped_) return std::unexpected(*stopped_);
    if (is_last && played && !hit) {
      testee_.check().unshown = "the reader did not make the call at which it was to be held";
      testee_.check().remedy = "a reader whose reads of the target are system calls";
    }
    if (is_last && played && question.premise && !is_satisfied(*question.premise, *reply)) {
      is_contradicted_ = true;
      testee_.check().unshown = question.premise->otherwise;
      testee_.check().remedy = "a reader that satisfies " + question.premise->requirement;
    }
    if (is_last) return {};
    if (hit) question.holds.clear();  // the target has moved: it would not do that again
    CTX_RETURN_IF_ERROR(on(Wait{question.pause}));
  }
}

Driven Stage::wait_for_state(pid_t process, char state) {
  const auto scaled =
      std::chrono::duration_cast<Clock::duration>(kLatestState * options_.timeout_scale);
  const auto until = Clock::now() + scaled;
  char seen = '\0';
  while (true) {
    const auto facts = sys::process_facts(process);
    if (!facts) break;
    seen = facts->state;
    // A stopped task that is traced is in 't'.
    if (seen == state || (state == 'T' && seen == 't')) return {};
    if (Clock::now() >= until) break;
    CTX_RETURN_IF_ERROR(on(Wait{kBetweenStates}));
  }
  unshown_by_load(
      fmt::format("process {} did not get into state {}: {}", process, state,
                  seen == '\0' ? std::string("it is gone") : fmt::format("it is in {}", seen)));
  return {};
}

Driven Stage::on(const Question& act) {
  if (act.about == Question::About::kRecord) return ask(act, 0, 0);
  const auto process = act.process ? static_cast<pid_t>(number(*act.process)) : target_->pid();
  const auto thread = act.thread ? static_cast<pid_t>(number(*act.thread)) : process;
  if (act.state != '\0') {
    CTX_RETURN_IF_ERROR(wait_for_state(process, act.state));
    if (!testee_.check().unshown.empty()) return {};
  }
  return ask(act, process, act.about == Question::About::kThread ? thread : 0);
}

// Each premise is shown once to a reader, before the first scene that rests on it.
Driven Stage::check_premises() {
  CheckRun& check = testee_.check();
  if (scene_.script.operations.empty()) return {};
  for (const Premise p : scene_.rests_on) {
    const Scene& premise = premise_scene(p);
    auto known = options_.premises->find(p);
    if (known == options_.premises->end()) {
      Stage stage(premise, options_, testee_);
      CTX_RETURN_IF_ERROR(stage.play());
      is_unshown_by_load_ = stage.is_unshown_by_load_;
      if (is_unshown_by_load_) break;  // later it may be shown
      Lack lack{.what = check.unshown, .remedy = check.remedy};
      if (stage.is_contradicted_) {
        lack = {.what = "the reader does not report " + premise.about,
                .remedy = "a reader that reports it; see the failed requirements"};
      }
      known = options_.premises->emplace(p, std::move(lack)).first;
    }
    check.unshown = known->second.what;
    check.remedy = known->second.remedy;
    if (!check.unshown.empty()) break;
  }
  return {};
}

Driven Stage::on(const AskWitness& act) {
  static const Scene kWitness = witness_scene();
  Question question = std::get<Question>(kWitness.acts.back());
  const auto claimed = question.claims.front();
  question.claims.clear();
  for (const auto& id : act.requirements) {
    question.claims.push_back(claimed);
    question.claims.back().requirement = id;
  }
  auto witness = Target::start(kWitness.script, target_options());
  if (!witness) {
    testee_.check().unshown = "the target could not be started: " + to_string(witness.error());
    return {};
  }
  std::swap(target_, *witness);
  auto harm = std::exchange(harm_, harm_to(kWitness.script));
  auto others = std::exchange(asked_, {});
  Driven asked;
  if (move({0, kWitness.script.operations.size()})) asked = on(question);
  if (asked) asked = look_for_harm();
  std::swap(target_, *witness);
  harm_ = std::move(harm);
  asked_ = std::move(others);
  return asked;
}

// A reader that looks by itself is in the middle of something at any moment, and another one may
// let go a little after it has answered.
Driven Stage::wait_for_release(TargetHarm::Found& found) {
  const auto scaled =
      std::chrono::duration_cast<Clock::duration>(kLettingGo * options_.timeout_scale);
  const auto until = Clock::now() + scaled;
  while (!found.what.empty() && found.may_end && Clock::now() < until) {
    CTX_RETURN_IF_ERROR(on(Wait{UsableTime::kInterval}));
    found = harm_->look();
  }
  return {};
}

Driven Stage::look_for_harm() {
  if (!harm_ || !target_) return {};
  TargetHarm::Found found = harm_->look();
  CTX_RETURN_IF_ERROR(wait_for_release(found));
  if (!found.what.empty() && found.may_end && testee_.can("reader.forget")) {
    CTX_RETURN_IF_ERROR(forget(target_->pid()));
    found = harm_->look();
    CTX_RETURN_IF_ERROR(wait_for_release(found));
  }
  CheckRun& check = testee_.check();
  for (const pid_t process : asked_) {
    if (!found.what.empty()) break;
    if (const std::size_t bytes = options_.calls->changed_by_reader(process); bytes > 0) {
      found.what = "wrote into its target, and left the memory changed";
    }
  }
  if (found.what.empty()) return {};
  check.harm = found.what;
  if (check.unshown.empty()) return {};
  check.unshown += "; the reader " + found.what;
  return {};
}

Driven Stage::play() {
  CheckRun& check = testee_.check();
  if (const Lack lack = lacking(scene_, options_); !lack.what.empty()) {
    check.unshown = lack.what;
    check.remedy = lack.remedy;
    return {};
  }
  CTX_RETURN_IF_ERROR(check_premises());
  if (!check.unshown.empty()) return {};
  if (!scene_.script.operations.empty()) {
    check.script = to_json(scene_.script);
    if (const auto early = options_.early->find(scene_.name); early != options_.early->end()) {
      target_ = std::move(early->second);
      options_.early->erase(early);
    }
  }
  if (!scene_.script.operations.empty() && !target_) {
    auto target = Target::start(scene_.script, target_options());
    if (stopped_) return std::unexpected(*stopped_);
    if (!target) {
      check.unshown = "the target could not be started: " + to_string(target.error());
      return {};
    }
    target_ = std::move(*target);
  }
  if (target_) {
    harm_ = harm_to(scene_.script);
    options_.calls->forget_writes();
  }
  for (const Act& act : scene_.acts) {
    auto done = std::visit([this](const auto& a) { return on(a); }, act);
    if (!done) return done;
    if (!testee_.check().unshown.empty()) break;
  }
  CTX_RETURN_IF_ERROR(look_for_harm());
  // Otherwise it looks at all targets that have ended, and at others that get their ids.
  for (const pid_t process : std::set(watched_)) CTX_RETURN_IF_ERROR(forget(process));
  return {};
}

}  // namespace

Lack lacking(const Scene& scene, const StageOptions& stage) {
  for (const auto& fact : scene.host) {
    if (fact == "names" && !stage.names_memory) {
      return {
          .what = "this kernel does not name anonymous memory",
          .remedy = "a kernel with CONFIG_ANON_VMA_NAME; scripts/in-vm --kernel names starts one"};
    }
    if (fact == "shmem-names" && !stage.names_shmem) {
      return {
          .what = "this kernel does not name mappings of a memfd",
          .remedy = "Linux 6.2 with CONFIG_ANON_VMA_NAME; scripts/in-vm --kernel names starts one"};
    }
    if (fact == "root" && geteuid() != 0) {
      return {.what = "it needs another user, and ctxconf does not run as root",
              .remedy = "run ctxconf as root"};
    }
    if (fact == "general-dynamic" && CTXCONF_GENERAL_DYNAMIC == 0) {
      return {.what = "ctxconf was built without libraries with General Dynamic",
              .remedy = "build ctxconf where binutils-aarch64-linux-gnu is installed"};
    }
    if (fact.ends_with(kThirtyTwoBitProgram) && access(fact.c_str(), X_OK) != 0) {
      return {.what = "ctxconf was built without a 32-bit program",
              .remedy = "build ctxconf where g++-multilib is installed"};
    }
    if (fact.ends_with(".so") && access((stage.programs + "/" + fact).c_str(), R_OK) != 0) {
      return {.what = "ctxconf was built without the library " + fact,
              .remedy = "build ctxconf where lld is installed"};
    }
  }
  return {};
}

Driven play(const Scene& scene, const StageOptions& stage, Testee& testee) {
  return Stage(scene, stage, testee).play();
}

namespace {

void start_early(const SceneGroup& group, const StageOptions& stage) {
  stage.early->clear();
  for (const Scene& scene : group.scenes) {
    TargetOptions options;
    options.programs = stage.programs;
    options.timeout_scale = stage.timeout_scale;
    auto target = Target::start(scene.script, options);
    // Where it fails, the scene starts another one and says why.
    if (!target || !(*target)->play(0, scene.script.operations.size()).value_or(false)) continue;
    stage.early->emplace(scene.name, *std::move(target));
  }
}

}  // namespace

std::vector<Group> groups_of(const std::deque<SceneGroup>& scenes, const StageOptions& stage) {
  std::vector<Group> out;
  for (const SceneGroup& group : scenes) {
    Group& g = out.emplace_back();
    g.name = group.name;
    g.without_ptrace_right = group.without_ptrace_right;
    g.full_speed = group.full_speed;
    if (group.early) g.before = [&group, &stage] { start_early(group, stage); };
    for (const Scene& scene : group.scenes) {
      Check check;
      check.name = scene.name;
      check.needs.assign(scene.needs.begin(), scene.needs.end());
      check.requirements.assign(scene.requirements.begin(), scene.requirements.end());
      check.also.assign(scene.also.begin(), scene.also.end());
      check.drive = [&scene, &stage](Testee& t) { return reader::play(scene, stage, t); };
      g.checks.push_back(std::move(check));
    }
  }
  return out;
}

}  // namespace ctxconf::conformance::reader
