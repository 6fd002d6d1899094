#include "fuzz/slow_maps.h"

#include <gtest/gtest.h>

namespace ctxconf::fuzz {
namespace {

TEST(SlowMaps, ReadsEveryColumn) {
  const auto m = slow_mapping(
      "7f2a7baaf000-7f2a7bab0000 rw-s 0000a000 fd:01 16530   /memfd:OTEL_CTX (deleted)");
  ASSERT_TRUE(m);
  EXPECT_EQ(m->begin, 0x7f2a7baaf000U);
  EXPECT_EQ(m->end, 0x7f2a7bab0000U);
  EXPECT_EQ(m->permissions, "rw-s");
  EXPECT_EQ(m->offset, 0xa000U);
  EXPECT_EQ(m->major, 0xfdU);
  EXPECT_EQ(m->minor, 1U);
  EXPECT_EQ(m->inode, 16530U);
  EXPECT_EQ(m->name, "/memfd:OTEL_CTX (deleted)");
  EXPECT_EQ(slow_mapping("1000-2000 r--p 0 0:0 0")->name, "");
}

TEST(SlowMaps, RefusesWhatIsNoLine) {
  for (const char* line :
       {"", "1000", "1000-2000", "2000-1000 r--p 0 0:0 0", "1000-1000 r--p 0 0:0 0",
        "1000-2000 r--x 0 0:0 0", "1000-2000 rr-p 0 0:0 0", "g000-2000 r--p 0 0:0 0",
        "1000-2000 r--p 0 0:0 a", "1000-2000 r--p 0 0:0 ", " 1000-2000 r--p 0 0:0 0",
        "10000000000000000-20000000000000000 r--p 0 0:0 0", "1000-2000 r--p 0 100000000:0 0"}) {
    EXPECT_FALSE(slow_mapping(line)) << line;
  }
  EXPECT_FALSE(slow_mapping("1000-2000 r--p 0 0:0 0 " + std::string(65536, 'x')));
  EXPECT_FALSE(slow_mapping(std::string("1000-2000 r--p 0 0:0 0 \0", 24)));
}

TEST(SlowMaps, CutsLinesAndMendsPaths) {
  EXPECT_EQ(slow_lines("a\n\nb"), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(slow_lines("a\n"), (std::vector<std::string_view>{"a"}));
  EXPECT_TRUE(slow_lines("").empty());
  EXPECT_EQ(slow_path("/a\\012b\\01"), "/a\nb\\01");
}

}  // namespace
}  // namespace ctxconf::fuzz
