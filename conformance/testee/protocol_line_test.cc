#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testee/protocol.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> lines_of(LineBuffer& buffer) {
  std::vector<std::string> out;
  while (auto line = buffer.next()) out.push_back(*line);
  return out;
}

TEST(LineBufferTest, LinesMayComeInAnyPieces) {
  LineBuffer buffer;
  for (const char c : std::string("ab\n\ncd\nrest")) buffer.add({&c, 1});
  EXPECT_THAT(lines_of(buffer), ElementsAre("ab", "", "cd"));
  EXPECT_EQ(buffer.pending(), 4U);
  buffer.add("\n");
  EXPECT_THAT(lines_of(buffer), ElementsAre("rest"));
  EXPECT_EQ(buffer.pending(), 0U);
}

TEST(LineBufferTest, TheLongestLineIsKeptAndALongerOneIsNot) {
  LineBuffer buffer;
  const std::string longest(kLongestLine, 'x');
  buffer.add(longest + "\n" + longest + "y\nnext\n");
  EXPECT_EQ(buffer.next(), longest);
  EXPECT_EQ(buffer.next(), "");
  EXPECT_EQ(buffer.next(), "next");
  EXPECT_EQ(buffer.next(), std::nullopt);
}

TEST(LineBufferTest, NothingOfALongLineIsKeptWhileItGrows) {
  LineBuffer buffer;
  const std::string part(kLongestLine / 2 + 1, 'x');
  buffer.add(part);
  for (int i = 0; i < 8; ++i) {
    buffer.add(part);
    EXPECT_EQ(buffer.pending(), 0U);
  }
  buffer.add("end\nnext\n");
  EXPECT_THAT(lines_of(buffer), ElementsAre("", "next"));
}

TEST(LineBufferTest, BytesAreLeftAsTheyAre) {
  LineBuffer buffer;
  const std::string bytes("a\0\xff\r", 4);
  buffer.add(bytes + "\n");
  EXPECT_THAT(lines_of(buffer), ElementsAre(bytes));
}

LineKind kind_of(const std::string& line) {
  json out;
  return classify_line(line, out);
}

TEST(ClassifyLineTest, RepliesAndEventsAreTold) {
  json out;
  EXPECT_EQ(classify_line(R"({"id":3,"ok":true,"x":1})", out), LineKind::kReply);
  EXPECT_EQ(out["x"], 1);
  EXPECT_EQ(kind_of(R"({"id":3,"ok":false})"), LineKind::kReply);
  EXPECT_EQ(kind_of(R"({"ev":"armed","id":3,"tid":4})"), LineKind::kEvent);
  EXPECT_EQ(kind_of("{\"id\":3,\"ok\":true}\r"), LineKind::kReply);
}

TEST(ClassifyLineTest, EverythingElseIsNoise) {
  for (const std::string line :
       {"", " ", "text", "1", "null", "[]", "{}", R"({"id":3})", R"({"ok":true})",
        R"({"id":"3","ok":true})", R"({"id":3.5,"ok":true})", R"({"id":null,"ok":true})",
        R"(x{"id":3,"ok":true})", R"({"id":3,"ok":true}x)", R"({"id":3,"ok":true)",
        R"({"id":3,"ok":NaN})", "{\"id\":3,\"ok\":true,\"x\":\"\xff\"}"}) {
    EXPECT_EQ(kind_of(line), LineKind::kNoise) << line;
  }
  EXPECT_EQ(kind_of(std::string("{\"id\":3,\"ok\":true,\"x\":\"\0\"}", 25)), LineKind::kNoise);
}

std::string reply_with(std::size_t depth, const std::string& inner = {}) {
  return R"({"id":3,"ok":true,"x":)" + std::string(depth, '[') + inner + std::string(depth, ']') +
         "}";
}

TEST(ClassifyLineTest, DepthHasALimit) {
  EXPECT_EQ(kind_of(reply_with(kDeepestLine - 1)), LineKind::kReply);
  EXPECT_EQ(kind_of("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}"),
            LineKind::kNoise);
  EXPECT_EQ(kind_of(std::string(kLongestLine, '[')), LineKind::kNoise);
}

TEST(ClassifyLineTest, WhatNestsTooDeeplyBreaksTheProtocol) {
  for (const std::size_t depth : {kDeepestLine, kLongestLine / 4}) {
    json out;
    EXPECT_EQ(classify_line(reply_with(depth, R"("]\"]")"), out), LineKind::kReply);
    EXPECT_EQ(out["id"], 3);
    EXPECT_TRUE(out["x"].is_null());
    EXPECT_NE(problem_of(out, Definition::kReply), std::nullopt);
  }
  json out;
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(classify_line(R"({"ev":"saw","pid":7,"result":"accept","context":)" + deep + "}", out),
            LineKind::kEvent);
  EXPECT_NE(problem_of(out, Definition::kEvent), std::nullopt);
}

TEST(ClassifyLineTest, BracketsInStringsAreNoDepth) {
  EXPECT_EQ(kind_of(reply_with(1, "\"" + std::string(1000, '[') + "\"")), LineKind::kReply);
  EXPECT_EQ(kind_of(reply_with(1, "\"\\\"" + std::string(1000, '{') + "\"")), LineKind::kReply);
}

TEST(ProblemOfTest, RightLinesHaveNone) {
  EXPECT_EQ(problem_of({{"id", 1}, {"op", "bye"}}, Definition::kRequest), std::nullopt);
  EXPECT_EQ(problem_of({{"id", 1}, {"ok", true}, {"unknown", {1, 2}}}, Definition::kReply),
            std::nullopt);
  EXPECT_EQ(problem_of({{"id", 1}, {"ok", false}, {"error", {{"kind", "failed"}, {"message", ""}}}},
                       Definition::kReply),
            std::nullopt);
}

TEST(ProblemOfTest, NamesTheMember) {
  const json thread = {{"id", 1}, {"ok", true}, {"thread", "t"}, {"tid", "x"}};
  EXPECT_THAT(problem_of(thread, definition_of_reply("thread.spawn")).value_or(""),
              HasSubstr("tid"));
  const json reply = {{"id", 1}, {"ok", "yes"}};
  EXPECT_THAT(problem_of(reply, Definition::kReply).value_or(""), HasSubstr("ok"));
  EXPECT_THAT(problem_of({{"id", 1}, {"ok", false}}, Definition::kReply).value_or(""),
              testing::Not(IsEmpty()));
  EXPECT_THAT(
      problem_of({{"id", 1}, {"ok", true}}, definition_of_reply("reader.record")).value_or(""),
      HasSubstr("result"));
  EXPECT_THAT(problem_of({{"id", 1}, {"op", "no.such"}}, Definition::kRequest).value_or(""),
              HasSubstr("op"));
}

TEST(IsDeclaredTest, FormatsOfAReader) {
  constexpr std::string_view kTls = "reader.formats:tls_v1";
  constexpr std::string_view kDraft = "reader.formats:H3";
  constexpr std::string_view kNoDraft = "not reader.formats:H3";
  // Without a list: what the pinned revisions have.
  for (const json& silent : {json::object(), json{{"reader", json::object()}}}) {
    EXPECT_TRUE(is_declared(silent, kTls));
    EXPECT_FALSE(is_declared(silent, kDraft));
    EXPECT_TRUE(is_declared(silent, kNoDraft));
  }
  const json one = {{"reader", {{"formats", json::array({"tlsdesc_v1_dev"})}}}};
  EXPECT_TRUE(is_declared(one, "reader.formats:tlsdesc_v1_dev"));
  EXPECT_FALSE(is_declared(one, kTls));
  const json draft = {{"reader", {{"formats", json::array({"H3"})}}}};
  EXPECT_TRUE(is_declared(draft, kDraft));
  EXPECT_FALSE(is_declared(draft, kNoDraft));
  EXPECT_TRUE(is_declared(draft, "not reader.formats:H1"));
}

TEST(CapabilityOfTest, OperationsNeedTheirs) {
  EXPECT_EQ(capability_of("hello"), "");
  EXPECT_EQ(capability_of("bye"), "");
  EXPECT_EQ(capability_of("process.publish"), "process.publish");
  EXPECT_EQ(capability_of("process.reap"), "process.fork");
  EXPECT_EQ(capability_of("process.exec_self"), "process.exec");
  EXPECT_EQ(capability_of("thread.spawn"), "thread");
  EXPECT_EQ(capability_of("thread.attach"), "thread.attach");
}

}  // namespace
}  // namespace ctxconf::conformance
