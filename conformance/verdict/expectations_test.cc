#include "conformance/verdict/expectations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "conformance/verdict/literal_expectations.h"

namespace ctxconf::conformance {
namespace {

using std::chrono::day;
using std::chrono::month;
using std::chrono::year;

Expectations parsed(const std::string& lines, std::string_view file = "known") {
  return parse_expectations(kFirstLine + lines, file, Catalogue::builtin());
}

// "code line text"
std::string first_problem(const Expectations& e) {
  const auto& all = e.problems.empty() ? e.unexplained : e.problems;
  if (all.empty()) return "none";
  return std::to_string(all[0].exit_code) + " " + std::to_string(all[0].line) + " " + all[0].text;
}
std::string problem_of(const std::string& lines) { return first_problem(parsed(lines)); }

Finding finding(std::string id, Outcome outcome, std::string signature = "",
                std::string image = "12 /bin/app") {
  Finding f;
  f.requirement = std::move(id);
  f.image_name = std::move(image);
  f.outcome = outcome;
  f.signature = std::move(signature);
  return f;
}

// A run whose results come from these findings; the worst is the outcome.
RunResult run_with(const std::vector<Finding>& findings) {
  RunResult run;
  for (const Finding& f : findings) {
    const Requirement* r = Catalogue::builtin().find(f.requirement);
    EXPECT_NE(r, nullptr) << f.requirement;
    if (run.results.empty() || run.results.back().requirement != r) {
      RequirementResult& added = run.results.emplace_back();
      added.requirement = r;
      added.outcome = f.outcome;
    }
    RequirementResult& result = run.results.back();
    result.outcome = std::max(result.outcome, f.outcome);
    result.findings.push_back(f);
  }
  return run;
}

constexpr const char* kId = "pctx.header.version";
constexpr const char* kOther = "pctx.header.signature";

RunResult applied(const std::string& lines, const std::vector<Finding>& findings,
                  ApplyOptions options = {}) {
  RunResult run = run_with(findings);
  apply(parsed(lines), kToday, options, run);
  return run;
}

// "code text", or "none" ; more than one are joined.
std::string problems(const RunResult& run) {
  std::string out;
  for (const ExpectationProblem& p : run.expectation_problems) {
    EXPECT_TRUE(p.exit_code == 0 || !p.mend.empty()) << p.text;
    out += (out.empty() ? "" : "; ") + std::to_string(p.exit_code) + " " + p.text;
  }
  return out.empty() ? "none" : out;
}

TEST(ParseExpectations, ReadsEveryVerbAndKey) {
  const Expectations e = parsed(
      "\n"
      "  # a comment\n"
      "fail     pctx.header.version   issue=https://x/i#1 until=2027-03-01 saw=\" a \\\"b\\\" \\\\ "
      "\" "
      "reason=\"not yet\" image=\"* /bin/app\"  # after it\n"
      "crash\tpctx.header.signature\tissue=I2\r\n"
      "flaky pctx.header.layout issue=I3\n"
      "na-ok tctx.* reason=labels");
  EXPECT_EQ(first_problem(e), "none");
  EXPECT_EQ(e.usage_error(), nullptr);
  ASSERT_EQ(e.lines.size(), 4U);
  const Expectation& fail = e.lines[0];
  EXPECT_EQ(fail.line, 4);
  EXPECT_EQ(fail.verb, ExpectVerb::kFail);
  EXPECT_EQ(fail.pattern, "pctx.header.version");
  EXPECT_EQ(fail.issue, "https://x/i#1");
  EXPECT_EQ(fail.until, (Date{year(2027), month(3), day(1)}));
  EXPECT_EQ(fail.saw, "a \"b\" \\");
  EXPECT_EQ(fail.reason, "not yet");
  EXPECT_EQ(fail.image, "* /bin/app");
  EXPECT_EQ(e.lines[1].verb, ExpectVerb::kCrash);
  EXPECT_EQ(e.lines[1].issue, "I2");
  EXPECT_EQ(e.lines[2].verb, ExpectVerb::kFlaky);
  EXPECT_EQ(e.lines[3].verb, ExpectVerb::kNaOk);
  EXPECT_EQ(e.lines[3].line, 7);
  EXPECT_TRUE(e.lines[3].names("tctx.attach.compiler-fences"));
}

TEST(ParseExpectations, WantsItsFirstLine) {
  const auto problem = [](std::string_view text) {
    const Expectations e = parse_expectations(text, "my file", Catalogue::builtin());
    EXPECT_TRUE(e.lines.empty());
    EXPECT_NE(e.usage_error(), nullptr);
    return first_problem(e) + " | " + e.problems.at(0).mend;
  };
  EXPECT_EQ(problem("fail pctx.header.version issue=x\n"),
            "2 1 the first line is not `# ctxconf-expect 1` | "
            "sed -i '1i # ctxconf-expect 1' 'my file'");
  EXPECT_EQ(problem(""),
            "2 1 the first line is not `# ctxconf-expect 1` | "
            "echo '# ctxconf-expect 1' > 'my file'");
  EXPECT_TRUE(problem("# ctxconf-expect 2\n").starts_with("2 1 the first line"));
  EXPECT_TRUE(parse_expectations("# ctxconf-expect 1", "f", Catalogue::builtin()).problems.empty());
  EXPECT_TRUE(
      parse_expectations("# ctxconf-expect 1\r\n", "f", Catalogue::builtin()).problems.empty());
}

TEST(ParseExpectations, NamesTheLineOfEachMistake) {
  EXPECT_EQ(problem_of("\nfails pctx.header.version issue=x\n"),
            "2 3 \"fails\" is not fail, crash, flaky, na-ok or judged");
  EXPECT_EQ(problem_of("fail\n"), "2 2 fail needs the id of a requirement");
  EXPECT_EQ(problem_of("fail issue=x\n"), "2 2 fail needs the id of a requirement");
  EXPECT_EQ(problem_of("fail # pctx.header.version\n"), "2 2 fail needs the id of a requirement");
  EXPECT_EQ(problem_of("fail pctx.header.version x\n"), "2 2 \"x\" is not KEY=VALUE");
  EXPECT_EQ(problem_of("fail pctx.header.version x y=z\n"), "2 2 \"x\" is not KEY=VALUE");
  EXPECT_EQ(problem_of("fail pctx.header.version isue=x\n"),
            "2 2 \"isue\" is not issue, until, saw, reason or image");
  EXPECT_EQ(problem_of("fail pctx.header.version issue=x issue=y\n"), "2 2 issue is given twice");
  EXPECT_EQ(problem_of("fail pctx.header.version issue=\n"), "2 2 the value of \"issue\" is empty");
  EXPECT_EQ(problem_of("fail pctx.header.version issue=\" \"\n"),
            "2 2 the value of \"issue\" is empty");
  EXPECT_EQ(problem_of("fail pctx.header.version issue=x saw=\"a\n"),
            "2 2 the value of saw has no closing quote");
  EXPECT_EQ(problem_of("fail pctx.header.version saw=\"a\"issue=x\n"),
            "2 2 a blank is missing after the value of saw");
  EXPECT_EQ(problem_of("fail pctx.header.version saw=a\"b\" issue=x\n"),
            "2 2 a quote inside the value of saw; quote all of it");
  EXPECT_EQ(problem_of("fail pctx.header.version saw=\"a\\n\" issue=x\n"),
            "2 2 in the value of saw a backslash must be followed by \" or \\");
  EXPECT_EQ(problem_of("fail pctx.header.version saw=\"a\\"),
            "2 2 in the value of saw a backslash must be followed by \" or \\");
  EXPECT_EQ(problem_of("fail pctx.header.version issue=x\x1b[2J\n"),
            "2 2 the line has a control character");
  EXPECT_EQ(problem_of("fail " + std::string(101, 'p') + " issue=x\n"),
            "2 2 the pattern is too long for any id");
  EXPECT_EQ(problem_of("# " + std::string(4096, 'x') + "\n"),
            "2 2 the line is longer than 4096 bytes");
  const Expectations two = parsed("oops\n\nfail pctx.header.version issue=x\nagain\n");
  ASSERT_EQ(two.problems.size(), 2U);
  EXPECT_EQ(two.problems[1].line, 5);
  EXPECT_EQ(two.problems[1].mend, "${EDITOR:-vi} +5 known  # VERB PATTERN KEY=VALUE...");
  EXPECT_EQ(two.lines.size(), 1U);
}

TEST(ParseExpectations, KnowsTheCalendar) {
  for (const char* bad : {"2026-02-29", "2026-13-01", "2026-00-10", "2026-1-01", "2026/01/01",
                          "20260101", "2026-01-01T", "tomorrow", "2026-01-0x", "-026-01-01"}) {
    EXPECT_EQ(problem_of("fail pctx.header.version issue=x until=" + std::string(bad) + "\n"),
              "2 2 until=\"" + std::string(bad) + "\" is not a day as YYYY-MM-DD");
  }
  EXPECT_EQ(problem_of("fail pctx.header.version issue=x until=2028-02-29\n"), "none");
}

TEST(ParseExpectations, IsBounded) {
  const std::string big = kFirstLine + std::string(kMaxExpectationBytes, '\n');
  EXPECT_EQ(first_problem(parse_expectations(big, "f", Catalogue::builtin())),
            "2 0 the file is larger than 1 MiB");
  EXPECT_EQ(problem_of(std::string(kMaxExpectationLines - 1, '\n')), "none");
  EXPECT_EQ(problem_of(std::string(kMaxExpectationLines, '\n') + "x"),
            "2 4097 more than 4096 lines");
}

TEST(ParseExpectations, WantsAnIssueOrAReason) {
  for (const char* verb : {"fail", "crash", "flaky"}) {
    for (const char* rest : {"", " reason=because", " issue=TODO", " issue=todo"}) {
      const Expectations e = parsed(std::string(verb) + " pctx.header.version" + rest + "\n");
      EXPECT_EQ(first_problem(e), "2 2 " + std::string(verb) + " pctx.header.version has no issue");
      ASSERT_NE(e.usage_error(), nullptr);
      EXPECT_EQ(e.usage_error()->mend, "${EDITOR:-vi} +2 known  # issue=URL");
      EXPECT_EQ(e.lines.size(), 1U);
    }
  }
  EXPECT_EQ(problem_of("fail pctx.header.version issue=TODO-7\n"), "none");
  EXPECT_EQ(problem_of("na-ok tctx.* issue=x\n"), "2 2 na-ok tctx.* has no reason");
}

TEST(ParseExpectations, TakesPatternsForNaOkOnly) {
  for (const char* verb : {"fail", "crash", "flaky"}) {
    for (const char* glob : {"pctx.*", "pctx.header.versio?"}) {
      EXPECT_EQ(problem_of(std::string(verb) + " " + glob + " issue=x\n"),
                "2 2 " + std::string(verb) + " " + glob + ": only na-ok takes a pattern");
    }
  }
  EXPECT_EQ(problem_of("na-ok tctx.* reason=x saw=y\n"), "2 2 na-ok does not take saw");
}

TEST(ParseExpectations, NamesTheNearestIdForAnUnknownOne) {
  const Expectations e = parsed("fail pctx.header.versoin issue=x\n");
  EXPECT_EQ(first_problem(e),
            "5 2 no requirement is called \"pctx.header.versoin\"; did you mean "
            "pctx.header.version?");
  EXPECT_EQ(e.problems[0].mend, "sed -E -i 2s/pctx.header.versoin/pctx.header.version/ known");
  EXPECT_EQ(e.usage_error(), nullptr);
  EXPECT_TRUE(e.lines.empty());
  const Expectations far = parsed("crash other issue=x\n", "it's");
  EXPECT_EQ(first_problem(far), "5 2 no requirement is called \"other\"");
  EXPECT_EQ(far.problems[0].mend, "sed -E -i '2s/^/# /' 'it'\\''s'");
  const Expectations glob = parsed("na-ok pctx.header.vers/n* reason=x\n", "-f");
  EXPECT_EQ(glob.problems.at(0).mend, "sed -E -i '2s/^/# /' '-f'");
}

TEST(ParseExpectations, NamesTheNearestIdForTheFirstUnknownOnesOnly) {
  constexpr std::size_t kSuggestions = 64;
  std::string lines;
  for (std::size_t i = 0; i < kSuggestions + 2; ++i) lines += "fail pctx.header.versoin issue=x\n";
  const Expectations e = parsed(lines);
  ASSERT_EQ(e.problems.size(), kSuggestions + 2);
  for (std::size_t i = 0; i < e.problems.size(); ++i) {
    const auto& [line, code, text, mend] = e.problems[i];
    EXPECT_EQ(line, static_cast<int>(i) + 2);
    EXPECT_EQ(code, 5);
    EXPECT_EQ(text.contains("did you mean pctx.header.version?"), i < kSuggestions) << i;
    EXPECT_TRUE(mend.starts_with("sed ")) << mend;
  }
}

TEST(ParseExpectations, RefusesLinesThatRepeatOrContradict) {
  const std::string a = "fail pctx.header.version issue=x";
  const std::string app = " image=\"* /bin/app\"";
  EXPECT_EQ(problem_of(a + "\n" + a + "\n"),
            "2 3 fail pctx.header.version repeats line 2 (fail pctx.header.version)");
  EXPECT_EQ(problem_of(a + "\n\ncrash pctx.header.version issue=x\n"),
            "2 4 crash pctx.header.version contradicts line 2 (fail pctx.header.version)");
  EXPECT_EQ(problem_of(a + app + "\n" + a + "\n"),
            "2 3 fail pctx.header.version repeats line 2 (fail pctx.header.version)");
  EXPECT_EQ(problem_of(a + "\nflaky pctx.header.version issue=x" + app + "\n"),
            "2 3 flaky pctx.header.version contradicts line 2 (fail pctx.header.version)");
  EXPECT_EQ(problem_of(a + app + "\n" + a + app + "\n"),
            "2 3 fail pctx.header.version repeats line 2 (fail pctx.header.version)");
  EXPECT_EQ(problem_of("na-ok pctx.* reason=r\n" + a + "\n"),
            "2 3 fail pctx.header.version contradicts line 2 (na-ok pctx.*)");
  EXPECT_EQ(problem_of("na-ok pctx.* reason=r\nna-ok pctx.* reason=s\n"),
            "2 3 na-ok pctx.* repeats line 2 (na-ok pctx.*)");
}

TEST(ParseExpectations, TakesLinesForDifferentImagesAndOverlappingPatterns) {
  const std::string a = "fail pctx.header.version issue=x";
  EXPECT_EQ(problem_of(a + " image=\"* /bin/a\"\n" + a + " image=\"* /bin/b\"\n"), "none");
  EXPECT_EQ(problem_of("na-ok pctx.* reason=r image=a\n" + a + " image=b\n"), "none");
  EXPECT_EQ(problem_of("na-ok pctx.* reason=r\nna-ok *.header.* reason=s\n"), "none");
  EXPECT_EQ(problem_of("na-ok tctx.* reason=r\n" + a + "\n"), "none");
}

TEST(Expired, IsTheDayAfter) {
  const auto at = [](const char* until) {
    return expired(parsed("fail pctx.header.version issue=x until=" + std::string(until) + "\n"),
                   kToday);
  };
  EXPECT_TRUE(at("2026-06-15").empty());
  EXPECT_TRUE(at("2026-07-01").empty());
  ASSERT_EQ(at("2026-06-14").size(), 1U);
  EXPECT_EQ(at("2026-06-14")[0].exit_code, 5);
  EXPECT_EQ(at("2026-06-14")[0].text, "fail pctx.header.version: expired after 2026-06-14");
  EXPECT_EQ(at("2026-06-14")[0].mend,
            "${EDITOR:-vi} +2 known  # a later until=, or remove the line");
}

TEST(Apply, ExcusesWhatIsListed) {
  const RunResult run =
      applied("fail pctx.header.version issue=x until=2027-01-02 reason=\"not yet\"\n",
              {finding(kId, Outcome::kFail), finding(kOther, Outcome::kPass)});
  EXPECT_EQ(problems(run), "none");
  EXPECT_EQ(run.results[0].expected, Expected::kAsExpected);
  EXPECT_EQ(run.results[0].expectation_note, "issue=x until=2027-01-02 reason=not yet");
  EXPECT_EQ(run.results[1].expected, Expected::kNone);
  EXPECT_EQ(run.results[1].expectation_note, "");
}

TEST(Apply, KnowsWhichOutcomesAVerbExcuses) {
  struct Case {
    const char* verb;
    Outcome outcome;
    Expected expected;
    const char* problem;
  };
  const Case cases[] = {
      {"fail", Outcome::kFail, Expected::kAsExpected, "none"},
      {"fail", Outcome::kWarn, Expected::kAsExpected, "none"},
      {"fail", Outcome::kCrash, Expected::kUnexpected, "1 fail @: ended as crash"},
      {"fail", Outcome::kTimeout, Expected::kUnexpected, "1 fail @: ended as timeout"},
      {"fail", Outcome::kPass, Expected::kUnexpected,
       "5 fail @: does not fail any more, it ended as pass"},
      {"fail", Outcome::kInfo, Expected::kUnexpected,
       "5 fail @: does not fail any more, it ended as info"},
      {"fail", Outcome::kNa, Expected::kNone, "0 fail @: does not apply to this run"},
      {"fail", Outcome::kUnobservable, Expected::kNone,
       "0 fail @: could not be observed in this run"},
      {"fail", Outcome::kHarnessError, Expected::kNone, "none"},
      {"crash", Outcome::kCrash, Expected::kAsExpected, "none"},
      {"crash", Outcome::kTimeout, Expected::kAsExpected, "none"},
      {"crash", Outcome::kFail, Expected::kUnexpected, "1 crash @: ended as fail"},
      {"crash", Outcome::kWarn, Expected::kUnexpected, "5 crash @: ended as warn"},
      {"crash", Outcome::kPass, Expected::kUnexpected,
       "5 crash @: does not fail any more, it ended as pass"},
      {"flaky", Outcome::kFail, Expected::kAsExpected, "none"},
      {"flaky", Outcome::kPass, Expected::kNone, "none"},
      {"flaky", Outcome::kCrash, Expected::kUnexpected, "1 flaky @: ended as crash"},
      {"na-ok", Outcome::kNa, Expected::kAsExpected, "none"},
      {"na-ok", Outcome::kPass, Expected::kUnexpected, "5 na-ok @: applies now, it ended as pass"},
      {"na-ok", Outcome::kFail, Expected::kUnexpected, "5 na-ok @: applies now, it ended as fail"},
      {"na-ok", Outcome::kUnobservable, Expected::kNone,
       "0 na-ok @: could not be observed in this run"},
  };
  for (const Case& c : cases) {
    const RunResult run = applied(std::string(c.verb) + " " + kId + " issue=x reason=y\n",
                                  {finding(kId, c.outcome, "", "")});
    std::string want = c.problem;
    if (const std::size_t at = want.find('@'); at != want.npos) want.replace(at, 1, kId);
    EXPECT_EQ(problems(run), want);
    EXPECT_EQ(run.results[0].expected, c.expected) << c.verb << " " << to_string(c.outcome);
  }
}

TEST(Apply, IsStricterWhenAsked) {
  const std::string line = "crash pctx.header.version issue=x\n";
  EXPECT_EQ(problems(applied(line, {finding(kId, Outcome::kWarn, "", "")}, {.strict = true})),
            "1 crash pctx.header.version: ended as warn");
  EXPECT_EQ(problems(applied(line, {finding(kId, Outcome::kUnobservable)},
                             {.require_observable = {"*"}})),
            "4 crash pctx.header.version: could not be observed in this run");
  EXPECT_EQ(problems(applied("crash pctx.header.version issue=x image=other\n",
                             {finding(kId, Outcome::kPass)}, {.require_observable = {"*"}})),
            "4 crash pctx.header.version: no image that matches \"other\" was seen");
}

TEST(Apply, ComparesSawWithTheWholeSignature) {
  const auto with = [](const std::string& saw, const std::string& signature) {
    return problems(applied("fail pctx.header.version issue=x saw=\"" + saw + "\"\n",
                            {finding(kId, Outcome::kFail, signature, "")}));
  };
  EXPECT_EQ(with("version is 1", "version is 1"), "none");
  EXPECT_EQ(with(" version is 1 ", "version is 1\t"), "none");
  EXPECT_EQ(with("version is *", "version is 1"), "none");
  EXPECT_EQ(with("a*b?", "a*b?"), "none");
  EXPECT_EQ(with("version", "version is 1"),
            "1 fail pctx.header.version: ended as fail with \"version is 1\", listed is "
            "\"version\"");
  EXPECT_EQ(with("x", "line\nbreak\x1b"),
            "1 fail pctx.header.version: ended as fail with \"line?break?\", listed is \"x\"");
  EXPECT_LT(with("x", std::string(100000, 'y')).size(), 300U);
}

TEST(Apply, ComparesSawOfCrashesAndWarningsToo) {
  EXPECT_EQ(problems(applied("crash pctx.header.version issue=x saw=SIGSEGV\n",
                             {finding(kId, Outcome::kCrash, "SIGABRT", "")})),
            "1 crash pctx.header.version: ended as crash with \"SIGABRT\", listed is \"SIGSEGV\"");
  const std::string warn = "fail pctx.header.version issue=x saw=a\n";
  EXPECT_EQ(problems(applied(warn, {finding(kId, Outcome::kWarn, "b", "")})),
            "5 fail pctx.header.version: ended as warn with \"b\", listed is \"a\"");
  EXPECT_EQ(problems(applied(warn, {finding(kId, Outcome::kWarn, "b", "")}, {.strict = true})),
            "1 fail pctx.header.version: ended as warn with \"b\", listed is \"a\"");
}

TEST(Apply, NamesTheCommandThatMends) {
  const auto mend = [](const std::string& line, const std::vector<Finding>& findings,
                       ApplyOptions options = {}) {
    const RunResult run = applied(line + "\n", findings, std::move(options));
    return run.expectation_problems.empty() ? "none" : run.expectation_problems[0].mend;
  };
  const std::string fail = "fail pctx.header.version issue=x";
  const Finding passed = finding(kId, Outcome::kPass);
  EXPECT_EQ(mend(fail, {passed}), "sed -E -i '2s/^/# /' known");
  const ApplyOptions written{.program = "./my ctxconf", .result = "-o/result.json"};
  EXPECT_EQ(mend(fail, {passed}, written), "sed -E -i '2s/^/# /' known");
  const Finding crashed = finding(kId, Outcome::kCrash, "a/b & \\", "");
  EXPECT_EQ(mend(fail, {crashed}),
            "sed -E -i 2s/fail/crash/ known  # if this failure is also known");
  const std::string replaced = R"(2s/[ \t]saw=("(\\.|[^"\\])*"|[^" \t]+)/)";
  EXPECT_EQ(mend(fail + " saw=z", {crashed}), "sed -E -i '2s/fail/crash/;" + replaced +
                                                  R"( saw="a\/b \& \\\\"/' known)" +
                                                  "  # if this failure is also known");
  // Two ways to fail have no common text to compare with.
  EXPECT_EQ(mend(fail + " saw=z", {finding(kId, Outcome::kFail, "a", "1 /a"),
                                   finding(kId, Outcome::kFail, "b", "2 /a")}),
            "sed -E -i '" + replaced + "/' known  # if this failure is also known");
  EXPECT_EQ(mend(fail, {crashed, finding(kId, Outcome::kFail, "b", "")}),
            "${EDITOR:-vi} +2 known  # one image=GLOB for each way to fail");
}

TEST(Apply, NamesWhatMovesLinesOnlyOnce) {
  const std::string lines =
      "fail pctx.header.version issue=x\nfail pctx.header.signature issue=x\n";
  const std::vector<Finding> passed = {finding(kId, Outcome::kPass),
                                       finding(kOther, Outcome::kPass)};
  EXPECT_EQ(applied(lines, passed, {.program = "./my ctxconf", .result = "-o/result.json"}).notes,
            std::vector<std::string>{"finally, remove all lines that no longer hold: "
                                     "'./my ctxconf' expect prune known --from '-o/result.json'"});
  EXPECT_TRUE(applied(lines, passed).notes.empty());
  EXPECT_TRUE(applied(lines, {finding(kId, Outcome::kFail)}, {.result = "r"}).notes.empty());
}

TEST(Apply, CallsNothingStaleInARunThatHasNotComeToItsEnd) {
  const auto partial = [](const std::string& line, const Finding& f, bool all = false) {
    const std::vector<std::string> globs(all ? 1 : 0, "*");
    const RunResult run = applied(
        line + "\n", {f}, {.require_observable = globs, .partial = true, .result = "r.json"});
    EXPECT_TRUE(run.notes.empty());
    for (const ExpectationProblem& p : run.expectation_problems) EXPECT_EQ(p.mend, "") << p.text;
    EXPECT_EQ(run.results[0].expected, Expected::kNone) << line;
    return problems(run);
  };
  const Finding passed = finding(kId, Outcome::kPass);
  const Finding unseen = finding(kId, Outcome::kUnobservable);
  const std::string fail = "fail pctx.header.version issue=x";
  EXPECT_EQ(partial(fail, passed),
            "0 fail pctx.header.version: not seen, and the run is incomplete");
  EXPECT_EQ(partial("na-ok pctx.header.versio? reason=y", passed),
            "0 na-ok pctx.header.versio?: not seen, and the run is incomplete");
  EXPECT_EQ(partial(fail, unseen, true),
            "0 fail pctx.header.version: could not be observed in this run");
  EXPECT_EQ(partial(fail + " image=other", passed, true),
            "0 fail pctx.header.version: no image that matches \"other\" was seen");
  EXPECT_EQ(partial(fail, finding(kId, Outcome::kNa)),
            "0 fail pctx.header.version: does not apply to this run");
  // Seen failures count.
  const RunResult failed = applied(fail + "\n", {finding(kId, Outcome::kFail)}, {.partial = true});
  EXPECT_EQ(failed.results[0].expected, Expected::kAsExpected);
  EXPECT_EQ(problems(applied(fail + " saw=a\n", {finding(kId, Outcome::kFail, "b", "")},
                             {.partial = true})),
            "1 fail pctx.header.version: ended as fail with \"b\", listed is \"a\"");
  EXPECT_EQ(problems(applied(fail + " saw=a\n", {finding(kId, Outcome::kWarn, "b", "")},
                             {.partial = true})),
            "0 fail pctx.header.version: ended as warn with \"b\", listed is \"a\"");
  EXPECT_EQ(problems(applied("fail no.such issue=x\n", {passed}, {.partial = true})).front(), '5');
}

TEST(Apply, KeepsALineToItsImages) {
  const std::string line = "fail pctx.header.version issue=x image=\"* /bin/launcher\"\n";
  const Finding known = finding(kId, Outcome::kFail, "", "12 /bin/launcher");
  EXPECT_EQ(problems(applied(line, {known, finding(kId, Outcome::kPass, "", "13 /bin/app")})),
            "none");
  const RunResult both = applied(line, {known, finding(kId, Outcome::kFail, "", "13 /bin/app")});
  EXPECT_EQ(problems(both),
            "1 fail pctx.header.version: listed for other images, but it also ended as fail in "
            "\"13 /bin/app\"");
  EXPECT_EQ(both.results[0].expected, Expected::kUnexpected);
  EXPECT_EQ(both.expectation_problems[0].mend,
            "${EDITOR:-vi} +2 known  # add a line for that image");
  const RunResult written = applied(line, {known, finding(kId, Outcome::kFail, "", "13 /bin/app")},
                                    {.result = "out/result.json"});
  EXPECT_EQ(written.expectation_problems[0].mend,
            "ctxconf expect update known --from out/result.json");
  const RunResult other = applied(line, {finding(kId, Outcome::kPass, "", "13 /bin/app")});
  EXPECT_EQ(problems(other),
            "0 fail pctx.header.version: no image that matches \"* /bin/launcher\" was seen");
  EXPECT_EQ(other.results[0].expected, Expected::kNone);
  const RunResult gone = applied(line, {finding(kId, Outcome::kPass, "", "12 /bin/launcher"),
                                        finding(kId, Outcome::kFail, "", "13 /bin/app")});
  EXPECT_EQ(gone.results[0].expected, Expected::kUnexpected);
  EXPECT_EQ(problems(gone),
            "5 fail pctx.header.version: does not fail any more, it ended as pass in \"12 "
            "/bin/launcher\"; 1 fail pctx.header.version: listed for other images, but it also "
            "ended as fail in \"13 /bin/app\"");
}

TEST(Apply, DoesNotMindAnotherImagesWarningUnlessStrict) {
  const std::string line = "fail pctx.header.version issue=x image=a\n";
  const std::vector<Finding> findings = {finding(kId, Outcome::kFail, "", "a"),
                                         finding(kId, Outcome::kWarn, "", "b")};
  EXPECT_EQ(problems(applied(line, findings)), "none");
  EXPECT_EQ(problems(applied(line, findings, {.strict = true})),
            "1 fail pctx.header.version: listed for other images, but it also ended as warn in "
            "\"b\"");
}

TEST(Apply, ExcusesARequirementOnlyIfEveryImageIsExcused) {
  const RunResult run = applied(
      "fail pctx.header.version issue=x saw=a\n",
      {finding(kId, Outcome::kFail, "a", "1 /a"), finding(kId, Outcome::kFail, "b", "2 /b")});
  EXPECT_EQ(run.results[0].expected, Expected::kUnexpected);
  EXPECT_EQ(problems(run),
            "1 fail pctx.header.version: ended as fail in \"2 /b\" with \"b\", listed is \"a\"");
}

TEST(Apply, DoesNotCallALineStaleWhileAnImageCouldNotBeSeen) {
  EXPECT_EQ(problems(applied("fail pctx.header.version issue=x\n",
                             {finding(kId, Outcome::kUnobservable, "", "1 /a"),
                              finding(kId, Outcome::kPass, "", "2 /b")})),
            "0 fail pctx.header.version: could not be observed in this run");
}

TEST(Apply, JudgesAPatternOverAllThatItNames) {
  const std::string line = "na-ok pctx.header.* reason=r\n";
  const RunResult some =
      applied(line, {finding(kId, Outcome::kNa), finding(kOther, Outcome::kPass)});
  EXPECT_EQ(problems(some), "none");
  EXPECT_EQ(some.results[0].expected, Expected::kAsExpected);
  EXPECT_EQ(some.results[0].expectation_note, "reason=r");
  EXPECT_EQ(some.results[1].expected, Expected::kNone);
  std::vector<Finding> none = {finding(kId, Outcome::kUnobservable, "", ""),
                               finding(kOther, Outcome::kPass, "", "")};
  EXPECT_EQ(problems(applied(line, none)), "none") << "others were not selected";
  Selection header;
  header.only = {"pctx.header.*"};
  const auto all = select(Catalogue::builtin(), header);
  ASSERT_TRUE(all);
  for (const Requirement* r : *all) {
    if (r->id != kId && r->id != kOther) none.push_back(finding(r->id, Outcome::kPass, "", ""));
  }
  EXPECT_EQ(problems(applied(line, none)), "5 na-ok pctx.header.*: applies now, it ended as pass");
}

TEST(Apply, DoesNotLetNaOkHideAFailure) {
  const RunResult run =
      applied("na-ok pctx.header.* reason=r\n",
              {finding(kId, Outcome::kNa, "", "1 /a"), finding(kId, Outcome::kFail, "", "2 /b")});
  EXPECT_EQ(run.results[0].expected, Expected::kUnexpected);
}

TEST(Apply, SaysNothingOfRequirementsThatWereNotSelected) {
  EXPECT_EQ(problems(applied("fail pctx.header.version issue=x\nna-ok tctx.* reason=r\n",
                             {finding(kOther, Outcome::kPass)})),
            "none");
}

TEST(Apply, StillExcusesWhatIsPastItsDay) {
  const RunResult run = applied("fail pctx.header.version issue=x until=2026-06-14\n",
                                {finding(kId, Outcome::kFail)});
  EXPECT_EQ(problems(run), "5 fail pctx.header.version: expired after 2026-06-14");
  EXPECT_EQ(run.results[0].expected, Expected::kAsExpected);
}

TEST(Apply, PassesOnTheMistakesOfTheFile) {
  EXPECT_EQ(problems(applied("oops\nfail pctx.header.version\nfail pctx.no.such issue=x\n",
                             {finding(kId, Outcome::kFail)})),
            "2 \"oops\" is not fail, crash, flaky, na-ok or judged; 5 no requirement is called "
            "\"pctx.no.such\"; 2 fail pctx.header.version has no issue");
}

TEST(Apply, JudgesAResultWithoutFindings) {
  RunResult run;
  RequirementResult& result = run.results.emplace_back();
  result.requirement = Catalogue::builtin().find(kId);
  result.outcome = Outcome::kTimeout;
  apply(parsed("crash pctx.header.version issue=x\n"), kToday, {}, run);
  EXPECT_EQ(run.results[0].expected, Expected::kAsExpected);
  EXPECT_TRUE(run.expectation_problems.empty());
}

TEST(Outcomes, AreNamedBothWays) {
  for (int i = 0; i <= static_cast<int>(Outcome::kHarnessError); ++i) {
    const auto o = static_cast<Outcome>(i);
    EXPECT_EQ(outcome_from(to_string(o)), o);
  }
  EXPECT_EQ(to_string(Outcome::kHarnessError), "harness-error");
  EXPECT_EQ(to_string(Outcome::kUnobservable), "unobservable");
  EXPECT_FALSE(outcome_from("passed"));
  for (int i = 0; i <= static_cast<int>(NaReason::kMode); ++i) {
    const auto r = static_cast<NaReason>(i);
    EXPECT_EQ(na_reason_from(to_string(r)), r);
  }
  EXPECT_EQ(to_string(NaReason::kArch), "arch");
  EXPECT_FALSE(na_reason_from(""));
}

}  // namespace
}  // namespace ctxconf::conformance
