#include "conformance/verdict/expectations_edit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/verdict/literal_expectations.h"

namespace ctxconf::conformance {
namespace {

const Catalogue& catalogue() { return Catalogue::builtin(); }

// The lines after the heading.
std::string init_lines(const std::vector<Observed>& all, bool strict = false) {
  const std::string text = init_expectations(all, {}, strict);
  EXPECT_TRUE(text.starts_with(kFirstLine));
  const std::size_t heading = text.find("until=YYYY-MM-DD\n");
  EXPECT_NE(heading, text.npos);
  return text.substr(heading + 17);
}

Edited updated(const std::string& lines, const std::vector<Observed>& all, bool strict = false) {
  return update_expectations(kFirstLine + lines, "known", catalogue(), all, {}, strict);
}

Edited pruned(const std::string& lines, const std::vector<Observed>& all, bool partial = false) {
  return prune_expectations(kFirstLine + lines, "known", catalogue(), all, partial);
}

// Checks that a run with these observations agrees with the text, after its issues are named.
void expect_holds(std::string text, const std::vector<Observed>& all) {
  for (std::size_t at; (at = text.find("issue=TODO")) != text.npos;)
    text.replace(at, 10, "issue=x");
  const Expectations e = parse_expectations(text, "known", catalogue());
  EXPECT_TRUE(e.problems.empty()) << e.problems.front().text << "\n" << text;
  EXPECT_TRUE(e.unexplained.empty()) << text;
  for (const Expectation& line : e.lines) EXPECT_EQ(fate_of(line, all).fate, Fate::kHolds) << text;
}

TEST(Init, ListsWhatFailed) {
  const std::vector<Observed> all = {
      {"pctx.header.version", "1 /a", Outcome::kFail, "version 1"},
      {"pctx.header.signature", "1 /a", Outcome::kPass, ""},
      {"pctx.header.layout", "1 /a", Outcome::kCrash, ""},
      {"pctx.header.payload-size", "1 /a", Outcome::kTimeout, "hung"},
      {"pctx.header.payload-pointer", "1 /a", Outcome::kWarn, "w"},
      {"pctx.header.at-mapping-start", "1 /a", Outcome::kNa, ""}};
  const std::string lines =
      "fail     pctx.header.version  issue=TODO saw=\"version 1\"\n"
      "crash    pctx.header.layout  issue=TODO\n"
      "crash    pctx.header.payload-size  issue=TODO saw=\"hung\"\n";
  EXPECT_EQ(init_lines(all), lines);
  EXPECT_EQ(init_lines(all, true),
            lines + "fail     pctx.header.payload-pointer  issue=TODO saw=\"w\"\n");
  expect_holds(init_expectations(all, {}, true), all);
}

TEST(Init, IsRefusedByLintUntilTheIssuesAreNamed) {
  const std::vector<Observed> all = {{"pctx.header.version", "", Outcome::kFail, ""}};
  const auto problems =
      lint_expectations(init_expectations(all, {}, false), "known", catalogue(), kToday);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].exit_code, 2);
  EXPECT_EQ(problems[0].line, 4);
  EXPECT_EQ(problems[0].text, "fail pctx.header.version has no issue");
}

TEST(Init, OfACleanRunIsAValidFile) {
  EXPECT_EQ(init_lines({{"pctx.header.version", "1 /a", Outcome::kPass, ""}}), "");
  EXPECT_TRUE(
      lint_expectations(init_expectations({}, {}, false), "f", catalogue(), kToday).empty());
}

TEST(Init, LeavesOutSawWhenImagesFailInDifferentWays) {
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kFail, "x"},
                                     {"pctx.header.version", "2 /b", Outcome::kFail, "y"}};
  EXPECT_EQ(init_lines(all), "fail     pctx.header.version  issue=TODO\n");
  expect_holds(init_expectations(all, {}, false), all);
}

TEST(Init, NamesTheImagesWhenOneFailedAndAnotherCrashed) {
  std::vector<Observed> all = {{"pctx.header.version", "12 /a", Outcome::kFail, "x"},
                               {"pctx.header.version", "13 /b", Outcome::kCrash, "SIGSEGV"},
                               {"pctx.header.version", "14 /b", Outcome::kCrash, "SIGSEGV"}};
  EXPECT_EQ(init_lines(all),
            "fail     pctx.header.version  issue=TODO image=\"* /a\" saw=\"x\"\n"
            "crash    pctx.header.version  issue=TODO image=\"* /b\" saw=\"SIGSEGV\"\n");
  expect_holds(init_expectations(all, {}, false), all);
  // Without an image name there can be only one line, for the worst outcome.
  all[0].image = "";
  EXPECT_EQ(init_lines(all), "crash    pctx.header.version  issue=TODO saw=\"SIGSEGV\"\n");
}

TEST(Init, QuotesHostileTexts) {
  const std::vector<Observed> all = {
      {"pctx.header.version", "12 /a\"\n\\ b", Outcome::kFail,
       "say \"hi\"\n# \\" + std::string(300, 'x')},
      {"pctx.header.version", "13 " + std::string(5000, '/'), Outcome::kCrash, " \x7f "}};
  EXPECT_TRUE(
      init_lines(all).starts_with("crash    pctx.header.version  issue=TODO image=\"* ///"));
  EXPECT_NE(init_lines(all).find("image=\"* /a\\\"?\\\\ b\" saw=\"say \\\"hi\\\"?# \\\\xxx"),
            std::string::npos);
  expect_holds(init_expectations(all, {}, false), all);
}

TEST(Update, AddsNewFailuresBelowAndKeepsTheRest) {
  const std::string lines =
      "# ours\n"
      "fail pctx.header.signature issue=x   # odd   spacing\n"
      "\n"
      "fail pctx.header.layout issue=TODO";
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kFail, "v"},
                                     {"pctx.header.signature", "1 /a", Outcome::kPass, ""},
                                     {"pctx.header.layout", "1 /a", Outcome::kFail, ""}};
  const Edited e = updated(lines, all);
  EXPECT_TRUE(e.problems.empty());
  EXPECT_EQ(e.added,
            (std::vector<std::string>{"fail     pctx.header.version  issue=TODO saw=\"v\""}));
  EXPECT_EQ(e.text, kFirstLine + lines + "\n" + e.added[0] + "\n");
  EXPECT_EQ(update_expectations(e.text, "known", catalogue(), all, {}, false).text, e.text);
}

TEST(Update, LeavesWhatDiffersFromItsLineToAPerson) {
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kCrash, "v"}};
  const std::string lines = "fail pctx.header.version issue=x\n";
  EXPECT_EQ(updated(lines, all).text, kFirstLine + lines);
}

TEST(Update, AddsALineForAnImageThatNoLineCovers) {
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kFail, ""},
                                     {"pctx.header.version", "2 /b", Outcome::kFail, ""},
                                     {"pctx.header.version", "", Outcome::kFail, ""}};
  const Edited e = updated("fail pctx.header.version issue=x image=\"* /a\"\n", all);
  EXPECT_EQ(e.added,
            (std::vector<std::string>{"fail     pctx.header.version  issue=TODO image=\"* /b\""}));
  expect_holds(e.text, all);
}

TEST(Update, AddsWarningsOnlyWhenStrict) {
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kWarn, ""}};
  EXPECT_TRUE(updated("", all).added.empty());
  EXPECT_EQ(updated("", all, true).added.size(), 1U);
}

TEST(Update, SaysThatNaOkDoesNotCoverAFailure) {
  const Edited e = updated("na-ok pctx.header.* reason=r image=other\n",
                           {{"pctx.header.version", "1 /a", Outcome::kFail, ""}});
  EXPECT_EQ(e.added,
            (std::vector<std::string>{"fail     pctx.header.version  issue=TODO image=\"* /a\""}));
}

TEST(Update, RefusesALineThatWouldContradictNaOk) {
  const std::string lines = "na-ok pctx.header.version reason=r\n";
  const Edited e = updated(lines, {{"pctx.header.version", "1 /a", Outcome::kFail, ""}});
  EXPECT_EQ(e.text, kFirstLine + lines);
  EXPECT_TRUE(e.added.empty());
  ASSERT_EQ(e.problems.size(), 1U);
  EXPECT_EQ(e.problems[0].line, 2);
}

TEST(Edits, RefuseAFileWithMistakes) {
  const std::vector<Observed> all = {{"pctx.header.version", "1 /a", Outcome::kPass, ""}};
  const std::string lines = "fail pctx.header.version issue=x\noops\n";
  for (const Edited& e : {updated(lines, all), pruned(lines, all)}) {
    EXPECT_EQ(e.text, kFirstLine + lines);
    ASSERT_EQ(e.problems.size(), 1U);
    EXPECT_EQ(e.problems[0].line, 3);
    EXPECT_TRUE(e.added.empty());
    EXPECT_TRUE(e.removed.empty());
  }
  EXPECT_EQ(prune_expectations("", "known", catalogue(), all, false).problems.size(), 1U);
}

TEST(Prune, RemovesWhatIsStaleAndNothingElse) {
  const std::string lines =
      "# 2\n"
      "fail pctx.header.version issue=x\n"
      "fail pctx.no.such issue=x\n"
      "\n"
      "fail pctx.header.signature issue=x until=2020-01-01\n"
      "crash pctx.header.layout issue=x\n"
      "flaky pctx.header.payload-size issue=x\n"
      "fail pctx.header.payload-pointer issue=x\n"
      "fail pctx.header.at-mapping-start issue=x\n"
      "fail pctx.header.timestamp-clock issue=x image=other\n"
      "na-ok pctx.header.wide-* reason=r";
  const std::vector<Observed> all = {
      {"pctx.header.version", "1 /a", Outcome::kPass, ""},
      {"pctx.header.signature", "1 /a", Outcome::kFail, ""},
      {"pctx.header.layout", "1 /a", Outcome::kFail, ""},
      {"pctx.header.payload-size", "1 /a", Outcome::kPass, ""},
      {"pctx.header.payload-pointer", "1 /a", Outcome::kUnobservable, ""},
      {"pctx.header.timestamp-clock", "1 /a", Outcome::kPass, ""},
      {"pctx.header.wide-fields-on-32-bit", "1 /a", Outcome::kPass, ""}};
  const Edited e = pruned(lines, all);
  EXPECT_TRUE(e.problems.empty());
  EXPECT_EQ(e.removed, (std::vector<int>{3, 4, 12}));
  EXPECT_EQ(e.text, kFirstLine +
                        "# 2\n"
                        "\n"
                        "fail pctx.header.signature issue=x until=2020-01-01\n"
                        "crash pctx.header.layout issue=x\n"
                        "flaky pctx.header.payload-size issue=x\n"
                        "fail pctx.header.payload-pointer issue=x\n"
                        "fail pctx.header.at-mapping-start issue=x\n"
                        "fail pctx.header.timestamp-clock issue=x image=other\n");
  EXPECT_EQ(prune_expectations(e.text, "known", catalogue(), all, false).text, e.text);
  const Edited partly = pruned(lines, all, true);
  EXPECT_EQ(partly.removed, std::vector<int>{4}) << "that requirement does not exist";
  EXPECT_EQ(partly.kept, (std::vector<int>{3, 12}));
}

TEST(Prune, KeepsAPatternOfWhichNotAllWasSelected) {
  const std::string lines = "na-ok pctx.header.* reason=r\n";
  const Edited e = pruned(lines, {{"pctx.header.version", "1 /a", Outcome::kPass, ""}});
  EXPECT_EQ(e.text, kFirstLine + lines);
}

TEST(Lint, FindsAllProblemsInTheOrderOfTheLines) {
  const auto problems = lint_expectations(kFirstLine +
                                              "fail pctx.header.version issue=x until=2020-01-01\n"
                                              "fail pctx.header.version issue=x\n"
                                              "fail pctx.header.signature\n"
                                              "fail pctx.no.such issue=x\n"
                                              "oops\n",
                                          "known", catalogue(), kToday);
  std::string all;
  for (const ExpectationProblem& p : problems) {
    EXPECT_FALSE(p.mend.empty());
    all += std::to_string(p.line) + ":" + std::to_string(p.exit_code) + " ";
  }
  EXPECT_EQ(all, "2:5 3:2 4:2 5:5 6:2 ");
}

TEST(Init, WritesWhatMustBeJudged) {
  const std::vector<std::string> judged = {"pctx.header.signature", "pctx.header.version"};
  const std::string text = init_expectations({}, judged, false);
  EXPECT_TRUE(text.ends_with("judged   pctx.header.signature\njudged   pctx.header.version\n"))
      << text;
  EXPECT_TRUE(lint_expectations(text, "f", catalogue(), kToday).empty());
  const auto parsed = parse_expectations(text, "f", catalogue());
  EXPECT_EQ(parsed.judged.size(), 2U);
  EXPECT_TRUE(parsed.lines.empty());
  EXPECT_EQ(prune_expectations(text, "f", catalogue(), {}, false).text, text);
}

TEST(Update, AddsWhatMustBeJudgedOnce) {
  const std::vector<std::string> judged = {"pctx.header.signature", "pctx.update.visible"};
  const auto e = update_expectations(kFirstLine + std::string("judged pctx.header.*\n"), "f",
                                     catalogue(), {}, judged, false);
  ASSERT_EQ(e.added.size(), 1U);
  EXPECT_EQ(e.added.front(), "judged   pctx.update.visible");
}

}  // namespace
}  // namespace ctxconf::conformance
