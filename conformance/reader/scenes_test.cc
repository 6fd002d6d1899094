#include "conformance/reader/scenes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/reader/play_scene.h"
#include "conformance/reader/target.h"
#include "conformance/reader/vector_requirements.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/rules/reader_rules.h"
#include "sys/memory_reader.h"
#include "sys/thread_stop.h"
#include "sys/tls_variable.h"

namespace ctxconf::conformance::reader {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<const Scene*> all_scenes() {
  std::vector<const Scene*> out;
  for (const SceneGroup& group : scene_groups()) {
    for (const Scene& scene : group.scenes) out.push_back(&scene);
  }
  return out;
}

std::vector<const Question*> questions_of(const Scene& scene) {
  std::vector<const Question*> out;
  for (const Act& act : scene.acts) {
    if (const auto* q = std::get_if<Question>(&act)) out.push_back(q);
  }
  return out;
}

TEST(ScenesTest, EveryTopicIsShown) {
  std::vector<std::string> names;
  for (const SceneGroup& group : scene_groups()) {
    names.push_back(group.name);
    EXPECT_THAT(group.scenes, Not(IsEmpty())) << group.name;
  }
  EXPECT_THAT(names, UnorderedElementsAre("records", "contexts", "names", "headers", "payloads",
                                          "lifetimes", "windows", "record-threads", "threads",
                                          "record-contents", "reference-data", "tls", "early",
                                          "permissions", "crowd"));
}

TEST(ScenesTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const Scene* s : all_scenes()) EXPECT_TRUE(names.insert(s->name).second) << s->name;
}

TEST(ScenesTest, ScriptsCanBeWrittenAndReadAgain) {
  for (const Scene* s : all_scenes()) {
    if (s->script.operations.empty()) continue;
    const auto again = puppet::script_from_json(to_json(s->script));
    ASSERT_TRUE(again) << s->name << ": " << again.error().text;
    EXPECT_EQ(*again, s->script) << s->name;
  }
}

TEST(ScenesTest, ARuleJudgesWhatAClaimIsAbout) {
  for (const Scene* s : all_scenes()) {
    for (const Question* q : questions_of(*s)) {
      for (const AnswerClaim& c : q->claims) {
        EXPECT_NE(reader_rule_of(c.requirement), nullptr) << s->name << ": " << c.requirement;
        EXPECT_FALSE(c.otherwise.empty()) << s->name;
      }
      if (q->premise) {
        EXPECT_NE(reader_rule_of(q->premise->requirement), nullptr) << s->name;
        EXPECT_FALSE(q->premise->allowed.empty()) << s->name;
      }
    }
  }
}

// repetitions.h counts by the first claim.
TEST(ScenesTest, WhatIsRepeatedHasTwoContents) {
  std::set<std::string> repeated;
  for (const Scene* s : all_scenes()) {
    for (const Question* q : questions_of(*s)) {
      if (!q->repeated) continue;
      repeated.insert(s->name);
      ASSERT_FALSE(q->claims.empty()) << s->name;
      const auto shows = [](const AllowedAnswer& a) {
        return a.result == "accept" && !a.content.empty();
      };
      EXPECT_EQ(std::ranges::count_if(q->claims.front().allowed, shows), 2) << s->name;
    }
  }
  EXPECT_THAT(repeated,
              UnorderedElementsAre("updates-without-end", "updates-in-place", "record-in-place"));
}

// One that a tracer or a signal holds cannot move, and the scene would wait in vain.
TEST(ScenesTest, AThreadIsMovedDuringItsOwnSampleUnlessItIsStopped) {
  for (const Scene* s : all_scenes()) {
    for (const Question* q : questions_of(*s)) {
      if (q->about != Question::About::kThread || q->thread) continue;
      for (const Hold& h : q->holds) EXPECT_TRUE(h.unless_stopped) << s->name << ": " << h.name;
    }
  }
}

// A reader sees a thread that sleeps, not one that is about to.
TEST(ScenesTest, AThreadThatIsToWakeUpSleepsWhenTheReaderBegins) {
  std::set<std::string> shown;
  for (const Scene* s : all_scenes()) {
    for (const Question* q : questions_of(*s)) {
      for (const Hold& h : q->holds) {
        if (!h.unless_stopped) continue;
        shown.insert(s->name);
        EXPECT_EQ(q->state, 'S') << s->name << ": " << h.name;
      }
    }
  }
  EXPECT_THAT(shown, UnorderedElementsAre("record-of-a-sleeper"));
}

TEST(ScenesTest, RecordsOfVectorRequirementsAreOfRequirementsThatExist) {
  std::set<std::string_view> known;
  for (const VectorRequirement& r : kVectorRequirements) {
    EXPECT_TRUE(known.insert(r.id).second) << r.id;
    EXPECT_NE(reader_rule_of(r.id), nullptr) << r.id;
  }
  EXPECT_TRUE(vector_requirement("tctx.reader.half-ids").compared.names);
  EXPECT_FALSE(vector_requirement("tctx.reader.header-read-28").compared.names);
}

TEST(ScenesTest, TheFirstRequirementAboutReadersOfAVectorDecides) {
  const auto decided_by = [](const std::string& name) {
    std::vector<std::string> out;
    for (const Scene* s : all_scenes()) {
      if (s->name != name) continue;
      for (const AnswerClaim& c : questions_of(*s).back()->claims) out.push_back(c.requirement);
    }
    return out;
  };
  EXPECT_THAT(decided_by("record-layout"), ElementsAre("tctx.reader.record-layout"));
  // No process has the other byte order here.
  EXPECT_THAT(decided_by("record-size-big-endian"),
              ElementsAre("tctx.reader.large-record-survives"));
  EXPECT_THAT(decided_by("vector-big-endian"), ElementsAre("pctx.reader.byte-order"));
}

TEST(ScenesTest, EachRequirementOfReadersIsShown) {
  std::set<std::string> shown;
  for (const Scene* s : all_scenes()) {
    shown.insert(s->requirements.begin(), s->requirements.end());
    shown.insert(s->also.begin(), s->also.end());
  }
  for (const auto& id : shown) EXPECT_NE(reader_rule_of(id), nullptr) << id;
  for (const Specification& specification : Catalogue::builtin().specifications()) {
    for (const Requirement& r : specification.requirements) {
      if (r.role != Role::kReader || r.modes.empty()) continue;
      if (r.id.ends_with(".byte-order")) continue;  // no process has another one here
      EXPECT_THAT(shown, Contains(r.id));
    }
  }
}

const Scene& scene_of(const std::string& name) {
  static const Scene none;
  for (const Scene* s : all_scenes()) {
    if (s->name == name) return *s;
  }
  ADD_FAILURE() << "no scene " << name;
  return none;
}

std::vector<std::string> formats_of(const Scene& scene) {
  std::vector<std::string> out;
  for (const std::string& need : scene.needs) {
    if (need.contains("reader.formats:")) out.push_back(need);
  }
  return out;
}

bool asks_about_threads(const Scene& scene) {
  return std::ranges::any_of(
      questions_of(scene), [](const Question* q) { return q->about == Question::About::kThread; });
}

TEST(ScenesTest, AReaderIsAskedOnlyAboutSchemaVersionsThatItKnows) {
  constexpr const char* kUsual = "reader.formats:tlsdesc_v1_dev";
  constexpr const char* kOther = "reader.formats:tls_v1";
  const std::set<std::string> without = {
      "schema-go",      "schema-tls-v2",    "schema-empty",          "schema-number",
      "schema-missing", "thread-schema-go", "thread-schema-unknown", "thread-schema-tls-v1"};
  for (const Scene* s : all_scenes()) {
    const bool asks = asks_about_threads(*s);
    if (!asks) {
      EXPECT_THAT(formats_of(*s), Not(Contains(kUsual))) << s->name;
    } else if (!without.contains(s->name)) {
      EXPECT_THAT(formats_of(*s), Contains(kUsual)) << s->name;
    }
  }
  for (const char* unknown : {"schema-go", "schema-tls-v2", "schema-missing"}) {
    EXPECT_THAT(formats_of(scene_of(unknown)), IsEmpty()) << unknown;
  }
  // The other one comes first, as what the scene rests on.
  EXPECT_THAT(formats_of(scene_of("schema-tls-v1")), UnorderedElementsAre(kUsual, kOther));
  EXPECT_THAT(formats_of(scene_of("schema-tlsdesc-v1-dev")), UnorderedElementsAre(kUsual, kOther));
  for (const char* name : {"thread-schema-tls-v1", "record-schema-tls-v1"}) {
    EXPECT_THAT(formats_of(scene_of(name)), UnorderedElementsAre(kOther)) << name;
  }
}

TEST(ScenesTest, AReaderOfADraftIsNotShownItsHeader) {
  std::set<std::string> shown;
  for (const Scene* s : all_scenes()) {
    for (const std::string& need : formats_of(*s)) {
      if (need.starts_with("not ")) shown.insert(s->name + ": " + need);
    }
  }
  EXPECT_THAT(shown, UnorderedElementsAre("vector-draft-h0-p0: not reader.formats:H0",
                                          "vector-draft-h1-p1: not reader.formats:H1",
                                          "vector-draft-h2-p2: not reader.formats:H2",
                                          "vector-draft-h3-p2: not reader.formats:H3",
                                          "vector-draft-h3-p3: not reader.formats:H3"));
}

TEST(ScenesTest, AGeneratedProgramSaysWhichSchemaVersionItPublishes) {
  std::set<std::string> shown;
  for (const Scene& scene : generated_scenes(40, 0x4719, /*host_names_memory=*/false).scenes) {
    const auto formats = formats_of(scene);
    const bool asks = asks_about_threads(scene);
    EXPECT_NE(formats.empty(), asks) << scene.name;
    shown.insert(formats.begin(), formats.end());
  }
  EXPECT_THAT(shown,
              UnorderedElementsAre("reader.formats:tlsdesc_v1_dev", "reader.formats:tls_v1"));
}

// Where a reader that is known to be right finds the variable.
class RightReader {
 public:
  std::vector<std::uint64_t> slots_of(pid_t pid, pid_t tid) {
    std::vector<std::uint64_t> out;
    auto modules = sys::modules_of(pid, files_);
    if (!modules) return out;
    const auto definitions = sys::find_tls_variable(*modules, "otel_thread_ctx_v1");
    if (!definitions) return out;
    const sys::ProcessMemory memory(pid);
    const auto stop = sys::ThreadStop::stop(tid, std::chrono::seconds(5), pid);
    if (!stop || !stop->thread_pointer()) return out;
    for (const sys::TlsDefinition& d : *definitions) {
      const auto at = sys::tls_address(*modules, d, *stop->thread_pointer(), memory);
      if (at && *at) out.push_back((*at)->raw());
    }
    return out;
  }

 private:
  sys::ElfCache files_;
};

// The address that the program says against the one that a reader finds.
void check_slots(const Scene& scene, const StageOptions& stage, RightReader& reader) {
  auto target = Target::start(
      scene.script,
      {.programs = stage.programs, .timeout_scale = 4, .meanwhile = {}, .wake_for = {}});
  ASSERT_TRUE(target) << sys::to_string(target.error());
  for (const Act& act : scene.acts) {
    if (const auto* play = std::get_if<Play>(&act)) {
      const auto played = (*target)->play(play->operations.from, play->operations.to);
      ASSERT_TRUE(played && *played) << (*target)->problem();
    }
    const auto* q = std::get_if<Question>(&act);
    if (q == nullptr || q->about != Question::About::kThread) continue;
    const auto number = [&](const std::optional<puppet::Value>& v) {
      return v ? static_cast<pid_t>((*target)->value_of(*v).value_or(0)) : (*target)->pid();
    };
    for (const auto& [name, part] : q->shown) {
      if (name != "slot") continue;
      const pid_t process = number(q->process);
      const pid_t thread = q->thread ? number(q->thread) : process;
      EXPECT_THAT(reader.slots_of(process, thread),
                  Contains((*target)->value_of(part.at).value_or(0)));
    }
  }
}

TEST(ScenesTest, AReaderFindsTheVariableWhereTheProgramHasIt) {
  StageOptions stage;
  stage.programs = CTXCONF_BIN_DIR;
  RightReader reader;
  std::size_t checked = 0;
  for (const SceneGroup& group : scene_groups()) {
    if (group.name != "tls" && group.name != "threads" && group.name != "reference-data") continue;
    for (const Scene& scene : group.scenes) {
      SCOPED_TRACE(scene.name);
      const auto questions = questions_of(scene);
      // A thread that has ended, and one that a debugger holds, cannot be looked at; others have
      // no variable yet.
      constexpr std::string_view kOthers[] = {"threads-that-come-and-go", "thread-of-a-debugger",
                                              "late-library"};
      if (std::ranges::find(kOthers, scene.name) != std::end(kOthers)) continue;
      if (!lacking(scene, stage).what.empty()) continue;
      check_slots(scene, stage, reader);
      ++checked;
    }
  }
  EXPECT_GT(checked, 30U);
}

}  // namespace
}  // namespace ctxconf::conformance::reader
