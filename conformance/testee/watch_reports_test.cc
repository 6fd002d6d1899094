#include "conformance/testee/watch_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr pid_t kAsked = 4711;

json saw(pid_t process, const char* result) {
  return {{"ev", "saw"}, {"pid", process}, {"result", result}};
}
json saw_thread(pid_t process, pid_t thread) {
  return {{"ev", "saw"}, {"pid", process}, {"tid", thread}, {"result", "absent"}};
}

class WatchReportsTest : public testing::Test {
 protected:
  WatchReportsTest() { reports_.ask_about(kAsked); }
  WatchReports reports_;
};

TEST_F(WatchReportsTest, AProcessThatNobodyAskedAboutBreaksTheProtocol) {
  EXPECT_EQ(reports_.add(saw(1, "absent")), "reported process 1, which it was not told to watch");
  EXPECT_THAT(reports_.take(), IsEmpty());
}

TEST_F(WatchReportsTest, AThreadIsReportedUnderItsProcess) {
  EXPECT_EQ(reports_.add(saw_thread(kAsked, kAsked + 1)), "");
  EXPECT_EQ(reports_.add(saw_thread(kAsked, kAsked)), "");
  EXPECT_THAT(reports_.add(saw(kAsked + 1, "absent")), HasSubstr("reported process 4712"));
  EXPECT_THAT(reports_.take(),
              ElementsAre(saw_thread(kAsked, kAsked), saw_thread(kAsked, kAsked + 1)));
}

TEST_F(WatchReportsTest, TheLastReportCountsHoweverManyThereAre) {
  for (std::size_t i = 0; i < 2 * WatchReports::kMost; ++i) {
    ASSERT_EQ(reports_.add(saw(kAsked, "retry")), "");
  }
  ASSERT_EQ(reports_.add(saw(kAsked, "reject")), "");
  EXPECT_THAT(reports_.take(), ElementsAre(saw(kAsked, "reject")));
  EXPECT_THAT(reports_.take(), IsEmpty());
}

TEST_F(WatchReportsTest, MoreThreadsThanAreKeptBreakTheProtocol) {
  constexpr auto kMost = static_cast<pid_t>(WatchReports::kMost);
  for (pid_t i = 1; i <= kMost; ++i) ASSERT_EQ(reports_.add(saw_thread(kAsked, i)), "");
  EXPECT_THAT(reports_.add(saw_thread(kAsked, kMost + 1)), HasSubstr("more than 4096 threads"));
  // A thread that is known may change.
  EXPECT_EQ(reports_.add(saw_thread(kAsked, kMost)), "");
  EXPECT_THAT(reports_.take(), SizeIs(kMost));
  EXPECT_EQ(reports_.add(saw_thread(kAsked, kMost + 1)), "");
}

}  // namespace
}  // namespace ctxconf::conformance
