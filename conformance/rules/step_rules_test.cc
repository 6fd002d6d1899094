// The rules about what a reader finds between two instructions, against literal step traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "conformance/payload/literal_payload.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;

constexpr const char* kMixed = "pctx.update.no-mixed-read";
constexpr const char* kPublishFence = "pctx.publish.fence-before-timestamp";
constexpr const char* kZeroFence = "pctx.update.fence-after-zero";
constexpr const char* kUpdateFence = "pctx.update.fence-before-timestamp";

struct Trace : LiteralRecording {
  abi::ProcessHeader header{};
  std::uint64_t hash = 1;
  std::uint64_t readable = 40;
  std::uint64_t step = 0;

  explicit Trace(const std::string& arch = "x86_64") {
    t.mode = Mode::kRun;  // of others only what published is evidence
    t.arch = arch;
    image().locations = {{0x401000, "/usr/lib/libapp.so", 0x1000, "update", 12, "src/ctx.cc", 118}};
    header.signature = abi::kSignature;
    header.version = abi::kVersion;
    header.payload = kLowHeap;
    header.payload_size = 40;
    header.monotonic_published_at_ns = 111;
    begin();
  }
  Trace& begin() {
    auto& trace = image().step_traces.emplace_back();
    trace.tid = 12;
    trace.over = true;
    step = 0;
    return view(false);
  }
  void ended_early(const char* why) {
    auto& trace = image().step_traces.back();
    trace.over = false;
    trace.ended_because = why;
  }
  Trace& view(bool known_location = true) {
    ReaderView v;
    v.step = step;
    v.order = ++order;
    v.header.resize(sizeof header);
    std::memcpy(v.header.data(), &header, sizeof header);
    if (header.monotonic_published_at_ns != 0) {
      MemoryBlock b;
      b.at = sys::RemoteAddr(header.payload);
      b.wanted = header.payload_size;
      b.readable = readable;
      b.hash = hash;
      v.payload = b;
    }
    if (known_location) v.location = 0;
    auto& trace = image().step_traces.back();
    trace.views.push_back(std::move(v));
    trace.steps = step;
    return *this;
  }
  // Stores the timestamp after three more instructions.
  Trace& timestamp(std::uint64_t value) {
    header.monotonic_published_at_ns = value;
    step += 3;
    return view();
  }
  Trace& payload(std::uint64_t at, std::uint64_t new_hash) {
    header.payload = at;
    hash = new_hash;
    step += 3;
    return view();
  }
  Trace& rewritten(std::uint64_t new_hash) {
    hash = new_hash;
    step += 3;
    return view();
  }
  // The instruction in front of the last view, or so many before it.
  Trace& barrier(const std::string& text, std::uint64_t before = 0) {
    auto& trace = image().step_traces.back();
    trace.barriers.push_back({.step = step - 1 - before, .text = text, .location = 0});
    return *this;
  }
  Trace& update() { return timestamp(0).payload(kOtherLowHeap, 2).timestamp(222); }
  Finding judged(const char* requirement) {
    const auto evidence = evidence_of(t);
    return evidence.empty() ? Finding{} : rule_of(requirement)->rule(evidence.front());
  }
};

void expect(Trace& trace, const char* requirement, Outcome outcome,
            const std::string& signature = "") {
  const Finding f = trace.judged(requirement);
  EXPECT_EQ(to_string(f.outcome), to_string(outcome)) << f.saw;
  EXPECT_EQ(f.signature, signature) << f.saw;
}

TEST(NoMixedRead, TheOldContentNoneOrTheNewPasses) {
  Trace trace;
  trace.update();
  expect(trace, kMixed, Outcome::kPass);
  EXPECT_EQ(trace.judged(kMixed).level, "steps");
  EXPECT_THAT(trace.judged(kMixed).saw, HasSubstr("1 update: after each of 9 instructions"));
}

TEST(NoMixedRead, WhatAGatedThreadDoesBeforeItsFirstStoreCounts) {
  Trace trace;
  trace.image().step_traces.back().from_gate = true;
  trace.update();
  expect(trace, kMixed, Outcome::kPass);
  EXPECT_THAT(trace.judged(kMixed).saw, HasSubstr("1 update, from the gate on: after each of 9"));
  Trace and_back;
  and_back.image().step_traces.back().from_gate = true;
  and_back.rewritten(3).rewritten(1).update();
  expect(and_back, kMixed, Outcome::kFail, "content changed under its timestamp");
}

TEST(NoMixedRead, AStepTraceFromAGateThatWasGivenUpLeavesTheLevel) {
  Trace trace;
  trace.image().step_traces.back().from_gate = true;
  trace.ended_early("too many instructions before the first store");
  trace.begin().update();
  expect(trace, kMixed, Outcome::kPass);
  EXPECT_THAT(trace.judged(kMixed).saw, HasSubstr("1 update: after each of 9"));
  EXPECT_THAT(trace.judged(kMixed).evidence, testing::ElementsAre(HasSubstr("too many")));
}

struct Raced : Trace {
  Race& race;
  Raced() : race(image().races.emplace_back()) {
    update();
    race.reads = 1000;
    race.none = 20;
    race.overtaken = 10;
    race.accepted = 970;
    race.contents = 60;
    race.duration_ns = 500'000'000;
  }
  RaceRead& keep(std::uint64_t timestamp, const std::vector<std::byte>& payload) {
    RaceRead& r = race.kept.emplace_back();
    r.read = race.kept.size();
    r.timestamp = timestamp;
    r.payload.at = sys::RemoteAddr(kLowHeap);
    r.payload.wanted = r.payload.readable = payload.size();
    r.payload.bytes = payload;
    for (const auto b : payload)
      r.payload.hash = r.payload.hash * 31 + static_cast<std::uint64_t>(b);
    return r;
  }
};
std::vector<std::byte> content(std::uint64_t name, std::uint64_t value) {
  return literal_payload(
      {{"service.name", numbered("a", name)}, {"ctxconf.churn", numbered("b", value)}});
}

TEST(NoMixedReadInARace, ReadsThatMetUpdatesPass) {
  Raced raced;
  const Finding f = raced.judged(kMixed);
  EXPECT_EQ(f.outcome, Outcome::kPass) << f.saw;
  EXPECT_EQ(f.level, "race");
  EXPECT_THAT(f.saw, HasSubstr("1000 reads in 0.5 s: 2.00 % found no timestamp, 1.00 % were "
                               "overtaken by an update, 60 different contents"));
  raced.keep(111, content(1, 1));
  raced.keep(222, content(1, 1));
  EXPECT_EQ(raced.judged(kMixed).outcome, Outcome::kPass) << "two timestamps";
}

TEST(NoMixedReadInARace, TooFewMeetingsLeaveItOpen) {
  Raced raced;
  raced.race.contents = 19;
  EXPECT_EQ(raced.judged(kMixed).outcome, Outcome::kUnobservable);
  raced.race.contents = 60;
  raced.race.none = raced.race.overtaken = 0;
  EXPECT_EQ(raced.judged(kMixed).outcome, Outcome::kUnobservable);
  Trace alone;
  alone.image().races_unseen = "one processor";
  EXPECT_THAT(alone.judged(kMixed).saw, HasSubstr("one processor"));
}

TEST(NoMixedReadInARace, WhatWasKeptTellsHowItWasMixed) {
  Raced pair;
  pair.keep(111, content(1, 1));
  pair.keep(111, content(2, 2));
  expect(pair, kMixed, Outcome::kFail, "two payloads under one timestamp");
  EXPECT_THAT(pair.judged(kMixed).evidence.back(), HasSubstr("> read 2: timestamp 111"));
  Raced parts;
  parts.keep(111, content(1, 2));
  expect(parts, kMixed, Outcome::kFail, "parts of two updates");
  EXPECT_THAT(parts.judged(kMixed).saw, HasSubstr("1 and 2"));
  Raced broken;
  broken.keep(111, std::vector<std::byte>(40, std::byte{0xff}));
  EXPECT_EQ(broken.judged(kMixed).outcome, Outcome::kPass) << "broken at rest, too, perhaps";
  Raced gone;
  gone.keep(111, content(1, 1)).payload.readable = 3;
  expect(gone, kMixed, Outcome::kFail, "payload unreadable under its timestamp");
}

TEST(NoMixedRead, AReplacedTimestampMakesAReaderTryAgain) {
  Trace trace;
  trace.payload(kLowHeap, 1).timestamp(222);
  expect(trace, kMixed, Outcome::kPass);
}

TEST(NoMixedRead, ContentMayNotChangeUnderATimestamp) {
  Trace before;
  before.payload(kOtherLowHeap, 2).timestamp(0).timestamp(222);
  expect(before, kMixed, Outcome::kFail, "content changed under its timestamp");
  EXPECT_THAT(before.judged(kMixed).at, HasSubstr("src/ctx.cc:118 in update"));
  EXPECT_THAT(before.judged(kMixed).saw, HasSubstr("payload's place"));
  Trace behind;
  behind.update().rewritten(3);
  expect(behind, kMixed, Outcome::kFail, "content changed under its timestamp");
  EXPECT_THAT(behind.judged(kMixed).saw, HasSubstr("payload's bytes"));
  Trace gone;
  gone.update();
  gone.readable = 0;
  gone.rewritten(2);
  expect(gone, kMixed, Outcome::kFail, "content changed under its timestamp");
}

TEST(NoMixedRead, ATimestampMayNotComeBack) {
  Trace trace;
  trace.timestamp(0).payload(kOtherLowHeap, 2).timestamp(111);
  expect(trace, kMixed, Outcome::kFail, "timestamp came back");
  Trace later;
  later.update().begin().timestamp(0).payload(kLowHeap, 3).timestamp(111);
  expect(later, kMixed, Outcome::kFail, "timestamp came back");
  Trace same;
  same.timestamp(0).timestamp(111);
  expect(same, kMixed, Outcome::kUnobservable);
}

TEST(NoMixedRead, WhatNoReaderAcceptsIsNoContent) {
  Trace trace;
  trace.image().step_traces.clear();
  trace.header.signature = {};
  trace.begin().rewritten(2).rewritten(3);
  trace.header.signature = abi::kSignature;
  trace.rewritten(4).update();
  expect(trace, kMixed, Outcome::kPass);
}

TEST(NoMixedRead, NothingIsSaidOfWhatWasNotStepped) {
  Trace none;
  none.image().step_traces.clear();
  none.image().steps_unseen = "the program has an action of its own for SIGTRAP";
  expect(none, kMixed, Outcome::kUnobservable);
  EXPECT_THAT(none.judged(kMixed).saw, HasSubstr("SIGTRAP"));
  Trace half;
  half.timestamp(0);
  half.ended_early("too many instructions");
  expect(half, kMixed, Outcome::kUnobservable);
  EXPECT_THAT(half.judged(kMixed).saw, HasSubstr("too many instructions"));
  // A failure counts all the same.
  Trace broken;
  broken.payload(kOtherLowHeap, 2);
  broken.ended_early("too many instructions");
  expect(broken, kMixed, Outcome::kFail, "content changed under its timestamp");
}

TEST(Fences, ABarrierIsAWitnessEverywhere) {
  for (const auto* arch : {"x86_64", "aarch64"}) {
    for (const auto* text : {"mfence", "sfence", "lock or dword ptr [rsp], 0", "dmb ishst",
                             "dmb ish", "dsb sy", "swpal x1, x2, [x3]"}) {
      Trace trace(arch);
      trace.timestamp(0).payload(kOtherLowHeap, 2).barrier(text, 1).timestamp(222).barrier(text, 1);
      expect(trace, kZeroFence, Outcome::kPass);
      expect(trace, kUpdateFence, Outcome::kPass);
    }
  }
}

TEST(Fences, WithoutOneOnlyAProcessorThatKeepsOrderIsExcused) {
  Trace x86;
  x86.update();
  for (const auto* requirement : {kZeroFence, kUpdateFence, kPublishFence}) {
    expect(x86, requirement, Outcome::kNa);
    EXPECT_EQ(x86.judged(requirement).na_reason, NaReason::kArch);
  }
  Trace arm("aarch64");
  arm.update();
  expect(arm, kZeroFence, Outcome::kFail, "no barrier");
  expect(arm, kUpdateFence, Outcome::kFail, "no barrier");
  for (const auto* text : {"dmb ishld", "dsb ld"}) {
    Trace loads("aarch64");
    loads.timestamp(0).payload(kOtherLowHeap, 2).barrier(text, 1).timestamp(222).barrier(text);
    expect(loads, kZeroFence, Outcome::kFail, "no barrier");
    expect(loads, kUpdateFence, Outcome::kFail, "no barrier");
  }
}

TEST(Fences, AStoreReleaseHoldsBackItselfAndNothingAfterIt) {
  Trace timestamp("aarch64");
  timestamp.update().barrier("stlr x1, [x2]");
  expect(timestamp, kUpdateFence, Outcome::kPass);
  expect(timestamp, kZeroFence, Outcome::kFail, "no barrier");
  Trace zero("aarch64");
  zero.timestamp(0).barrier("stlr xzr, [x2]").payload(kOtherLowHeap, 2).timestamp(222);
  expect(zero, kZeroFence, Outcome::kFail, "no barrier");
  Trace exchanged("aarch64");
  exchanged.timestamp(0).barrier("swpal xzr, x1, [x2]").payload(kOtherLowHeap, 2).timestamp(222);
  expect(exchanged, kZeroFence, Outcome::kPass);
  Trace every("aarch64");
  every.timestamp(0).payload(kOtherLowHeap, 2).barrier("stlr x1, [x2]").timestamp(222);
  expect(every, kZeroFence, Outcome::kPass);
}

TEST(Fences, APublicationHasOneOfItsOwn) {
  Trace trace("aarch64");
  trace.image().step_traces.clear();
  trace.header = {};
  trace.begin();
  trace.header.signature = abi::kSignature;
  trace.header.version = abi::kVersion;
  trace.payload(kLowHeap, 1).timestamp(111);
  expect(trace, kPublishFence, Outcome::kFail, "no barrier");
  expect(trace, kUpdateFence, Outcome::kUnobservable);
  trace.barrier("dmb ish", 1);
  expect(trace, kPublishFence, Outcome::kPass);
}

}  // namespace
}  // namespace ctxconf::conformance
