#include "conformance/command/repeats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance/judge/judge.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// One unit: an adapter that got no request and ended in order.
Timeline unit(std::uint32_t repeat) {
  Timeline t;
  t.mode = Mode::kRun;
  Session& s = t.sessions.emplace_back();
  s.group = "group";
  s.repeat = repeat;
  s.hello = R"({"id":1,"ok":true,"caps":{}})";
  s.checks.emplace_back().name = "hello";
  s.checks.emplace_back().name = "bye";
  s.ending = {AdapterEnding::How::kExitedZero, "exited 0"};
  return t;
}

class RepeatsTest : public testing::Test {
 protected:
  RepeatsTest() { kept_.mode = Mode::kRun; }

  // Adds a repeat of one unit.
  void add(Repeats& repeats, Timeline part) {
    const std::uint32_t repeat = part.sessions.at(0).repeat;
    repeats.add(repeat, std::move(part), /*whole=*/true);
    ASSERT_TRUE(repeats.is_full());
    EXPECT_TRUE(repeats.end(repeat));
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    for (const auto& note : judge(kept_, {}).notes) {
      if (note.find("repeats") != std::string::npos) out.push_back(note);
    }
    return out;
  }

  Timeline kept_;
};

TEST_F(RepeatsTest, WhatIsOddAboutTheAdapterMakesARepeatDiffer) {
  Repeats repeats({}, 1, kept_);
  for (std::uint32_t repeat = 0; repeat < 7; ++repeat) {
    Timeline part = unit(repeat);
    Session& s = part.sessions[0];
    if (repeat == 2 || repeat == 3) s.noise_lines = repeat;
    if (repeat == 2 || repeat == 3) s.noise = "noise " + std::to_string(repeat);
    if (repeat == 4) s.left_behind = {"77 sleep"};
    if (repeat == 5) s.ending = {AdapterEnding::How::kKilledByUs, "killed by SIGKILL (by ctxconf)"};
    if (repeat == 6) s.ending = {AdapterEnding::How::kExited, "exited 5"};
    add(repeats, std::move(part));
  }
  EXPECT_THAT(
      notes(),
      ElementsAre(
          "the adapter wrote lines that are not protocol messages, in 2 of 7 repeats, the first: "
          "noise 2",
          "warning: processes outlived the adapter and were killed, in 1 of 7 repeats, the "
          "first: 77 sleep",
          "warning: the adapter did not exit in time after bye and was killed, in 1 of 7 "
          "repeats",
          "warning: after bye the adapter exited 5, in 1 of 7 repeats"));
}

TEST_F(RepeatsTest, RepeatsThatSayTheSameAreKeptOnce) {
  Repeats repeats({}, 1, kept_);
  for (std::uint32_t repeat = 0; repeat < 3; ++repeat) add(repeats, unit(repeat));
  EXPECT_THAT(kept_.sessions, SizeIs(1));
  ASSERT_THAT(kept_.repeats, SizeIs(1));
  EXPECT_EQ(kept_.repeats[0].times, 3U);
}

TEST_F(RepeatsTest, AfterAUnitThatDidNotEndOrIsMissingNoRepeatIsFull) {
  for (const bool missing : {false, true}) {
    Timeline kept;
    Repeats repeats({}, 2, kept);
    repeats.add(0, unit(0), true);
    EXPECT_FALSE(repeats.is_full());
    if (!missing) repeats.add(1, unit(0), /*whole=*/false);
    EXPECT_FALSE(repeats.is_full());
    // The other jobs of an interrupted run still arrive.
    for (const std::size_t number : {2, 3}) {
      repeats.add(number, unit(1), true);
      EXPECT_FALSE(repeats.is_full()) << number;
    }
    repeats.finish();
    EXPECT_THAT(kept.sessions, SizeIs(missing ? 3 : 4));
    EXPECT_THAT(kept.repeats, SizeIs(0));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
