// When a race reader accepts a content, tested with memory that changes between its copies.
#include "conformance/observe/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "abi/process_header.h"
#include "conformance/payload/literal_payload.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

constexpr sys::RemoteAddr kHeader(0x7000);
constexpr sys::RemoteAddr kPayloadAt(0x8000);
constexpr sys::RemoteAddr kOtherPayload(0x9000);

// A read copies the timestamp, the header, the payload and the timestamp.
struct RaceTest : testing::Test {
  sys::SnapshotMemory bytes;
  std::function<void(int nth)> before = [](int) {};
  sys::InterruptedMemory memory{bytes, [this](int nth, sys::RemoteAddr) -> sys::Result<> {
                                  before(nth);
                                  return {};
                                }};
  RaceRecorder recorder{memory, kHeader, true};
  abi::ProcessHeader header{abi::kSignature, abi::kVersion, 0, 111, kPayloadAt.raw()};

  RaceTest() { content(1); }
  void put_header() { bytes.put(kHeader, std::as_bytes(std::span(&header, 1))); }
  // Both of one update: the timestamp does not change.
  void content(int number) {
    const auto n = static_cast<std::uint64_t>(number);
    put_payload(kPayloadAt,
                {{"service.name", numbered("a", n)}, {"ctxconf.churn", numbered("b", n)}});
  }
  void put_payload(sys::RemoteAddr at,
                   const std::vector<std::pair<std::string, std::string>>& pairs) {
    const auto payload = literal_payload(pairs);
    bytes.put(at, payload);
    header.payload = at.raw();
    header.payload_size = static_cast<std::uint32_t>(payload.size());
    put_header();
  }
  void timestamp(std::uint64_t value) {
    header.monotonic_published_at_ns = value;
    put_header();
  }
  const Race& read(int times = 1) {
    for (int i = 0; i < times; ++i) EXPECT_TRUE(recorder.read());
    return recorder.race();
  }
};

TEST_F(RaceTest, CountsContentsByTheirTimestamps) {
  read(3);
  timestamp(0);
  read(2);
  content(2);
  timestamp(222);
  const Race& race = read();
  EXPECT_EQ(race.reads, 6U);
  EXPECT_EQ(race.accepted, 4U);
  EXPECT_EQ(race.none, 2U);
  EXPECT_EQ(race.contents, 2U);
  EXPECT_THAT(race.kept, IsEmpty());
}

TEST_F(RaceTest, AnUpdateDuringTheCopyMakesItWorthless) {
  before = [&](int nth) {
    if (nth == 3) content(2);    // after the header
    if (nth == 4) timestamp(0);  // after the payload
    if (nth == 5) timestamp(222);
    if (nth == 8) timestamp(333);
  };
  const Race& race = read(2);
  EXPECT_EQ(race.overtaken, 2U);
  EXPECT_EQ(race.accepted, 0U);
  EXPECT_THAT(race.kept, IsEmpty());
}

TEST_F(RaceTest, KeepsBothPayloadsOfOneTimestamp) {
  read(2);
  content(2);
  EXPECT_THAT(read().kept,
              ElementsAre(Field(&RaceRead::timestamp, 111), Field(&RaceRead::timestamp, 111)));
  EXPECT_NE(recorder.race().kept[0].payload.bytes, recorder.race().kept[1].payload.bytes);
}

TEST_F(RaceTest, APayloadThatMovedWithItsBytesIsTheSameContent) {
  read();
  put_payload(kOtherPayload,
              {{"service.name", numbered("a", 1)}, {"ctxconf.churn", numbered("b", 1)}});
  EXPECT_THAT(read().kept, IsEmpty());
}

TEST_F(RaceTest, KeepsWhatIsNotOfOneUpdate) {
  put_payload(kPayloadAt,
              {{"service.name", numbered("a", 7)}, {"ctxconf.churn", numbered("b", 8)}});
  EXPECT_THAT(read().kept, SizeIs(1));
  timestamp(222);
  put_payload(kPayloadAt, {{"service.name", numbered("a", 7)},
                           {"ctxconf.cut", "b-000000000"},
                           {"ctxconf.none", "b"},
                           {"other", numbered("b", 8)}});
  EXPECT_THAT(read().kept, SizeIs(1)) << "a truncated number, and the key of another value";
  timestamp(333);
  bytes.put(kPayloadAt, std::vector<std::byte>(header.payload_size, std::byte{0xff}));
  EXPECT_THAT(read().kept, SizeIs(1)) << "bytes that are not a message contain no number";
}

TEST_F(RaceTest, KeepsAPayloadThatIsGoneUnderItsTimestamp) {
  header.payload = 0x123000;
  put_header();
  const Race& race = read();
  EXPECT_EQ(race.accepted, 1U);
  ASSERT_THAT(race.kept, SizeIs(1));
  EXPECT_EQ(race.kept[0].payload.readable, 0U);
  EXPECT_EQ(race.kept[0].payload.wanted, header.payload_size);
}

TEST_F(RaceTest, ReadsNoMoreThanItsLimits) {
  header.payload_size = 1U << 20U;
  put_header();
  EXPECT_EQ(read().too_large, 1U);
  for (int i = 0; i < 40; ++i) {
    content(i % 10);
    read();
  }
  EXPECT_THAT(recorder.race().kept, SizeIs(kMaxRaceReads));
}

TEST_F(RaceTest, AHeaderThatIsGoneIsUnreadable) {
  sys::SnapshotMemory nothing;
  RaceRecorder of_nothing(nothing, kHeader, true);
  EXPECT_TRUE(of_nothing.read());
  EXPECT_EQ(of_nothing.race().unreadable, 1U);
}

TEST(RacingReaderTest, EndsWithTheProcess) {
  const sys::ProcessMemory of_nobody(0x3fffffff);
  RaceRecorder recorder(of_nobody, kHeader, true);
  EXPECT_FALSE(recorder.read());
}

}  // namespace
}  // namespace ctxconf::conformance
