#include "conformance/report/sarif.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

json sarif_of(const RunResult& run) { return json::parse(to_sarif(run)).at("runs").at(0); }

json results_of(const json& run, const std::string& rule) {
  json out = json::array();
  for (const json& result : run.at("results")) {
    if (result.at("ruleId") == rule) out.push_back(result);
  }
  return out;
}

json result_of(const RunResult& run, const std::string& rule) {
  json all = results_of(sarif_of(run), rule);
  EXPECT_EQ(all.size(), 1U) << rule;
  return all.empty() ? json::object() : all[0];
}

json place_of(const json& result) { return result.at("locations").at(0).at("physicalLocation"); }

TEST(Sarif, ARuleIsARequirementThatWasJudged) {
  const json run = sarif_of(ordinary_run());
  std::set<std::string> ids;
  for (const json& rule : run.at("tool").at("driver").at("rules")) ids.insert(rule.at("id"));
  EXPECT_THAT(ids, ElementsAre("pctx.header.signature", "pctx.header.version",
                               "pctx.payload.semantic-conventions", "pctx.publish.footprint"));
  const json& rule = run.at("tool").at("driver").at("rules").at(0);
  EXPECT_EQ(rule.at("id"), "pctx.header.version");
  EXPECT_EQ(rule.at("shortDescription").at("text"), "the version is 2");
  EXPECT_EQ(rule.at("defaultConfiguration").at("level"), "error");
  EXPECT_THAT(rule.at("help").at("markdown").get<std::string>(),
              HasSubstr("`ctxconf explain pctx.header.version`"));
}

TEST(Sarif, AResultIsAtTheInnermostLineInTheRepository) {
  const json result = result_of(ordinary_run(), "pctx.header.version");
  EXPECT_EQ(result.at("level"), "error");
  EXPECT_EQ(result.at("message").at("text"), "version is 0");
  EXPECT_EQ(place_of(result),
            (json{{"artifactLocation", {{"uri", "src/process%20ctx.rs"}, {"uriBaseId", "SRCROOT"}}},
                  {"region", {{"startLine", 118}}}}));
  const auto function_at = [](const json& location) {
    return location.at("logicalLocations").at(0).at("fullyQualifiedName");
  };
  EXPECT_EQ(function_at(result.at("locations").at(0)), "publish_update");
  const json& frames = result.at("stacks").at(0).at("frames");
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(function_at(frames[0].at("location")), "core::sync::atomic::AtomicU32::store");
  EXPECT_EQ(sarif_of(ordinary_run()).at("originalUriBaseIds").at("SRCROOT").at("uri"),
            "file:///home/me/shop/");
}

TEST(Sarif, WithoutALineAResultIsAtAFile) {
  RunResult run = ordinary_run();
  const auto uri = [&] {
    return place_of(result_of(run, "pctx.header.version")).at("artifactLocation").at("uri");
  };
  run.results[0].findings[0].code.resize(1);
  EXPECT_EQ(result_of(run, "pctx.header.version").at("message").at("text"),
            "version is 0\nNo line of code is known, so line 1 stands for the file.");
  run.images[1].path = "build/checkout";
  run.source->expectations = "ci/expect.txt";
  EXPECT_EQ(uri(), "build/checkout");
  run.images[1].path.clear();
  EXPECT_EQ(uri(), "app");
  run.source->program = "../elsewhere";
  EXPECT_EQ(uri(), "ci/expect.txt");
  run.source.reset();
  EXPECT_EQ(uri(), "file:///opt/shop/checkout");
  run.images.clear();
  EXPECT_EQ(uri(), "ctxconf") << "GitHub needs one";
  EXPECT_EQ(result_of(run, "pctx.header.version").at("message").at("text"),
            "version is 0\nNo file of the program is known, so ctxconf stands for it.");
}

TEST(Sarif, LevelsAreThoseOfTheOutcome) {
  const RunResult run = ordinary_run();
  EXPECT_EQ(result_of(run, "pctx.publish.footprint").at("level"), "warning");
  EXPECT_EQ(result_of(run, "pctx.payload.semantic-conventions").at("level"), "note");
  for (const json& result : sarif_of(run).at("results")) {
    EXPECT_THAT(result.at("ruleId"), Not("pctx.header.signature"));
  }
}

TEST(Sarif, ImagesThatBreakARequirementAtOnePlaceAreOneResult) {
  const json all = results_of(sarif_of(run_of_two_images()), "pctx.header.version");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].at("occurrenceCount"), 2);
  EXPECT_EQ(all[1].at("level"), "warning");
  EXPECT_EQ(place_of(all[1]).at("artifactLocation").at("uri"), "app");
}

TEST(Sarif, ExpectedFailuresAreSuppressed) {
  const json result = result_of(run_with_expectations(), "pctx.header.version");
  EXPECT_EQ(result.at("level"), "note");
  EXPECT_EQ(result.at("suppressions"),
            json::array({{{"kind", "external"},
                          {"status", "accepted"},
                          {"justification", "issue=https://example.com/7 until=2030-01-01"}}}));
  EXPECT_EQ(result_of(ordinary_run(), "pctx.header.version").count("suppressions"), 0U);
}

TEST(Sarif, ProblemsOfTheExpectationsFileAreAtItsLines) {
  const json all = results_of(sarif_of(run_with_expectations()), "expectations");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(place_of(all[0]).at("artifactLocation").at("uri"), "ci/expect.txt");
  EXPECT_EQ(place_of(all[0]).at("region").at("startLine"), 3);
  EXPECT_EQ(all[0].at("level"), "error");
  EXPECT_EQ(all[1].at("level"), "warning");
  EXPECT_EQ(result_of(run_with_expectations(), "floor").at("level"), "error");
}

TEST(Sarif, ARunThatEndsBadlyHasAnError) {
  const RunResult silent = silent_run();
  EXPECT_THAT(result_of(silent, "run.exit").at("message").at("text").get<std::string>(),
              StartsWith("exit 4: nothing could be judged"));
  EXPECT_EQ(sarif_of(silent).at("invocations").at(0).at("executionSuccessful"), true);
  EXPECT_TRUE(results_of(sarif_of(ordinary_run()), "run.exit").empty());
  RunResult crashed = ordinary_run();
  crashed.problems = {{.outcome = Outcome::kCrash, .image = {}, .text = "died of SIGSEGV"},
                      {.outcome = Outcome::kHarnessError, .image = {}, .text = "a bug"}};
  crashed.exit_code = 70;
  EXPECT_EQ(result_of(crashed, "run.crash").at("level"), "error");
  const json invocation = sarif_of(crashed).at("invocations").at(0);
  EXPECT_EQ(invocation.at("executionSuccessful"), false);
  EXPECT_EQ(invocation.at("toolExecutionNotifications").at(0).at("message").at("text"), "a bug");
}

TEST(Sarif, AResultAtAFileThatGitHubDoesNotFindHasItsFingerprint) {
  RunResult run = ordinary_run();
  const auto prints = [&] {
    return result_of(run, "pctx.header.version").at("partialFingerprints");
  };
  EXPECT_FALSE(prints().contains("primaryLocationLineHash"));
  run.results[0].findings[0].code.resize(1);
  EXPECT_FALSE(prints().contains("primaryLocationLineHash"));
  run.source.reset();
  EXPECT_EQ(prints().at("primaryLocationLineHash"),
            prints().at("ctxconf/v1").get<std::string>() + ":1");
}

TEST(Sarif, AHelpNamesItsOtep) {
  const json rule = sarif_of(ordinary_run()).at("tool").at("driver").at("rules").at(0);
  EXPECT_THAT(rule.at("help").at("markdown").get<std::string>(),
              testing::HasSubstr(rule.at("helpUri").get<std::string>()));
}

TEST(Sarif, FingerprintsDependNeitherOnLinesNorOnProcesses) {
  const auto print = [](const RunResult& run) {
    return result_of(run, "pctx.header.version").at("partialFingerprints").at("ctxconf/v1");
  };
  RunResult run = ordinary_run();
  const json before = print(run);
  run.results[0].findings[0].code[1].source_line = 119;
  run.results[0].findings[0].saw = "version is 17";
  run.results[0].findings[0].image.pid = run.images[1].key.pid = 7;
  EXPECT_EQ(print(run), before);
  run.results[0].findings[0].signature = "another";
  EXPECT_NE(print(run), before);
}

TEST(Sarif, MessagesHoldNeitherLinksNorPlaceholders) {
  RunResult run = ordinary_run();
  run.results[0].findings[0].saw = "[a](https://evil.example) {0} \x1b\xff";
  EXPECT_EQ(result_of(run, "pctx.header.version").at("message").at("text"),
            "[a]\\x28https://evil.example) {{0}} \\x1b\\xff");
}

TEST(Sarif, CapsWhatItWrites) {
  EXPECT_LT(to_sarif(huge_run()).size(), 8U << 20);
  EXPECT_LT(to_sarif(hostile_run()).size(), 1U << 20);
  RunResult run = ordinary_run();
  Finding another = run.results[0].findings[0];
  for (std::uint32_t line = 1; line < 1000; ++line) {
    another.code[1].source_line = line;
    run.results[0].findings.push_back(another);
  }
  const json all = sarif_of(run);
  EXPECT_EQ(results_of(all, "pctx.header.version").size(), 20U);
  EXPECT_THAT(all.at("invocations").dump(), HasSubstr("broken at more than 20 places"));
}

TEST(Sarif, CapsStacksAndCommands) {
  RunResult run = ordinary_run();
  const std::string name(500, '\x1b');
  Finding finding = run.results[0].findings[0];
  finding.code.assign(kMaxCodeFrames, {.function = name, .source_file = name, .module = name});
  finding.code[1].path = "src/ctx.cc";
  const RequirementResult copied = run.results[0];
  run.results.assign(10, copied);
  for (RequirementResult& result : run.results) {
    result.findings.clear();
    for (std::uint32_t line = 1; line <= 20; ++line) {
      finding.code[1].source_line = line;
      result.findings.push_back(finding);
    }
  }
  const std::string text = to_sarif(run);
  EXPECT_LT(text.size(), 8U << 20);
  EXPECT_THAT(text, HasSubstr("\"stacks\""));
}

}  // namespace
}  // namespace ctxconf::conformance
