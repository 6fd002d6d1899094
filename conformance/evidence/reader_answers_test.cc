#include "conformance/evidence/reader_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ReaderTraits no_traits() { return ReaderTraits(json::object()); }

ReaderTraits traits(const json& reader) { return ReaderTraits(json{{"reader", reader}}); }

json pair(const std::string& key, const json& value) { return {{"key", key}, {"value", value}}; }

json text_value(const std::string& value) { return {{"stringValue", value}}; }

using List = std::vector<json>;

json process_reply(const List& resource, const List& attributes = {}) {
  return {{"ok", true},
          {"result", "accept"},
          {"context", {{"resource", {{"attributes", resource}}}, {"attributes", attributes}}}};
}

json record_reply(const json& record) {
  return {{"ok", true}, {"result", "accept"}, {"record", record}};
}

AllowedAnswer accepting(const json& content) {
  return {.result = "accept", .content = content.dump()};
}

constexpr const char* kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSpanId = "00f067aa0ba902b7";

TEST(ReaderAnswers, TheResultIsCompared) {
  const json absent = {{"ok", true}, {"result", "absent"}};
  EXPECT_EQ(difference({.result = "absent", .content = {}}, absent, no_traits()), "");
  EXPECT_EQ(difference({.result = "accept", .content = {}}, absent, no_traits()),
            "it says \"absent\", expected accept");
}

TEST(ReaderAnswers, ARefusalIsNoAnswer) {
  const json refused = {{"ok", false},
                        {"error", {{"kind", "failed"}, {"message", "EFAULT\x1b[2J"}}}};
  EXPECT_EQ(difference({.result = "absent", .content = {}}, refused, no_traits()),
            "it refused to answer: \"EFAULT\\u001b[2J\"");
}

// NaN would differ from itself, and a list with it could not be sorted.
TEST(ReaderAnswers, ATextThatIsNoFiniteNumberIsComparedAsText) {
  for (const char* text : {"NaN", "Infinity", "-Infinity", "nan", "-nan(1)", "inf", "1e999"}) {
    const json value = {{"doubleValue", text}};
    const json list = {{"kvlistValue", {{"values", {pair("b", value), pair("a", value)}}}}};
    const json same = {{"kvlistValue", {{"values", {pair("a", value), pair("b", value)}}}}};
    EXPECT_EQ(difference(accepting({{"resource", {{"k", value}, {"l", list}}}}),
                         process_reply({pair("k", value), pair("k", value), pair("l", same)}),
                         no_traits()),
              "")
        << text;
  }
}

TEST(ReaderAnswers, AWrongValueIsShownAsTheReaderAnsweredIt) {
  const auto shown = [](const json& answered, const json& expected) {
    return difference(accepting({{"resource", {{"a", expected}}}}),
                      process_reply({pair("a", answered)}), no_traits());
  };
  EXPECT_EQ(shown({{"intValue", 641}}, {{"intValue", 640}}),
            R"(the Resource has a = {"intValue":641}, expected {"intValue":640})");
  const auto list = [](const json& one) {
    return json{{"arrayValue", {{"values", json::array({one})}}}};
  };
  EXPECT_EQ(shown(list(text_value("b")), list(text_value("a"))),
            R"(the Resource has a = {"arrayValue":{"values":[{"stringValue":"b"}]}}, )"
            R"(expected {"arrayValue":{"values":[{"stringValue":"a"}]}})");
}

TEST(ReaderAnswers, AResourceIsComparedExactlyOrAtLeast) {
  const json reply = process_reply({pair("a", text_value("1")), pair("b", text_value("2"))});
  const json both = {{"a", text_value("1")}, {"b", text_value("2")}};
  const json one = {{"a", text_value("1")}};
  EXPECT_EQ(difference(accepting({{"resource", both}}), reply, no_traits()), "");
  EXPECT_EQ(difference(accepting({{"resource_has", one}}), reply, no_traits()), "");
  EXPECT_EQ(difference(accepting({{"resource", one}}), reply, no_traits()),
            "the Resource has b, which is not there");
  EXPECT_EQ(difference(accepting({{"resource", {{"a", text_value("x")}}}}), reply, no_traits()),
            R"(the Resource has a = {"stringValue":"1"}, expected {"stringValue":"x"})");
  EXPECT_EQ(difference(accepting({{"resource_has", {{"c", text_value("3")}}}}), reply, no_traits()),
            "the Resource lacks c");
}

TEST(ReaderAnswers, Field2IsComparedByItself) {
  const json reply = process_reply(List{}, {pair("a", text_value("1"))});
  EXPECT_EQ(difference(
                accepting({{"resource", json::object()}, {"attributes", {{"a", text_value("1")}}}}),
                reply, no_traits()),
            "");
  EXPECT_EQ(difference(accepting({{"attributes", json::object()}}), reply, no_traits()),
            "field 2 has a, which is not there");
}

TEST(ReaderAnswers, AnEmptyKeyIsAKey) {
  const json reply = process_reply({pair("", text_value("x"))});
  EXPECT_EQ(difference(accepting({{"resource", {{"", text_value("x")}}}}), reply, no_traits()), "");
}

TEST(ReaderAnswers, AKeyWithTwoValuesIsNowhereRight) {
  const json reply = process_reply({pair("a", text_value("1")), pair("a", text_value("2"))});
  for (const char* value : {"1", "2"}) {
    EXPECT_EQ(difference(accepting({{"resource", {{"a", text_value(value)}}}}), reply, no_traits()),
              "the Resource has a twice");
  }
}

TEST(ReaderAnswers, OneNumberHasSeveralTexts) {
  const json wanted = {{"resource", {{"i", {{"intValue", "7"}}}, {"d", {{"doubleValue", 0.5}}}}}};
  EXPECT_EQ(
      difference(accepting(wanted),
                 process_reply({pair("i", {{"intValue", 7}}), pair("d", {{"doubleValue", "0.5"}})}),
                 no_traits()),
      "");
  EXPECT_NE(
      difference(accepting(wanted),
                 process_reply({pair("i", {{"intValue", 8}}), pair("d", {{"doubleValue", 0.5}})}),
                 no_traits()),
      "");
  // An integer is no string.
  EXPECT_NE(difference(accepting({{"resource", {{"i", {{"intValue", "7"}}}}}}),
                       process_reply({pair("i", text_value("7"))}), no_traits()),
            "");
}

TEST(ReaderAnswers, AListOfPairsHasNoOrder) {
  const auto list = [](const json& a, const json& b) {
    return json{{"kvlistValue", {{"values", List{a, b}}}}};
  };
  const json a = pair("a", text_value("1"));
  const json b = pair("b", text_value("2"));
  EXPECT_EQ(difference(accepting({{"resource", {{"l", list(a, b)}}}}),
                       process_reply({pair("l", list(b, a))}), no_traits()),
            "");
  const json array = {{"arrayValue", {{"values", List{text_value("1"), text_value("2")}}}}};
  const json turned = {{"arrayValue", {{"values", List{text_value("2"), text_value("1")}}}}};
  EXPECT_NE(difference(accepting({{"resource", {{"l", array}}}}),
                       process_reply({pair("l", turned)}), no_traits()),
            "");
}

TEST(ReaderAnswers, WhatTheAdapterDoesNotDeclareMayBeMissing) {
  const json wanted = {{"resource", {{"i", {{"intValue", "7"}}}, {"s", text_value("x")}}},
                       {"attributes", {{"k", text_value("v")}}}};
  const json reply = process_reply({pair("s", text_value("x")), pair("i", text_value("7"))});
  EXPECT_NE(difference(accepting(wanted), reply, no_traits()), "");
  EXPECT_EQ(difference(accepting(wanted), reply,
                       traits({{"kinds", {"string"}}, {"fields", {"resource"}}})),
            "");
}

TEST(ReaderAnswers, IdsAndFlagsOfARecord) {
  const json wanted = {{"trace_id", kTraceId}, {"span_id", kSpanId}, {"flags", 3}};
  const json right = {{"trace_id", kTraceId}, {"span_id", kSpanId}, {"flags", 3}};
  EXPECT_EQ(difference(accepting(wanted), record_reply(right), no_traits()), "");
  json other = right;
  other["flags"] = 1;
  EXPECT_EQ(difference(accepting(wanted), record_reply(other), no_traits()),
            "flags are 1, expected 3");
  EXPECT_EQ(difference(accepting(wanted), record_reply(other), traits({{"flags", false}})), "");
  other = right;
  other["span_id"] = kTraceId;
  EXPECT_THAT(difference(accepting(wanted), record_reply(other), no_traits()),
              HasSubstr("span_id is"));
}

TEST(ReaderAnswers, IdsOfZerosAreALinkWhereNoneIsAllowed) {
  const std::string zeros(32, '0');
  const json wanted = {{"link", false}};
  EXPECT_EQ(difference(accepting(wanted), record_reply(json::object()), no_traits()), "");
  EXPECT_THAT(difference(accepting(wanted), record_reply({{"trace_id", zeros}}), no_traits()),
              HasSubstr("it names trace"));
  // To have none, or zeros, is the same where no link is at stake.
  EXPECT_EQ(difference(accepting({{"trace_id", zeros}}), record_reply(json::object()), no_traits()),
            "");
}

TEST(ReaderAnswers, AttributesOfARecord) {
  const json reply = record_reply({{"attributes", {{"a", "1"}, {"b", "2"}}}});
  EXPECT_EQ(difference(accepting({{"names", {{"a", "1"}, {"b", "2"}}}}), reply, no_traits()), "");
  EXPECT_EQ(difference(accepting({{"names_has", {{"a", "1"}}}}), reply, no_traits()), "");
  EXPECT_EQ(difference(accepting({{"names", {{"a", "1"}}}}), reply, no_traits()),
            "attribute b = \"2\" is not in the record");
  EXPECT_EQ(difference(accepting({{"names_has", {{"c", "3"}}}}), reply, no_traits()),
            "attribute c is missing");
  EXPECT_EQ(
      difference(accepting({{"names_any", {{"a", {"0", "1"}}, {"c", {"3"}}}}}), reply, no_traits()),
      "");
  EXPECT_EQ(difference(accepting({{"names_any", {{"a", {"0"}}}}}), reply, no_traits()),
            "attribute a is \"1\"");
}

TEST(ReaderAnswers, AClaimIsSatisfiedByAnyOfItsAnswers) {
  AnswerClaim claim;
  claim.allowed = {{.result = "absent", .content = {}},
                   accepting({{"resource", {{"a", text_value("1")}}}})};
  EXPECT_EQ(problem_with(claim, {{"ok", true}, {"result", "absent"}}, no_traits()), "");
  EXPECT_EQ(problem_with(claim, process_reply({pair("a", text_value("1"))}), no_traits()), "");
  // The one with the same result is the nearest.
  EXPECT_EQ(problem_with(claim, process_reply({}), no_traits()), "the Resource lacks a");
  EXPECT_EQ(problem_with(claim, {{"ok", true}, {"result", "retry"}}, no_traits()),
            "it says \"retry\", expected absent");
}

TEST(ReaderAnswers, TextsThatMustNotOccur) {
  AnswerClaim claim;
  claim.allowed = {accepting(json::object())};
  claim.never = {"secret"};
  EXPECT_EQ(problem_with(claim, process_reply({pair("a", text_value("my secret"))}), no_traits()),
            "it has \"secret\"");
}

TEST(ReaderAnswers, HostileRepliesAreCompared) {
  const AllowedAnswer wanted = accepting({{"resource", {{"a", text_value("1")}}},
                                          {"attributes", json::object()},
                                          {"trace_id", kTraceId},
                                          {"names", {{"a", "1"}}}});
  for (const json& reply :
       {json(), json(7), json::array(), json{{"result", json::array()}},
        json{{"result", "accept"}, {"context", 7}},
        json{{"result", "accept"}, {"context", {{"resource", {{"attributes", 7}}}}}},
        json{{"result", "accept"},
             {"context", {{"resource", {{"attributes", {7, {{"key", 7}}}}}}}}}}) {
    EXPECT_NE(difference(wanted, reply, no_traits()), "") << reply;
    EXPECT_FALSE(shown_answer(reply).empty()) << reply;
  }
  // As deep as a hostile reader wants.
  json deep = text_value("x");
  for (int i = 0; i < 200; ++i) deep = {{"arrayValue", {{"values", List{deep}}}}};
  EXPECT_NE(difference(wanted, process_reply({pair("a", deep)}), no_traits()), "");
}

TEST(ReaderAnswers, TheKindOfAValue) {
  EXPECT_EQ(kind_of_value(text_value("x")), "string");
  EXPECT_EQ(kind_of_value({{"bytesValue", "AA=="}}), "bytes");
  EXPECT_EQ(kind_of_value(json::object()), "empty");
  EXPECT_EQ(kind_of_value(7), "");
}

TEST(ReaderAnswers, AnAnswerInALine) {
  EXPECT_EQ(shown_answer(process_reply({pair("service.name", text_value("shop"))})),
            "accept, Resource service.name=\"shop\"");
}

}  // namespace
}  // namespace ctxconf::conformance
