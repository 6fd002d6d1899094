#include "conformance/text/counts.h"

#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

TEST(Counts, CountsInSingularAndPlural) {
  EXPECT_EQ(counted(0, "image"), "0 images");
  EXPECT_EQ(counted(1, "image"), "1 image");
  EXPECT_EQ(counted(2, "image"), "2 images");
}

TEST(Counts, CountsWhatIsNotShown) {
  EXPECT_EQ(and_more(1, "reason"), "… and 1 more reason");
  EXPECT_EQ(and_more(2, "reason"), "… and 2 more reasons");
}

}  // namespace
}  // namespace ctxconf::conformance
