#include "fuzz/guarded_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace ctxconf::fuzz {
namespace {

TEST(GuardedBuffer, CopiesEverySizeAndGrows) {
  GuardedBuffer buffer;
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 3U, 100'000U}) {
    const std::vector<std::byte> bytes(size, std::byte{0x5a});
    EXPECT_TRUE(std::ranges::equal(buffer.copy(bytes), bytes)) << size;
  }
}

TEST(GuardedBufferDeathTest, EndsWhereMemoryEnds) {
  for (const std::size_t size : {0U, 7U, 4096U}) {
    EXPECT_DEATH(
        {
          GuardedBuffer buffer;
          const auto copy = buffer.copy(std::vector<std::byte>(size));
          volatile const std::byte* behind = copy.data() + copy.size();
          const std::byte value = *behind;
          std::_Exit(static_cast<int>(value) * 0);
        },
        "")
        << size;
  }
}

}  // namespace
}  // namespace ctxconf::fuzz
