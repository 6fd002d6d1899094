#include "conformance/observe/snapshot_pace.h"

#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;

TEST(SnapshotPaceTest, ExpensiveSnapshotsGetATenthOfTheTime) {
  SnapshotPace pace;
  pace.wait_after(300ms);
  EXPECT_EQ(pace.wait_after(400ms), 2700ms);
  EXPECT_EQ(pace.wait_after(200ms), 1800ms);
}

TEST(SnapshotPaceTest, OneExpensiveSnapshotDelaysNoOther) {
  SnapshotPace pace;
  EXPECT_EQ(pace.wait_after(2000ms), 100ms);  // the first
  EXPECT_EQ(pace.wait_after(1ms), 100ms);
  EXPECT_EQ(pace.wait_after(2000ms), 100ms);
  EXPECT_EQ(pace.wait_after(1ms), 100ms);
}

}  // namespace
}  // namespace ctxconf::conformance
