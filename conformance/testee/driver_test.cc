#include "conformance/testee/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "conformance/judge.h"
#include "sys/capabilities.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

json plain_resource() {
  const json attribute = {{"key", "service.name"}, {"value", {{"stringValue", "a"}}}};
  return {{"attributes", json::array({attribute})}};
}

Driven publish(Testee& t) {
  CTX_CHECK(t.request("process.publish", {{"resource", plain_resource()}}));
  return {};
}
Driven update(Testee& t) {
  CTX_CHECK(publish(t));
  CTX_CHECK(t.request("process.update", {{"resource", plain_resource()}}));
  return {};
}

constexpr std::string_view kPublishRow = "pctx.publish.discoverable";
constexpr std::string_view kUpdateRow = "pctx.update.visible";

Group group_of(std::string_view name, std::size_t checks, Driven (*drive)(Testee&)) {
  constexpr std::array<std::string_view, 6> kNames = {"a", "b", "c", "d", "e", "f"};
  Group group{name, {}};
  for (std::size_t i = 0; i < checks; ++i) {
    const auto row = i + 1 < checks ? kPublishRow : kUpdateRow;
    group.checks.push_back({kNames.at(i), {"process.publish"}, {row}, {}, drive});
  }
  return group;
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!sys::Capabilities::of_this_host().has(sys::kHostPtrace)) GTEST_SKIP() << "no ptrace";
    for (const auto row : {kPublishRow, kUpdateRow}) {
      selected_.push_back(Catalogue::builtin().find(row));
      ASSERT_NE(selected_.back(), nullptr);
    }
    options_.seed = "5eed";
    options_.recording.trampoline = CTXCONF_BIN_DIR "/ctxconf-trampoline";
    options_.recording.no_filter = !sys::Capabilities::of_this_host().has(sys::kHostSeccompTrace);
  }

  Driver driver(const std::string& kind) {
    options_.argv = {CTXCONF_BIN_DIR "/bad_adapter", kind};
    timeline_.mode = Mode::kRun;
    return {options_, selected_};
  }
  // Until one does not go on.
  GroupRun drive(Driver& driver, const std::vector<Group>& groups) {
    GroupRun last;
    for (const Group& group : groups) {
      last = driver.drive(group);
      append(std::exchange(last.part, {}), timeline_);
      if (!last.goes_on()) break;
    }
    return last;
  }
  std::vector<CheckEnding> endings() const {
    std::vector<CheckEnding> out;
    for (const Session& s : timeline_.sessions) {
      for (const CheckRun& c : s.checks) {
        if (c.name.size() == 1) out.push_back(c.ending);
      }
    }
    return out;
  }

  TesteeOptions options_;
  std::vector<const Requirement*> selected_;
  Timeline timeline_;
};

TEST_F(DriverTest, ChecksOfAGroupShareAProcess) {
  Driver d = driver("none");
  const std::vector<Group> groups = {group_of("one", 3, publish), group_of("two", 1, publish)};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  EXPECT_TRUE(d.capabilities().contains("process.update"));
  EXPECT_THAT(timeline_.sessions, IsEmpty());
  ASSERT_TRUE(drive(d, groups).goes_on());
  ASSERT_THAT(timeline_.sessions, SizeIs(2));
  EXPECT_EQ(timeline_.sessions[0].group, "one");
  EXPECT_EQ(timeline_.sessions[0].ending, "exited 0");
  EXPECT_THAT(timeline_.sessions[0].left_behind, IsEmpty());
  // hello, three, bye
  EXPECT_THAT(timeline_.sessions[0].checks, SizeIs(5));
  EXPECT_THAT(timeline_.sessions[0].operations, SizeIs(5));
}

TEST_F(DriverTest, WhatIsNotDeclaredIsLeftOut) {
  Driver d = driver("none");
  Group group = group_of("one", 2, publish);
  group.checks[0].needs = {"process.fork"};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, {group}).goes_on());
  ASSERT_THAT(timeline_.skipped, SizeIs(1));
  EXPECT_EQ(timeline_.skipped[0].missing, "process.fork");
  EXPECT_THAT(endings(), ElementsAre(CheckEnding::kDone));
}

TEST_F(DriverTest, AfterThreeCrashesTheRestOfTheGroupIsNotRun) {
  Driver d = driver("dies-of-segv");
  const std::vector<Group> groups = {group_of("one", 5, publish), group_of("two", 1, publish)};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, groups).goes_on());
  using enum CheckEnding;
  EXPECT_THAT(endings(), ElementsAre(kCrash, kCrash, kCrash, kNotRun, kNotRun, kCrash));
  ASSERT_THAT(timeline_.sessions, SizeIs(4)) << "a process for each that was run";
  const CheckRun& last = timeline_.sessions[2].checks.back();
  EXPECT_THAT(last.text, HasSubstr("not run"));
  EXPECT_THAT(last.requirements, ElementsAre(kUpdateRow));
  const RunResult result = judge(timeline_, selected_);
  for (const RequirementResult& r : result.results) EXPECT_EQ(r.outcome, Outcome::kCrash);
}

TEST_F(DriverTest, ARefusalEndsTheCheckAndNotTheProcess) {
  Driver d = driver("refuses");
  const std::vector<Group> groups = {group_of("one", 4, publish)};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, groups).goes_on());
  using enum CheckEnding;
  EXPECT_THAT(endings(), ElementsAre(kRefused, kRefused, kRefused, kRefused));
  ASSERT_THAT(timeline_.sessions, SizeIs(1));
  EXPECT_EQ(timeline_.sessions[0].ending, "exited 0");
}

TEST_F(DriverTest, ABrokenProtocolEndsTheRun) {
  Driver d = driver("reply-twice");
  const std::vector<Group> groups = {group_of("one", 2, publish), group_of("two", 1, publish)};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  const GroupRun last = drive(d, groups);
  EXPECT_THAT(last.adapter_fault, HasSubstr("without a request"));
  EXPECT_EQ(last.harness_fault, "");
  EXPECT_THAT(timeline_.sessions, SizeIs(1));
}

TEST_F(DriverTest, ACrashThatNoSelectedRowIsToShowIsAProblemOfTheRun) {
  Driver d = driver("dies-in-update");
  Group group = group_of("one", 1, update);
  group.checks[0].requirements = {};
  group.checks[0].also = {kPublishRow};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, {group}).goes_on());
  const RunResult result = judge(timeline_, selected_);
  ASSERT_THAT(result.problems, SizeIs(1));
  EXPECT_EQ(result.problems[0].outcome, Outcome::kCrash);
  EXPECT_THAT(result.problems[0].text, HasSubstr("killed by SIGSEGV in process.update"));
}

TEST_F(DriverTest, AMissingProgramIsTheAdapters) {
  Driver d = driver("none");
  options_.argv = {"/no/such/adapter"};
  EXPECT_THAT(d.learn_capabilities().adapter_fault, HasSubstr("cannot be started"));
}

}  // namespace
}  // namespace ctxconf::conformance
