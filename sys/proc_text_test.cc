#include "sys/proc_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace ctxconf::sys {
namespace {

std::string own(const char* file) {
  std::ifstream in(std::string("/proc/self/") + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ProcTextTest, ReadsTheTextsOfThisProcess) {
  const auto stat = parse_stat(own("stat"));
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_GT(stat->start_ticks, 0U);
  const std::string status = own("status");
  EXPECT_EQ(status_number<pid_t>(status, "Pid"), getpid());
  EXPECT_EQ(status_number<pid_t>(status, "PPid"), getppid());
  EXPECT_TRUE(status_field(status, "State")->starts_with('R'));
  EXPECT_TRUE(status_number<std::uint64_t>(status, "SigIgn", 16));
}

TEST(ProcTextTest, ANameMayLookLikeTheRest) {
  const std::string fields = " S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 900 1 1\n";
  const auto stat = parse_stat("12 (a) R 3 (\n) Z 4)" + fields);
  ASSERT_TRUE(stat);
  EXPECT_EQ(*stat, (ProcessStat{'S', 7, 4194560, 900}));
  EXPECT_EQ(status_field("PPid:\t3\nPPid:\t4\n", "PPid"), "4");
}

TEST(ProcTextTest, SaysNothingOfWhatIsCutOff) {
  const std::string whole = "12 (a) S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9";
  EXPECT_TRUE(parse_stat(whole));
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    EXPECT_FALSE(parse_stat(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_stat("12 (a) S x 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9"));
  EXPECT_FALSE(parse_stat("12 (a) S 99999999999 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9"));
  EXPECT_EQ(status_field("Name:\tx\nTgid:\t5", "Tgid"), "5");
  EXPECT_FALSE(status_field("Name:\tx\nTgid:", "Tgid"));
  EXPECT_FALSE(status_field("Name:\tx\nTgid2:\t5\n", "Tgid"));
  EXPECT_FALSE(status_field("", "Tgid"));
  EXPECT_FALSE(status_number<pid_t>("x\nTgid:\tnone\n", "Tgid"));
}

}  // namespace
}  // namespace ctxconf::sys
