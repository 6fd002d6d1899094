#include "abi/thread_layouts.h"

#include <gtest/gtest.h>

#include <bit>
#include <initializer_list>
#include <random>
#include <string_view>
#include <vector>

#include "abi/thread_record.h"

namespace ctxconf::abi {
namespace {

using Bytes = std::vector<std::byte>;

Bytes operator+(Bytes a, std::initializer_list<int> values) {
  for (const int v : values) a.push_back(static_cast<std::byte>(v));
  return a;
}
Bytes operator+(Bytes a, std::string_view text) {
  for (const char c : text) a.push_back(static_cast<std::byte>(c));
  return a;
}
Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Bytes kIds = Bytes(24, std::byte{0xa7});
const Bytes kRootSpan = Bytes(8, std::byte{0xb4});
const Bytes kEntries =
    Bytes{} + std::initializer_list<int>{0, 3} + "GET" + std::initializer_list<int>{1, 5} + "/cart";

Bytes t0(int valid = 1, const Bytes& root = kRootSpan, int count = 2,
         const Bytes& entries = kEntries) {
  return kIds + root + std::initializer_list<int>{valid, count} + entries;
}
Bytes sized(int valid, int flags, std::uint16_t size, const Bytes& entries = kEntries) {
  const auto low = size & 0xff;
  const auto high = size >> 8;
  const bool little = std::endian::native == std::endian::little;
  return kIds + std::initializer_list<int>{valid, flags, little ? low : high, little ? high : low} +
         entries;
}
// Other bytes in memory after the record.
Bytes with_rest(Bytes bytes, int value = 0) {
  bytes.resize(640, static_cast<std::byte>(value));
  return bytes;
}

RecordRecognition recognise(const Bytes& bytes, SlotSymbol symbol, bool max_record_size = false,
                            bool pairs = false) {
  return recognise_record({symbol, bytes, max_record_size, pairs});
}

TEST(ThreadLayouts, TablesAgreeWithThemselves) {
  for (const auto& fields : record_layouts()) {
    EXPECT_EQ(&fields_of(fields.layout), &fields);
    EXPECT_EQ(to_string(fields.layout), fields.id);
  }
  EXPECT_EQ(fields_of(RecordLayout::kUnknown).id, "T3");
  EXPECT_EQ(to_string(RecordLayout::kUnknown), "unknown");
  const auto& today = fields_of(RecordLayout::kT3);
  EXPECT_EQ(today.valid, static_cast<int>(offsetof(ThreadRecordHead, valid)));
  EXPECT_EQ(today.trace_flags, static_cast<int>(offsetof(ThreadRecordHead, trace_flags)));
  EXPECT_EQ(today.size, static_cast<int>(offsetof(ThreadRecordHead, attrs_data_size)));
  EXPECT_EQ(today.fixed_bytes, sizeof(ThreadRecordHead));
  EXPECT_EQ(slot_symbol("otel_thread_ctx_v1"), SlotSymbol::kCurrent);
  EXPECT_EQ(slot_symbol("custom_labels_current_set_v2"), SlotSymbol::kDraft);
  EXPECT_EQ(slot_symbol("custom_labels_current_set"), SlotSymbol::kOther);
  EXPECT_NE(describe(RecordLayout::kT0).find("root span id at 24"), std::string_view::npos);
  EXPECT_NE(describe(RecordLayout::kT1).find("custom_labels"), std::string_view::npos);
  EXPECT_TRUE(describe(RecordLayout::kT3).empty());
}

TEST(ThreadLayouts, DecodesEachLayout) {
  const auto old = decode_record_as(fields_of(RecordLayout::kT0), t0());
  EXPECT_EQ(old.root_span_id, 0xb4b4b4b4b4b4b4b4);
  EXPECT_EQ(old.valid, 1);
  EXPECT_EQ(old.entries, 2U);
  EXPECT_EQ(old.attribute_bytes, kEntries.size());
  EXPECT_EQ(old.walk, EntryWalk::kExact);
  const auto today = decode_record_as(fields_of(RecordLayout::kT3), sized(1, 3, 12));
  EXPECT_EQ(today.trace_flags, 3);
  EXPECT_EQ(today.entries, 2U);
  EXPECT_EQ(today.attribute_bytes, 12U);
  EXPECT_EQ(today.walk, EntryWalk::kExact);
  EXPECT_EQ(decode_record_as(fields_of(RecordLayout::kT1), sized(1, 3, 12)).trace_flags, 0);
}

TEST(ThreadLayouts, SaysHowFarTheEntriesGo) {
  const auto walk = [](const Bytes& bytes) {
    return decode_record_as(fields_of(RecordLayout::kT3), bytes).walk;
  };
  EXPECT_EQ(walk(sized(1, 0, 0, {})), EntryWalk::kEmpty);
  EXPECT_EQ(walk(sized(1, 0, 0)), EntryWalk::kEmpty) << "what follows does not matter";
  EXPECT_EQ(walk(sized(1, 0, 5)), EntryWalk::kExact);
  EXPECT_EQ(walk(sized(1, 0, 6)), EntryWalk::kImpossible);
  EXPECT_EQ(walk(sized(1, 0, 11)), EntryWalk::kImpossible);
  EXPECT_EQ(walk(sized(1, 0, 13)), EntryWalk::kImpossible) << "one byte is not an entry";
  EXPECT_EQ(walk(sized(1, 0, 14)), EntryWalk::kUnseen);
  // Truncated inside an entry whose length is visible.
  const Bytes cut = Bytes{} + std::initializer_list<int>{0, 10, 'x'};
  EXPECT_EQ(walk(sized(1, 0, 11, cut)), EntryWalk::kImpossible);
  EXPECT_EQ(walk(sized(1, 0, 12, cut)), EntryWalk::kUnseen);
  EXPECT_EQ(walk(sized(1, 0, 13, cut)), EntryWalk::kUnseen);
  EXPECT_EQ(decode_record_as(fields_of(RecordLayout::kT3), sized(1, 0, 6)).problem,
            "an entry does not end within the size");
}

TEST(RecogniseRecord, TellsTheGeometriesApart) {
  for (const int rest : {0, 1, 0xcd}) {
    for (const bool flag : {false, true}) {
      const auto kDraft = SlotSymbol::kDraft;
      const auto kCurrent = SlotSymbol::kCurrent;
      EXPECT_EQ(recognise(with_rest(t0(), rest), kDraft, flag, flag).best, RecordLayout::kT0);
      EXPECT_EQ(recognise(with_rest(t0(), rest), kCurrent, flag).best, RecordLayout::kT0);
      EXPECT_EQ(recognise(with_rest(sized(1, 0, 12), rest), kDraft, flag).best, RecordLayout::kT1);
      EXPECT_EQ(recognise(with_rest(sized(1, 1, 12), rest), kCurrent, flag).best,
                RecordLayout::kT3);
      EXPECT_EQ(recognise(with_rest(sized(0, 1, 12), rest), kCurrent).best, RecordLayout::kT3);
      EXPECT_EQ(recognise(with_rest(sized(1, 1, 12), rest), SlotSymbol::kOther).best,
                RecordLayout::kT3);
    }
  }
}

// Without a trace the root span id is zero: today's valid and size are 0, and there is no
// contradiction.
TEST(RecogniseRecord, SeesTheOldestDraftBehindAZeroRootSpan) {
  const Bytes zero(8, std::byte{0});
  EXPECT_EQ(recognise(t0(1, zero), SlotSymbol::kDraft).best, RecordLayout::kT0);
  EXPECT_EQ(recognise(t0(1, zero, 0, {}), SlotSymbol::kDraft).best, RecordLayout::kT0);
  EXPECT_EQ(recognise(t0(0, zero, 0, {}), SlotSymbol::kDraft, true).best, RecordLayout::kT0);
  EXPECT_EQ(recognise(t0(0, zero, 0, {}), SlotSymbol::kDraft).best, RecordLayout::kT1);
}

TEST(RecogniseRecord, AsksTheReferenceDataWhereBothFit) {
  // 24: valid 1, size 10: {180, 2, .., ..}, {1, 1 (= count 1), {2, 2, ..}
  const Bytes both = kIds +
                     std::initializer_list<int>{1, 0, 10, 0, 180, 2, 7, 7, 1, 4, 2, 2, 'a', 'b'} +
                     std::initializer_list<int>{3, 0, 4, 0, 5, 0};
  EXPECT_EQ(recognise(both, SlotSymbol::kDraft).best, RecordLayout::kT1);
  EXPECT_EQ(recognise(both, SlotSymbol::kDraft, true).best, RecordLayout::kT0);
  EXPECT_EQ(recognise(both, SlotSymbol::kDraft, false, true).best, RecordLayout::kT0);
  EXPECT_EQ(recognise(both, SlotSymbol::kCurrent, true).best, RecordLayout::kT3)
      << "that symbol is younger than those attributes";
}

TEST(RecogniseRecord, SeesASizeInTheOtherByteOrder) {
  const auto swapped = std::byteswap(std::uint16_t{12});
  for (const auto symbol : {SlotSymbol::kCurrent, SlotSymbol::kDraft}) {
    for (const auto& bytes : {sized(1, 0, swapped), with_rest(sized(1, 0, swapped))}) {
      const auto r = recognise(bytes, symbol);
      EXPECT_TRUE(r.other_byte_order);
      EXPECT_EQ(r.best, symbol == SlotSymbol::kCurrent ? RecordLayout::kT3 : RecordLayout::kT1);
      EXPECT_EQ(r.scores[2].fields.attribute_bytes, 12U);
    }
  }
  EXPECT_FALSE(recognise(with_rest(sized(1, 0, 12)), SlotSymbol::kCurrent).other_byte_order);
  EXPECT_FALSE(recognise(with_rest(sized(1, 0, 0)), SlotSymbol::kCurrent).other_byte_order);
  // 257 is the same both ways.
  EXPECT_FALSE(recognise(with_rest(sized(1, 0, 257, {})), SlotSymbol::kCurrent).other_byte_order);
}

TEST(RecogniseRecord, KnowsNothingOfOtherMemory) {
  EXPECT_EQ(recognise({}, SlotSymbol::kCurrent).best, RecordLayout::kUnknown);
  EXPECT_EQ(recognise(Bytes(27), SlotSymbol::kCurrent).best, RecordLayout::kUnknown);
  const auto r = recognise(Bytes(640, std::byte{0xa5}), SlotSymbol::kCurrent, true, true);
  EXPECT_EQ(r.best, RecordLayout::kUnknown);
  for (const auto& score : r.scores) {
    EXPECT_EQ(score.score, 0);
    EXPECT_FALSE(score.fields.problem.empty());
  }
  EXPECT_EQ(recognise(Bytes(28), SlotSymbol::kCurrent).best, RecordLayout::kT3) << "hidden, empty";
}

TEST(RecogniseRecord, TakesAnyBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 100);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 3);
    const auto symbol = static_cast<SlotSymbol>(random() % 3);
    const auto r = recognise(bytes, symbol, random() % 2 == 0, random() % 2 == 0);
    for (const auto& score : r.scores) {
      EXPECT_EQ(score.score == 0, !score.fields.problem.empty());
      EXPECT_LE(score.fields.entries, bytes.size());
    }
  }
}

}  // namespace
}  // namespace ctxconf::abi
