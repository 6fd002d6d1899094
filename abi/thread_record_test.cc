#include "abi/thread_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace ctxconf::abi {
namespace {

template <class... T>
constexpr std::array<std::byte, sizeof...(T)> raw(T... values) {
  return {static_cast<std::byte>(values)...};
}

// --- the walk, at compile time: reads beyond the area would not compile

constexpr auto kTwoEntries = raw(3, 2, 'a', 'b', 7, 0);
static_assert(walks_exactly(kTwoEntries));
static_assert(AttributeCursor(kTwoEntries).next()->key == 3);
static_assert(AttributeCursor(kTwoEntries).next()->value.size() == 2);
static_assert(last_occurrence(kTwoEntries, 7)->value.empty());
static_assert(last_occurrence(kTwoEntries, 7)->offset == 4);
static_assert(!last_occurrence(kTwoEntries, 2), "a length is not a key");

static_assert(walks_exactly({}), "no entries are exact");
static_assert(!AttributeCursor({}).next());
static_assert(!walks_exactly(raw(0)), "half an entry head");
static_assert(walks_exactly(raw(0, 0)));
static_assert(!walks_exactly(raw(0, 1)), "one byte short");
static_assert(!walks_exactly(raw(0, 1, 'x', 9)), "a whole entry and a fragment");

constexpr std::size_t left_after_walk(std::span<const std::byte> area) {
  AttributeCursor cursor(area);
  while (cursor.next()) {
  }
  return cursor.left();
}
static_assert(left_after_walk(kTwoEntries) == 0);
static_assert(left_after_walk(raw(0, 1, 'x', 9)) == 1);
static_assert(left_after_walk(raw(0, 1, 'x', 9, 4, 'a', 'b', 'c')) == 5, "short by one byte");

TEST(AttributeCursor, StaysAtTheFirstEntryThatDoesNotFit) {
  // Bytes after the short entry would make whole entries.
  constexpr auto area = raw(1, 1, 'x', 2, 200, 3, 0, 4, 0);
  AttributeCursor cursor(area);
  ASSERT_TRUE(cursor.next());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(cursor.next());
    EXPECT_EQ(cursor.offset(), 3U);
    EXPECT_EQ(cursor.left(), 6U);
  }
}

TEST(AttributeCursor, ReadsTheLongestValueAndNothingBehindIt) {
  std::vector<std::byte> area(2 + 255, std::byte{'v'});
  area[0] = std::byte{255};
  area[1] = std::byte{255};
  const auto entry = AttributeCursor(area).next();
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->key, 255);
  EXPECT_EQ(entry->value.size(), 255U);
  EXPECT_EQ(entry->value.data(), area.data() + 2);
  EXPECT_TRUE(walks_exactly(area));
  area.pop_back();
  EXPECT_FALSE(AttributeCursor(area).next());
}

TEST(AttributeCursor, EndsForEveryAreaOfTwoBytes) {
  for (int key = 0; key < 256; ++key) {
    for (int length = 0; length < 256; ++length) {
      EXPECT_EQ(walks_exactly(raw(key, length)), length == 0);
    }
  }
}

TEST(LastOccurrence, WinsUnlessItIsCut) {
  const auto text = [](const std::optional<AttributeEntry>& e) {
    return e ? std::string(reinterpret_cast<const char*>(e->value.data()), e->value.size()) : "-";
  };
  constexpr auto area = raw(1, 1, 'a', 2, 1, 'b', 1, 0, 1, 1, 'c', 1, 2, 'd');
  EXPECT_EQ(text(last_occurrence(std::span(area).first(6), 1)), "a");
  EXPECT_EQ(text(last_occurrence(std::span(area).first(8), 1)), "") << "an empty one counts";
  EXPECT_EQ(text(last_occurrence(area, 1)), "c");
  EXPECT_EQ(text(last_occurrence(area, 2)), "b");
  EXPECT_EQ(text(last_occurrence(area, 0)), "-");
}

// --- the encoder

constexpr std::size_t encoded_size(std::size_t room, std::size_t length) {
  std::array<std::byte, 300> area{};
  const std::array<std::byte, 300> value{};
  AttributeEncoder encoder{std::span(area).first(room)};
  encoder.append(1, std::span(value).first(length));
  return encoder.size();
}
static_assert(encoded_size(0, 0) == 0);
static_assert(encoded_size(1, 0) == 0);
static_assert(encoded_size(2, 0) == 2);
static_assert(encoded_size(2, 1) == 0);
static_assert(encoded_size(256, 255) == 0);
static_assert(encoded_size(257, 255) == 257);
static_assert(encoded_size(300, 256) == 0, "the length would wrap");

TEST(AttributeEncoder, FillsTheAreaExactlyAndRefusesWithoutWriting) {
  constexpr auto value = raw('x', 'y', 'z');
  std::array<std::byte, 12> memory{};
  memory.fill(std::byte{0xee});
  AttributeEncoder encoder{std::span(memory).first(10)};
  EXPECT_TRUE(encoder.append(9, value));
  const auto before = memory;
  const std::vector<std::byte> long_value(256);
  EXPECT_FALSE(encoder.append(8, long_value));
  EXPECT_FALSE(encoder.append(8, raw(1, 2, 3, 4)));
  EXPECT_EQ(memory, before);
  EXPECT_EQ(encoder.size(), 5U);
  EXPECT_TRUE(encoder.append(8, value)) << "what fits still goes in";
  EXPECT_FALSE(encoder.append(7, {}));
  EXPECT_EQ(encoder.size(), 10U);
  EXPECT_EQ(memory[10], std::byte{0xee});
  EXPECT_TRUE(std::ranges::equal(std::span(memory).first(10),
                                 raw(9, 3, 'x', 'y', 'z', 8, 3, 'x', 'y', 'z')));
}

TEST(AttributeEncoder, MakesAWholeAreaThatWalks) {
  std::array<std::byte, kRecommendedRecordBytes - sizeof(ThreadRecordHead)> area{};
  AttributeEncoder encoder(area);
  const std::vector<std::byte> value(255, std::byte{'v'});
  EXPECT_TRUE(encoder.append(0, value));
  EXPECT_TRUE(encoder.append(1, value));
  EXPECT_FALSE(encoder.append(2, std::span(value).first(97)));
  EXPECT_TRUE(encoder.append(2, std::span(value).first(96)));
  EXPECT_EQ(encoder.size(), area.size());
  EXPECT_TRUE(walks_exactly(area));
  EXPECT_EQ(last_occurrence(area, 2)->value.size(), 96U);
}

// --- the fixed part

TEST(ThreadRecordHead, IsDecodedFromItsBytes) {
  std::array<std::byte, 29> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
  const auto head = decode_thread_record(bytes);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->trace_id[0], 1);
  EXPECT_EQ(head->trace_id[15], 16);
  EXPECT_EQ(head->span_id[0], 17);
  EXPECT_EQ(head->span_id[7], 24);
  EXPECT_EQ(head->valid, 25);
  EXPECT_EQ(head->trace_flags, 26);
  EXPECT_EQ(head->attrs_data_size, std::endian::native == std::endian::little ? 0x1c1b : 0x1b1c);
  EXPECT_TRUE(decode_thread_record(std::span(bytes).first(28)));
  EXPECT_FALSE(decode_thread_record(std::span(bytes).first(27)));
  EXPECT_FALSE(decode_thread_record({}));
}

TEST(ThreadRecordHead, KnowsWhichIdsAreSet) {
  for (std::size_t i = 0; i < 16; ++i) {
    ThreadRecordHead head{};
    EXPECT_FALSE(has_trace_id(head));
    head.trace_id[i] = 0x80;
    EXPECT_TRUE(has_trace_id(head));
    EXPECT_FALSE(has_span_id(head));
    head.span_id[i / 2] = 1;
    EXPECT_TRUE(has_span_id(head));
  }
}

static_assert(is_thread_schema("tlsdesc_v1_dev") && is_thread_schema("tls_v1"));
static_assert(!is_thread_schema("") && !is_thread_schema("tls_v1 ") && !is_thread_schema("tls_v"));
static_assert(!is_thread_schema(kGoSchemaVersion));

}  // namespace
}  // namespace ctxconf::abi
