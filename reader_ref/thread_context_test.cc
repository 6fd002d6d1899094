#include "reader_ref/thread_context.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "reader_ref/literal_context.h"

namespace ctxconf::reader {
namespace {

using sys::InterruptedMemory;
using sys::RemoteAddr;
using sys::Result;
using sys::SnapshotMemory;

constexpr RemoteAddr kSlot{0x1000};
constexpr std::uint64_t kRecord = 0x20000;

struct Entry {
  std::uint8_t key;
  std::string value;
};

std::string area_of(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& e : entries) {
    out += static_cast<char>(e.key);
    out += static_cast<char>(e.value.size());
    out += e.value;
  }
  return out;
}

abi::ThreadRecordHead head_of(std::size_t area) {
  abi::ThreadRecordHead h{};
  h.trace_id.fill(0xab);
  h.span_id.fill(0xcd);
  h.valid = 1;
  h.trace_flags = 3;
  h.attrs_data_size = static_cast<std::uint16_t>(area);
  return h;
}

// A slot that points to the head, with the area after it.
SnapshotMemory memory_with(const abi::ThreadRecordHead& head, const std::string& area = "",
                           std::uint64_t at = kRecord) {
  SnapshotMemory m;
  m.put(kSlot, std::as_bytes(std::span(&at, 1)));
  m.put(RemoteAddr(at), std::as_bytes(std::span(&head, 1)));
  put(m, at + sizeof head, area);
  return m;
}

RecordCopy copy_of(const sys::MemoryReader& memory, Attributes attributes = Attributes::kRead) {
  return copy_record(memory, kSlot, attributes).value();
}

ThreadContext parse(const std::string& area, const KeyMap& keys) {
  RecordCopy copy;
  copy.state = RecordState::kValid;
  copy.head = head_of(area.size());
  const auto bytes = std::as_bytes(std::span(area));
  copy.area.assign(bytes.begin(), bytes.end());
  return parse_record(copy, keys);
}

using Values = std::vector<NamedValue>;

TEST(CopyRecord, TakesHeadAndAreaInTwoReads) {
  const auto m = memory_with(head_of(5), area_of({{0, "abc"}}) + "behind");
  std::vector<std::uint64_t> reads;
  const InterruptedMemory watched(m, [&](int, RemoteAddr at) -> Result<> {
    reads.push_back(at.raw());
    return {};
  });
  const auto copy = copy_of(watched);
  EXPECT_EQ(copy.state, RecordState::kValid);
  EXPECT_EQ(copy.head, head_of(5));
  EXPECT_EQ(copy.area.size(), 5U);
  EXPECT_FALSE(copy.area_cut);
  EXPECT_EQ(reads, (std::vector<std::uint64_t>{kSlot.raw(), kRecord, kRecord + 28}));
}

TEST(CopyRecord, NeedsNoByteBehindABareHead) {
  const auto m = memory_with(head_of(0));
  EXPECT_EQ(copy_of(m).state, RecordState::kValid);
}

TEST(CopyRecord, LeavesTheAreaWhenNobodyWantsIt) {
  const auto m = memory_with(head_of(600));
  const auto copy = copy_of(m, Attributes::kSkip);
  EXPECT_EQ(copy.state, RecordState::kValid);
  EXPECT_TRUE(copy.area.empty());
  EXPECT_FALSE(copy.area_cut);
}

TEST(CopyRecord, ANullSlotIsNoContext) {
  SnapshotMemory m;
  put(m, kSlot.raw(), std::string(8, '\0'));
  EXPECT_EQ(copy_of(m).state, RecordState::kNull);
}

TEST(CopyRecord, ASlotThatIsNotThereIsNoContext) {
  EXPECT_EQ(copy_of(SnapshotMemory()).state, RecordState::kSlotUnreadable);
}

TEST(CopyRecord, EveryOtherValidByteIsIgnored) {
  for (const int valid : {0, 2, 3, 0x7f, 0x80, 0x81, 0xff}) {
    auto head = head_of(0xffff);
    head.valid = static_cast<std::uint8_t>(valid);
    const auto copy = copy_of(memory_with(head));
    EXPECT_EQ(copy.state, RecordState::kNotValid) << valid;
    EXPECT_FALSE(copy.area_cut);
  }
}

TEST(CopyRecord, ABadPointerCostsOnlyThisThread) {
  for (const std::uint64_t at : {std::uint64_t{2}, std::uint64_t{0xffff800000000000},
                                 UINT64_MAX - 1, std::uint64_t{0xdead0000}}) {
    SnapshotMemory m;
    m.put(kSlot, std::as_bytes(std::span(&at, 1)));
    EXPECT_EQ(copy_of(m).state, RecordState::kUnreadable) << std::hex << at;
  }
  SnapshotMemory crossing = memory_with(head_of(0));
  const std::uint64_t at = kRecord + 18;
  crossing.put(kSlot, std::as_bytes(std::span(&at, 1)));
  EXPECT_EQ(copy_of(crossing).state, RecordState::kUnreadable);
  EXPECT_EQ(copy_of(memory_with(head_of(0), "", kRecord + 1)).state, RecordState::kOddAddress);
}

TEST(CopyRecord, AnAreaThatEndsInNothingKeepsWhatIsThere) {
  const auto m = memory_with(head_of(0xffff), area_of({{0, "abc"}, {1, "x"}}));
  const auto copy = copy_of(m);
  EXPECT_EQ(copy.state, RecordState::kValid);
  EXPECT_TRUE(copy.area_cut);
  const auto context = parse_record(copy, {"a", "b"});
  EXPECT_TRUE(context.link);
  EXPECT_EQ(context.attributes, (Values{{"a", "abc"}, {"b", "x"}}));
  EXPECT_EQ(context.notes, std::vector<std::string>{"only 8 of 65535 attribute bytes can be read"});
}

TEST(CopyRecord, LargeAreasAreReadWhole) {
  for (const std::size_t size : {612, 613, 4096, 65535}) {
    const auto copy = copy_of(memory_with(head_of(size), std::string(size, 'x')));
    EXPECT_EQ(copy.area.size(), size);
    EXPECT_FALSE(copy.area_cut);
  }
}

TEST(CopyRecord, AnErrorOfTheProcessIsAnError) {
  const auto m = memory_with(head_of(5), area_of({{0, "abc"}}));
  for (int gone = 1; gone <= 3; ++gone) {
    const InterruptedMemory dying(m, [&](int nth, RemoteAddr) -> Result<> {
      if (nth == gone) return sys::fail("process_vm_readv", ESRCH, "pid 1");
      return {};
    });
    EXPECT_EQ(copy_record(dying, kSlot, Attributes::kRead).error().err, ESRCH);
  }
}

TEST(ParseRecord, TakesIdsAndFlags) {
  for (const int flags : {0, 1, 2, 3}) {
    RecordCopy copy;
    copy.head = head_of(0);
    copy.head.trace_flags = static_cast<std::uint8_t>(flags);
    const auto context = parse_record(copy, {});
    ASSERT_TRUE(context.link);
    EXPECT_EQ(context.link->trace_id, copy.head.trace_id);
    EXPECT_EQ(context.link->span_id, copy.head.span_id);
    EXPECT_EQ(context.link->flags, flags);
    EXPECT_TRUE(context.notes.empty());
  }
}

TEST(ParseRecord, ZeroIdsAreNoLinkAndKeepTheirAttributes) {
  for (const int ids : {0, 1, 2}) {  // none, the trace id only, the span id only
    auto head = head_of(3);
    if (ids != 1) head.trace_id.fill(0);
    if (ids != 2) head.span_id.fill(0);
    const auto copy = copy_of(memory_with(head, area_of({{0, "x"}})));
    const auto context = parse_record(copy, {"a"});
    EXPECT_FALSE(context.link);
    EXPECT_EQ(context.attributes, (Values{{"a", "x"}}));
    EXPECT_EQ(context.notes.empty(), ids == 0);
  }
}

TEST(ParseRecord, TheLastOccurrenceWins) {
  EXPECT_EQ(parse(area_of({{0, "a"}, {1, "x"}, {0, "b"}}), {"k", "l"}).attributes,
            (Values{{"k", "b"}, {"l", "x"}}));
  EXPECT_EQ(parse(area_of({{0, "a"}, {0, ""}}), {"k"}).attributes, (Values{{"k", ""}}));
  EXPECT_EQ(parse(area_of({{0, "a"}, {1, "b"}}), {"k", "k"}).attributes, (Values{{"k", "b"}}));
}

TEST(ParseRecord, StopsAtAnEntryThatDoesNotFitAndKeepsTheOthers) {
  const std::string good = area_of({{0, "a"}, {1, "b"}});
  for (const std::string& end : {std::string("\0", 1), std::string("\0\x01", 2),
                                 std::string("\0\x03xy", 4), std::string("\0\xffxy", 4)}) {
    const auto context = parse(good + end, {"k", "l"});
    EXPECT_EQ(context.attributes, (Values{{"k", "a"}, {"l", "b"}}));
    EXPECT_TRUE(context.link);
    EXPECT_EQ(context.notes.size(), 1U);
  }
}

TEST(ParseRecord, AnEmptyValueIsAnEntry) {
  EXPECT_EQ(parse(area_of({{0, ""}, {1, "x"}}), {"k", "l"}).attributes,
            (Values{{"k", ""}, {"l", "x"}}));
}

TEST(ParseRecord, IndexesBeyondTheMapAreLeftOutAndTold) {
  const auto context =
      parse(area_of({{0, "a"}, {7, "?"}, {1, "b"}, {7, "!"}, {255, ""}}), {"k", "l"});
  EXPECT_EQ(context.attributes, (Values{{"k", "a"}, {"l", "b"}}));
  EXPECT_EQ(context.unknown, (std::vector<std::uint8_t>{7, 255}));
  EXPECT_EQ(parse(area_of({{0, "a"}}), {}).unknown, std::vector<std::uint8_t>{0});
}

TEST(ParseRecord, PositionsWithoutANameAreLeftOut) {
  const auto context = parse(area_of({{0, "a"}, {1, "b"}, {2, "c"}}), {"k", "", "m"});
  EXPECT_EQ(context.attributes, (Values{{"k", "a"}, {"m", "c"}}));
  EXPECT_TRUE(context.unknown.empty());
}

TEST(ParseRecord, ABadValueAffectsOnlyItself) {
  const std::string zero("a\0b", 3);
  const auto context = parse(area_of({{0, "\xff\xfe"}, {1, zero}, {2, "ok"}}), {"a", "b", "c"});
  EXPECT_EQ(context.attributes, (Values{{"a", "\xff\xfe"}, {"b", zero}, {"c", "ok"}}));
}

}  // namespace
}  // namespace ctxconf::reader
