// The rules about what a reader of a stopped thread finds between two instructions, against literal
// step traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "abi/thread_record.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::SizeIs;

constexpr const char* kComplete = "tctx.attach.complete-before-visible";
constexpr const char* kValid = "tctx.attach.valid-before-visible";
constexpr const char* kNoChange = "tctx.attach.no-change-while-visible";
constexpr const char* kSound = "tctx.attach.slot-always-sound";
constexpr const char* kOutlives = "tctx.attach.record-outlives-slot";
constexpr const char* kBeforeUse = "tctx.keymap.before-use";
constexpr auto kRequirements = {kComplete, kValid, kNoChange, kSound, kOutlives, kBeforeUse};

constexpr std::uint64_t kA = 0x550000011000;  // where records are
constexpr std::uint64_t kB = 0x550000022000;
constexpr std::uint64_t kSpanOffset = 16;  // offsets in a record
constexpr std::uint64_t kValidOffset = 24;
constexpr std::uint64_t kFlagsOffset = 25;
constexpr std::uint64_t kSizeOffset = 26;
constexpr std::uint64_t kEntriesOffset = 28;

// A record with ids of one digit each and entries, and with room after them.
struct DigitRecord {
  char trace = 'a';
  char span = 'b';
  std::string entries;
  char valid = 1;
  char flags = 1;

  std::string bytes() const {
    std::string out = std::string(16, trace) + std::string(8, span) + valid + flags;
    out += size_bytes(entries.size());
    out += entries;
    out.resize(64, '\0');
    return out;
  }
  static std::string size_bytes(std::size_t size) {
    return {static_cast<char>(size & 0xff), static_cast<char>(size >> 8U)};
  }
};

const std::string kGet = record_attribute(0, "GET");
const std::string kPut = record_attribute(0, "PUT");
const std::string kPath = record_attribute(1, "/cart");

Json attach() {
  return {{"op", "thread.attach"},
          {"thread", "main"},
          {"ctx", "A"},
          {"trace_id", std::string(32, '1')},
          {"span_id", std::string(16, '2')},
          {"flags", 1},
          {"attributes", Json::array()}};
}
Json on_main(const char* op) { return {{"op", op}, {"thread", "main"}}; }
Json detach() { return on_main("thread.detach"); }

// A program of one thread that is single-stepped, instruction by instruction that stores: three
// more between each two.
struct Stepped : LiteralRecording {
  Session session;
  std::map<std::uint64_t, std::string> memory;
  std::uint64_t slot = 0;
  std::optional<std::uint64_t> published;
  std::vector<Candidate> context;
  Json request;
  std::uint64_t step = 0;

  Stepped() {
    t.mode = Mode::kRun;
    image().locations = {{0x401000, "/usr/lib/libapp.so", 0x1000, "attach", 12, "src/ctx.cc", 118}};
    session.group = "test";
    session.root = {12, 0};
    session.checks.emplace_back().name = "test";
    session.hello = R"({"id":1,"ok":true,"caps":{"thread":{"style":"pointer"}}})";
    answered({{"op", "hello"}});
    memory[kA] = DigitRecord{}.bytes();
    memory[kB] = DigitRecord{.trace = 'c', .span = 'd', .entries = {}}.bytes();
  }

  Stepped& begin(const Json& what) {
    request = what;
    SlotStepTrace& trace = image().slot_step_traces.emplace_back();
    trace.tid = 12;
    trace.slot = 0x7e0000001000;
    trace.over = true;
    step = 0;
    return view();
  }
  Stepped& view() {
    SlotStepTrace& trace = image().slot_step_traces.back();
    SlotView v;
    v.step = trace.steps = step;
    v.order = ++order;
    v.value = slot;
    v.published = published;
    if (slot != 0) v.record = copied(slot);
    if (step != 0) v.location = 0;
    trace.views.push_back(std::move(v));
    return *this;
  }
  Stepped& next() {
    step += 3;
    return view();
  }
  Stepped& point(std::uint64_t at) {
    slot = at;
    return next();
  }
  Stepped& store(std::uint64_t at, std::uint64_t offset, const std::string& bytes) {
    memory[at].replace(offset, bytes.size(), bytes);
    return next();
  }
  // Another thread stores between two instructions of this one.
  Stepped& store_elsewhere(std::uint64_t at, std::uint64_t offset, const std::string& bytes) {
    store(at, offset, bytes);
    SlotView& v = image().slot_step_traces.back().views.back();
    v.by_another = true;
    v.location.reset();
    return *this;
  }
  Stepped& valid(std::uint64_t at, char value) { return store(at, kValidOffset, {value}); }
  Stepped& size(std::uint64_t at, std::size_t bytes) {
    return store(at, kSizeOffset, DigitRecord::size_bytes(bytes));
  }
  Stepped& freed(std::uint64_t at) {
    memory[at] = std::string(64, '\xa5');
    next();
    return store(at, 0, "\x11\x22\x33\x44");  // the allocator's own list
  }
  Stepped& unmapped(std::uint64_t at) {
    memory.erase(at);
    return next();
  }
  Stepped& end(bool ok = true) {
    answered(request, ok);
    return *this;
  }
  Stepped& cut() {
    SlotStepTrace& trace = image().slot_step_traces.back();
    trace.over = false;
    trace.ended_because = "too many instructions";
    return *this;
  }
  // Something that was not single-stepped, and the sample after it.
  void answered(const Json& what, bool ok = true) {
    Operation& o = session.operations.emplace_back();
    o.request = what.dump();
    o.reply = Json{{"ok", ok}}.dump();
    o.answered_ns = now += kStep;
    ImageView view;
    view.image = image().key;
    view.order = ++order;
    ThreadView& thread = view.threads.emplace_back();
    thread.tid = 12;
    thread.null = slot == 0;
    if (slot != 0) {
      ThreadSample s;
      s.tid = 12;
      s.first_seen_ns = s.last_seen_ns = now;
      s.slot = 0x7e0000001000;
      s.value = slot;
      s.record = copied(slot);
      thread.sample = image().threads.size();
      image().threads.push_back(std::move(s));
    }
    view.snapshot = image().snapshots.size();
    Snapshot snapshot;
    snapshot.first_seen_ns = snapshot.last_seen_ns = now;
    snapshot.candidates = context;
    image().snapshots.push_back(std::move(snapshot));
    o.after.push_back(std::move(view));
  }

  // The snapshot after this operation shows this key map and timestamp.
  void publishes(std::uint64_t timestamp, std::size_t names, bool has_map = true) {
    published = timestamp;
    const auto field = [](int number, const std::string& bytes) {
      return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} +
             bytes;
    };
    std::string elements;
    for (std::size_t i = 0; i < names; ++i) {
      elements += field(1, field(1, {static_cast<char>('a' + i)}));
    }
    std::string payload = field(1, {});
    if (has_map) {
      payload +=
          field(2, field(1, std::string(abi::kAttributeKeyMapKey)) + field(2, field(5, elements)));
    }
    const abi::ProcessHeader h{abi::kSignature, abi::kVersion,
                               static_cast<std::uint32_t>(payload.size()), timestamp, 0x5000};
    std::vector<std::byte> head(sizeof h);
    std::memcpy(head.data(), &h, sizeof h);
    context = {mapped_header(0x7f0000000000, "[anon: OTEL_CTX]", std::move(head))};
    MemoryBlock& block = context.front().memory.emplace_back();
    block.at = sys::RemoteAddr(0x5000);
    block.wanted = block.readable = block.hash = payload.size();
    block.bytes = bytes(payload);
  }

  Finding judged(const char* requirement) {
    EXPECT_EQ(rule_of(requirement)->asked_of, AskedOf::kTestee);
    Timeline timeline = t;
    timeline.sessions.push_back(session);
    const auto evidence = evidence_of(timeline);
    return rule_of(requirement)->rule(evidence.front());
  }

  // Judges it as `wrap` would have recorded it: nobody asked for anything.
  Finding undriven(const char* requirement) const {
    Timeline timeline = t;
    timeline.mode = Mode::kWrap;
    ThreadSample seen;
    seen.tid = 12;
    seen.slot = 0x7e0000001000;
    seen.value = kA;
    seen.record = copied(kA);
    timeline.processes.at(0).images.at(0).threads.push_back(seen);
    const auto evidence = evidence_of(timeline);
    EXPECT_EQ(evidence.size(), 1U);
    return rule_of(requirement)->rule(evidence.front());
  }

 private:
  static std::vector<std::byte> bytes(const std::string& s) {
    std::vector<std::byte> out;
    for (const char c : s) out.push_back(static_cast<std::byte>(c));
    return out;
  }
  // Copies it as the recorder does.
  MemoryBlock copied(std::uint64_t at) const {
    MemoryBlock out;
    out.at = sys::RemoteAddr(at);
    std::string there;
    for (const auto& [start, content] : memory) {
      if (start <= at && at - start < content.size()) there = content.substr(at - start);
    }
    out.wanted = kEntriesOffset;
    if (there.size() >= kEntriesOffset) {
      out.wanted += static_cast<unsigned char>(there[kSizeOffset]) +
                    256U * static_cast<unsigned char>(there[kSizeOffset + 1]);
    }
    out.bytes = bytes(there.substr(0, out.wanted));
    out.readable = out.bytes.size();
    return out;
  }
};

void expect(Stepped& w, const char* requirement, Outcome outcome,
            const std::string& signature = "") {
  const Finding f = w.judged(requirement);
  EXPECT_EQ(to_string(f.outcome), to_string(outcome)) << requirement << ": " << f.saw;
  EXPECT_EQ(f.signature, signature) << requirement << ": " << f.saw;
  EXPECT_EQ(f.level, outcome == Outcome::kPass || outcome == Outcome::kFail ? "steps" : "")
      << requirement;
  EXPECT_LE(f.evidence.size(), 12U) << requirement;
}
// This requirement, and no other.
void expect_only(Stepped& w, const char* requirement, const std::string& signature) {
  expect(w, requirement, Outcome::kFail, signature);
  for (const char* other : kRequirements) {
    if (other == requirement) continue;
    EXPECT_NE(w.judged(other).outcome, Outcome::kFail) << other;
  }
}
void expect_warned(Stepped& w, const char* requirement, const std::string& signature) {
  const Finding f = w.judged(requirement);
  EXPECT_EQ(to_string(f.outcome), to_string(Outcome::kWarn)) << requirement << ": " << f.saw;
  EXPECT_EQ(f.signature, signature) << requirement << ": " << f.saw;
}
void expect_clean(Stepped& w) {
  for (const char* requirement : kRequirements) {
    const Finding f = w.judged(requirement);
    EXPECT_NE(f.outcome, Outcome::kFail) << requirement << ": " << f.saw;
  }
}

// ---- legal writers

TEST(SlotSteps, APointerSwitchedAtTheEnd) {
  Stepped w;
  w.begin(attach()).point(kA).end();
  expect_clean(w);
  for (const char* requirement : {kComplete, kValid, kSound})
    expect(w, requirement, Outcome::kPass);
  expect(w, kNoChange, Outcome::kUnobservable);  // none was there before
  expect(w, kOutlives, Outcome::kUnobservable);
  w.begin(attach()).point(kB).end().begin(detach()).point(0).end();
  expect_clean(w);
  for (const char* requirement : {kComplete, kValid, kNoChange, kSound, kOutlives}) {
    expect(w, requirement, Outcome::kPass);
  }
  EXPECT_THAT(w.judged(kSound).saw, HasSubstr("3 operations: after each of 9 instructions"));
}

TEST(SlotSteps, NullWhileTheRecordChanges) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).point(0).store(kA, 0, "x").store(kA, kSpanOffset, "y").point(kA).end();
  expect_clean(w);
  for (const char* requirement : {kComplete, kValid, kNoChange, kSound})
    expect(w, requirement, Outcome::kPass);
}

TEST(SlotSteps, AFixedRecordWithTheValidByteAsItsSwitch) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).valid(kA, 0).store(kA, 0, "x").store(kA, kSpanOffset, "y").size(kA, 5);
  w.store(kA, kEntriesOffset, kGet).valid(kA, 1).end();
  expect_clean(w);
  for (const char* requirement : {kComplete, kNoChange, kSound})
    expect(w, requirement, Outcome::kPass);
  expect(w, kValid, Outcome::kNa);
  w.begin(detach()).valid(kA, 0).end();
  expect_clean(w);
  expect(w, kOutlives, Outcome::kPass);  // kept for reuse
}

TEST(SlotSteps, APointerToARecordThatBecomesValidLater) {
  Stepped w;
  w.memory[kA] = DigitRecord{.entries = {}, .valid = 0}.bytes();
  w.begin(attach()).point(kA).store(kA, 0, "x").valid(kA, 1).end();
  expect_clean(w);
  expect(w, kValid, Outcome::kNa);
  expect(w, kComplete, Outcome::kPass);
}

TEST(SlotSteps, ReusedMemoryThatIsFilledByTheAllocator) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).point(kB).freed(kA).point(0).point(kA);  // filled, and no record yet
  w.store(kA, 0, std::string(16, 'x'));
  w.store(kA, kSpanOffset, std::string(8, 'y')).store(kA, kSizeOffset, std::string(2, '\0'));
  w.store(kA, kFlagsOffset, "\1").valid(kA, 1).end();
  expect_clean(w);
}

TEST(SlotSteps, BytesAfterTheSizeAndTheTail) {
  Stepped w;
  w.slot = kA;
  w.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  w.begin(on_main("thread.append")).store(kA, kEntriesOffset + 5, kPath).size(kA, 12).end();
  w.begin(on_main("thread.shrink")).size(kA, 5).store(kA, kEntriesOffset + 5, "zzzz").end();
  // Shrunk, then appended to.
  w.begin(on_main("thread.append")).size(kA, 0).store(kA, kEntriesOffset, kPut).size(kA, 5).end();
  expect_clean(w);
  expect(w, kNoChange, Outcome::kPass);
  expect(w, kSound, Outcome::kPass);
}

TEST(SlotSteps, AnAttachThatAppends) {
  Stepped w;
  w.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  w.begin(attach()).point(kA).store(kA, kEntriesOffset + 5, kPath).size(kA, 12).end();
  expect_clean(w);
  expect(w, kComplete, Outcome::kPass);
}

// ---- what was not seen

TEST(SlotSteps, WithoutAStepTraceNothingIsKnown) {
  Stepped w;
  for (const char* requirement : kRequirements) expect(w, requirement, Outcome::kUnobservable);
  EXPECT_THAT(w.judged(kSound).saw,
              HasSubstr("no operation on a thread's context was single-stepped"));
  w.image().slot_steps_unseen = "the program has an action of its own for SIGTRAP";
  for (const char* requirement : kRequirements)
    EXPECT_THAT(w.judged(requirement).saw, HasSubstr("SIGTRAP"));
  EXPECT_THAT(w.judged(kSound).remedy, HasSubstr("without this limit"));
}

TEST(SlotSteps, AStepTraceThatEndedEarlyFailsAndDoesNotPass) {
  Stepped w;
  w.begin(attach()).point(kA).cut().end();
  w.begin(attach()).point(kB).cut().end();
  w.begin(detach()).point(0).cut().end();
  for (const char* requirement : kRequirements) expect(w, requirement, Outcome::kUnobservable);
  EXPECT_THAT(w.judged(kSound).saw, HasSubstr("too many instructions"));
  w.begin(attach()).point(kA).store(kA, 0, "x").cut().end();
  expect_only(w, kComplete, "visible before it was complete");
  // What is hidden then may have become visible.
  Stepped hidden;
  hidden.memory[kA] = DigitRecord{.entries = {}, .valid = 0}.bytes();
  hidden.begin(attach()).point(kA).cut().end();
  expect_clean(hidden);
}

TEST(SlotSteps, ANullVariableShowsNothing) {
  Stepped w;
  w.begin(attach()).next().end();
  for (const char* requirement : kRequirements) expect(w, requirement, Outcome::kUnobservable);
  EXPECT_THAT(w.judged(kSound).saw, HasSubstr("null at every instruction"));
}

TEST(SlotSteps, WhatWasNotKeptIsNotJudged) {
  Stepped w;
  w.begin(attach()).point(kA).point(kA + 0x1000).point(kB).end();
  for (auto& v : w.image().slot_step_traces.back().views) {
    if (v.record) v.record->readable = v.record->wanted;
    if (v.record) v.record->bytes.resize(10);
  }
  expect_clean(w);
  for (auto& v : w.image().slot_step_traces.back().views) v.record.reset();
  expect_clean(w);
  w.image().slot_step_traces.back().views.clear();
  expect_clean(w);
}

TEST(SlotSteps, RecordsOfTheOtherByteOrder) {
  Stepped w;
  w.image().little_endian = false;
  w.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  std::swap(w.memory[kA][kSizeOffset], w.memory[kA][kSizeOffset + 1]);
  w.slot = kA;
  w.begin(detach()).store(kA, kEntriesOffset, kPut).point(0).end();
  for (auto& v : w.image().slot_step_traces.back().views) {
    if (!v.record) continue;
    v.record->wanted = v.record->readable = 33;
    v.record->bytes.resize(33);
  }
  expect(w, kNoChange, Outcome::kFail, "entries of a visible record changed");
}

TEST(NoChangeWhileVisible, AValueThatAnAppendOverwrites) {
  Stepped w;
  w.memory[kB] = DigitRecord{.entries = kGet + record_attribute(1, "41")}.bytes();
  w.begin(attach()).point(kB).end();
  Stepped stepped = w;
  const auto overwrite = [](Stepped& what) {
    what.memory[kB].replace(kEntriesOffset + kGet.size(), 4, record_attribute(1, "42"));
  };
  overwrite(w);
  Stepped detached = w;
  w.answered(on_main("thread.append"));
  expect_only(w, kNoChange, "entries of a visible record changed");
  const Finding f = w.judged(kNoChange);
  EXPECT_THAT(f.saw, HasSubstr("entries from byte 8 on changed"));
  EXPECT_THAT(f.evidence.front(), HasSubstr("thread.append"));
  // To hide the record, the program stores to what is watched.
  stepped.begin(on_main("thread.append")).valid(kB, 0);
  overwrite(stepped);
  stepped.valid(kB, 1).end();
  expect_clean(stepped);
  // Nothing is known about the time between two operations.
  detached.answered({{"op", "process.update"}});
  expect_clean(detached);
  Stepped unwatched = w;
  unwatched.image().slot_steps_unseen = "too many";
  expect_clean(unwatched);
  Stepped refused = detached;
  refused.memory[kB] = DigitRecord{.entries = kGet + record_attribute(1, "43")}.bytes();
  refused.answered(on_main("thread.append"), false);
  expect_clean(refused);
}

// ---- slot-always-sound

TEST(SlotAlwaysSound, APointerInParts) {
  // On the way from null, a part of the pointer shows no memory.
  Stepped first;
  first.begin(attach()).point(0x1000).point(0x11000).point(kA).end();
  expect_only(first, kSound, "the variable leads to no record");
  const Finding f = first.judged(kSound);
  EXPECT_THAT(f.at, HasSubstr("src/ctx.cc:118 in attach, thread 12"));
  EXPECT_THAT(f.saw, HasSubstr("after 3 instructions the variable leads to 0x1000"));
  EXPECT_THAT(f.evidence.front(), HasSubstr("thread.attach"));
  EXPECT_THAT(f.evidence[1], HasSubstr("  before: slot null"));
  EXPECT_THAT(f.evidence[2], HasSubstr("> after 3 instructions: slot 0x1000, 0 of 28 bytes"));
  // A part of the pointer shows memory that is not a record.
  Stepped mixed;
  mixed.slot = kA;
  mixed.memory[0x550000012000] = std::string(64, '\0');
  mixed.begin(attach()).point(0x550000012000).point(kB).end();
  expect_only(mixed, kSound, "parts of two addresses");
  EXPECT_THAT(mixed.judged(kSound).saw, HasSubstr("bytes of 0x550000011000 and of 0x550000022000"));
  Stepped detached;
  detached.slot = kA;
  detached.memory[0x550000000000] = std::string(0x100, '\0');
  detached.begin(detach()).point(0x550000000000).point(0).end();
  expect_only(detached, kSound, "parts of two addresses");
}

TEST(SlotAlwaysSound, AnotherRecordOnTheWayIsLegal) {
  Stepped whole;
  whole.slot = kA;
  whole.memory[0x550000012000] = DigitRecord{}.bytes();
  whole.begin(attach()).point(0x550000012000).point(kB).end();
  expect_clean(whole);
  expect(whole, kSound, Outcome::kPass);
  // A record that is not valid stands for no context.
  Stepped empty;
  empty.slot = kA;
  empty.memory[0x550000033000] = std::string(64, '\0');
  empty.begin(attach()).point(0x550000033000).point(kB).end();
  expect_clean(empty);
  expect(empty, kSound, Outcome::kPass);
}

TEST(SlotAlwaysSound, AtBothEndsTheFixedPartIsEnough) {
  Stepped w;
  w.memory[kA] = DigitRecord{.entries = std::string(100, '\0')}.bytes();  // cut to 64
  w.begin(attach()).point(kA).end();
  w.memory[kA].resize(64);
  w.begin(detach()).point(0).end();
  expect_clean(w);
  Stepped between;
  between.slot = kA;
  between.memory[0x550000033000] = DigitRecord{}.bytes();
  between.memory[0x550000033000].replace(kSizeOffset, 2, "\x50\x01");
  between.begin(attach()).point(0x550000033000).point(kB).end();
  expect_only(between, kSound, "the variable leads to no record");
  Stepped gone;
  gone.begin(attach()).point(0x660000).end();
  expect_only(gone, kSound, "the variable leads to no record");
  Stepped first;
  first.slot = 0x660000;
  first.begin(attach()).point(kA).end();
  expect_only(first, kSound, "the variable leads to no record");
  EXPECT_THAT(first.judged(kSound).saw, HasSubstr("before the first store"));
}

// ---- record-outlives-slot

TEST(RecordOutlivesSlot, FreedAndThenCleared) {
  Stepped w;
  w.slot = kA;
  w.begin(detach()).freed(kA).point(0).end();
  expect_only(w, kOutlives, "record freed under the variable");
  const Finding f = w.judged(kOutlives);
  EXPECT_THAT(f.saw, HasSubstr("after 3 instructions the variable still leads to 0x550000011000, "
                               "which was freed: it is filled with a5"));
  EXPECT_THAT(f.at, HasSubstr("src/ctx.cc:118"));
  // The fill comes in pieces, and what it changes first is no change of the writer's.
  Stepped pieces;
  pieces.slot = kA;
  pieces.begin(detach()).store(kA, 0, std::string(10, '\xa5')).freed(kA).point(0).end();
  expect_only(pieces, kOutlives, "record freed under the variable");
  // A record that became visible in this step trace.
  Stepped shown;
  shown.begin(attach()).point(kA).store(kA, 0, std::string(20, '\xa5')).freed(kA).end();
  expect_only(shown, kOutlives, "record freed under the variable");
}

TEST(NoDangling, FreedAndThenClearedByAThreadThatEnds) {
  Stepped w;
  w.slot = kA;
  w.begin(on_main("thread.exit")).freed(kA).point(0).end();
  expect_clean(w);
  const Finding f = w.judged("tctx.exit.no-dangling");
  EXPECT_EQ(to_string(f.outcome), to_string(Outcome::kFail));
  EXPECT_EQ(f.signature, "record freed under the variable");
  EXPECT_EQ(f.level, "steps");
  Stepped after;
  after.slot = kA;
  after.begin(on_main("thread.exit")).point(0).freed(kA).end();
  expect_clean(after);
  EXPECT_EQ(to_string(after.judged("tctx.exit.no-dangling").outcome),
            to_string(Outcome::kUnobservable));
}

// The record is hidden and never freed.
TEST(RecordOutlivesSlot, AWriterMayFillItsRecord) {
  Stepped w;
  w.slot = kA;
  w.begin(detach()).valid(kA, 0).store(kA, 0, std::string(64, '\xff')).valid(kA, 0).end();
  expect_clean(w);
}

TEST(RecordOutlivesSlot, UnmappedAndThenCleared) {
  Stepped w;
  w.slot = kA;
  w.begin(detach()).unmapped(kA).point(0).end();
  expect_only(w, kOutlives, "record unmapped under the variable");
  // Only the second page of the record is unmapped.
  Stepped half;
  half.slot = kA;
  half.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  half.begin(detach());
  half.memory[kA].resize(30);
  half.next().point(0).end();
  expect_only(half, kOutlives, "record unmapped under the variable");
}

TEST(RecordOutlivesSlot, GoneSinceTheSampleBefore) {
  Stepped w;
  w.slot = kA;
  w.answered(attach());
  w.memory.erase(kA);
  w.begin(detach()).point(0).end();
  expect_only(w, kOutlives, "record unmapped under the variable");
  Stepped filled;
  filled.slot = kA;
  filled.answered(attach());
  filled.memory[kA] = std::string(64, '\xa5');
  filled.begin(detach()).point(0).end();
  expect_only(filled, kOutlives, "record freed under the variable");
  // It says nothing about another address.
  Stepped other;
  other.slot = kB;
  other.answered(attach());
  other.slot = kA;
  other.memory[kA] = std::string(64, '\xa5');
  other.begin(detach()).point(0).end();
  expect_clean(other);
}

TEST(RecordOutlivesSlot, ClearedAndThenFreed) {
  Stepped w;
  w.slot = kA;
  w.begin(detach()).point(0).freed(kA).unmapped(kA).end();
  expect_clean(w);
  expect(w, kOutlives, Outcome::kPass);
}

TEST(RecordOutlivesSlot, OnlyGlibcFillsWhatIsFreed) {
  for (const auto& [libc, why] :
       {std::pair{"musl 1.2.3", "freed memory is not filled: the C library is musl"},
        std::pair{"static", "the program is statically linked"}}) {
    Stepped w;
    w.image().libc = libc;
    w.slot = kA;
    w.begin(detach()).point(0).end();
    expect(w, kOutlives, Outcome::kUnobservable);
    EXPECT_THAT(w.judged(kOutlives).saw, HasSubstr(why));
    EXPECT_EQ(w.judged(kOutlives).remedy, "an adapter that is linked dynamically to glibc");
    Stepped unmapped;
    unmapped.image().libc = libc;
    unmapped.slot = kA;
    unmapped.begin(detach()).unmapped(kA).point(0).end();
    expect_only(unmapped, kOutlives, "record unmapped under the variable");
  }
  Stepped w;
  w.image().libc = "glibc 2.36";
  w.slot = kA;
  w.begin(detach()).point(0).end();
  expect(w, kOutlives, Outcome::kPass);
}

TEST(RecordOutlivesSlot, ASizeThatGrowsBeyondTheMappingWasNotUnmapped) {
  Stepped w;
  w.slot = kA;
  w.begin(on_main("thread.append")).store(kA, kSizeOffset, "\xff\xff").size(kA, 5).end();
  expect_clean(w);
}

TEST(RecordOutlivesSlot, OneByteAllOverMayBeARecord) {
  Stepped zeros;
  zeros.slot = kA;
  zeros.begin(detach()).store(kA, 0, std::string(28, '\0')).point(0).end();
  EXPECT_NE(zeros.judged(kOutlives).outcome, Outcome::kFail);
  Stepped ones;
  ones.memory[kA].resize(400);
  ones.slot = kA;
  ones.begin(attach()).valid(kA, 0).store(kA, kSpanOffset, std::string(12, '\1')).end();
  EXPECT_NE(ones.judged(kOutlives).outcome, Outcome::kFail);
}

// ---- no-change-while-visible

TEST(NoChangeWhileVisible, IdsAndFlags) {
  Stepped trace;
  trace.slot = kA;
  trace.begin(attach()).store(kA, 0, "x").end();
  expect_only(trace, kNoChange, "ids of a visible record changed");
  Stepped span;
  span.slot = kA;
  span.begin(attach()).store(kA, kSpanOffset, "x").store(kA, kSpanOffset + 1, "y").end();
  expect_only(span, kNoChange, "ids of a visible record changed");
  Stepped late;  // whether to sample may be decided when the record is visible
  late.slot = kA;
  late.begin(attach()).store(kA, kFlagsOffset, "x").end();
  expect_warned(late, kNoChange, "flags stored while visible");
  Stepped w;
  w.slot = kA;
  w.begin(attach()).store(kA, 0, "x").store(kA, kSpanOffset, "y").end();
  const Finding f = w.judged(kNoChange);
  EXPECT_EQ(f.saw, "the trace id changed while the record was visible: after 3 instructions");
  EXPECT_THAT(f.at, HasSubstr("src/ctx.cc:118 in attach"));
  EXPECT_THAT(f.evidence[1], HasSubstr("  before: slot 0x550000011000, trace 61616161"));
  EXPECT_THAT(f.evidence[2], HasSubstr("> after 3 instructions: slot 0x550000011000, trace 78616"));
}

TEST(NoChangeWhileVisible, NoSamplerIsAnotherThread) {
  constexpr const char* kSignature = "another thread changed a visible record";
  Stepped attached;
  attached.begin(attach()).point(kA).store_elsewhere(kA, kFlagsOffset, "x").end();
  expect_only(attached, kNoChange, kSignature);
  expect(attached, kComplete, Outcome::kPass);
  const Finding f = attached.judged(kNoChange);
  EXPECT_THAT(f.saw, HasSubstr("the flags changed after 6 instructions"));
  EXPECT_EQ(f.at, "thread 12");
  EXPECT_THAT(f.evidence, testing::Contains(HasSubstr("by another thread")));
  Stepped back;  // and as they were before
  back.slot = kA;
  back.begin(attach())
      .store_elsewhere(kA, kFlagsOffset, "x")
      .store_elsewhere(kA, kFlagsOffset, "\1")
      .end();
  expect_only(back, kNoChange, kSignature);
  Stepped switched;
  switched.slot = kA;
  const DigitRecord other{.trace = 'x', .span = 'y', .entries = {}};
  switched.begin(attach()).store_elsewhere(kA, 0, other.bytes()).end();
  expect_only(switched, kNoChange, kSignature);
}

TEST(NoChangeWhileVisible, AnotherThreadMayChangeWhatNobodySees) {
  Stepped hidden;
  hidden.slot = kA;
  hidden.begin(attach()).valid(kA, 0).store_elsewhere(kA, 0, "x").valid(kA, 1).end();
  expect_clean(hidden);
  expect(hidden, kNoChange, Outcome::kPass);
  Stepped away;
  away.slot = kA;
  away.begin(attach()).point(0).store_elsewhere(kA, kSpanOffset, "y").point(kA).end();
  expect_clean(away);
  Stepped elsewhere;
  elsewhere.slot = kA;
  elsewhere.begin(attach()).point(kB).store_elsewhere(kA, kFlagsOffset, "z").end();
  expect_clean(elsewhere);
  // tctx.attach.same-thread-writes speaks of these.
  Stepped grown;
  grown.slot = kA;
  grown.memory[kA] = DigitRecord{.entries = {}}.bytes().replace(kEntriesOffset, kGet.size(), kGet);
  grown.begin(on_main("thread.append"))
      .store_elsewhere(kA, kSizeOffset, DigitRecord::size_bytes(5))
      .end();
  expect_clean(grown);
  // Nobody asked for what a step trace of wrap shows.
  Stepped wrapped;
  wrapped.begin(attach()).point(kA).store_elsewhere(kA, kFlagsOffset, "x");
  EXPECT_EQ(wrapped.undriven(kNoChange).outcome, Outcome::kUnobservable);
}

TEST(NoChangeWhileVisible, EntriesWithinTheSize) {
  Stepped w;
  w.slot = kA;
  w.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  w.begin(on_main("thread.append")).store(kA, kEntriesOffset + 2, "P").end();
  expect_only(w, kNoChange, "entries of a visible record changed");
  EXPECT_THAT(w.judged(kNoChange).saw, HasSubstr("entries from byte 2 on changed"));
  EXPECT_THAT(w.judged(kNoChange).evidence[1], HasSubstr("5 bytes of entries 0003474554"));
  // The size grows before the entries are there.
  Stepped early;
  early.slot = kA;
  early.begin(on_main("thread.append")).size(kA, 5).store(kA, kEntriesOffset, kGet).end();
  expect_only(early, kNoChange, "entries of a visible record changed");
}

TEST(NoChangeWhileVisible, AllAtOnceIsTheOneOrTheOther) {
  Stepped w;
  w.slot = kA;
  const DigitRecord other{.trace = 'x', .span = 'y', .entries = {}};
  w.begin(attach()).store(kA, 0, other.bytes()).end();
  expect_clean(w);
  expect(w, kNoChange, Outcome::kPass);
  Stepped more;
  more.slot = kA;
  more.begin(attach()).store(kA, 0, other.bytes()).store(kA, kFlagsOffset, "\3").end();
  expect_only(more, kNoChange, "ids of a visible record changed");
  Stepped twice;
  twice.slot = kA;
  const DigitRecord third{.trace = 'z', .span = 'z', .entries = {}};
  twice.begin(attach()).store(kA, 0, other.bytes()).store(kA, 0, third.bytes()).end();
  expect_only(twice, kNoChange, "ids of a visible record changed");
  // The new context is another span of the same trace.
  Stepped span;
  span.slot = kA;
  span.begin(attach()).store(kA, kSpanOffset, "12345678").end();
  expect_clean(span);
  expect(span, kNoChange, Outcome::kPass);
}

TEST(NoChangeWhileVisible, WhatStaysAsItWasShowsNothing) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).next().end();
  expect(w, kNoChange, Outcome::kUnobservable);
}

// ---- complete-before-visible

TEST(CompleteBeforeVisible, ThePointerAndThenTheIds) {
  Stepped w;
  w.begin(attach()).point(kA).store(kA, 0, "x").store(kA, kSpanOffset, "y").end();
  expect_only(w, kComplete, "visible before it was complete");
  const Finding f = w.judged(kComplete);
  EXPECT_EQ(f.saw,
            "the record was visible after 3 instructions, and the trace id changed after 6 "
            "instructions");
  EXPECT_THAT(f.evidence, SizeIs(5));
  EXPECT_THAT(f.evidence[4], HasSubstr("after 9 instructions: slot 0x550000011000, trace 7861"));
  // The pointer is switched, and the record before was not touched.
  Stepped second;
  second.slot = kA;
  second.begin(attach()).point(kB).store(kB, kSpanOffset, "z").end();
  expect_only(second, kComplete, "visible before it was complete");
  Stepped flags;
  flags.slot = kA;
  flags.begin(attach()).point(kB).store(kB, kFlagsOffset, "\3").end();
  expect_warned(flags, kComplete, "flags stored while visible");
}

TEST(CompleteBeforeVisible, TheValidByteAndThenTheRest) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).valid(kA, 0).store(kA, 0, "x").valid(kA, 1).store(kA, kSpanOffset, "y").end();
  expect_only(w, kComplete, "visible before it was complete");
  Stepped entries;
  entries.memory[kA] = DigitRecord{.entries = kGet, .valid = 0}.bytes();
  entries.slot = kA;
  entries.begin(attach()).valid(kA, 1).store(kA, kEntriesOffset, kPut).end();
  expect_only(entries, kComplete, "visible before it was complete");
  // The entries are those of the context before.
  Stepped stale;
  stale.memory[kA] = DigitRecord{.entries = kGet + kPath, .valid = 0}.bytes();
  stale.slot = kA;
  stale.begin(attach()).valid(kA, 1).size(kA, 5).size(kA, 0).end();
  expect_only(stale, kComplete, "visible before it was complete");
  EXPECT_THAT(stale.judged(kComplete).saw, HasSubstr("entries from byte 5 on changed after 6"));
  // Only as many bytes of the entries are there as the context before had.
  Stepped part;
  part.memory[kA] = DigitRecord{.entries = kGet + kPath, .valid = 0}.bytes();
  part.slot = kA;
  part.begin(attach()).size(kA, 7).valid(kA, 1).next().size(kA, 12).end();
  expect_only(part, kComplete, "visible before it was complete");
  EXPECT_THAT(part.judged(kComplete).saw, HasSubstr("entries from byte 7 on changed after 12"));
  // Entries that are never whole are for other requirements.
  Stepped never;
  never.memory[kA] = DigitRecord{.entries = kGet + "xyz", .valid = 0}.bytes();
  never.slot = kA;
  never.begin(attach()).size(kA, 7).valid(kA, 1).size(kA, 8).end();
  expect_clean(never);
}

TEST(CompleteBeforeVisible, AGapBeginsAnew) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).point(kB).valid(kB, 0).store(kB, 0, "x").valid(kB, 1).point(0);
  w.store(kB, 0, "z").point(kB).end();
  expect_clean(w);
  expect(w, kComplete, Outcome::kPass);
  EXPECT_THAT(w.judged(kComplete).saw, HasSubstr("3 records"));
}

// A copy of the visible record changes as that record could have.
TEST(CompleteBeforeVisible, ACopyMayShrink) {
  Stepped w;
  w.slot = kA;
  w.memory[kA] = w.memory[kB] = DigitRecord{.entries = kGet + kPath}.bytes();
  w.begin(on_main("thread.shrink")).point(kB).size(kB, kGet.size()).end();
  expect(w, kComplete, Outcome::kPass);
  expect_clean(w);
}

// ---- valid-before-visible

TEST(ValidBeforeVisible, AByteThatIsNeverSet) {
  Stepped w;
  w.memory[kA] = DigitRecord{.entries = {}, .valid = 0}.bytes();
  w.begin(attach()).point(kA).store(kA, 0, "x").end();
  expect_only(w, kValid, "switched to a record that is not valid");
  EXPECT_THAT(w.judged(kValid).saw,
              HasSubstr("after 3 instructions the variable leads to a record with byte 24 at 0"));
  Stepped other;
  other.slot = kA;
  other.memory[kB] = DigitRecord{.entries = {}, .valid = 2}.bytes();
  other.begin(attach()).point(kB).end();
  expect_only(other, kValid, "switched to a record that is not valid");
}

TEST(ValidBeforeVisible, WhatNeedNotShowIsLegal) {
  const auto hidden = [](const Json& request, bool ok = true) {
    Stepped w;
    w.memory[kA] = DigitRecord{.entries = {}, .valid = 0}.bytes();
    w.begin(request).point(kA).end(ok);
    return w.judged(kValid).outcome;
  };
  EXPECT_EQ(hidden(attach()), Outcome::kFail);
  EXPECT_EQ(hidden(attach(), false), Outcome::kUnobservable);
  EXPECT_EQ(hidden(on_main("thread.append")), Outcome::kUnobservable);
  Json unsampled = attach();
  unsampled["flags"] = 0;
  EXPECT_EQ(hidden(unsampled), Outcome::kUnobservable);
  Json no_ids = attach();
  no_ids.erase("trace_id");
  no_ids.erase("span_id");
  EXPECT_EQ(hidden(no_ids), Outcome::kUnobservable);
}

TEST(ValidBeforeVisible, OnTheWayItMayBeHidden) {
  Stepped w;
  w.slot = kA;
  w.memory[0x550000033000] = std::string(64, '\0');
  w.begin(attach()).point(0x550000033000).point(kB).end();
  expect(w, kValid, Outcome::kPass);
  // In the end the variable is null, which is legal for a context that need not show.
  Stepped null;
  null.slot = kA;
  null.begin(attach()).point(0).end();
  expect(null, kValid, Outcome::kUnobservable);
}

// A step trace ends some time after the last change, and what comes then is another.
TEST(ValidBeforeVisible, TheByteMayBeSetInAnotherStepTrace) {
  Stepped w;
  w.memory[kA] = DigitRecord{.entries = {}, .valid = 0}.bytes();
  w.begin(attach()).point(kA);
  w.begin(attach()).valid(kA, 1).end();
  EXPECT_NE(w.judged(kValid).outcome, Outcome::kFail);
  expect_clean(w);
}

// ---- keymap.before-use

struct Named : Stepped {
  Named() {
    publishes(100, 1);
    answered({{"op", "process.publish"}});
    memory[kA] = DigitRecord{.entries = kGet + kPath}.bytes();  // indexes 0 and 1
  }
};

TEST(BeforeUse, TheMapAndThenTheRecord) {
  Named w;
  w.begin(attach());
  w.published = 0;
  w.next().publishes(200, 2);
  w.next().point(kA).end();
  expect(w, kBeforeUse, Outcome::kPass);
  EXPECT_THAT(w.judged(kBeforeUse).saw, HasSubstr("1 new index, published before"));
  expect_clean(w);
}

TEST(BeforeUse, TheRecordAndThenTheMap) {
  Named w;
  w.begin(attach()).point(kA);
  w.published = 0;
  w.next().publishes(200, 2);
  w.next().end();
  expect_only(w, kBeforeUse, "index used before its name is published");
  EXPECT_EQ(w.judged(kBeforeUse).saw,
            "after 3 instructions a visible record uses index 1, and the key map that is published "
            "has 1 names; 6 instructions later it had 2");
  // The name is published after the operation.
  Named late;
  late.begin(attach()).point(kA).publishes(200, 2);
  late.end();
  expect_only(late, kBeforeUse, "index used before its name is published");
  EXPECT_THAT(late.judged(kBeforeUse).saw, HasSubstr("a later key map has the name"));
  // The record was shown before there was a key map.
  Stepped none;
  none.publishes(100, 0, false);
  none.answered({{"op", "process.publish"}});
  none.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  none.begin(attach()).point(kA).publishes(200, 1);
  none.next().end();
  expect_only(none, kBeforeUse, "index used before its name is published");
}

TEST(BeforeUse, NothingIsSaidWhereTheMapIsNotKnown) {
  // An index that no map ever has.
  Named never;
  never.begin(attach()).point(kA).end();
  expect(never, kBeforeUse, Outcome::kUnobservable);
  for (const std::optional<std::uint64_t> at :
       {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{0},
        std::optional<std::uint64_t>{150}}) {
    Named w;
    w.begin(attach());
    w.published = at;
    w.point(kA).publishes(200, 2);
    w.next().end();
    expect(w, kBeforeUse, Outcome::kUnobservable);
  }
  // The record has no list of entries.
  Named torn;
  torn.memory[kA] = DigitRecord{.entries = kGet + kPath + "x"}.bytes();
  torn.begin(attach()).point(kA).publishes(200, 2);
  torn.next().end();
  expect(torn, kBeforeUse, Outcome::kUnobservable);
  // The index was in use before the operation.
  Named used;
  used.slot = kA;
  used.begin(attach()).store(kA, kEntriesOffset + 12, "z").publishes(200, 2);
  used.next().end();
  expect(used, kBeforeUse, Outcome::kUnobservable);
  // The record was shown during an update of the key map: which came first is not known.
  Named between;
  between.begin(attach());
  between.published = 0;
  between.point(kA).publishes(200, 2);
  between.next().end();
  expect(between, kBeforeUse, Outcome::kUnobservable);
  // The record is hidden until the name is published.
  Named hidden;
  hidden.memory[kA][kValidOffset] = 0;
  hidden.begin(attach()).point(kA).publishes(200, 2);
  hidden.next().valid(kA, 1).end();
  expect(hidden, kBeforeUse, Outcome::kPass);
}

TEST(BeforeUse, KnownNamesAreNoEvidence) {
  Named w;
  w.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  w.begin(attach()).point(kA).end();
  expect(w, kBeforeUse, Outcome::kUnobservable);
}

// ---- of programs that nobody drives

constexpr const char* kCleared = "tctx.attach.valid-cleared-first";
constexpr const char* kSetLast = "tctx.attach.valid-set-last";
constexpr const char* kUndriven[] = {kComplete, kNoChange, kSound, kCleared, kSetLast};

void expect_undriven(const Stepped& w, const char* requirement, Outcome outcome,
                     const std::string& signature = "") {
  const Finding f = w.undriven(requirement);
  EXPECT_EQ(to_string(f.outcome), to_string(outcome)) << requirement << ": " << f.saw;
  EXPECT_EQ(f.signature, signature) << requirement << ": " << f.saw;
}
void expect_undriven_failures(const Stepped& w, const std::vector<std::string>& requirements) {
  std::vector<std::string> found;
  for (const char* requirement : kUndriven) {
    const Outcome outcome = w.undriven(requirement).outcome;
    if (outcome == Outcome::kFail || outcome == Outcome::kWarn) found.emplace_back(requirement);
  }
  EXPECT_EQ(found, requirements);
}

TEST(UndrivenSteps, NothingWasWatched) {
  Stepped w;
  w.slot = kA;
  w.answered(attach());
  for (const char* requirement : kUndriven) {
    expect_undriven(w, requirement, Outcome::kUnobservable);
    EXPECT_THAT(w.undriven(requirement).remedy, HasSubstr("--watch threads"));
  }
  w.image().slot_steps_unseen = "no thread stored to its variable";
  for (const char* requirement : kUndriven) {
    EXPECT_THAT(w.undriven(requirement).saw, HasSubstr("no thread stored"));
    EXPECT_THAT(w.undriven(requirement).remedy, HasSubstr("ctxconf run"));
  }
}

TEST(UndrivenSteps, APointerThatIsSwitched) {
  Stepped w;
  w.begin(attach()).point(kA).point(kB).end();
  w.begin(attach()).point(0).end();
  for (const char* requirement : {kComplete, kNoChange, kSound})
    expect_undriven(w, requirement, Outcome::kPass);
  for (const char* requirement : {kCleared, kSetLast})
    expect_undriven(w, requirement, Outcome::kNa);
  EXPECT_THAT(w.undriven(kSound).saw, HasSubstr("2 step traces"));
}

TEST(UndrivenSteps, AFixedRecord) {
  Stepped w;
  w.begin(attach()).point(kA).end();
  for (const char* requirement : {kCleared, kSetLast})
    expect_undriven(w, requirement, Outcome::kUnobservable);
  w.begin(attach()).valid(kA, 0).store(kA, 0, "x").store(kA, kSpanOffset, "y").size(kA, 5);
  w.store(kA, kEntriesOffset, kGet).valid(kA, 1).valid(kA, 0).end();
  for (const char* requirement : kUndriven) expect_undriven(w, requirement, Outcome::kPass);
}

TEST(UndrivenSteps, OneOperationAfterTheOtherInOneStepTrace) {
  Stepped shrunk;
  shrunk.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  shrunk.begin(attach()).point(kA).size(kA, 0).store(kA, kEntriesOffset, kPut).size(kA, 5).end();
  expect_undriven(shrunk, kComplete, Outcome::kPass);
  expect(shrunk, kComplete, Outcome::kFail, "visible before it was complete");

  Stepped at_once;  // as a wide copy does it
  at_once.begin(attach()).point(kA).store(kA, 0, std::string(24, 'z')).point(0).end();
  expect_undriven_failures(at_once, {});

  Stepped sampled;
  sampled.begin(attach()).point(kA).store(kA, kFlagsOffset, {'\0'}).point(0).end();
  expect_undriven(sampled, kComplete, Outcome::kWarn, "flags stored while visible");
  Stepped later;
  later.slot = kA;
  later.begin(attach()).store(kA, kFlagsOffset, {'\0'}).point(0).end();
  expect_undriven(later, kNoChange, Outcome::kWarn, "flags stored while visible");
}

// Nobody says how many contexts are attached in one step trace.
TEST(UndrivenSteps, SeveralWholeSwitches) {
  Stepped spans;
  spans.slot = kA;
  spans.begin(attach()).store(kA, kSpanOffset, "12345678").store(kA, kSpanOffset, "87654321").end();
  expect_undriven_failures(spans, {});
  Stepped there_and_back;
  const std::string first = DigitRecord{}.bytes().substr(0, 24);
  const std::string other(24, 'z');
  there_and_back.begin(attach()).point(kA).store(kA, 0, other).store(kA, 0, first).end();
  expect_undriven_failures(there_and_back, {});
}

// Each instruction up to the cut was observed.
TEST(UndrivenSteps, AStepTraceThatWasCut) {
  Stepped grows;
  grows.memory[kA] = DigitRecord{.entries = kGet}.bytes();
  grows.slot = kA;
  grows.begin(attach()).size(kA, 0).size(kA, 5).size(kA, 0).cut();
  for (const char* requirement : {kNoChange, kSound})
    expect_undriven(grows, requirement, Outcome::kPass);
  EXPECT_THAT(grows.undriven(kNoChange).evidence, testing::Contains(HasSubstr("ended early")));

  Stepped shown;
  shown.begin(attach()).point(kA).cut();
  expect_undriven(shown, kComplete, Outcome::kUnobservable);
  shown.slot = 0;
  shown.begin(attach()).point(kA).point(0).cut();
  expect_undriven(shown, kComplete, Outcome::kPass);
}

// The second half may have been stored right after it.
TEST(UndrivenSteps, AStepTraceThatWasCutBetweenTwoHalves) {
  Stepped ids;
  ids.slot = kA;
  ids.begin(attach()).store(kA, kSpanOffset, "12345678").cut();
  expect_undriven_failures(ids, {});
  expect_undriven(ids, kNoChange, Outcome::kUnobservable);
  ids.begin(attach()).store(kA, kSpanOffset, "87654321").store(kA, kSpanOffset, "12345678").cut();
  expect_undriven(ids, kNoChange, Outcome::kPass);

  Stepped address;
  address.memory[(kA & ~0xffffULL) | (kB & 0xffff)] = std::string(64, '\0');
  address.begin(attach()).point((kA & ~0xffffULL) | (kB & 0xffff)).cut();
  expect_undriven_failures(address, {});
  expect_undriven(address, kSound, Outcome::kUnobservable);
  address.slot = kB;
  address.begin(attach()).point((kA & ~0xffffULL) | (kB & 0xffff)).cut();
  expect_undriven(address, kSound, Outcome::kUnobservable);
  address.slot = 0;
  address.begin(attach()).point(kA).cut();
  expect_undriven(address, kSound, Outcome::kPass);
}

TEST(UndrivenSteps, WrongOrders) {
  Stepped w;
  w.slot = kA;
  w.begin(attach()).store(kA, kSpanOffset, "y").valid(kA, 0).store(kA, 0, "x").valid(kA, 1).end();
  expect_undriven_failures(w, {kNoChange, kCleared});
  expect_undriven(w, kCleared, Outcome::kFail, "changed before the valid byte was cleared");

  Stepped early;
  early.slot = kA;
  early.begin(attach())
      .valid(kA, 0)
      .store(kA, 0, "x")
      .valid(kA, 1)
      .store(kA, kSpanOffset, "y")
      .end();
  expect_undriven_failures(early, {kComplete, kSetLast});
  expect_undriven(early, kSetLast, Outcome::kFail, "valid before everything else was final");

  Stepped pointer;
  pointer.begin(attach()).point(kA).store(kA, 0, "x").end();
  expect_undriven_failures(pointer, {kComplete});

  Stepped overwritten;
  overwritten.slot = kA;
  overwritten.begin(attach()).store(kA, 0, "x").end();
  expect_undriven_failures(overwritten, {kNoChange});

  Stepped in_parts;
  in_parts.slot = kA;
  in_parts.begin(attach()).point((kA & ~0xffffULL) | (kB & 0xffffU)).point(kB).end();
  expect_undriven_failures(in_parts, {kSound});
}

}  // namespace
}  // namespace ctxconf::conformance
