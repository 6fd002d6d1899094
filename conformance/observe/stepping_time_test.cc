#include "conformance/observe/stepping_time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace ctxconf::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SteppingTimeTest : public testing::Test {
 protected:
  // Waits `time` for an event, which takes a millisecond to handle. Returns what deadlines gain.
  SteppingTime::Clock::duration wait(milliseconds time, bool stepped) {
    auto gained = stepping_.begin_wait(now_);
    now_ += time;
    gained += stepping_.end_wait(now_, stepped);
    now_ += milliseconds(1);
    return gained;
  }
  void tell(std::uint64_t steps, milliseconds after) {
    now_ += after;
    stepping_.tell(steps, now_);
  }

  struct Told {
    std::uint64_t steps = 0;
    double seconds = 0;
    friend bool operator==(const Told&, const Told&) = default;
  };
  std::vector<Told> told_;
  WrapOptions options_ = [this] {
    WrapOptions options;
    options.stepping = [this](std::uint64_t steps, double took) { told_.push_back({steps, took}); };
    return options;
  }();
  SteppingTime stepping_{options_};
  SteppingTime::Clock::time_point now_;
};

TEST_F(SteppingTimeTest, OtherEventsTakeNoTime) {
  EXPECT_EQ(wait(seconds(5), false), seconds(0));
  EXPECT_EQ(wait(seconds(5), false), seconds(0));
  EXPECT_FALSE(stepping_.has_stepped());
  EXPECT_EQ(stepping_.in_all(), seconds(0));
}

TEST_F(SteppingTimeTest, AStepTakesItsWaitAndWhatFollowsIt) {
  EXPECT_EQ(wait(milliseconds(10), true), milliseconds(10));
  EXPECT_TRUE(stepping_.has_stepped());
  EXPECT_EQ(wait(milliseconds(20), true), milliseconds(21));
  EXPECT_EQ(wait(milliseconds(30), false), milliseconds(1)) << "it handled the step before";
  EXPECT_EQ(wait(milliseconds(40), false), milliseconds(0));
  EXPECT_EQ(stepping_.in_all(), milliseconds(32));
}

TEST_F(SteppingTimeTest, IsUsedUpByStepsAndForksTogether) {
  stepping_.add(seconds(20));
  EXPECT_FALSE(stepping_.is_used_up());
  (void)wait(seconds(11), true);
  EXPECT_TRUE(stepping_.is_used_up());
  options_.timeout_scale = 2;
  EXPECT_FALSE(stepping_.is_used_up());
}

TEST_F(SteppingTimeTest, TellsTenTimesASecondAndAtTheEnd) {
  tell(0, seconds(1));
  EXPECT_TRUE(told_.empty());
  tell(1, seconds(1));
  tell(2, milliseconds(50));
  tell(3, milliseconds(50));
  tell(0, milliseconds(10));
  tell(0, milliseconds(500));
  const std::vector<Told> expected = {{1, 0}, {3, 0.1}, {0, 0}};
  EXPECT_EQ(told_, expected);
}

}  // namespace
}  // namespace ctxconf::conformance
