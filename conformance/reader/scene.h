// A scene: scripted processes that a reader under test is asked about, what changes in them between
// two of its own looks, and which answers are right.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/evidence/reader_evidence.h"
#include "conformance/puppet/script.h"

namespace ctxconf::conformance::reader {

// The threadlocal.schema_version that contexts in scenes usually have.
inline constexpr std::string_view kUsualSchema = abi::kThreadSchemaVersions[0];

// A program that publishes a context and stays; not every build has it, and not every kernel runs
// it.
inline constexpr const char* kThirtyTwoBitProgram = "process_writer_32";

// A part of the target's memory, whose address is known when the scene is played.
struct Part {
  puppet::Value at;
  puppet::Value size;
};

// The operations of a script from one to before another.
struct Operations {
  std::size_t from = 0;
  std::size_t to = 0;
};

// The reader is held at a moment of its reading, and the target is moved meanwhile.
struct Hold {
  enum class When { kBefore, kAfter };
  std::string name;  // "after the first look at the timestamp"
  When when = When::kAfter;
  Part part;         // a call that copies from this memory...
  unsigned nth = 1;  // ... the first one, the second one, ...
  Operations operations;
  // Not while the thread of the question is stopped: it cannot move, and the reader reads what is
  // there. A thread that a cgroup has frozen does not count as stopped: its state is 'S', and 'D'
  // with version 1. It cannot move either, so the scene is unobservable once the time for an
  // operation is over.
  bool unless_stopped = false;
};

struct Question {
  enum class About { kProcess, kThread, kRecord };
  About about = About::kProcess;
  // The process and the thread by their results in the script; nothing: the first of them.
  std::optional<puppet::Value> process;
  std::optional<puppet::Value> thread;
  // kRecord: the bytes as hexadecimal digits, and the names.
  std::string record;
  std::vector<std::string> key_map;
  // What a second source says of the trace, if the reader has one.
  std::string second_trace_id;
  std::string second_span_id;

  // The state of the process in /proc/PID/stat ('T', 'S') that is waited for before the reader is
  // asked: a signal or a command has been sent, and takes effect later. '\0': any.
  char state = '\0';

  std::vector<AnswerClaim> claims;
  // What the rest of the scene rests on. Where the answer does not satisfy it, the rest is not
  // played and decides nothing: the reader lacks what the requirement of this claim is about.
  std::optional<AnswerClaim> premise;
  std::vector<Hold> holds;
  // How often the question is asked at most, with pauses. It is asked again after `retry`, and
  // after any answer but `accept` that does not satisfy all claims.
  unsigned attempts = 1;
  std::chrono::milliseconds pause{20};
  std::vector<std::pair<std::string, Part>> shown;  // memory to keep in the recording
  bool records_calls = true;
  std::optional<puppet::Value> counter;  // address of a number that the thread increases
  // The question is asked many times while the target changes, and its answers are counted: see
  // repetitions.h.
  bool repeated = false;
};

struct Play {
  Operations operations;
};
// The reader may look by itself meanwhile.
struct Wait {
  std::chrono::milliseconds duration{0};
  // Ends when the eight bytes there have grown by kEnoughRounds, in the target's first process.
  std::optional<puppet::Value> counter = std::nullopt;
};
inline constexpr std::uint64_t kEnoughRounds = 1000;
// Asks about another target, which always publishes a context: the reader must still serve.
struct AskWitness {
  std::vector<std::string> requirements;  // that the answer decides
};
using Act = std::variant<Play, Question, Wait, AskWitness>;

// What a scene takes for granted. A reader for which this does not hold is not judged by the scene,
// but by the scenes that are about it.
enum class Premise {
  kFound,          // it finds the mapping of a plain context
  kInline,         // it reports such a context, whose payload comes after the header
  kElsewhere,      // also one whose payload is elsewhere
  kKinds,          // it skips values of kinds that it does not show
  kFewAttributes,  // it needs neither service.name nor service.instance.id
  kNoResource,     // nor a Resource
  kField2,         // it reports field 2
  kOtherOrder,     // it does not need fields in the usual order
  kSkipsInvalid,   // it finds a context next to an invalid candidate
  kAfterZero,      // it finds a context whose timestamp was zero at first
  kUpdate,         // it reports an update to another payload
  kUpdateInPlace,  // and to the same one
  kWindow,         // it does not use a copy that an update has overtaken
  kManyMappings,   // it finds a context that is listed after many other mappings
};

struct Scene {
  std::string name;   // "name-memfd", unique
  std::string about;  // one line for people
  puppet::Script script;
  std::vector<Act> acts;
  std::vector<std::string> needs;         // capabilities, as in is_declared()
  std::vector<std::string> requirements;  // that a crash or a hang decides
  std::vector<std::string> also;          // that it shows as well
  // What the host must have: "names" (of anonymous memory), "shmem-names", "root"; or
  // "general-dynamic", for libraries of ctxconf; or one of them: "slot_symbolic.so"; or the path of
  // kThirtyTwoBitProgram.
  std::vector<std::string> host;
  std::vector<Premise> rests_on = {Premise::kInline, Premise::kElsewhere};  // in this order
};

struct SceneGroup {
  std::string name;
  std::vector<Scene> scenes;
  bool without_ptrace_right = false;  // the reader has no CAP_SYS_PTRACE
  bool full_speed = false;            // the reader's calls are not recorded, and it is not held
  // The targets are started, and all their operations made, before the reader.
  bool early = false;
};

// The script with what happens between its operations, as comments: a script that `ctxconf puppet`
// can run.
std::string script_with_acts(const Scene& scene);

// All scenes, made once. Names are unique.
const std::deque<SceneGroup>& scene_groups();

// Adds what the list does not have.
void add_new(const std::string& one, std::vector<std::string>& list);

// Writes a scene.
class SceneBuilder {
 public:
  SceneBuilder(std::string name, std::string about,
               puppet::Program program = puppet::Program::kPlain);

  puppet::Builder& script() { return builder_; }
  // The operations that `make` adds are made while the reader is held.
  Hold hold(std::string name, Hold::When when, Part part, const std::function<void()>& make,
            unsigned nth = 1);
  void ask(Question question);
  void wait(Wait act);
  void ask_witness(std::vector<std::string> requirements);
  // It shows the requirement, but a crash or a hang does not decide that. Call it before ask().
  void also_shows(const std::string& requirement);
  void needs(const std::string& capability);
  // The schema version that a reader has to know for the questions about threads; empty: none. If
  // not called: that of reference_data(). Call it before ask().
  void schema(std::string version) { schema_ = std::move(version); }
  // The header is that of a draft ("H3"): a reader that reads the draft may report it.
  void shows_draft(const std::string& layout) { needs("not reader.formats:" + layout); }
  void needs_host(std::string fact) { scene_.host.push_back(std::move(fact)); }
  void rests_on(Premise premise) { scene_.rests_on.push_back(premise); }
  // The scene rests on these premises alone. Other scenes rest on plain contexts.
  void rests_only_on(std::vector<Premise> premises) { scene_.rests_on = std::move(premises); }

  Scene scene() &&;

 private:
  void play();  // what was added since

  Scene scene_;
  puppet::Builder builder_;
  std::size_t played_ = 0;
  std::string schema_{kUsualSchema};
};

// Claims.
AnswerClaim claim(std::string requirement, std::vector<AllowedAnswer> allowed,
                  std::string otherwise);
AllowedAnswer accept(std::string content = {});
std::vector<AllowedAnswer> no_context();  // absent or reject: a reader cannot always tell
std::vector<AllowedAnswer> not_used();    // these, or retry
// Also allows an error instead of an answer: then it says nothing about the requirement.
std::vector<AllowedAnswer> or_refused(std::vector<AllowedAnswer> allowed);
std::vector<AllowedAnswer> found_answers();  // accept or reject: it has found something

}  // namespace ctxconf::conformance::reader
