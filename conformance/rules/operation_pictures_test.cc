// Pictures of operations, from literal recordings.
#include "conformance/rules/operation_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "conformance/judge/judge.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = PictureStep::Kind;

// A program that publishes in memory of its own and stores field by field.
struct PictureRecording : LiteralRecording {
  abi::ProcessHeader header{};

  PictureRecording() {
    t.mode = Mode::kWrap;
    image().locations = {
        {0x401000, "/usr/lib/libapp.so", 0x1000, "publish", 12, "/home/me/src/ctx.cc", 118}};
  }

  // A snapshot of the header as it is, and of a payload that it announces.
  void view(StepTrace& trace, std::uint64_t payload_hash) {
    ReaderView& v = trace.views.emplace_back();
    v.order = ++order;
    v.header = bytes(header);
    v.payload.emplace().hash = payload_hash;
    v.location = 0;
  }
  static std::vector<std::byte> bytes(const abi::ProcessHeader& h) {
    std::vector<std::byte> out(sizeof h);
    std::memcpy(out.data(), &h, sizeof h);
    return out;
  }
  std::uint64_t store(std::uint8_t words, const std::function<void(abi::ProcessHeader&)>& change) {
    Store s;
    s.tid = 12;
    s.order = ++order;
    s.at_ns = now += kStep;
    s.header = kMapping;
    s.words = words;
    s.before = bytes(header);
    change(header);
    s.after = bytes(header);
    s.location = 0;
    image().stores.push_back(std::move(s));
    return order;
  }
  std::uint64_t timestamp(std::uint64_t value) {
    return store(4, [&](auto& h) { h.monotonic_published_at_ns = value; });
  }
  std::uint64_t size(std::uint32_t value) {
    return store(2, [&](auto& h) { h.payload_size = value; });
  }
  SystemCall& name() {
    call("prctl", {kNaming, 0, kMapping, 4096}, 0);
    image().calls.back().text = "OTEL_CTX";
    return image().calls.back();
  }

  void publish() {
    call("mmap", {0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS}, static_cast<std::int64_t>(kMapping));
    call("madvise", {kMapping, 4096, MADV_DONTFORK}, 0);
    Watch w;
    w.header = kMapping;
    w.armed_order = ++order;
    w.begin = WatchBegin::kAnonymous;
    w.found = bytes(header);
    image().watches.push_back(std::move(w));
    store(1, [](auto& h) { h.signature = abi::kSignature; });
    store(2, [](auto& h) {
      h.version = abi::kVersion;
      h.payload_size = 2;
    });
    store(8, [](auto& h) { h.payload = kLowHeap; });
    timestamp(111);
    name();
  }
  // What a reader finds, so that the header is a context.
  void sample() {
    Snapshot s;
    s.first_seen_ns = s.last_seen_ns = now += kStep;
    s.moments = {Moment::kPeriodic};
    Candidate c = mapped_header(kMapping, "[anon:OTEL_CTX]", bytes(header));
    c.vm_flags = {"rd wr dc"};
    s.candidates = {c};
    image().snapshots.push_back(std::move(s));
  }

  ImageEvidence evidence() const {
    auto all = evidence_of(t);
    return all.empty() ? ImageEvidence{} : std::move(all.front());  // its parts point at each other
  }
  std::optional<OperationPicture> at(std::uint64_t event_order) const {
    return picture_of(evidence(), {kMapping, event_order, {}});
  }
};

std::vector<std::string> texts(const OperationPicture& p) {
  std::vector<std::string> out;
  for (const PictureStep& s : p.steps) {
    std::string text(s.wrong ? "!" : "");
    text += s.text;
    for (const auto& c : s.changes) {
      text.append(to_string(c.lane)).append(" ").append(c.was).append(">").append(c.is).append(" ");
    }
    out.push_back(text.append("; ").append(to_string(s.finds)));
  }
  return out;
}

TEST(OperationPictures, APublicationFromItsMappingToItsName) {
  PictureRecording r;
  r.publish();
  r.sample();
  const auto pictures = pictures_without(r.evidence(), {});
  ASSERT_THAT(pictures, SizeIs(1));
  EXPECT_FALSE(pictures[0].is_update);
  EXPECT_EQ(pictures[0].header, kMapping);
  EXPECT_EQ(pictures[0].before, Finds::kNoMemory);
  EXPECT_THAT(
      texts(pictures[0]),
      ElementsAre("mmap, 4096 bytes; no-timestamp", "madvise(MADV_DONTFORK); no-timestamp",
                  "signature zeros>\"OTEL_CTX\" ; no-timestamp",
                  "version 0>2 payload_size 0>2 ; no-timestamp",
                  "payload 0x0>0x55001000 ; no-timestamp", "monotonic_published_at_ns 0>111 ; new",
                  "prctl(PR_SET_VMA, \"OTEL_CTX\"); new"));
  EXPECT_EQ(pictures[0].steps[2].at, "ctx.cc:118 in publish");
  EXPECT_EQ(pictures[0].steps[2].tid, 12);
}

// The header is in a memfd.
PictureRecording with_memfd() {
  PictureRecording r;
  r.call("memfd_create", {0, 3}, 3).text = "OTEL_CTX";
  r.call("ftruncate", {3, 4096}, 0).file = "/memfd:OTEL_CTX (deleted)";
  r.publish();
  SystemCall& map = r.image().calls[2];
  map.args = {0, 4096, 3, MAP_PRIVATE, 3, 0};
  map.file = "/memfd:OTEL_CTX (deleted)";
  r.sample();
  return r;
}

TEST(OperationPictures, BeforeItsMemoryIsMappedThereIsNoTimestamp) {
  const auto pictures = pictures_without(with_memfd().evidence(), {});
  ASSERT_THAT(pictures, SizeIs(1));
  EXPECT_EQ(pictures[0].before, Finds::kNoMemory);
  const auto lines = texts(pictures[0]);
  ASSERT_THAT(lines, SizeIs(9));
  EXPECT_THAT(std::vector(lines.begin(), lines.begin() + 3),
              ElementsAre("memfd_create(\"OTEL_CTX\"); no-memory",
                          "ftruncate, 4096 bytes; no-memory", "mmap, 4096 bytes; no-timestamp"));
}

TEST(OperationPictures, ANameThatTheKernelDoesNotKnowIsHarmless) {
  PictureRecording r = with_memfd();
  SystemCall& naming = r.image().calls.back();
  const auto last = [&r] { return pictures_without(r.evidence(), {}).front().steps.back().text; };
  naming.result = -EINVAL;
  EXPECT_EQ(last(), "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EINVAL");
  r.t.host = {{std::string(sys::kHostAnonVmaName), false, "", ""},
              {std::string(sys::kHostShmemVmaName), false, "", ""}};
  const std::string excuse = ", harmless: this kernel cannot name such memory";
  EXPECT_EQ(last(), "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EINVAL" + excuse);
  naming.result = -EBADF;
  EXPECT_EQ(last(), "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EBADF" + excuse);
  naming.result = -EPERM;
  EXPECT_EQ(last(), "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EPERM");
  naming.result = -EINVAL;
  naming.injected = true;
  EXPECT_EQ(last(), "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EINVAL, made to fail");

  // A reader cannot find memory without a name that is not a memfd.
  PictureRecording anonymous;
  anonymous.publish();
  anonymous.image().calls.back().result = -EINVAL;
  anonymous.sample();
  anonymous.t.host = r.t.host;
  EXPECT_EQ(pictures_without(anonymous.evidence(), {}).front().steps.back().text,
            "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EINVAL, this kernel cannot name such memory");
}

TEST(OperationPictures, AnUpdateWithTheStoreThatIsWrong) {
  PictureRecording r;
  r.publish();
  r.sample();
  r.timestamp(0);
  r.call("fork", {}, 13);
  r.timestamp(222);
  const std::uint64_t wrong = r.size(3);
  r.name().result = -EPERM;
  r.sample();
  const auto picture = r.at(wrong);
  ASSERT_TRUE(picture);
  EXPECT_TRUE(picture->is_update);
  EXPECT_EQ(picture->before, Finds::kOld);
  EXPECT_THAT(texts(*picture),
              ElementsAre("monotonic_published_at_ns 111>0 ; no-timestamp", "fork; no-timestamp",
                          "monotonic_published_at_ns 0>222 ; neither", "!payload_size 2>3 ; new",
                          "prctl(PR_SET_VMA, \"OTEL_CTX\") = -EPERM; new"));
  EXPECT_EQ(picture->steps[1].kind, Kind::kFork);
  // The publication had no fault, and there is no other update.
  const EventLocation location{kMapping, wrong, {}};
  const auto others = pictures_without(r.evidence(), std::span(&location, 1));
  ASSERT_THAT(others, SizeIs(1));
  EXPECT_FALSE(others[0].is_update);
}

TEST(OperationPictures, BytesThatAreStoredAgain) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  const std::uint64_t again = r.store(8, [](auto&) {});
  r.timestamp(222);
  r.sample();
  const auto picture = r.at(again);
  ASSERT_TRUE(picture);
  EXPECT_THAT(texts(*picture), ElementsAre("monotonic_published_at_ns 111>0 ; no-timestamp",
                                           "!payload 0x55001000>0x55001000 ; no-timestamp",
                                           "monotonic_published_at_ns 0>222 ; new"));
}

TEST(OperationPictures, WhatIsMissingIsAtTheEnd) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  const std::uint64_t announced = r.timestamp(222);
  r.sample();
  const auto picture = picture_of(r.evidence(), {kMapping, announced, "no naming call"});
  ASSERT_TRUE(picture);
  ASSERT_THAT(picture->steps, SizeIs(3));
  EXPECT_EQ(picture->steps[2].kind, Kind::kMissing);
  EXPECT_THAT(texts(*picture), testing::Contains("!no naming call; new"));
}

TEST(OperationPictures, PayloadBytesThatChangeBetweenTwoInstructions) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  r.timestamp(222);
  r.image().step_traces.emplace_back().header = kMapping;
  for (const std::uint64_t hash : {0x1111222233334444U, 0x2222222233334444U, 0x5555666677778888U}) {
    r.view(r.image().step_traces[0], hash);
  }
  const std::uint64_t wrong = r.order - 1;
  r.name();
  r.sample();
  const auto picture = r.at(wrong);
  ASSERT_TRUE(picture);
  EXPECT_THAT(texts(*picture),
              ElementsAre("monotonic_published_at_ns 111>0 ; no-timestamp",
                          "monotonic_published_at_ns 0>222 ; new",
                          "!the first of 2 changespayload-bytes 11112222…>22222222… ; neither",
                          "prctl(PR_SET_VMA, \"OTEL_CTX\"); neither"));
  // In the end they are as they were.
  r.image().step_traces[0].views[2].payload->hash = 0x1111222233334444U;
  EXPECT_EQ(r.at(wrong)->steps[3].finds, Finds::kNew);
  // A change that a view shows belongs to the store.
  const auto store = r.at(wrong - 1);
  ASSERT_TRUE(store);
  EXPECT_TRUE(store->steps[1].wrong);
}

TEST(OperationPictures, PayloadBytesThatChangeBetweenTheGateAndTheFirstStore) {
  PictureRecording r;
  r.publish();
  r.name();
  auto& trace = r.image().step_traces.emplace_back();
  trace.header = kMapping;
  trace.from_gate = true;
  for (const std::uint64_t hash : {0x1111222233334444U, 0x2222222233334444U, 0x1111222233334444U}) {
    r.view(trace, hash);
  }
  const std::uint64_t wrong = r.order - 1;
  r.timestamp(0);
  r.timestamp(222);
  r.sample();
  const auto picture = r.at(wrong);
  ASSERT_TRUE(picture);
  EXPECT_TRUE(picture->is_update);
  EXPECT_THAT(texts(*picture),
              ElementsAre("!the first of 2 changespayload-bytes 11112222…>22222222… ; neither",
                          "monotonic_published_at_ns 111>0 ; no-timestamp",
                          "monotonic_published_at_ns 0>222 ; new"));
}

TEST(OperationPictures, WithoutStoresTheCallsAreLeft) {
  PictureRecording r;
  r.publish();
  r.sample();
  r.image().watches.clear();
  r.image().stores.clear();
  const auto picture = r.at(r.image().calls[1].entered_order);
  ASSERT_TRUE(picture);
  EXPECT_THAT(texts(*picture),
              ElementsAre("mmap, 4096 bytes; unknown", "!madvise(MADV_DONTFORK); unknown",
                          "prctl(PR_SET_VMA, \"OTEL_CTX\"); unknown"));
  EXPECT_FALSE(picture_of(r.evidence(), {kMapping + 4096, 1, {}}));
}

TEST(OperationPictures, LongOnesAreCutAroundWhatIsWrong) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  std::uint64_t wrong = 0;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const std::uint64_t at = r.size(i + 3);
    if (i == 60) wrong = at;
  }
  r.timestamp(222);
  r.sample();
  const auto picture = r.at(wrong);
  ASSERT_TRUE(picture);
  ASSERT_THAT(picture->steps, SizeIs(kMaxPictureSteps));
  EXPECT_EQ(picture->steps_before + picture->steps.size() + picture->steps_behind, 102U);
  EXPECT_EQ(picture->steps_before, 41U);
  EXPECT_TRUE(picture->steps[20].wrong);
}

TEST(OperationPictures, AnUpdateThatAReaderMayMixIsNoExample) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  r.timestamp(222);
  r.size(3);
  r.name();
  r.sample();
  const auto pictures = pictures_without(r.evidence(), {});
  ASSERT_THAT(pictures, SizeIs(1));
  EXPECT_FALSE(pictures[0].is_update);
  // The next one is.
  r.timestamp(0);
  r.timestamp(333);
  r.name();
  r.sample();
  EXPECT_THAT(pictures_without(r.evidence(), {}), SizeIs(2));
}

// The operations of a whole run: process and kind.
std::vector<std::pair<std::int32_t, bool>> examples(const Timeline& t) {
  std::vector<std::pair<std::int32_t, bool>> out;
  for (const OperationSummary& o : judge(t, {}).operations) {
    out.emplace_back(o.image.pid, o.picture.is_update);
  }
  return out;
}

// Another process, which updates too.
Process updating(std::int32_t pid) {
  PictureRecording r;
  r.publish();
  r.timestamp(0);
  r.timestamp(222);
  r.sample();
  r.process().pid = pid;
  r.image().key = {pid, 0};
  return r.process();
}

TEST(OperationPictures, TheFirstUpdateMayBeAnotherProcesss) {
  PictureRecording r;
  r.publish();
  r.sample();
  r.t.processes.push_back(updating(13));
  r.t.processes.push_back(updating(14));
  EXPECT_THAT(examples(r.t), ElementsAre(std::pair(12, false), std::pair(13, true)));
}

TEST(OperationPictures, NoExampleIsTakenFromARunUnderAFault) {
  PictureRecording r;
  r.publish();
  r.sample();
  r.t.processes.push_back(updating(13));
  r.t.processes[1].session = r.t.processes[1].images[0].key.session = 1;
  r.t.cells.emplace_back().session = 1;
  EXPECT_THAT(examples(r.t), ElementsAre(std::pair(12, false)));

  r.t.cells.clear();
  EXPECT_THAT(examples(r.t), SizeIs(2));
  r.t.processes[1].images[0].calls[0].injected = true;
  EXPECT_THAT(examples(r.t), SizeIs(1));
}

TEST(OperationPictures, NothingIsDrawnOfWhatWasNotSeen) {
  PictureRecording r;
  r.sample();
  EXPECT_THAT(pictures_without(r.evidence(), {}), IsEmpty());
  EXPECT_FALSE(r.at(1));
}

}  // namespace
}  // namespace ctxconf::conformance
