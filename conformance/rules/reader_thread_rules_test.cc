#include "conformance/rules/reader_thread_rules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/rules/literal_scene.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kSlot = 0x1000;
constexpr std::uint64_t kRecord = 0x2000;
constexpr std::int32_t kThread = 21;
constexpr const char* kStopped = "tctx.reader.only-while-stopped";
constexpr const char* kOneStop = "tctx.reader.one-stop-per-sample";
constexpr const char* kNeeded = "tctx.reader.attrs-read-when-needed";
constexpr const char* kLargeIds = "tctx.reader.large-record-ids";

// One question about thread 21 of process 20, which has a record.
class ThreadScene {
 public:
  ThreadScene() {
    session_.group = "threads";
    session_.checks.emplace_back().name = "running-thread";
    session_.checks.back().requirements = {kStopped};
    operation_.request = R"({"op":"reader.thread"})";
    operation_.reply = R"({"ok":true,"result":"accept"})";
    operation_.question.emplace();
    question().process = 20;
    question().thread = kThread;
    question().counted = true;
    question().shown = {{.name = "slot", .at = kSlot, .size = 8, .bytes = {}},
                        {.name = "record", .at = kRecord, .size = 40, .bytes = {}}};
  }

  ReaderQuestion& question() { return *operation_.question; }
  void answer(const std::string& reply) { operation_.reply = reply; }
  void declare(const std::string& member, const nlohmann::json& value) {
    traits_["reader"][member] = value;
  }
  // The fixed part of a record of 12 bytes of attributes.
  void has_record(std::uint8_t valid, std::uint8_t size) {
    auto& bytes = question().shown.back().bytes;
    bytes.assign(28, std::byte{0x11});
    bytes[24] = std::byte{valid};
    bytes[26] = std::byte{size};
    bytes[27] = std::byte{0};
  }

  // The answer mixes what the scene allows.
  void mixes(const char* requirement) {
    question().claims = {{.requirement = requirement,
                          .allowed = {{.result = "absent", .content = {}},
                                      {.result = "accept", .content = R"({"span_id":"01"})"},
                                      {.result = "accept", .content = R"({"span_id":"02"})"}},
                          .never = {},
                          .otherwise = "an answer mixes two contents of a record"}};
    answers_with_span("0102");
  }
  void answers_with_span(const std::string& id) {
    operation_.reply =
        nlohmann::json{{"ok", true}, {"result", "accept"}, {"record", {{"span_id", id}}}}.dump();
  }

  ReaderCall& call(std::string name, std::string detail = {}) {
    ReaderCall& c = question().calls.emplace_back();
    c.name = std::move(name);
    c.detail = std::move(detail);
    c.result = 0;
    c.state = "t";
    c.ran_before = c.ran_after = count_;
    return c;
  }
  ThreadScene& copies(std::uint64_t at, std::uint64_t size) {
    ReaderCall& c = call("process_vm_readv");
    c.target = 20;
    c.ranges = {{at, size}};
    c.result = static_cast<std::int64_t>(size);
    return *this;
  }
  ThreadScene& slot() { return copies(kSlot, 8); }
  ThreadScene& fixed() { return copies(kRecord, 28); }
  ThreadScene& attributes() { return copies(kRecord + 28, 12); }
  ThreadScene& traces(const std::string& request) {
    call("ptrace", request).target = kThread;
    return *this;
  }
  ThreadScene& thread_runs() {
    count_ += 100;
    return *this;
  }
  ThreadScene& last_has(const std::string& state, std::uint64_t counted = 0) {
    question().calls.back().state = state;
    question().calls.back().ran_after += counted;
    count_ += counted;
    return *this;
  }

  std::optional<Finding> judge(const char* id) {
    return reader_rule_of(id)->rule(only_scene(session_, operation_, traits_), id);
  }
  Outcome outcome(const char* id) {
    const auto f = judge(id);
    EXPECT_TRUE(f.has_value());
    return f ? f->outcome : Outcome::kHarnessError;
  }

 private:
  Session session_;
  Operation operation_;
  nlohmann::json traits_ = nlohmann::json::object();
  std::uint64_t count_ = 5;
};

ThreadScene correct() {
  ThreadScene s;
  s.traces("PTRACE_SEIZE").traces("PTRACE_INTERRUPT");
  s.slot().fixed().attributes();
  s.traces("PTRACE_DETACH").thread_runs();
  return s;
}

TEST(ReaderThreadRules, ReadsOfAStoppedThreadPass) {
  ThreadScene s = correct();
  EXPECT_EQ(s.outcome(kStopped), Outcome::kPass);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kPass);
  EXPECT_EQ(s.judge(kStopped)->level, "syscalls");
}

TEST(ReaderThreadRules, AReadOfARunningThreadFails) {
  ThreadScene s;
  s.slot().fixed().last_has("R");
  const auto f = s.judge(kStopped);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw,
            "it read while the thread was running: process_vm_readv of 20 0x2000+28 (record), "
            "thread state R = 28");
  // The thread had no processor, and would have gone on at any moment.
  EXPECT_EQ(f->signature, "the thread is read while it runs");
}

TEST(ReaderThreadRules, AThreadThatCountsDuringTheReadIsRunningWhateverItsState) {
  ThreadScene s;
  s.slot().last_has("S", 3).fixed();
  EXPECT_EQ(s.outcome(kStopped), Outcome::kFail);
}

TEST(ReaderThreadRules, AFrozenThreadIsStopped) {
  ThreadScene s;
  s.slot().last_has("D").fixed().last_has("D");
  EXPECT_EQ(s.outcome(kStopped), Outcome::kPass);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kPass);
}

TEST(ReaderThreadRules, ReadsOfOtherMemoryMayComeWhileItRuns) {
  ThreadScene s = correct();
  s.copies(0x9000, 32).last_has("R", 50);
  EXPECT_EQ(s.outcome(kStopped), Outcome::kPass);
}

TEST(ReaderThreadRules, AReadThatFailedCopiedNothing) {
  ThreadScene s = correct();
  s.slot().last_has("R");
  s.question().calls.back().result = -14;
  EXPECT_EQ(s.outcome(kStopped), Outcome::kPass);
}

TEST(ReaderThreadRules, AReaderThatSaysSoIsOnlyMentioned) {
  ThreadScene s;
  s.declare("unsynchronised", true);
  s.slot().last_has("R");
  EXPECT_EQ(s.outcome(kStopped), Outcome::kInfo);
}

TEST(ReaderThreadRules, ReadsWithoutSystemCallsAreNotObserved) {
  ThreadScene s;
  for (const char* id : {kStopped, kOneStop}) {
    const auto f = s.judge(id);
    ASSERT_TRUE(f);
    EXPECT_EQ(f->outcome, Outcome::kUnobservable);
    EXPECT_FALSE(f->saw.empty());
    EXPECT_FALSE(f->remedy.empty());
  }
  s.answer(R"({"ok":true,"result":"absent"})");
  EXPECT_FALSE(s.judge(kOneStop));
}

TEST(ReaderThreadRules, CallsThatWereNotKeptMayBeTheWrongOnes) {
  ThreadScene s = correct();
  s.question().calls_dropped = 1;
  EXPECT_EQ(s.outcome(kStopped), Outcome::kUnobservable);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kUnobservable);
}

TEST(ReaderThreadRules, AThreadThatDoesNotCountSaysNothing) {
  ThreadScene s;
  s.question().counted = false;
  s.slot().last_has("R");
  EXPECT_FALSE(s.judge(kOneStop));
}

TEST(ReaderThreadRules, AttributesInALaterStopFail) {
  ThreadScene s;
  s.slot().fixed().thread_runs().attributes();
  const auto f = s.judge(kOneStop);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw,
            "the thread ran between the read of ids and size and that of the attributes: "
            "slot at 5, record at 5, attributes at 105");
}

TEST(ReaderThreadRules, AContinuationCountsEvenIfTheThreadHadNoProcessor) {
  ThreadScene s;
  s.slot().fixed().traces("PTRACE_CONT").attributes();
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kFail);
}

TEST(ReaderThreadRules, TheContinuationOfAnotherThreadDoesNotCount) {
  ThreadScene s;
  s.slot().fixed();
  s.call("ptrace", "PTRACE_DETACH").target = kThread + 1;
  s.attributes();
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kPass);
}

TEST(ReaderThreadRules, ARecordInALaterStopThanTheSlotFails) {
  ThreadScene s;
  s.slot().thread_runs().fixed();
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kFail);
}

TEST(ReaderThreadRules, AReaderMayStartOver) {
  ThreadScene with_slot;
  with_slot.slot().fixed().thread_runs().slot().fixed().attributes();
  EXPECT_EQ(with_slot.outcome(kOneStop), Outcome::kPass);
  ThreadScene with_fixed_part;
  with_fixed_part.slot().fixed().thread_runs().fixed().attributes();
  EXPECT_EQ(with_fixed_part.outcome(kOneStop), Outcome::kPass);
}

TEST(ReaderThreadRules, OneReadMayCoverEverything) {
  ThreadScene s;
  s.slot().copies(kRecord, 640);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kPass);
}

TEST(ReaderThreadRules, WhetherReadsOfARunningThreadBelongTogetherIsNotAsked) {
  ThreadScene s;
  s.slot().last_has("R").thread_runs().fixed().last_has("R");
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kUnobservable);
}

TEST(ReaderThreadRules, AnAnswerThatMixesTwoSamplesFails) {
  ThreadScene seen = correct();
  seen.mixes(kOneStop);
  EXPECT_EQ(seen.outcome(kOneStop), Outcome::kFail);
  seen.answers_with_span("01");
  EXPECT_EQ(seen.outcome(kOneStop), Outcome::kPass);
  ThreadScene unseen;
  unseen.mixes(kOneStop);
  const auto f = unseen.judge(kOneStop);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->signature, "an answer mixes two contents of a record");
}

TEST(ReaderThreadRules, ASampleOfSeveralStopsIsOnlyMentionedOfAReaderThatSaysSo) {
  ThreadScene unseen;
  unseen.mixes(kOneStop);
  unseen.declare("unsynchronised", true);
  EXPECT_EQ(unseen.outcome(kOneStop), Outcome::kInfo);
  unseen.answers_with_span("01");
  EXPECT_EQ(unseen.outcome(kOneStop), Outcome::kUnobservable);
  ThreadScene seen;
  seen.slot().fixed().thread_runs().attributes();
  seen.declare("unsynchronised", true);
  EXPECT_EQ(seen.outcome(kOneStop), Outcome::kInfo);
}

TEST(ReaderThreadRules, AnswersAloneDoNotShowThatASampleIsOfOneStop) {
  ThreadScene s;
  s.mixes(kOneStop);
  s.answers_with_span("02");
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kUnobservable);
  s.answer(R"({"ok":true,"result":"absent"})");
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kUnobservable);
}

TEST(ReaderThreadRules, AMixtureOfARunningThreadIsAMistakeOfAnotherKind) {
  ThreadScene s;
  s.slot().last_has("R").fixed().last_has("R").attributes().last_has("R");
  s.mixes(kOneStop);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kUnobservable);
  EXPECT_EQ(s.outcome(kStopped), Outcome::kFail);
}

TEST(ReaderThreadRules, AMixtureOfAThreadThatSleptFails) {
  ThreadScene s;
  s.question().counted = false;
  s.slot().last_has("S").fixed().last_has("S").attributes().last_has("S");
  s.mixes(kStopped);
  EXPECT_EQ(s.outcome(kStopped), Outcome::kFail);
  s.declare("unsynchronised", true);
  EXPECT_EQ(s.outcome(kStopped), Outcome::kInfo);
  s.answers_with_span("01");
  EXPECT_EQ(s.outcome(kStopped), Outcome::kPass);
}

TEST(ReaderThreadRules, HitsAndMissesOfARecordThatIsRewrittenAreStated) {
  ThreadScene s = correct();
  s.mixes(kOneStop);
  s.answers_with_span("02");
  s.question().repeated = true;
  EXPECT_EQ(
      s.judge(kOneStop)->saw,
      "1 answer: 0 with one content, 1 with the other, 0 with none, 0 mixed (hits: 0, misses: "
      "1)");
}

TEST(ReaderThreadRules, WordsAreReadOneByOne) {
  ThreadScene s;
  s.slot();
  for (std::uint64_t at = kRecord; at < kRecord + 40; at += 8) {
    ReaderCall& c = s.call("ptrace", "PTRACE_PEEKDATA");
    c.target = kThread;
    c.ranges = {{at, 8}};
  }
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kPass);
  s.traces("PTRACE_DETACH");
  s.question().calls.push_back(s.question().calls[5]);
  EXPECT_EQ(s.outcome(kOneStop), Outcome::kFail);
}

ThreadScene about_need(std::uint8_t valid, std::uint8_t size) {
  ThreadScene s;
  s.question().counted = false;
  s.question().claims = {
      {.requirement = kNeeded,
       .allowed = {{.result = "accept", .content = {}}, {.result = "absent", .content = {}}},
       .never = {},
       .otherwise = "it fails"}};
  s.has_record(valid, size);
  s.slot().fixed();
  return s;
}

TEST(ReaderThreadRules, AttributesOfAValidRecordAreNeeded) {
  ThreadScene s = about_need(1, 12);
  s.attributes();
  EXPECT_EQ(s.outcome(kNeeded), Outcome::kPass);
}

TEST(ReaderThreadRules, AttributesOfARecordThatIsNotValidAreNotNeeded) {
  ThreadScene s = about_need(0, 12);
  EXPECT_EQ(s.outcome(kNeeded), Outcome::kPass);
  s.attributes();
  // The memory need not be there.
  s.question().calls.back().result = -14;
  EXPECT_EQ(s.outcome(kNeeded), Outcome::kFail);
}

TEST(ReaderThreadRules, MoreThanTheSizeIsNotNeeded) {
  ThreadScene s = about_need(1, 12);
  s.copies(kRecord + 28, 65535);
  EXPECT_EQ(s.outcome(kNeeded), Outcome::kFail);
  ThreadScene in_pieces = about_need(1, 12);
  for (std::uint64_t done = 0; done < 4096; done += 64) in_pieces.copies(kRecord + 28 + done, 64);
  EXPECT_EQ(in_pieces.outcome(kNeeded), Outcome::kFail);
}

TEST(ReaderThreadRules, OneLargerReadAndTheRecommendedSizeAreNoFault) {
  ThreadScene larger = about_need(0, 255);
  larger.copies(kRecord, 65563);
  EXPECT_EQ(larger.outcome(kNeeded), Outcome::kPass);
  ThreadScene usual = about_need(1, 12);
  usual.copies(kRecord + 28, 612);
  EXPECT_EQ(usual.outcome(kNeeded), Outcome::kPass);
  // A read of something else does not count.
  usual.copies(kRecord + 0x1000, 32);
  EXPECT_EQ(usual.outcome(kNeeded), Outcome::kPass);
}

TEST(ReaderThreadRules, AWrongAnswerFailsWhateverWasRead) {
  ThreadScene s = about_need(1, 12);
  s.answer(R"({"ok":false,"error":{"kind":"failed","message":"EFAULT"}})");
  const auto f = s.judge(kNeeded);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "it fails: it refused to answer: \"EFAULT\"");
}

TEST(ReaderThreadRules, AttributesOfALargeRecordAreOnlyMentioned) {
  ThreadScene s;
  s.question().claims = {
      {.requirement = kLargeIds,
       .allowed = {{.result = "accept", .content = R"({"names_has":{"http_method":"GET"}})"}},
       .never = {},
       .otherwise = "an attribute is not reported",
       .info = true}};
  EXPECT_EQ(s.outcome(kLargeIds), Outcome::kInfo);
  s.declare("attribute_bytes", 612U);
  EXPECT_EQ(s.outcome(kLargeIds), Outcome::kPass);
}

}  // namespace
}  // namespace ctxconf::conformance
