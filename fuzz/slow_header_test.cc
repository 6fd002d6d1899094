#include "fuzz/slow_header.h"

#include <gtest/gtest.h>

#include "fuzz/literal_bytes.h"

namespace ctxconf::fuzz {
namespace {

using namespace std::string_literals;

// Version 2, size 0x150, timestamp 1000, payload at 0x7000.
const std::string kMerged = "OTEL_CTX\x02\0\0\0\x50\x01\0\0\xe8\x03\0\0\0\0\0\0\0\x70\0\0\0\0\0\0"s;

SlowSurroundings around(std::uint64_t size = 0x150) {
  return {0, 0, 0x7000, size, [](std::uint64_t) { return true; }};
}

TEST(SlowHeader, ReadsTheTable) {
  const auto h = slow_header(bytes(kMerged));
  ASSERT_TRUE(h);
  EXPECT_EQ(h->version, 2U);
  EXPECT_EQ(h->payload_size, 0x150U);
  EXPECT_EQ(h->timestamp, 1000U);
  EXPECT_EQ(h->payload, 0x7000U);
  EXPECT_TRUE(h->valid);
  EXPECT_FALSE(slow_header(bytes(kMerged.substr(0, 31))));
  for (const std::size_t wrong : {0U, 8U}) {
    std::string other = kMerged;
    other[wrong] = 'x';
    EXPECT_FALSE(slow_header(bytes(other))->valid);
  }
  std::string busy = kMerged;
  busy.replace(16, 8, 8, '\0');
  EXPECT_FALSE(slow_header(bytes(busy))->valid);
}

TEST(SlowHeader, KnowsTheDrafts) {
  const auto layout = [](const std::string& head) { return slow_layout(bytes(head), around()); };
  EXPECT_EQ(layout(kMerged), "H5");
  EXPECT_EQ(layout("OTL-PROC"), "H0");
  EXPECT_EQ(layout("OTEL_CTX\x01\0\0\0"s), "H1");
  EXPECT_EQ(layout("OTEL_CTX\x02\0\0\0\x50\x01\0\0\0\x70\0\0\0\0\0\0"s + std::string(8, '\0')),
            "H2");
  EXPECT_EQ(
      layout("OTEL_CTX\x02\0\0\0\x0b\x68\x55\x47\x70\x24\x7d\x18\x50\x01\0\0\0\x70\0\0\0\0\0\0"s),
      "H3");
  EXPECT_EQ(layout(std::string(8, '\0') + kMerged.substr(8)), "in progress");
  EXPECT_EQ(layout("garbage"), "");
  EXPECT_EQ(layout("OTEL_CTX\x03\0\0\0"s), "");
}

TEST(SlowHeader, NamesFormatsThatAreClear) {
  EXPECT_EQ(slow_clear_format(bytes("\x0a\x05\x0a\x03\x0a\x01k"s)), "P4");
  EXPECT_EQ(slow_clear_format(bytes("\x0a\x08\x0a\x01k\x12\x03\x0a\x01v"s)), "P3");
  EXPECT_EQ(slow_clear_format(bytes("\x0a\x06\x0a\x01k\x12\x01v"s)), "");
  EXPECT_EQ(slow_clear_format({}), "");
}

}  // namespace
}  // namespace ctxconf::fuzz
