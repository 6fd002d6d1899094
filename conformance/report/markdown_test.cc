#include "conformance/report/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "conformance/report/sample_runs.h"

// check_reports.py tests that no text of the run is markup.
namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Markdown, BeginsWithTheVerdictAndItsDenominator) {
  EXPECT_THAT(to_markdown(ordinary_run()),
              StartsWith("## ctxconf failed\n\n**1 passed, 1 failed, 1 warning, 1 info, 2 "
                         "unobservable, 1 n/a of 7 selected**\n\nexit 1: `1 requirement failed`\n\n"
                         "`wrap` of `./app --only`; `OTEP 4719@2026-04-07, OTEP 4947@2026-07-17`; "
                         "reading reader-visible; kernel `6.12.1 x86_64`; program `musl 1.2.3`; "
                         "ctxconf `glibc 2.36`\n\n"));
  EXPECT_THAT(to_markdown(silent_run()), StartsWith("## ctxconf could not judge\n"));
}

TEST(Markdown, HasATableOfWhatFailed) {
  EXPECT_THAT(to_markdown(ordinary_run()),
              HasSubstr("| | requirement | saw |\n|---|---|---|\n"
                        "| **FAIL** | `pctx.header.version` | `version is 0` |\n"
                        "| **WARN** | `pctx.publish.footprint` | `9 pages are mapped for the "
                        "context` |\n\n"));
  EXPECT_THAT(to_markdown(run_with_expectations()), Not(HasSubstr("| **FAIL**")));
  EXPECT_THAT(to_markdown(silent_run()), Not(HasSubstr("|")));
}

TEST(Markdown, HasTheCommandsThatRunThemAgain) {
  EXPECT_THAT(to_markdown(ordinary_run()),
              HasSubstr("```sh\n"
                        "ctxconf wrap --only pctx.header.version --for=3s -- ./app --only\n"
                        "ctxconf wrap --only pctx.publish.footprint --for=3s -- ./app --only\n"
                        "```\n"));
}

TEST(Markdown, ACrashIsARowAndHasACommand) {
  RunResult run = silent_run();
  run.problems = {{.outcome = Outcome::kCrash, .image = {}, .text = "app died of SIGSEGV"}};
  EXPECT_THAT(to_markdown(run),
              HasSubstr("| **CRASH** | the run | `app died of SIGSEGV` |\n\nTo run it again:\n\n"
                        "```sh\nctxconf wrap --only 'pctx.*' --for=3s -- ./app --only\n```\n"));
}

TEST(Markdown, SaysWhatHadToBeJudged) {
  const std::string text = to_markdown(run_with_expectations());
  EXPECT_THAT(text, HasSubstr("### Required but not judged"));
  EXPECT_THAT(text, HasSubstr("judged in base.json, as pass"));
  EXPECT_THAT(to_markdown(ordinary_run()), Not(HasSubstr("Required but not judged")));
}

TEST(Markdown, HasTheCommandThatMendsTheExpectations) {
  EXPECT_THAT(to_markdown(run_with_expectations()),
              HasSubstr("**Error**, line 3: `pctx.header.signature is listed as fail and passed`"
                        "\n\n```sh\nctxconf expect prune expect.txt\n```\n"));
}

TEST(Markdown, AFenceIsLongerThanAnyInside) {
  RunResult run = ordinary_run();
  run.results[0].findings[0].saw = "a ````` b";
  EXPECT_THAT(to_markdown(run), HasSubstr("\n``````text\nFAIL  pctx.header.version"));
  EXPECT_THAT(to_markdown(run), HasSubstr("| `a \\x60\\x60\\x60\\x60\\x60 b` |"));
}

TEST(Markdown, BoundsItsTableAndItsSize) {
  RunResult run = huge_run();
  run.problems.assign(100, {.outcome = Outcome::kCrash, .image = {}, .text = "died"});
  const std::string text = to_markdown(run);
  EXPECT_THAT(text, HasSubstr("\n… and 57 more, in the other reports.\n"));
  EXPECT_THAT(text, HasSubstr("… and 1980 more problems."));
  EXPECT_LT(text.size(), kLongestMarkdown);
  EXPECT_LT(to_markdown(hostile_run()).size(), kLongestMarkdown);
}

}  // namespace
}  // namespace ctxconf::conformance
