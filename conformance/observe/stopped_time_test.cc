#include "conformance/observe/stopped_time.h"

#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class StoppedTimeTest : public testing::Test {
 protected:
  // Each sleep is due 20 ms after the end of the last one.
  StoppedTime::Clock::duration woke_late_by(StoppedTime::Clock::duration late) {
    const auto due = now_ + milliseconds(20);
    now_ = due + late;
    return stopped_.woke(due, now_);
  }

  StoppedTime stopped_;
  StoppedTime::Clock::time_point now_;
};

TEST_F(StoppedTimeTest, LoadStopsNothing) {
  EXPECT_EQ(woke_late_by(milliseconds(0)), seconds(0));
  EXPECT_EQ(woke_late_by(milliseconds(-5)), seconds(0));
  EXPECT_EQ(woke_late_by(milliseconds(900)), seconds(0));
  EXPECT_EQ(stopped_.in_all(), seconds(0));
}

TEST_F(StoppedTimeTest, AStopOfAnyLengthIsGained) {
  stopped_.begin_wait();
  EXPECT_EQ(woke_late_by(hours(10)), hours(10));
  EXPECT_EQ(woke_late_by(seconds(2)), seconds(2));
  EXPECT_EQ(stopped_.in_all(), hours(10) + seconds(2));
}

TEST_F(StoppedTimeTest, AHostThatIsLateWithEveryWakeUpMakesNoWaitEndless) {
  stopped_.begin_wait();
  for (int i = 0; i < 1000; ++i) woke_late_by(milliseconds(1500));
  EXPECT_EQ(stopped_.in_all(), StoppedTime::kMostInAWait * milliseconds(1500));
  stopped_.begin_wait();
  EXPECT_EQ(woke_late_by(seconds(2)), seconds(2)) << "the next wait gains again";
}

TEST_F(StoppedTimeTest, WithoutWaitsAllOfItIsGained) {
  for (int i = 0; i < 1000; ++i) woke_late_by(milliseconds(1500));
  EXPECT_EQ(stopped_.in_all(), 1000 * milliseconds(1500));
}

}  // namespace
}  // namespace ctxconf::conformance
