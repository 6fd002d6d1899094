#include "conformance/reader/play_scene.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/reader/busy_processor.h"
#include "conformance/reader/publish.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance::reader {
namespace {

using Json = nlohmann::json;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

constexpr const char* kDecodes = "pctx.reader.decodes-process-context";

SceneBuilder begin(std::string name) {
  SceneBuilder s(std::move(name), "a scene of a test");
  s.rests_only_on({});
  return s;
}

// A context that stays as it is while the reader is asked about it again and again.
Scene asked_often(unsigned times) {
  SceneBuilder s = begin("unchanged");
  const Published p = publish(s.script(), service("ctxconf-unchanged").encoded());
  for (unsigned i = 0; i < times; ++i) s.ask(about_process(p, {}));
  return std::move(s).scene();
}

// Two processes, of which the second one is watched until it has ended.
Scene parent_and_child() {
  SceneBuilder s = begin("parent-and-child");
  auto& b = s.script();
  s.ask(about_process(publish(b, service("ctxconf-parent").encoded()), {}));
  const puppet::Value child = b.fork();
  b.by(child);
  Question q = about_process(publish(b, service("ctxconf-child").encoded()), {});
  q.process = child;
  s.ask(std::move(q));
  b.exit();
  b.by_first();
  b.wait(child);
  return std::move(s).scene();
}

// The scenes are played as a Driver does, but whatever the reader declares.
class PlaySceneTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto& host = sys::Capabilities::of_this_host();
    if (!host.has(sys::kHostPtrace)) GTEST_SKIP() << "no ptrace";
    if (!host.has(sys::kHostSeccompTrace)) GTEST_SKIP() << "the calls of a reader are not seen";
    stage_.programs = CTXCONF_BIN_DIR;
    stage_.timeout_scale = 4;
    stage_.calls = std::make_shared<ReaderCallRecorder>();
    stage_.early = std::make_shared<std::map<std::string, std::unique_ptr<Target>>>();
  }

  // `before`: the words of a command that starts the reader. `started`: called when it runs.
  void play(
      std::vector<std::string> reader, const std::vector<Scene>& scenes,
      std::vector<std::string> before = {}, const std::function<void()>& started = [] {}) {
    TesteeOptions options;
    reader.front().insert(0, CTXCONF_BIN_DIR "/");
    options.argv = std::move(before);
    std::ranges::move(reader, std::back_inserter(options.argv));
    options.mode = timeline_.mode = Mode::kReader;
    options.reader = true;
    options.seed = "5eed";
    options.recording.timeout_scale = stage_.timeout_scale;
    options.recording.trampoline = CTXCONF_BIN_DIR "/ctxconf-trampoline";
    options.recording.observer = stage_.calls;
    options.recording.looks_by_itself = false;
    Testee testee(options, "scenes", timeline_);
    ASSERT_TRUE(testee.start()) << testee.adapter_fault() << testee.harness_fault();
    started();
    for (const Scene& scene : scenes) {
      testee.begin_check(scene.name, {});
      const Driven driven = reader::play(scene, stage_, testee);
      EXPECT_TRUE(driven) << scene.name;
      if (!driven) testee.end_check(driven.error());
    }
    testee.end();
  }

  const Session& session() const { return timeline_.sessions.at(0); }
  const CheckRun& check(const std::string& name) const {
    const auto at = std::ranges::find(session().checks, name, &CheckRun::name);
    if (at == session().checks.end()) throw std::out_of_range(name);
    return *at;
  }
  // Those of the check that ask for this.
  std::vector<const Operation*> operations(const std::string& name, std::string_view op) const {
    std::vector<const Operation*> out;
    for (const Operation& o : session().operations) {
      if (session().checks.at(o.check).name != name) continue;
      // Some operations are waits, without a request.
      const Json request = Json::parse(o.request, nullptr, /*allow_exceptions=*/false);
      if (request.is_object() && request.value("op", "") == op) out.push_back(&o);
    }
    return out;
  }
  static std::vector<pid_t> processes(const std::vector<const Operation*>& all) {
    std::vector<pid_t> out;
    for (const Operation* o : all) out.push_back(Json::parse(o->request).at("pid").get<pid_t>());
    return out;
  }

  StageOptions stage_;
  Timeline timeline_;
};

// What a question made the reader do.
struct Cost {
  std::size_t reads = 0;  // of the memory of the target
  std::size_t lists = 0;  // of its mappings
  std::size_t opened = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

Cost cost_of(const Operation& operation) {
  Cost out;
  for (const ReaderCall& call : operation.question.value().calls) {
    if (!call.ranges.empty()) ++out.reads;
    if (!call.name.starts_with("open")) continue;
    ++out.opened;
    if (call.detail.ends_with("/maps")) ++out.lists;
  }
  return out;
}

std::vector<Cost> costs_of(const std::vector<const Operation*>& questions) {
  std::vector<Cost> out;
  for (const Operation* o : questions) {
    EXPECT_EQ(Json::parse(o->reply).value("result", ""), "accept") << o->reply;
    out.push_back(cost_of(*o));
  }
  return out;
}

TEST_F(PlaySceneTest, AnUnchangedContextCostsTheReferenceReaderOneRemoteRead) {
  // It lists the mappings once in ten minutes.
  ASSERT_NO_FATAL_FAILURE(play({"reader_ref", "serve", "--relist", "600"}, {asked_often(5)}));
  const auto costs = costs_of(operations("unchanged", "reader.process"));
  ASSERT_THAT(costs, SizeIs(5));
  EXPECT_EQ(costs[0].lists, 1U);
  EXPECT_THAT(std::vector(costs.begin() + 1, costs.end()),
              Each(Cost{.reads = 1, .lists = 0, .opened = 0}));
}

TEST_F(PlaySceneTest, TheReferenceReaderListsMappingsAsOftenAsItIsTold) {
  ASSERT_NO_FATAL_FAILURE(play({"reader_ref", "serve", "--relist", "0"}, {asked_often(3)}));
  const auto costs = costs_of(operations("unchanged", "reader.process"));
  ASSERT_THAT(costs, SizeIs(3));
  for (const Cost& cost : costs) EXPECT_EQ(cost.lists, 1U);
}

TEST_F(PlaySceneTest, AProcessThatIsWatchedIsForgottenAtTheEndOfTheScene) {
  ASSERT_NO_FATAL_FAILURE(play({"bad_reader", "--watch"}, {parent_and_child(), asked_often(1)}));
  const auto watched = processes(operations("parent-and-child", "reader.watch"));
  EXPECT_THAT(watched, SizeIs(2));
  EXPECT_THAT(processes(operations("parent-and-child", "reader.forget")),
              UnorderedElementsAreArray(watched));
  // Each process is forgotten by the scene that it is in.
  EXPECT_EQ(processes(operations("unchanged", "reader.forget")),
            processes(operations("unchanged", "reader.watch")));
}

TEST_F(PlaySceneTest, AReaderThatGetsNoProcessorIsAskedOnceAndIsNotJudged) {
  SceneBuilder s = begin("unchanged");
  const Message message = service("ctxconf-unchanged");
  Question q = about_process(publish(s.script(), message.encoded()), {});
  q.claims = {claim(kDecodes, {accept(message.content())}, "it is not reported")};
  q.premise = q.claims.front();
  q.attempts = kAttempts;
  s.ask(std::move(q));
  const Scene scene = std::move(s).scene();
  TargetOptions options;
  options.programs = stage_.programs;
  options.timeout_scale = stage_.timeout_scale;
  auto target = Target::start(scene.script, options);
  ASSERT_TRUE(target);
  ASSERT_TRUE((*target)->play(0, scene.script.operations.size()).value_or(false));
  stage_.early->emplace(scene.name, *std::move(target));
  stage_.timeout_scale = 1;
  stage_.longest_wait = std::chrono::milliseconds(200);
  const int processor = sched_getcpu();
  std::optional<BusyProcessor> busy;
  ASSERT_NO_FATAL_FAILURE(play({"bad_reader", "--watch"}, {scene}, /*before=*/
                               {"chrt", "--idle", "0", "taskset", "-c", std::to_string(processor)},
                               /*started=*/[&] { busy.emplace(processor); }));
  const auto answered = [](const Operation& o) { return o.reply.contains(R"("accept")"); };
  if (std::ranges::any_of(session().operations, answered)) GTEST_SKIP() << "it got a processor";
  EXPECT_THAT(check("unchanged").unshown, HasSubstr("the time to look twice within 1 s"));
  EXPECT_EQ(check("unchanged").remedy, "a machine that is less busy");
  std::vector<std::size_t> claims;
  for (const Operation& o : session().operations) {
    if (o.question) claims.push_back(o.question->claims.size());
  }
  EXPECT_EQ(claims, std::vector<std::size_t>{0});
}

TEST_F(PlaySceneTest, ARefusalToForgetEndsNoScene) {
  ASSERT_NO_FATAL_FAILURE(
      play({"bad_reader", "--watch", "--good", "refuses-to-forget"}, {parent_and_child()}));
  std::size_t refused = 0;
  for (const Operation* o : operations("parent-and-child", "reader.forget")) {
    if (Json::parse(o->reply)["ok"] == false) ++refused;
  }
  EXPECT_EQ(refused, 1U) << "for the child, which has ended";
  EXPECT_EQ(check("parent-and-child").ending, CheckEnding::kDone);
  EXPECT_EQ(check("parent-and-child").unshown, "");
}

TEST_F(PlaySceneTest, AReaderThatIsAskedHasNothingToForget) {
  ASSERT_NO_FATAL_FAILURE(play({"bad_reader"}, {parent_and_child()}));
  EXPECT_THAT(operations("parent-and-child", "reader.process"), SizeIs(2));
  EXPECT_THAT(operations("parent-and-child", "reader.forget"), IsEmpty());
}

TEST_F(PlaySceneTest, APremiseThatDoesNotHoldIsShownOnceAndSaysWhatIsLacking) {
  Scene one = asked_often(1);
  one.rests_on = {Premise::kInline, Premise::kElsewhere};
  Scene other = one;
  other.name = "other";
  ASSERT_NO_FATAL_FAILURE(
      play({"bad_reader", "--bad", "pctx.reader.follows-pointer"}, {one, other}));
  for (const char* name : {"unchanged", "other"}) {
    EXPECT_EQ(check(name).unshown,
              "the reader does not report a context whose payload is elsewhere");
    EXPECT_EQ(check(name).remedy, "a reader that reports it; see the failed requirements");
  }
  EXPECT_THAT(operations("unchanged", "reader.process"), Not(IsEmpty()));
  EXPECT_THAT(operations("other", "reader.process"), IsEmpty());
  EXPECT_EQ(stage_.premises->at(Premise::kInline).what, "");
  EXPECT_THAT(stage_.premises->at(Premise::kElsewhere).what, HasSubstr("payload is elsewhere"));
}

TEST_F(PlaySceneTest, AfterAQuestionWhosePremiseDoesNotHoldNothingIsAsked) {
  Scene scene = asked_often(2);
  for (Act& act : scene.acts) {
    auto* const q = std::get_if<Question>(&act);
    if (q != nullptr) q->premise = claim(kDecodes, no_context(), "the reader reports a context");
  }
  ASSERT_NO_FATAL_FAILURE(play({"bad_reader"}, {scene}));
  EXPECT_THAT(operations("unchanged", "reader.process"), SizeIs(1));
  EXPECT_EQ(check("unchanged").unshown, "the reader reports a context");
  EXPECT_EQ(check("unchanged").remedy, std::string("a reader that satisfies ") + kDecodes);
}

TEST_F(PlaySceneTest, AReaderIsNotAskedWhatTheHostCannotShow) {
  Scene scene = asked_often(1);
  scene.host = {"names"};
  stage_.names_memory = false;
  ASSERT_NO_FATAL_FAILURE(play({"bad_reader"}, {scene}));
  EXPECT_THAT(operations("unchanged", "reader.process"), IsEmpty());
  EXPECT_EQ(check("unchanged").unshown, "this kernel does not name anonymous memory");
  EXPECT_THAT(check("unchanged").remedy, HasSubstr("CONFIG_ANON_VMA_NAME"));
}

TEST_F(PlaySceneTest, ThirtyTwoBitProgramsNeedAKernelThatRunsThem) {
  const std::string folder = testing::TempDir() + "play_scene_XXXXXX";
  std::vector<char> name(folder.c_str(), folder.c_str() + folder.size() + 1);
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path made = name.data();
  const std::filesystem::path program = made / kThirtyTwoBitProgram;
  std::ofstream(program) << "of another machine";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  SceneBuilder s = begin("refused");
  s.needs_host(program);
  s.script().exec(program, {});
  s.ask(Question());
  play({"bad_reader"}, {std::move(s).scene()});
  EXPECT_THAT(check("refused").unshown, HasSubstr("could not be played"));
  EXPECT_EQ(check("refused").remedy, "a kernel that runs 32-bit programs");
  std::filesystem::remove_all(made);
}

std::string lack_of(const std::string& fact, const StageOptions& stage) {
  Scene scene;
  scene.host = {fact};
  const Lack lack = lacking(scene, stage);
  EXPECT_EQ(lack.what.empty(), lack.remedy.empty()) << fact;
  return lack.what;
}

TEST(LackingTest, SaysWhichFactTheHostLacks) {
  StageOptions stage;
  stage.programs = CTXCONF_BIN_DIR;
  for (const bool has : {true, false}) {
    stage.names_memory = stage.names_shmem = has;
    EXPECT_EQ(lack_of("names", stage), has ? "" : "this kernel does not name anonymous memory");
    EXPECT_EQ(lack_of("shmem-names", stage),
              has ? "" : "this kernel does not name mappings of a memfd");
  }
  EXPECT_EQ(lack_of("root", stage),
            geteuid() == 0 ? "" : "it needs another user, and ctxconf does not run as root");
  const std::string program = CTXCONF_BIN_DIR "/process_writer_32";
  const bool has_program = access(program.c_str(), X_OK) == 0;
  EXPECT_EQ(lack_of(program, stage),
            has_program ? "" : "ctxconf was built without a 32-bit program");
  EXPECT_EQ(lack_of("/nonexistent/process_writer_32", stage),
            "ctxconf was built without a 32-bit program");
  EXPECT_EQ(lack_of("no_such.so", stage), "ctxconf was built without the library no_such.so");
  EXPECT_EQ(lacking(Scene(), stage).what, "");
}

}  // namespace
}  // namespace ctxconf::conformance::reader
