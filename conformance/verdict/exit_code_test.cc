#include "conformance/verdict/exit_code.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/run_of.h"

namespace ctxconf::conformance {
namespace {

const ExitOptions kStrict{true, "", "", ""};

std::string concluded(RunResult& run, const ExitOptions& options = {}) {
  conclude(options, run);
  return std::to_string(run.exit_code) + " " + run.exit_reason;
}

std::string concluded(std::initializer_list<Outcome> outcomes, const ExitOptions& options = {}) {
  RunResult run = run_of(outcomes);
  return concluded(run, options);
}

TEST(Count, CountsEveryOutcome) {
  RunResult run = run_of({Outcome::kPass, Outcome::kPass, Outcome::kNa, Outcome::kUnobservable,
                          Outcome::kInfo, Outcome::kWarn, Outcome::kFail, Outcome::kFail,
                          Outcome::kTimeout, Outcome::kCrash, Outcome::kHarnessError});
  run.results[2].expected = Expected::kAsExpected;  // na-ok is not a failure
  run.results[6].expected = Expected::kAsExpected;
  run.results[7].expected = Expected::kUnexpected;
  const Totals t = count(run);
  EXPECT_EQ(t.selected, 11);
  EXPECT_EQ(t.pass, 2);
  EXPECT_EQ(t.na, 1);
  EXPECT_EQ(t.unobservable, 1);
  EXPECT_EQ(t.info, 1);
  EXPECT_EQ(t.warn, 1);
  EXPECT_EQ(t.fail, 2);
  EXPECT_EQ(t.timeout, 1);
  EXPECT_EQ(t.crash, 1);
  EXPECT_EQ(t.harness_error, 1);
  EXPECT_EQ(t.expected_failures, 1);
}

TEST(ExitCode, IsZeroWithTheNumbers) {
  EXPECT_EQ(concluded({Outcome::kPass, Outcome::kUnobservable, Outcome::kNa, Outcome::kInfo}),
            "0 2 of 4 requirements judged, none failed");
  EXPECT_EQ(concluded({Outcome::kPass, Outcome::kWarn}),
            "0 2 of 2 requirements judged, none failed, 1 warning");
  RunResult run = run_of({Outcome::kPass, Outcome::kFail, Outcome::kCrash});
  run.results[1].expected = run.results[2].expected = Expected::kAsExpected;
  EXPECT_EQ(concluded(run), "0 3 of 3 requirements judged, 2 failed as expected");
  EXPECT_EQ(run.totals.expected_failures, 2);
}

TEST(ExitCode, IsOneForWhatNobodyExpected) {
  for (const Outcome o : {Outcome::kFail, Outcome::kCrash, Outcome::kTimeout}) {
    EXPECT_EQ(concluded({o, Outcome::kPass}),
              "1 1 of 2 requirements failed unexpectedly: pctx.header.signature");
    RunResult run = run_of({o});
    run.results[0].expected = Expected::kUnexpected;
    EXPECT_EQ(concluded(run), "1 1 of 1 requirement failed unexpectedly: pctx.header.signature");
  }
  EXPECT_EQ(concluded({Outcome::kFail, Outcome::kFail, Outcome::kFail, Outcome::kFail}),
            "1 4 of 4 requirements failed unexpectedly: pctx.header.signature, "
            "pctx.header.version, pctx.header.version-development and 1 more");
}

TEST(ExitCode, LetsWarningsFailWhenStrict) {
  EXPECT_EQ(concluded({Outcome::kWarn}, kStrict),
            "1 1 of 1 requirement failed unexpectedly: pctx.header.signature");
  RunResult run = run_of({Outcome::kWarn});
  run.results[0].expected = Expected::kAsExpected;
  EXPECT_EQ(concluded(run, kStrict), "0 1 of 1 requirement judged, 1 failed as expected");
}

TEST(ExitCode, IsFourWhenNothingWasJudged) {
  EXPECT_EQ(concluded({Outcome::kUnobservable, Outcome::kNa}),
            "4 none of 2 requirements could be judged: no published context was seen");
  RunResult run = run_of({Outcome::kUnobservable});
  run.images.emplace_back().published = true;
  EXPECT_EQ(concluded(run), "4 none of 1 requirement could be judged");
  // The only result is that a context is missing.
  EXPECT_EQ(concluded({Outcome::kInfo, Outcome::kUnobservable}),
            "4 none of 2 requirements could be judged except pctx.header.signature, judged "
            "without a context: no published context was seen");
  RunResult seen = run_of({Outcome::kInfo});
  seen.images.emplace_back().published = true;
  EXPECT_EQ(concluded(seen).front(), '0');
  EXPECT_EQ(concluded({Outcome::kInfo, Outcome::kPass}).front(), '0');
  EXPECT_EQ(concluded({Outcome::kInfo, Outcome::kFail}).front(), '1');
  RunResult threads = run_of({Outcome::kInfo});
  threads.results[0].requirement = Catalogue::builtin().find("tctx.tls.prefers-tlsdesc");
  EXPECT_EQ(concluded(threads).front(), '0');
  // A pass that needs no context does not count as another result.
  RunResult survives = run_of({Outcome::kPass, Outcome::kFail});
  survives.results[0].holds_without_context = true;
  EXPECT_EQ(concluded(survives).front(), '1');
  survives.results.pop_back();
  EXPECT_EQ(concluded(survives),
            "4 none of 1 requirement could be judged except pctx.header.signature, judged without "
            "a context: no published context was seen");
  // Even with na-ok, nothing was judged.
  RunResult na = run_of({Outcome::kNa});
  na.results[0].expected = Expected::kAsExpected;
  EXPECT_EQ(concluded(na).front(), '4');
}

TEST(ExitCode, IsFourBelowTheFloor) {
  RunResult run = run_of({Outcome::kPass, Outcome::kUnobservable});
  run.floor = {{"pctx.header.version", "why", "unobservable", ""}};
  EXPECT_EQ(concluded(run),
            "4 1 requirement had to be judged but could not be: pctx.header.version");
  run.floor.clear();
  run.expectation_problems.push_back({3, 4, "not seen", "look"});
  EXPECT_EQ(concluded(run), "4 expectations file, line 3: not seen");
}

TEST(ExitCode, IsTwoWhenNothingWasSelected) {
  EXPECT_EQ(concluded({}), "2 no requirement was selected");
}

TEST(ExitCode, IgnoresWarningsAboutTheExpectations) {
  RunResult run = run_of({Outcome::kPass});
  run.expectation_problems.push_back({3, 0, "does not apply", "look"});
  EXPECT_EQ(concluded(run).front(), '0');
}

TEST(ExitCode, SeesAHarnessErrorAfterAnotherOutcome) {
  RunResult run = run_of({Outcome::kFail});
  run.results[0].findings.emplace_back().outcome = Outcome::kHarnessError;
  EXPECT_EQ(concluded(run), "70 ctxconf itself failed to judge pctx.header.signature");
}

// Removes the reason that wins, again and again until none is left.
TEST(ExitCode, HasAnOrderOfPrecedence) {
  RunResult run = run_of({Outcome::kUnobservable, Outcome::kHarnessError, Outcome::kFail});
  ExitOptions options{false, "no such process", "", ""};
  run.floor = {{"pctx.header.signature", "why", "unobservable", ""}};
  run.expectation_problems = {{0, 5, "stale", "m"}, {1, 1, "differs", "m"}, {2, 2, "syntax", "m"}};
  EXPECT_EQ(concluded(run, options).substr(0, 3), "70 ");
  run.results[1].outcome = Outcome::kPass;
  EXPECT_EQ(concluded(run, options), "2 expectations file, line 2: syntax");
  run.expectation_problems.pop_back();
  EXPECT_EQ(concluded(run, options), "3 no such process");
  options.unreachable.clear();
  EXPECT_EQ(concluded(run, options),
            "1 1 of 3 requirements failed unexpectedly: pctx.header.version-development");
  run.results[2].expected = Expected::kAsExpected;
  EXPECT_EQ(concluded(run, options), "1 expectations file, line 1: differs");
  run.expectation_problems.pop_back();
  EXPECT_EQ(concluded(run, options), "5 expectations file: stale");
  run.expectation_problems.pop_back();
  EXPECT_EQ(concluded(run, options).substr(0, 2), "4 ");
  run.floor.clear();
  EXPECT_EQ(concluded(run, options), "0 2 of 3 requirements judged, 1 failed as expected");
}

TEST(ExitCode, SaysUnreachableEvenWithoutResults) {
  EXPECT_EQ(concluded({}, {false, "cannot start x", "", ""}), "3 cannot start x");
}

}  // namespace
}  // namespace ctxconf::conformance
