#include "conformance/report/junit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Junit, NamesSectionAndRequirementAndCountsRight) {
  const std::string xml = to_junit(ordinary_run(), {});
  EXPECT_THAT(xml, HasSubstr("<testsuites name=\"ctxconf\" tests=\"7\" failures=\"1\" errors=\"0\" "
                             "time=\"1.250\">"));
  EXPECT_THAT(xml, HasSubstr("errors=\"0\" time=\"1.250\" skipped=\"3\">"));
  EXPECT_THAT(xml, HasSubstr("timestamp=\"2026-01-02T03:04:05\""));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"otep4719.header-structure\" "
                             "name=\"pctx.header.signature\" time=\"0\"/>"));
  EXPECT_THAT(xml, HasSubstr("<property name=\"kernel\" value=\"6.12.1\"/>"));
  EXPECT_THAT(xml, HasSubstr("<property name=\"arch\" value=\"x86_64\"/>"));
  EXPECT_THAT(xml, HasSubstr("<property name=\"program.libc\" value=\"musl 1.2.3\"/>\n   "
                             "<property name=\"ctxconf.libc\" value=\"glibc 2.36\"/>"));
  EXPECT_THAT(xml, HasSubstr("<property name=\"spec\" value=\"OTEP 4719@2026-04-07, "
                             "OTEP 4947@2026-07-17\"/>"));
}

TEST(Junit, PutsTheWholeFindingIntoTheFailure) {
  const std::string xml = to_junit(ordinary_run(), {});
  EXPECT_THAT(xml, HasSubstr("<failure type=\"fail\" message=\"version is 0\">FAIL  "
                             "pctx.header.version   MUST (table)"));
  EXPECT_THAT(xml, HasSubstr("^^ ^^ ^^ ^^ version: 0, want 2\n"));
  EXPECT_THAT(xml, HasSubstr("  again  ctxconf wrap --only pctx.header.version"));
}

TEST(Junit, SkipsWhatWasNotJudgedAndSaysWhy) {
  const std::string xml = to_junit(ordinary_run(), {});
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"unobservable: no update was seen; to see it: let "
                             "the program change its context while it is watched\"/>"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"n/a (capability): the program has no thread "
                             "context\"/>"));
}

TEST(Junit, WarningsFailOnlyWhenStrict) {
  const std::string footprint = "name=\"pctx.publish.footprint\" time=\"0\">\n    <";
  EXPECT_THAT(to_junit(ordinary_run(), {}), HasSubstr(footprint + "system-out>WARN"));
  EXPECT_THAT(to_junit(ordinary_run(), {.strict = true}),
              HasSubstr(footprint + "failure type=\"warn\""));
}

TEST(Junit, CrashesHangsAndOurOwnFaultsAreErrors) {
  for (const Outcome outcome : {Outcome::kCrash, Outcome::kTimeout, Outcome::kHarnessError}) {
    RunResult run = ordinary_run();
    run.results[0].outcome = run.results[0].findings[0].outcome = outcome;
    const std::string xml = to_junit(run, {});
    EXPECT_THAT(xml, HasSubstr("<error type=\"" + std::string(to_string(outcome)) + "\""));
    EXPECT_THAT(xml, HasSubstr("failures=\"0\" errors=\"1\""));
  }
}

TEST(Junit, NamesImagesByExecutableWhenSeveralPublished) {
  const std::string xml = to_junit(run_of_two_images(), {});
  EXPECT_THAT(xml, HasSubstr("classname=\"otep4719.header-structure./opt/shop/checkout\" "
                             "name=\"pctx.header.version\""));
  EXPECT_THAT(xml, HasSubstr("classname=\"otep4719.header-structure./opt/shop/checkout (2)\" "
                             "name=\"pctx.header.version\""));
  EXPECT_THAT(xml, HasSubstr("classname=\"otep4719.header-structure./opt/shop/cart\" "
                             "name=\"pctx.header.version\""));
  // The shell published nothing, and nothing is wrong with it.
  EXPECT_THAT(xml, Not(HasSubstr("/bin/sh")));
  EXPECT_THAT(xml, HasSubstr("tests=\"9\" failures=\"2\""));
  EXPECT_THAT(to_junit(ordinary_run(), {}),
              Not(HasSubstr("classname=\"otep4719.header-structure.")));
}

TEST(Junit, KeepsAProblemOfAnImageThatDidNotPublish) {
  RunResult run = run_of_two_images();
  run.results[0].findings[3].outcome = Outcome::kCrash;
  EXPECT_THAT(to_junit(run, {}),
              HasSubstr("classname=\"otep4719.header-structure./bin/sh (published nothing)\""));
}

TEST(Junit, SkipsExpectedFailuresAndFailsForAStaleFile) {
  const std::string xml = to_junit(run_with_expectations(), {});
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"ctxconf.floor\" name=\"pctx.update.visible\""));
  EXPECT_THAT(xml,
              HasSubstr("<failure type=\"floor\" message=\"judged in base.json, as pass; now "));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"fail as expected: "
                             "issue=https://example.com/7 until=2030-01-01\"/>"));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"ctxconf.expectations\" name=\"line 3\""));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"expectations\" message=\"pctx.header.signature is "
                             "listed as fail and passed\">"));
  EXPECT_THAT(xml, HasSubstr("fix: ctxconf expect prune expect.txt"));
  EXPECT_THAT(xml, AllOf(HasSubstr("failures=\"2\" errors=\"0\""), HasSubstr("skipped=\"4\"")));
}

TEST(Junit, IsNotGreenWhenNothingCouldBeJudged) {
  const std::string xml = to_junit(silent_run(), {});
  EXPECT_THAT(xml, AllOf(HasSubstr("failures=\"0\" errors=\"1\""), HasSubstr("skipped=\"2\"")));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"ctxconf.run\" name=\"exit\""));
  EXPECT_THAT(xml, HasSubstr("message=\"exit 4: nothing could be judged\""));
}

TEST(Junit, HostileTextStaysText) {
  const std::string xml = to_junit(hostile_run(), {.strict = true});
  EXPECT_THAT(xml, Not(HasSubstr("\x1b")));
  EXPECT_THAT(xml, Not(HasSubstr("]]>")));
  EXPECT_THAT(xml, Not(HasSubstr("<b a=")));
  EXPECT_THAT(xml, Not(HasSubstr("</script>")));
  EXPECT_THAT(xml, Not(HasSubstr("\xff")));
  EXPECT_EQ(xml.find('\0'), std::string::npos);
  EXPECT_THAT(xml, HasSubstr("\\x1b]0;own\\x07"));
  EXPECT_LT(xml.size(), 2U << 20);
}

TEST(Junit, CapsWhatItWrites) {
  RunResult run = huge_run();
  const std::string xml = to_junit(run, {});
  EXPECT_LT(xml.size(), 8U << 20);
  EXPECT_THAT(xml, HasSubstr("left out because this report is too long"));
  // No failed requirement is lost, only its text.
  for (const RequirementResult& result : run.results) {
    EXPECT_THAT(xml, HasSubstr("name=\"" + result.requirement->id + "\""));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
