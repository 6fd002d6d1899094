#include "conformance/observe/snapshot_pace.h"

#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;

TEST(SnapshotPaceTest, DearLooksGetATenthOfTheTime) {
  SnapshotPace pace;
  pace.behind(300ms);
  EXPECT_EQ(pace.behind(400ms), 2700ms);
  EXPECT_EQ(pace.behind(200ms), 1800ms);
}

TEST(SnapshotPaceTest, OneDearLookDelaysNoOther) {
  SnapshotPace pace;
  EXPECT_EQ(pace.behind(2000ms), 100ms);  // the first
  EXPECT_EQ(pace.behind(1ms), 100ms);
  EXPECT_EQ(pace.behind(2000ms), 100ms);
  EXPECT_EQ(pace.behind(1ms), 100ms);
}

}  // namespace
}  // namespace ctxconf::conformance
