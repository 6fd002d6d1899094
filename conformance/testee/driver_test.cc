#include "conformance/testee/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "conformance/judge/judge.h"
#include "sys/capabilities.h"
#include "sys/tracer.h"

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
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", plain_resource()}}));
  return {};
}
Driven update(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", plain_resource()}}));
  return {};
}

constexpr std::string_view kPublishRequirement = "pctx.publish.discoverable";
constexpr std::string_view kUpdateRequirement = "pctx.update.visible";

Group group_of(std::string_view name, std::size_t checks, Driven (*drive)(Testee&)) {
  constexpr std::array<std::string_view, 6> kNames = {"a", "b", "c", "d", "e", "f"};
  Group group{name, {}};
  for (std::size_t i = 0; i < checks; ++i) {
    const auto requirement = i + 1 < checks ? kPublishRequirement : kUpdateRequirement;
    group.checks.push_back({kNames.at(i), {"process.publish"}, {requirement}, {}, drive});
  }
  return group;
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!sys::Capabilities::of_this_host().has(sys::kHostPtrace)) GTEST_SKIP() << "no ptrace";
    for (const auto requirement : {kPublishRequirement, kUpdateRequirement}) {
      selected_.push_back(Catalogue::builtin().find(requirement));
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
  // Drives the groups until one does not go on.
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

TEST(ChecksTest, AreForRequirementsThatExist) {
  for (const auto& groups : {process_groups(), thread_groups(), record_groups()}) {
    for (const Group& group : groups) {
      for (const Check& check : group.checks) {
        for (const auto& globs : {check.requirements, check.also}) {
          for (const auto glob : globs) {
            EXPECT_TRUE(Catalogue::builtin().has_match(glob)) << check.name << ": " << glob;
          }
        }
      }
    }
  }
}

TEST(AppendTest, WhatAGroupLacksTheRunLacks) {
  Timeline whole;
  Timeline part;
  part.incomplete = "3 processes were not judged";
  append(std::move(part), whole);
  append({}, whole);
  EXPECT_EQ(whole.incomplete, "3 processes were not judged");
}

TEST_F(DriverTest, ChecksOfAGroupShareAProcess) {
  Driver d = driver("none");
  const std::vector<Group> groups = {group_of("one", 3, publish), group_of("two", 1, publish)};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  EXPECT_TRUE(d.capabilities().contains("process.update"));
  EXPECT_THAT(timeline_.sessions, IsEmpty());
  ASSERT_TRUE(drive(d, groups).goes_on());
  ASSERT_THAT(timeline_.sessions, SizeIs(2));
  EXPECT_EQ(timeline_.sessions[0].group, "one");
  EXPECT_EQ(timeline_.sessions[0].ending.how, AdapterEnding::How::kExitedZero);
  EXPECT_EQ(timeline_.sessions[0].ending.text, "exited 0");
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
  EXPECT_EQ(timeline_.skipped[0].capability, "process.fork");
  EXPECT_FALSE(timeline_.skipped[0].must_be_absent);
  EXPECT_THAT(endings(), ElementsAre(CheckEnding::kDone));
}

TEST_F(DriverTest, WhatIsForAdaptersWithoutACapabilityIsLeftOut) {
  Driver d = driver("none");
  Group group = group_of("one", 2, publish);
  group.checks[0].needs = {"not process.publish"};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, {group}).goes_on());
  ASSERT_THAT(timeline_.skipped, SizeIs(1));
  EXPECT_EQ(timeline_.skipped[0].capability, "process.publish");
  EXPECT_TRUE(timeline_.skipped[0].must_be_absent);
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
  EXPECT_THAT(last.requirements, ElementsAre(kUpdateRequirement));
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
  EXPECT_EQ(timeline_.sessions[0].ending.how, AdapterEnding::How::kExitedZero);
  EXPECT_EQ(timeline_.sessions[0].ending.text, "exited 0");
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
  group.checks[0].also = {kPublishRequirement};
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  ASSERT_TRUE(drive(d, {group}).goes_on());
  const RunResult result = judge(timeline_, selected_);
  ASSERT_THAT(result.problems, SizeIs(1));
  EXPECT_EQ(result.problems[0].outcome, Outcome::kCrash);
  EXPECT_THAT(result.problems[0].text, HasSubstr("killed by SIGSEGV in process.update"));
}

// An adapter that answers everything; `at_bye` is what its shell does after it answered bye.
std::vector<std::string> shell_adapter(const std::string& at_bye) {
  return {"/bin/sh", "-c", R"(parent=$PPID
while read -r line; do
  id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case $line in
    *'"op":"hello"'*) echo '{"id":'$id',"ok":true,"v":1,"pid":'$$',"adapter":{"name":"sh","version":"1"},"caps":{"process.publish":{}}}' ;;
    *'"op":"bye"'*) echo '{"id":'$id',"ok":true}'
)" + at_bye + R"( ;;
    *) echo '{"id":'$id',"ok":true}' ;;
  esac
done)"};
}

TEST_F(DriverTest, ASignalWhileAnAdapterStaysAfterByeEndsTheRun) {
  Driver d = driver("none");
  options_.argv = shell_adapter("kill -TERM $parent; exec sleep 60");
  const std::vector<Group> groups = {group_of("one", 1, publish), group_of("two", 1, publish)};
  EXPECT_TRUE(d.learn_capabilities().interrupted);
  const GroupRun last = drive(d, groups);
  EXPECT_TRUE(last.interrupted);
  EXPECT_EQ(last.adapter_fault, "");
  EXPECT_EQ(last.harness_fault, "");
  ASSERT_THAT(timeline_.sessions, SizeIs(1));
  EXPECT_THAT(timeline_.sessions[0].left_behind, IsEmpty());
  EXPECT_EQ(oddities_of(timeline_.sessions[0]), Oddities()) << "it did not get its time";
}

// Takes this thread's right to signal processes of other users.
class NoKill {
 public:
  NoKill() {
    if (syscall(SYS_capget, &header_, before_.data()) != 0) return;
    auto without = before_;
    without[0].effective &= ~(1U << CAP_KILL);
    done_ = without[0].effective != before_[0].effective &&
            syscall(SYS_capset, &header_, without.data()) == 0;
  }
  ~NoKill() {
    if (done_) syscall(SYS_capset, &header_, before_.data());
  }
  NoKill(const NoKill&) = delete;
  NoKill& operator=(const NoKill&) = delete;
  bool done() const { return done_; }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_{};
  bool done_ = false;
};

TEST_F(DriverTest, AnAdapterThatMayNotBeSignalledHasNotCrashed) {
  Driver d = driver("changes-user");
  ASSERT_TRUE(d.learn_capabilities().goes_on());
  const NoKill no_kill;
  if (!no_kill.done()) GTEST_SKIP() << "needs the right to signal processes of all users";
  const Group group = group_of("one", 1, [](Testee& t) -> Driven {
    CTX_RETURN_IF_ERROR(publish(t));
    if (kill(t.pid(), 0) == 0) return std::unexpected(Stop::kRefused);
    CTX_RETURN_IF_ERROR(t.wait_stopped(std::chrono::milliseconds(1), std::chrono::milliseconds(1)));
    return {};
  });
  EXPECT_TRUE(drive(d, {group}).goes_on());
  EXPECT_THAT(endings(), ElementsAre(CheckEnding::kDone));
}

TEST_F(DriverTest, AMissingProgramIsTheAdapters) {
  Driver d = driver("none");
  options_.argv = {"/no/such/adapter"};
  EXPECT_THAT(d.learn_capabilities().adapter_fault, HasSubstr("cannot be started"));
}

}  // namespace
}  // namespace ctxconf::conformance
