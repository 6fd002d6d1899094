#include "conformance/rules/reader_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "conformance/requirements/catalogue.h"
#include "conformance/rules/literal_scene.h"

namespace ctxconf::conformance {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr std::uint64_t kTimestampAt = kHeader + 16;
constexpr std::uint64_t kPointerAt = kHeader + 24;
constexpr const char* kAnswered = "pctx.reader.skip-and-continue";
constexpr const char* kTimestampFirst = "pctx.reader.timestamp-before-fields";
constexpr const char* kCopies = "pctx.reader.fallible-remote-reads";
constexpr const char* kBounded = "pctx.reader.payload-size-bounded";
constexpr const char* kRetries = "pctx.reader.bounded-retry";

// One question about the context of process 20, which is answered.
class ProcessScene {
 public:
  ProcessScene() {
    session_.group = "headers";
    session_.checks.emplace_back().name = "plain";
    operation_.request = R"({"op":"reader.process","pid":20})";
    operation_.reply = R"({"ok":true,"result":"accept"})";
    operation_.question.emplace();
    question().process = 20;
    question().shown = {{.name = "header", .at = kHeader, .size = 32, .bytes = {}},
                        {.name = "payload", .at = kPayload, .size = 100, .bytes = {}}};
  }

  ReaderQuestion& question() { return *operation_.question; }
  CheckRun& scene() { return session_.checks.front(); }
  void answer(const std::string& result) {
    operation_.reply = nlohmann::json{{"ok", true}, {"result", result}}.dump();
  }
  void request(const std::string& line) { operation_.request = line; }
  void reply(const std::string& line) { operation_.reply = line; }
  // The reader answers by itself.
  void is_watched() { operation_.request = R"({"op":"reader.watch","pid":20})"; }
  void declare(const std::string& member, const nlohmann::json& value) {
    traits_["reader"][member] = value;
  }
  AnswerClaim& claim(const char* requirement, std::string result = "accept") {
    AnswerClaim& c = question().claims.emplace_back();
    c.requirement = requirement;
    c.allowed = {{.result = std::move(result), .content = {}}};
    c.otherwise = "the search stopped";
    return c;
  }
  ProcessScene& copies(std::uint64_t at, std::uint64_t size) {
    ReaderCall& c = question().calls.emplace_back();
    c.name = "process_vm_readv";
    c.target = 20;
    c.ranges = {{.at = at, .size = size}};
    c.result = static_cast<std::int64_t>(size);
    return *this;
  }
  ProcessScene& header() { return copies(kHeader, 32); }
  ProcessScene& payload() { return copies(kPayload, 100); }

  std::optional<Finding> judge(const char* id) { return reader_rule_of(id)->rule(evidence(), id); }
  std::optional<MemoryExcess> memory_excess() {
    return ctxconf::conformance::memory_excess(evidence());
  }
  Outcome outcome(const char* id) {
    const auto f = judge(id);
    EXPECT_TRUE(f.has_value());
    return f ? f->outcome : Outcome::kHarnessError;
  }

 private:
  SceneEvidence evidence() { return only_scene(session_, operation_, traits_); }

  Session session_;
  Operation operation_;
  nlohmann::json traits_ = nlohmann::json::object();
};

TEST(ReaderRules, EachRequirementOfReadersHasOne) {
  std::set<std::string> judged;
  for (const ReaderRule& rule : reader_rules()) {
    EXPECT_TRUE(judged.insert(std::string(rule.id)).second) << rule.id;
  }
  std::set<std::string> wanted;
  for (const Specification& specification : Catalogue::builtin().specifications()) {
    for (const Requirement& r : specification.requirements) {
      if (r.role == Role::kReader && !r.modes.empty()) wanted.insert(r.id);
    }
  }
  EXPECT_EQ(judged, wanted);
  EXPECT_EQ(reader_rule_of("pctx.header.version"), nullptr);
}

TEST(ReaderRules, AnAnswerThatIsClaimedPasses) {
  ProcessScene s;
  s.claim(kAnswered);
  const auto f = s.judge(kAnswered);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kPass);
  EXPECT_EQ(f->level, "puppet");
}

TEST(ReaderRules, AnotherAnswerFailsWithWhatWasShownAndWhatWasAnswered) {
  ProcessScene s;
  s.claim(kAnswered);
  s.answer("absent");
  s.header();
  s.question().shown.front().bytes = {std::byte{'O'}};
  const auto f = s.judge(kAnswered);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "the search stopped: it says \"absent\", expected accept");
  EXPECT_THAT(f->evidence, Contains("scene headers/plain"));
  EXPECT_THAT(f->evidence, Contains("it answered absent"));
  EXPECT_THAT(f->evidence, Contains(HasSubstr("process_vm_readv of 20 0x1000+32 (header) = 32")));
  ASSERT_EQ(f->hexdumps.size(), 1U);
  EXPECT_EQ(f->hexdumps.front().address, kHeader);
}

TEST(ReaderRules, AnAnswerWithoutAClaimSaysNothing) {
  ProcessScene s;
  s.claim(kRetries);
  EXPECT_FALSE(s.judge(kAnswered));
}

// As in a recording that was changed by hand.
TEST(ReaderRules, TextsThatAreNumbersSayNothing) {
  ProcessScene s;
  s.claim(kAnswered);
  s.header().payload().header();
  s.request(R"({"op":1,"pid":20})");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kPass);
  EXPECT_FALSE(s.judge(kRereads));
  s.reply(R"({"ok":true,"result":1})");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kFail);
  EXPECT_FALSE(s.judge(kTimestampFirst));
}

TEST(ReaderRules, AClaimMayBeMentionedOnly) {
  ProcessScene s;
  s.claim(kAnswered).info = true;
  s.answer("reject");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kInfo);
}

TEST(ReaderRules, TheWorstOfSeveralAnswersCounts) {
  ProcessScene s;
  s.claim(kAnswered);
  s.claim(kAnswered, "retry");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kFail);
}

TEST(ReaderRules, AMomentThatDidNotComeIsNoFailure) {
  ProcessScene s;
  s.claim(kAnswered, "retry");
  s.question().missed = {"after the first read of the payload"};
  const auto f = s.judge(kAnswered);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kUnobservable);
  EXPECT_EQ(f->saw, "the moment \"after the first read of the payload\" was not reached");
}

TEST(ReaderRules, ASceneThatCouldNotBeShownIsNoFailure) {
  ProcessScene s;
  s.scene().requirements = {kAnswered};
  s.scene().unshown = "the kernel gives no such name";
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kUnobservable);
  EXPECT_FALSE(s.judge(kRetries));
}

TEST(ReaderRules, APayloadAboveTheDeclaredLimitMayBeRefused) {
  ProcessScene s;
  s.claim(kAnswered);
  s.answer("reject");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kFail);
  s.declare("payload_bytes", 99U);
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kNa);
  // It does not excuse another answer, or a smaller payload.
  s.declare("payload_bytes", 100U);
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kFail);
  s.declare("payload_bytes", 99U);
  s.answer("absent");
  EXPECT_EQ(s.outcome(kAnswered), Outcome::kFail);
}

TEST(ReaderRules, OneReadOfTheHeaderThePayloadAndTheHeaderAgain) {
  ProcessScene s;
  s.header().payload().header();
  EXPECT_EQ(s.outcome(kTimestampFirst), Outcome::kPass);
  EXPECT_EQ(s.outcome(kRereads), Outcome::kPass);
  EXPECT_EQ(s.outcome(kCopies), Outcome::kPass);
  EXPECT_EQ(s.judge(kTimestampFirst)->level, "syscalls");
}

TEST(ReaderRules, FieldsThatAreReadBeforeTheTimestamp) {
  ProcessScene s;
  s.copies(kPointerAt, 8).copies(kTimestampAt, 8).payload().copies(kTimestampAt, 8);
  const auto f = s.judge(kTimestampFirst);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "pointer and size were read before the timestamp");
  EXPECT_EQ(s.outcome(kRereads), Outcome::kPass);
}

TEST(ReaderRules, FieldsThatAreReadAfterThePayload) {
  ProcessScene s;
  s.copies(kTimestampAt, 8).payload().copies(kPointerAt, 8);
  EXPECT_EQ(s.outcome(kTimestampFirst), Outcome::kFail);
}

TEST(ReaderRules, NoSecondLookAtTheTimestamp) {
  ProcessScene s;
  s.header().payload();
  EXPECT_EQ(s.outcome(kTimestampFirst), Outcome::kPass);
  const auto f = s.judge(kRereads);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "the timestamp was not read again after the payload");
}

TEST(ReaderRules, ALookAtOtherFieldsIsNoSecondLook) {
  ProcessScene s;
  s.header().payload().copies(kPointerAt, 8);
  EXPECT_EQ(s.outcome(kRereads), Outcome::kFail);
}

TEST(ReaderRules, AReaderWithoutSystemCallsIsNotSeen) {
  ProcessScene s;
  EXPECT_EQ(s.outcome(kTimestampFirst), Outcome::kUnobservable);
  EXPECT_EQ(s.outcome(kRereads), Outcome::kUnobservable);
  EXPECT_EQ(s.outcome(kCopies), Outcome::kUnobservable);
}

TEST(ReaderRules, RightAnswersOfAReaderWithoutSystemCallsDoNotShowHowItReads) {
  ProcessScene s;
  s.claim(kRereads, "retry");
  s.answer("retry");
  EXPECT_EQ(s.outcome(kRereads), Outcome::kUnobservable);
  s.answer("accept");
  EXPECT_EQ(s.outcome(kRereads), Outcome::kFail);
}

TEST(ReaderRules, WhatIsAnsweredWithoutAContextSaysNothingAboutReads) {
  ProcessScene s;
  s.header();
  s.answer("retry");
  EXPECT_FALSE(s.judge(kTimestampFirst));
  EXPECT_FALSE(s.judge(kCopies));
}

TEST(ReaderRules, TheTargetMovedDuringTheQuestion) {
  ProcessScene s;
  s.header().payload();
  s.question().calls.back().held = "after the first read of the payload";
  EXPECT_FALSE(s.judge(kRereads));
}

TEST(ReaderRules, AReaderThatPollsIsSeenFromTheMiddleOfALook) {
  ProcessScene s;
  s.is_watched();
  s.payload().header().header().payload();
  EXPECT_EQ(s.outcome(kTimestampFirst), Outcome::kPass);
  EXPECT_FALSE(s.judge(kRereads)) << "its last look goes on";
  ProcessScene late;
  late.is_watched();
  late.copies(kTimestampAt, 8).payload().copies(kPointerAt, 8);
  EXPECT_EQ(late.outcome(kTimestampFirst), Outcome::kFail);
}

TEST(ReaderRules, MappedMemoryIsNoCopy) {
  ProcessScene s;
  s.header().payload().header();
  ReaderCall& map = s.question().calls.emplace_back();
  map.name = "mmap";
  map.detail = "/proc/20/map_files/1000-2000";
  const auto f = s.judge(kCopies);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "it maps /proc/20/map_files/1000-2000");
}

TEST(ReaderRules, MemoryThatGrowsWithTheSizeField) {
  ProcessScene s;
  s.claim(kBounded);
  s.question().before_bytes = std::uint64_t{10} << 20U;
  s.question().peak_bytes = std::uint64_t{74} << 20U;
  EXPECT_EQ(s.outcome(kBounded), Outcome::kPass);
  ++s.question().peak_bytes;
  EXPECT_EQ(s.outcome(kBounded), Outcome::kFail);
  s.declare("memory_bytes", std::uint64_t{100} << 20U);
  EXPECT_EQ(s.outcome(kBounded), Outcome::kPass);
}

TEST(ReaderRules, AClaimMayBeAWarning) {
  ProcessScene s;
  s.claim(kAnswered, "absent").warning = true;
  const auto f = s.judge(kAnswered);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kWarn);
}

TEST(ReaderRules, MemoryOverTheLimitInAnyScene) {
  ProcessScene s;
  s.claim(kRetries);
  s.question().before_bytes = std::uint64_t{10} << 20U;
  s.question().peak_bytes = std::uint64_t{74} << 20U;
  EXPECT_FALSE(s.memory_excess());
  ++s.question().peak_bytes;
  const auto excess = s.memory_excess();
  ASSERT_TRUE(excess);
  EXPECT_EQ(excess->used_bytes, (std::uint64_t{64} << 20U) + 1);
  EXPECT_EQ(excess->limit_bytes, std::uint64_t{64} << 20U);
  s.declare("memory_bytes", std::uint64_t{100} << 20U);
  EXPECT_FALSE(s.memory_excess());
}

TEST(ReaderRules, MemoryThatARequirementIsAboutIsNotReportedTwice) {
  ProcessScene s;
  s.claim(kBounded);
  s.question().peak_bytes = std::uint64_t{1} << 30U;
  EXPECT_EQ(s.outcome(kBounded), Outcome::kFail);
  EXPECT_FALSE(s.memory_excess());
}

TEST(ReaderRules, AProcessorThatIsKeptBusy) {
  ProcessScene s;
  s.claim(kRetries);
  s.question().processor_ns = 500'000'000;
  EXPECT_EQ(s.outcome(kRetries), Outcome::kPass);
  ++s.question().processor_ns;
  const auto f = s.judge(kRetries);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->outcome, Outcome::kFail);
  EXPECT_EQ(f->saw, "it used the processor for 500 ms");
}

TEST(ReaderRules, TheOtherByteOrderIsShownNowhere) {
  ProcessScene s;
  EXPECT_EQ(s.outcome("pctx.reader.byte-order"), Outcome::kUnobservable);
  EXPECT_EQ(s.outcome("tctx.reader.byte-order"), Outcome::kUnobservable);
}

TEST(ReaderRules, ScenesOfASession) {
  Session session;
  session.hello = R"({"caps":{"reader":{"flags":false}}})";
  session.checks.resize(2);
  session.operations.resize(3);
  session.operations[0].check = 1;
  session.operations[0].question.emplace();
  session.operations[1].check = 1;  // a reader.forget
  session.operations[2].check = 0;
  session.operations[2].question.emplace();
  const auto scenes = scenes_of(session);
  ASSERT_EQ(scenes.size(), 2U);
  ASSERT_EQ(scenes[0].operations.size(), 1U);
  EXPECT_EQ(scenes[0].operations.front(), &session.operations[2]);
  ASSERT_EQ(scenes[1].operations.size(), 1U);
  EXPECT_EQ(scenes[1].operations.front(), &session.operations[0]);
  EXPECT_FALSE(scenes[1].traits.shows_flags());
  session.hello = "not JSON";
  EXPECT_TRUE(scenes_of(session).front().traits.shows_flags());
}

}  // namespace
}  // namespace ctxconf::conformance
