#include "conformance/verdict/floor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/run_of.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Each result has one finding.
RunResult seen_run_of(std::initializer_list<Outcome> outcomes) {
  RunResult run = run_of(outcomes);
  for (RequirementResult& result : run.results) {
    Finding f;
    f.outcome = result.outcome;
    f.saw = "seen";
    f.remedy = "a remedy";
    result.findings = {f};
  }
  return run;
}

// "id|why|now" of each problem.
std::vector<std::string> below(const Floor& floor, RunResult run,
                               const std::string& expectations = "") {
  const auto parsed =
      parse_expectations("# ctxconf-expect 1\n" + expectations, "known", Catalogue::builtin());
  EXPECT_THAT(parsed.problems, IsEmpty());
  apply_floor(floor, &parsed, run);
  std::vector<std::string> out;
  for (const auto& p : run.floor) out.push_back(p.requirement + "|" + p.why + "|" + p.now);
  return out;
}

Floor baseline(const RunResult& run) { return {{}, "base.json", judged_in(run)}; }

TEST(Floor, WithoutOneNothingIsBelowIt) {
  EXPECT_THAT(below({}, seen_run_of({Outcome::kUnobservable, Outcome::kNa})), IsEmpty());
}

TEST(Floor, WhatAGlobNamesMustBeObservable) {
  const auto run = seen_run_of({Outcome::kUnobservable, Outcome::kUnobservable, Outcome::kNa});
  EXPECT_EQ(below({{"*"}, "", {}}, run).size(), 2U);
  EXPECT_THAT(
      below({{"*.version"}, "", {}}, run),
      ElementsAre("pctx.header.version|--require-observable asks for it|unobservable: seen"));
  EXPECT_THAT(below({{"pctx.update.*"}, "", {}}, run),
              ElementsAre("pctx.update.*|--require-observable asks for it|no requirement that "
                          "matches it was selected"));
  EXPECT_THAT(below({{"*"}, "", {}}, seen_run_of({Outcome::kPass, Outcome::kFail, Outcome::kNa})),
              IsEmpty());
}

TEST(Floor, WhatWasJudgedBeforeMustBeJudgedAgain) {
  const Floor floor =
      baseline(seen_run_of({Outcome::kPass, Outcome::kFail, Outcome::kUnobservable, Outcome::kNa}));
  EXPECT_EQ(floor.baseline.size(), 2U);
  EXPECT_THAT(below(floor, seen_run_of({Outcome::kFail, Outcome::kPass, Outcome::kNa})), IsEmpty());
  EXPECT_THAT(
      below(floor, seen_run_of({Outcome::kNa, Outcome::kUnobservable})),
      ElementsAre("pctx.header.signature|judged in base.json, as pass|na (capability): seen",
                  "pctx.header.version|judged in base.json, as fail|unobservable: seen"));
  EXPECT_THAT(below(floor, seen_run_of({Outcome::kPass})),
              ElementsAre("pctx.header.version|judged in base.json, as fail|not selected"));
}

TEST(Floor, WhatTheProcessorCannotNeedIsNoLoss) {
  const Floor floor = baseline(seen_run_of({Outcome::kPass}));
  RunResult run = seen_run_of({Outcome::kNa});
  run.results[0].findings[0].na_reason = NaReason::kArch;
  EXPECT_THAT(below(floor, run), IsEmpty());
}

TEST(Floor, ALineOfTheExpectationsAsksForWhatIsSelected) {
  const std::string lines = "judged pctx.header.signature\njudged pctx.update.*  # all\n";
  EXPECT_THAT(below({}, seen_run_of({Outcome::kNa}), lines),
              ElementsAre("pctx.header.signature|known, line 2: judged pctx.header.signature|na "
                          "(capability): seen"));
  EXPECT_THAT(below({}, seen_run_of({Outcome::kFail, Outcome::kUnobservable}), lines), IsEmpty());
}

TEST(Floor, EachRequirementIsNamedOnce) {
  Floor floor = baseline(seen_run_of({Outcome::kPass}));
  floor.observable = {"*"};
  EXPECT_EQ(below(floor, seen_run_of({Outcome::kUnobservable}), "judged *\n").size(), 1U);
}

TEST(Floor, AWrongLineIsUsage) {
  const auto code_of = [](const std::string& line) {
    const auto parsed =
        parse_expectations("# ctxconf-expect 1\n" + line + "\n", "known", Catalogue::builtin());
    return parsed.problems.empty() ? 0 : parsed.problems.front().exit_code;
  };
  EXPECT_EQ(code_of("judged"), 2);
  EXPECT_EQ(code_of("judged pctx.header.version issue=x"), 2);
  EXPECT_EQ(code_of("judged pctx.header.version\njudged pctx.header.version"), 2);
  EXPECT_EQ(code_of("judged pctx.no.such"), 5);
  EXPECT_EQ(code_of("judged pctx.header.version\nfail pctx.header.version issue=x"), 0);
}

}  // namespace
}  // namespace ctxconf::conformance
