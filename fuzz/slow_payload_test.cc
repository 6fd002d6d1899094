#include "fuzz/slow_payload.h"

#include <gtest/gtest.h>

namespace ctxconf::fuzz {
namespace {

using namespace std::string_literals;

SlowVerdict verdict(const std::string& bytes) { return slow_payload(bytes).verdict; }

TEST(SlowPayload, ReadsPairsOfBothLists) {
  const auto p = slow_payload(
      "\x0a\x0a\x0a\x08\x0a\x01k\x12\x03\x0a\x01v\x12\x09\x0a\x01n\x12\x04\x2a\x02\x0a\x00"s);
  EXPECT_EQ(p.verdict, SlowVerdict::kGood);
  ASSERT_EQ(p.resource.size(), 1U);
  EXPECT_EQ(p.resource[0].offset, 2U);
  EXPECT_EQ(p.resource[0].key, "k");
  EXPECT_EQ(p.resource[0].value.which, 1U);
  EXPECT_EQ(p.resource[0].value.text, "v");
  ASSERT_EQ(p.attributes.size(), 1U);
  EXPECT_EQ(p.attributes[0].value.items.size(), 1U);
  EXPECT_EQ(p.top_level, 2U);
}

TEST(SlowPayload, MergesAValueThatComesTwice) {
  const std::string list = "\x12\x04\x2a\x02\x0a\x00"s;
  const auto p = slow_payload("\x12\x0c"s + list + list);
  ASSERT_EQ(p.attributes.size(), 1U);
  EXPECT_EQ(p.attributes[0].value.items.size(), 2U);
  const auto replaced = slow_payload("\x12\x0a"s + list + "\x12\x02\x10\x01"s);
  EXPECT_EQ(replaced.attributes[0].value.which, 2U);
  EXPECT_TRUE(replaced.attributes[0].value.items.empty());
}

TEST(SlowPayload, TellsStrictFromBroken) {
  EXPECT_EQ(verdict(""), SlowVerdict::kGood);
  EXPECT_EQ(verdict("\x18\x01"s), SlowVerdict::kGood);          // unknown
  EXPECT_EQ(verdict("\x1b\x18\x01\x1c"s), SlowVerdict::kGood);  // an unknown group
  EXPECT_EQ(verdict("\x08\x01"s), SlowVerdict::kStrict);        // a Resource as a number
  EXPECT_EQ(verdict("\x0a\x01"s), SlowVerdict::kBroken);        // cut
  EXPECT_EQ(verdict("\x00"s), SlowVerdict::kBroken);
  EXPECT_EQ(verdict("\x1b\x24"s), SlowVerdict::kBroken);  // another group's end
  EXPECT_EQ(verdict("\x1c"s), SlowVerdict::kBroken);
  EXPECT_EQ(verdict("\x1e"s), SlowVerdict::kBroken);
  EXPECT_EQ(verdict("\x1b\x1b\x1c\x1c"s), SlowVerdict::kGood);
  EXPECT_EQ(verdict(std::string(100, '\x1b') + std::string(100, '\x1c')), SlowVerdict::kGood);
  EXPECT_EQ(verdict(std::string(101, '\x1b') + std::string(101, '\x1c')), SlowVerdict::kBroken);
}

TEST(SlowPayload, KnowsUtf8) {
  for (const char* good :
       {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(slow_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xf8\x88\x80\x80\x80", "\xe0\x80\x80", "\xc3(", "\xff"}) {
    EXPECT_FALSE(slow_utf8(bad)) << bad;
  }
  EXPECT_FALSE(slow_payload("\x12\x03\x0a\x01\xff"s).utf8);
}

}  // namespace
}  // namespace ctxconf::fuzz
