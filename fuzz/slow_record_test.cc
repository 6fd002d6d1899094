#include "fuzz/slow_record.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fuzz/literal_bytes.h"
#include "fuzz/record_oracle.h"
#include "fuzz/thread_context_oracle.h"

namespace ctxconf::fuzz {
namespace {

using namespace std::string_literals;

std::string record(char valid, const std::string& area, int size = -1) {
  const auto stated = static_cast<unsigned>(size < 0 ? static_cast<int>(area.size()) : size);
  return std::string(16, '\x11') + std::string(8, '\x22') + valid + '\x01' +
         static_cast<char>(stated & 0xffU) + static_cast<char>(stated >> 8U) + area;
}

TEST(SlowRecord, TakesWholeEntriesAndStops) {
  const auto out = std::make_unique<SlowEntries>();
  slow_entries(bytes("\x00\x02hi\x05\x00\x00\x01!\x07\x09short"s), *out);
  ASSERT_EQ(out->count, 3U);
  EXPECT_EQ(out->list[1].key, 5);
  EXPECT_EQ(out->list[1].offset, 4U);
  EXPECT_EQ(out->list[1].length, 0U);
  EXPECT_EQ(out->end, 9U);
  EXPECT_EQ(out->last[0], 2);
  EXPECT_EQ(out->last[7], -1);
  slow_entries(bytes("\x00\x02hi\x05\x00"s), *out, 1);
  EXPECT_EQ(out->end, 4U);
  slow_entries(bytes("\x00"s), *out);
  EXPECT_EQ(out->count, 0U);
}

TEST(SlowRecord, FindsEntriesByNumberAndKey) {
  const std::string text = "\x05\x02hi\x07\x00\x05\x01!\x07\x09short"s;
  const auto area = bytes(text);
  EXPECT_EQ(slow_step(area, 4).key, 7);
  EXPECT_EQ(slow_step(area, 4).length, 0);
  EXPECT_EQ(slow_step(area, 9).length, -1);
  EXPECT_EQ(slow_step(area, text.size() + 1).length, -1);
  EXPECT_EQ(slow_numbered(area, 2), 6);
  EXPECT_EQ(slow_numbered(area, 3), -1);
  EXPECT_EQ(slow_last(area, 5), 6);
  EXPECT_EQ(slow_last(area, 7), 4);
  EXPECT_EQ(slow_last(area, 9), -1);
}

TEST(SlowRecord, ReadsTheFixedPart) {
  EXPECT_FALSE(slow_head(bytes(std::string(27, 'x'))).present);
  const auto h = slow_head(bytes(record(1, "", 0x0102)));
  EXPECT_TRUE(h.present && h.trace_id_set && h.span_id_set);
  EXPECT_EQ(h.valid, 1);
  EXPECT_EQ(h.trace_flags, 1);
  EXPECT_EQ(h.size, 0x0102U);
  EXPECT_FALSE(slow_head(bytes(std::string(28, '\0'))).trace_id_set);
}

TEST(SlowRecord, FitsDrafts) {
  const auto scratch = std::make_unique<SlowEntries>();
  const auto fit = [&](const std::string& r, bool other = false) {
    return slow_sized(bytes(r), other, *scratch).fit;
  };
  EXPECT_EQ(fit(record(1, "\x00\x02hi"s)), SlowFit::kExact);
  EXPECT_EQ(fit(record(1, "\x00\x02hi"s, 0x0400), true), SlowFit::kExact);
  EXPECT_EQ(fit(record(1, "\x00\x03hi"s)), SlowFit::kImpossible);
  EXPECT_EQ(fit(record(1, "\x00\x03hi"s, 5)), SlowFit::kCut);
  EXPECT_EQ(fit(record(1, "\x00\x09hi"s, 5)), SlowFit::kImpossible);
  EXPECT_EQ(fit(record(1, "")), SlowFit::kEmpty);
  EXPECT_EQ(fit("short"), SlowFit::kNotThere);
  const std::string t0 = std::string(32, 'x') + "\x01\x01\x00\x02hi"s;
  EXPECT_EQ(slow_t0(bytes(t0), *scratch).fit, SlowFit::kExact);
  EXPECT_EQ(slow_t0(bytes(t0.substr(0, 37)), *scratch).fit, SlowFit::kCut);
  EXPECT_EQ(slow_t0(bytes(t0.substr(0, 33)), *scratch).fit, SlowFit::kNotThere);
}

TEST(RecordOracles, AgreeInEveryModeAndPlace) {
  for (const std::string& r :
       {""s, record(1, ""), record(0, "\x00\x01x"s), record(1, "\x00\x02hi\x01"s),
        record(1, "\x00\x02hi"s, 700), record(9, "\xff\x00"s)}) {
    for (int mode = 0; mode < 18; ++mode) {
      check_record(bytes(static_cast<char>(mode) + r));
      check_thread_context(bytes(std::string(1, '\x01') + static_cast<char>(mode) + r));
    }
  }
}

}  // namespace
}  // namespace ctxconf::fuzz
