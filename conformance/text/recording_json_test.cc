#include "conformance/text/recording_json.h"

#include <gtest/gtest.h>

#include <string>

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::ordered_json;

const JsonFormat kWanted = {"a-format", 7, "another format", ": mend it"};

TEST(RecordingJson, ReadsWhatTheUsualParserReads) {
  for (const std::string text : {R"({})",
                                 R"([])",
                                 R"([ ])",
                                 " \t\r\n{ \"a\" : [ 1 , 2 ] }\n",
                                 R"("")",
                                 R"("0011ff")",
                                 R"("a\"b\\c\nd\u00e9\ud83d\ude00")",
                                 "\"h\xc3\xa9llo\x7f\"",
                                 R"(["\\","\\\"","x"])",
                                 R"({"a":1,"b":{"c":[null,true,false]},"a":2})",
                                 R"({"":0,"\u0061":1,"a":2})",
                                 "0",
                                 "-0",
                                 "-17",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "-9223372036854775808",
                                 "1.5",
                                 "-2e-3",
                                 "1E+2",
                                 "9999999999999999999",
                                 "12345678901234567890",
                                 "\xef\xbb\xbf[1]"}) {
    const auto read = parse_recording(text, kWanted);
    const Json usual = Json::parse(text, nullptr, false);
    ASSERT_TRUE(read) << text << ": " << read.error();
    EXPECT_EQ(*read, usual) << text;
    EXPECT_EQ(read->dump(), usual.dump()) << text;
    EXPECT_EQ(read->type(), usual.type()) << text;
  }
}

TEST(RecordingJson, RefusesWhatTheUsualParserRefuses) {
  for (const std::string text :
       {"",         " ",        "{",        "[",         "]",         "}",
        "[1,]",     "[,1]",     "[1 2]",    "{\"a\"}",   "{\"a\":}",  "{\"a\":1,}",
        "{a:1}",    "{1:2}",    "[1}",      "{\"a\":1]", "1 2",       "[] []",
        "\"",       "\"a",      "\"\\\"",   "\"\\q\"",   "\"\\u12\"", "\"\\ud800\"",
        "\"a\nb\"", "\"\xff\"", "\"\xc3\"", "01",        "-",         "+1",
        "1.",       ".5",       "1e",       "1e999",     "--1",       "nul",
        "nullx",    "True",     "'a'",      "\xef\xbb",  "[1]\x01",   "[\"a\" \"b\"]"}) {
    EXPECT_TRUE(Json::parse(text, nullptr, false).is_discarded()) << text;
    const auto read = parse_recording(text, kWanted);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error(), "this is not JSON") << text;
  }
}

TEST(RecordingJson, RefusesAtItsLimits) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_recording(nested(64), kWanted));
  EXPECT_EQ(parse_recording(nested(65), kWanted).error(), "nests more than 64 deep");
  EXPECT_EQ(parse_recording(std::string(1'000'000, '['), kWanted).error(),
            "nests more than 64 deep");
  std::string many = "[0";
  for (std::size_t i = 0; i < std::size_t{1} << 24U; ++i) many += ",0";
  EXPECT_EQ(parse_recording(many, kWanted).error(), "has more than 16777216 values");
}

TEST(RecordingJson, ChecksTheFormatWhereItOccurs) {
  const auto problem = [](const std::string& text) {
    const auto read = parse_recording(text, kWanted);
    return read ? std::string() : read.error();
  };
  EXPECT_EQ(problem(R"({"format":"a-format","version":7,"x":{"format":1,"version":1}})"), "");
  EXPECT_EQ(problem(R"([{"format":"b"}])"), "");
  EXPECT_EQ(problem(R"({"format":"b", then anything)"), "another format");
  EXPECT_EQ(problem(R"({"format":["a-format"]})"), "another format");
  EXPECT_EQ(problem(R"({"version":8,)"), "version 8 of the format, but 7 is read here: mend it");
  EXPECT_EQ(problem(R"({"version":"7"})"),
            "version a text of the format, but 7 is read here: mend it");
}

}  // namespace
}  // namespace ctxconf::conformance
