#include "conformance/rules/repetitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "conformance/rules/literal_scene.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Optional;

constexpr std::uint64_t kOther = 0x3000;  // where an update puts the payload

json context(const std::string& name) {
  const json attribute = {{"key", "service.name"}, {"value", {{"stringValue", name}}}};
  return {{"resource", {{"attributes", json::array({attribute})}}}, {"attributes", json::array()}};
}

// A scene that asks about a context which changes between two contents.
class RepeatedScene {
 public:
  RepeatedScene() {
    session_.group = "windows";
    scene_.name = "updates-in-place";
  }

  RepeatedScene& answers(const json& reply) {
    Operation& o = operations_.emplace_back();
    o.request = asked_ ? R"({"id":1,"op":"reader.process","pid":20})" : "";
    o.reply = reply.dump();
    o.question.emplace();
    o.question->process = 20;
    o.question->repeated = true;
    o.question->claims = {{.requirement = kRereads,
                           .allowed = {{.result = "absent", .content = {}},
                                       {.result = "retry", .content = {}},
                                       {.result = "accept", .content = has("one")},
                                       {.result = "accept", .content = has("two")}},
                           .never = {},
                           .otherwise = "an answer mixes two versions"}};
    o.question->shown = {{.name = "header", .at = kHeader, .size = 32, .bytes = {}},
                         {.name = "payload", .at = kPayload, .size = 100, .bytes = {}},
                         {.name = "other payload", .at = kOther, .size = 120, .bytes = {}}};
    return *this;
  }
  RepeatedScene& accepts(const std::string& name) {
    return answers({{"ok", true}, {"result", "accept"}, {"context", context(name)}});
  }
  RepeatedScene& says(const char* result) { return answers({{"ok", true}, {"result", result}}); }
  // For the last answer.
  RepeatedScene& copies(std::uint64_t at, std::uint64_t size) {
    ReaderCall& c = operations_.back().question->calls.emplace_back();
    c.name = "process_vm_readv";
    c.target = 20;
    c.ranges = {{.at = at, .size = size}};
    c.result = static_cast<std::int64_t>(size);
    return *this;
  }
  RepeatedScene& looks() { return copies(kHeader, 32).copies(kPayload, 100).copies(kHeader, 32); }
  RepeatedScene& looks_by_itself() {
    asked_ = false;
    return *this;
  }
  ReaderQuestion& last() { return *operations_.back().question; }

  SceneEvidence evidence() {
    SceneEvidence out;
    out.session = &session_;
    out.scene = &scene_;
    for (const Operation& o : operations_) out.operations.push_back(&o);
    return out;
  }
  std::optional<Repetition> repetition() { return repetition_of(evidence()); }
  Finding judge() {
    return reader_rule_of(kRereads)->rule(evidence(), kRereads).value_or(Finding());
  }

 private:
  static std::string has(const std::string& name) {
    return json{{"resource", {{"service.name", {{"stringValue", name}}}}}}.dump();
  }

  Session session_;
  CheckRun scene_;
  std::deque<Operation> operations_;
  bool asked_ = true;
};

RepeatedScene one_of_each() {
  RepeatedScene s;
  s.accepts("one").looks();
  s.accepts("two").looks();
  s.says("retry").looks().looks();
  s.says("absent").copies(kHeader, 32);
  return s;
}

TEST(Repetitions, EachAnswerCountsOnce) {
  RepeatedScene s = one_of_each();
  s.accepts("t wo");
  s.answers({{"ok", false}, {"error", {{"kind", "failed"}, {"message", "no"}}}});
  EXPECT_THAT(
      s.repetition(),
      Optional(Repetition{.first = 1, .second = 1, .none = 3, .other = 1, .looked_again = 1}));
}

TEST(Repetitions, OnlyAnotherCopyOfAPayloadIsAnotherLook) {
  RepeatedScene compares_first;
  compares_first.accepts("one").copies(kHeader, 32).looks();
  EXPECT_THAT(compares_first.repetition().value_or(Repetition()).looked_again, Optional(0U));
  RepeatedScene in_pieces;
  in_pieces.accepts("one").copies(kHeader, 32).copies(kPayload, 64).copies(kPayload + 64, 36);
  EXPECT_THAT(in_pieces.repetition().value_or(Repetition()).looked_again, Optional(0U));
  RepeatedScene elsewhere;
  elsewhere.accepts("one").looks().copies(kOther, 120).copies(kHeader, 32);
  EXPECT_THAT(elsewhere.repetition().value_or(Repetition()).looked_again, Optional(1U));
}

TEST(Repetitions, ATextStatesHitsAndMisses) {
  EXPECT_EQ(
      (Repetition{.first = 17, .second = 15, .none = 7, .other = 1, .looked_again = {}}.text()),
      "40 answers: 17 with one content, 15 with the other, 7 with none, 1 mixed (hits: 8, misses: "
      "32)");
  EXPECT_EQ(
      (Repetition{.first = 0, .second = 1, .none = 0, .other = 0, .looked_again = {}}.text()),
      "1 answer: 0 with one content, 1 with the other, 0 with none, 0 mixed (hits: 0, misses: 1)");
}

TEST(Repetitions, RepeatsOfARunAreAdded) {
  Repetition sum = one_of_each().repetition().value_or(Repetition());
  sum += Repetition{.first = 4, .second = 3, .none = 2, .other = 1, .looked_again = {}};
  EXPECT_EQ(sum, (Repetition{.first = 5, .second = 4, .none = 4, .other = 1, .looked_again = 1}));
}

TEST(Repetitions, OtherQuestionsAreNotCounted) {
  RepeatedScene s;
  s.accepts("one").last().repeated = false;
  EXPECT_FALSE(s.repetition());
}

TEST(Repetitions, WhatAReaderReportsByItselfCountsOnceUntilItChanges) {
  RepeatedScene s;
  s.looks_by_itself().accepts("one").looks().looks();
  s.accepts("one").accepts("two").accepts("two").accepts("one");
  EXPECT_THAT(
      s.repetition(),
      Optional(Repetition{.first = 2, .second = 1, .none = 0, .other = 0, .looked_again = {}}));
}

// Whoever asked first may have heard of no context, before anything changed.
TEST(Repetitions, WhatAReaderReportedBeforeTheTargetChangedIsNoHit) {
  RepeatedScene s;
  s.looks_by_itself().says("absent").last().repeated = false;
  s.says("absent").accepts("one").says("absent");
  EXPECT_THAT(
      s.repetition(),
      Optional(Repetition{.first = 1, .second = 0, .none = 1, .other = 0, .looked_again = {}}));
}

TEST(Repetitions, APassStatesThem) {
  RepeatedScene s = one_of_each();
  const Finding f = s.judge();
  EXPECT_EQ(f.outcome, Outcome::kPass);
  EXPECT_EQ(
      f.saw,
      "4 answers: 1 with one content, 1 with the other, 2 with none, 0 mixed (hits: 2, misses: "
      "2); for 1 a payload was copied more than once");
}

TEST(Repetitions, SoDoesAReaderWhoseReadsAreNotSeen) {
  RepeatedScene s;
  s.accepts("one").says("retry");
  const Finding f = s.judge();
  EXPECT_EQ(f.outcome, Outcome::kUnobservable);
  EXPECT_THAT(f.saw, HasSubstr("no system call that reads the target; by repetition: 2 answers: "
                               "1 with one content, 0 with the other, 1 with none, 0 mixed"));
  EXPECT_THAT(f.signature, testing::Not(HasSubstr("answers")));
}

TEST(Repetitions, AMixtureFailsAndIsCounted) {
  RepeatedScene s;
  s.accepts("one").accepts("t wo");
  const Finding f = s.judge();
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_THAT(f.evidence, Contains(HasSubstr("1 mixed (hits: 1, misses: 1)")));
}

}  // namespace
}  // namespace ctxconf::conformance
