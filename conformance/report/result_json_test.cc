#include "conformance/report/result_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "conformance/report/console.h"
#include "conformance/report/junit.h"
#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;

RunResult read_back(const RunResult& run) {
  auto out = result_from_json(to_result_json(run), sample_catalogue());
  EXPECT_TRUE(out) << sys::to_string(out.error());
  return out ? *out : RunResult{};
}

std::string refusal(std::string_view json) {
  const auto out = result_from_json(json, sample_catalogue());
  return out ? "(accepted)" : sys::to_string(out.error());
}

// The JSON of the ordinary run with one text replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string json = to_result_json(ordinary_run());
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) json.replace(at, from.size(), to);
  return json;
}

TEST(ResultJson, HoldsAllThatTheOtherReportsShow) {
  for (const RunResult& run :
       {ordinary_run(), silent_run(), run_of_two_images(), run_with_expectations()}) {
    const RunResult again = read_back(run);
    EXPECT_EQ(to_console(again, {.verbosity = 2}), to_console(run, {.verbosity = 2}));
    EXPECT_EQ(to_junit(again, {}), to_junit(run, {}));
    EXPECT_EQ(to_result_json(again), to_result_json(run));
  }
}

TEST(ResultJson, GivesHostileTextBackByteByByte) {
  RunResult run = ordinary_run();
  run.results[0].findings[0].saw = hostile_text();
  run.images[0].executable = hostile_text();
  const RunResult again = read_back(run);
  EXPECT_EQ(again.results.at(0).findings.at(0).saw, hostile_text());
  EXPECT_EQ(again.images.at(0).executable, hostile_text());
  const Hexdump& dump = again.results.at(0).findings.at(0).hexdumps.at(0);
  EXPECT_EQ(dump.bytes, run.results[0].findings[0].hexdumps[0].bytes);
  const Hexdump::Expected& expected = run.results[0].findings[0].hexdumps[0].expected.value();
  ASSERT_TRUE(dump.expected);
  EXPECT_EQ(dump.expected->vector, expected.vector);
  EXPECT_EQ(dump.expected->bytes, expected.bytes);
  ASSERT_EQ(dump.expected->masks.size(), 2U);
  EXPECT_EQ(dump.expected->masks[1].offset, 16U);
  EXPECT_EQ(dump.expected->masks[1].length, 8U);
  EXPECT_EQ(dump.expected->masks[1].name, expected.masks[1].name);
  EXPECT_EQ(dump.expected->masks[1].rule, expected.masks[1].rule);
}

TEST(ResultJson, OnlyAProblemThatIsHarmHasTheMember) {
  RunResult run = ordinary_run();
  run.problems = {{.outcome = Outcome::kCrash, .image = {}, .text = "it died"}};
  EXPECT_FALSE(to_result_json(run).contains("\"harm\""));
  EXPECT_EQ(read_back(run).problems.at(0).harm, "");
  run.problems[0].harm = hostile_text();
  EXPECT_EQ(read_back(run).problems.at(0).harm, hostile_text());
}

TEST(ResultJson, HoldsHowTheProgramEnded) {
  using enum TargetEnd::How;
  RunResult run = ordinary_run();
  for (const TargetEnd end :
       {TargetEnd{.how = kExited, .number = 77}, TargetEnd{.how = kKilled, .number = 11},
        TargetEnd{.how = kKilledByUs, .number = 9}}) {
    run.target_ending = "in other words";
    run.target_ended = end;
    const RunResult again = read_back(run);
    EXPECT_EQ(again.target_ended, end);
    EXPECT_EQ(again.target_ending, "in other words");
  }
  EXPECT_THAT(refusal(changed("\"how\": \"exited\"", "\"how\": \"killed\"")),
              HasSubstr("run.target_ended.signal is missing"));
  EXPECT_THAT(refusal(changed("\"how\": \"exited\"", "\"how\": \"left\"")),
              HasSubstr("run.target_ended.how is not one of the known words"));
}

TEST(ResultJson, ReadsResultsThatSayHowTheProgramEndedInWordsAlone) {
  RunResult run = ordinary_run();
  run.target_ended.reset();
  const RunResult again = read_back(run);
  EXPECT_EQ(again.target_ending, "exited 3");
  EXPECT_EQ(again.target_ended, std::nullopt);
}

TEST(ResultJson, HoldsTheLibrariesOfTheProgramsAndOfCtxconf) {
  const RunResult again = read_back(ordinary_run());
  EXPECT_EQ(again.libc, "musl 1.2.3");
  EXPECT_EQ(again.suite_libc, "glibc 2.36");
  RunResult unknown = ordinary_run();
  unknown.suite_libc = "";
  EXPECT_EQ(read_back(unknown).libc, "musl 1.2.3");
  // An earlier result has only that of ctxconf, in host.
  const auto earlier =
      result_from_json(changed("  \"libc\": \"glibc 2.36\",\n", ""), sample_catalogue());
  ASSERT_TRUE(earlier);
  EXPECT_EQ(earlier->libc, "");
  EXPECT_EQ(earlier->suite_libc, "musl 1.2.3");
}

TEST(ResultJson, HoldsThePictures) {
  const RunResult run = ordinary_run();
  const RunResult again = read_back(run);
  ASSERT_TRUE(again.results.at(0).findings.at(0).operation);
  const OperationPicture& was = *run.results[0].findings[0].operation;
  const OperationPicture& is = *again.results[0].findings[0].operation;
  EXPECT_EQ(is.is_update, was.is_update);
  EXPECT_EQ(is.header, was.header);
  EXPECT_EQ(is.before, was.before);
  ASSERT_EQ(is.steps.size(), was.steps.size());
  for (std::size_t i = 0; i < was.steps.size(); ++i) {
    EXPECT_EQ(is.steps[i].kind, was.steps[i].kind);
    EXPECT_EQ(is.steps[i].text, was.steps[i].text);
    EXPECT_EQ(is.steps[i].at, was.steps[i].at);
    EXPECT_EQ(is.steps[i].tid, was.steps[i].tid);
    EXPECT_EQ(is.steps[i].finds, was.steps[i].finds);
    EXPECT_EQ(is.steps[i].wrong, was.steps[i].wrong);
    ASSERT_EQ(is.steps[i].changes.size(), was.steps[i].changes.size());
  }
  EXPECT_EQ(is.steps[2].changes[0].lane, Lane::kPointer);
  EXPECT_EQ(is.steps[2].changes[0].was, "0x…4ac8a0");
  EXPECT_EQ(is.steps[2].changes[0].is, "0x…4aced0");
  ASSERT_EQ(again.operations.size(), 1U);
  EXPECT_EQ(again.operations[0].image, run.operations[0].image);
  EXPECT_EQ(again.operations[0].image_name, run.operations[0].image_name);
  EXPECT_EQ(again.operations[0].picture.steps.size(), 2U);
}

TEST(ResultJson, KeepsAsManyStepsAsAPictureHas) {
  RunResult run = ordinary_run();
  OperationPicture& picture = run.operations[0].picture;
  picture.steps.assign(kMaxPictureSteps + 3, picture.steps.back());
  picture.steps_before = 5;
  const RunResult again = read_back(run);
  EXPECT_EQ(again.operations.at(0).picture.steps.size(), kMaxPictureSteps);
  EXPECT_EQ(again.operations[0].picture.steps_before, 5U);
  EXPECT_EQ(again.operations[0].picture.steps_behind, 3U);
}

TEST(ResultJson, MayStandInAPageOrOnATerminal) {
  for (const RunResult& run : {hostile_run(), ordinary_run()}) {
    const std::string json = to_result_json(run);
    for (const char c : json) {
      ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
      ASSERT_TRUE(c != '<' && c != '>' && c != '&');
    }
  }
}

TEST(ResultJson, CutsAndCountsWhatIsTooMuch) {
  const RunResult run = huge_run();
  const std::string json = to_result_json(run);
  EXPECT_LT(json.size(), kLongestResultJson / 2);
  EXPECT_THAT(json, HasSubstr("\"evidence_omitted\": "));
  EXPECT_THAT(json, HasSubstr("\"bytes_omitted\": 95904"));
  EXPECT_THAT(json, HasSubstr("\"marks_omitted\": 36"));
  EXPECT_THAT(json, HasSubstr("\"findings_omitted\": "));
  EXPECT_THAT(json, HasSubstr("\"images_omitted\": "));
  const RunResult again = read_back(run);
  ASSERT_EQ(again.results.size(), run.results.size());
  for (const RequirementResult& result : again.results) EXPECT_FALSE(result.findings.empty());
}

TEST(ResultJson, RefusesWhatIsNotAResult) {
  EXPECT_THAT(refusal(""), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal("{\"format\": \"ctxconf-result\""), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("the file is not an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("format is missing"));
  EXPECT_THAT(refusal(R"({"format": "junit"})"), HasSubstr("format is 'junit'"));
  EXPECT_THAT(refusal("{\"format\": \"\\u001b[2J\"}"), HasSubstr("format is '\\x1b[2J'"));
  EXPECT_THAT(refusal("\"\xff\""), HasSubstr("is not JSON"));
}

TEST(ResultJson, RefusesAnotherVersion) {
  EXPECT_THAT(refusal(changed("\"version\": 1", "\"version\": 2")),
              HasSubstr("version is 2, but this ctxconf reads only 1"));
  EXPECT_THAT(refusal(changed("\"version\": 1", "\"version\": \"1\"")),
              HasSubstr("version is not a whole number"));
  EXPECT_THAT(refusal(changed("\"version\": 1", "\"version\": 99999999999")),
              HasSubstr("version is out of range"));
}

TEST(ResultJson, NamesTheMemberThatIsWrong) {
  EXPECT_THAT(refusal(changed("\"outcome\": \"fail\"", "\"outcome\": \"ok\"")),
              HasSubstr("results[0].findings[0].outcome is not one of the known words: 'ok'"));
  EXPECT_THAT(refusal(changed("\"saw\": \"version is 0\"", "\"saw\": 7")),
              HasSubstr("results[0].findings[0].saw is not a string"));
  EXPECT_THAT(refusal(changed("\"saw\": \"version is 0\",", "")),
              HasSubstr("results[0].findings[0].saw is missing"));
  EXPECT_THAT(refusal(changed("\"published\": false", "\"published\": 0")),
              HasSubstr("images[0].published is not true or false"));
  EXPECT_THAT(refusal(changed("\"pid\": 4242", "\"pid\": 4294967296")),
              HasSubstr("images[0].pid is out of range"));
  EXPECT_THAT(refusal(changed("\"image\": 0", "\"image\": -1")),
              HasSubstr("images[0].image is out of range"));
  EXPECT_THAT(refusal(changed("\"image\": 0", "\"image\": 0.5")),
              HasSubstr("images[0].image is not a whole number"));
  EXPECT_THAT(refusal(changed("\"seconds\": 1.25", "\"seconds\": null")),
              HasSubstr("run.seconds is not a number"));
  EXPECT_THAT(refusal(changed("\"address\": \"0x7f1200000000\"", "\"address\": \"7f\"")),
              HasSubstr("hexdumps[0].address is not an address"));
  EXPECT_THAT(
      refusal(changed("\"address\": \"0x7f1200000000\"", "\"address\": \"0x10000000000000000\"")),
      HasSubstr("hexdumps[0].address is not an address"));
  EXPECT_THAT(refusal(changed("\"bytes\": \"4f", "\"bytes\": \"4g")),
              HasSubstr("hexdumps[0].bytes is not bytes in hexadecimal"));
  EXPECT_THAT(refusal(changed("\"bytes\": \"4f", "\"bytes\": \"4")),
              HasSubstr("hexdumps[0].bytes is not bytes in hexadecimal"));
  EXPECT_THAT(refusal(changed("\"na_reason\": \"capability\",", "")),
              HasSubstr("results[6].findings[0].na_reason is missing"));
  EXPECT_THAT(refusal(changed("\"finds\": \"neither\"", "\"finds\": \"all\"")),
              HasSubstr("findings[0].operation.steps[4].finds is not one of the known words"));
  EXPECT_THAT(refusal(changed("\"lane\": \"payload\"", "\"lane\": \"\"")),
              HasSubstr("steps[2].changes[0].lane is not one of the known words"));
  EXPECT_THAT(refusal(changed("\"kind\": \"publication\"", "\"kind\": \"drop\"")),
              HasSubstr("operations[0].operation.kind is not one of the known words: 'drop'"));
  EXPECT_THAT(refusal(changed("\"expected\": \"none\"", "\"expected\": \"\"")),
              HasSubstr("results[0].expected is not one of the known words"));
}

TEST(ResultJson, RefusesRequirementsThatTheCatalogueLacks) {
  EXPECT_THAT(refusal(changed("\"id\": \"pctx.header.version\"", "\"id\": \"pctx.header.color\"")),
              HasSubstr("results[0].id is not in the catalogue of this ctxconf: "
                        "'pctx.header.color'"));
  EXPECT_THAT(refusal(changed("\"revision\": \"2026-04-07\",\n   \"role\"",
                              "\"revision\": \"2025-01-01\",\n   \"role\"")),
              HasSubstr("results[0].revision is '2025-01-01', but this ctxconf knows "
                        "pctx.header.version of 2026-04-07"));
}

TEST(ResultJson, RefusesNestingAndSizeBeforeItBuildsThem) {
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), HasSubstr("nested deeper than 16"));
  EXPECT_THAT(refusal(std::string(kLongestResultJson + 1, ' ')), HasSubstr("are more than"));
  // Brackets inside a string do not nest.
  EXPECT_THAT(
      refusal(changed("version is 0", std::string(99, '[') + "\\\"" + std::string(99, '{'))),
      "(accepted)");
}

TEST(ResultJson, IgnoresMembersItDoesNotKnow) {
  EXPECT_EQ(refusal(changed("\"version\": 1", "\"version\": 1, \"later\": {\"a\": [1]}")),
            "(accepted)");
}

}  // namespace
}  // namespace ctxconf::conformance
