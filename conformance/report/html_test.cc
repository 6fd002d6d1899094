#include "conformance/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "conformance/report/digest.h"
#include "conformance/report/sample_runs.h"

// check_reports.py tests the page as a document, and that no text of the run is markup.
// check_page.py tests it in a browser.
namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;
using testing::Not;

// The text between the first `begin` and the next `end`.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  const std::size_t to = text.find(end, from + begin.size());
  if (from == std::string::npos || to == std::string::npos) {
    ADD_FAILURE() << "no " << begin << " ... " << end;
    return {};
  }
  return text.substr(from + begin.size(), to - from - begin.size());
}

std::string row(const std::string& html, const std::string& id) {
  return between(html, "id=\"" + id + "\"", "\n</div>\n</details>");
}

TEST(Html, SaysWhatWasJudgedAndHowItEnded) {
  const std::string summary = between(to_html(ordinary_run()), "<section id=\"summary\"", "</sec");
  EXPECT_THAT(summary, HasSubstr("Exit 1</strong>: 1 requirement failed"));
  EXPECT_THAT(summary, HasSubstr("<dt>selected</dt><dd>7</dd>"));
  EXPECT_THAT(summary, HasSubstr("<dt>unobservable</dt><dd>2</dd>"));
  EXPECT_THAT(summary, HasSubstr("1 passed, 1 failed, 1 warning, 1 info, 2 unobservable, 1 n/a of "
                                 "7 selected (OTEP 4719@2026-04-07, OTEP 4947@2026-07-17)"));
  EXPECT_THAT(summary, HasSubstr("<code>ctxconf wrap <span class=\"option\">--for=3s</span> "));
}

TEST(Html, NamesTheLibrariesOfTheProgramsAndOfCtxconf) {
  RunResult run = ordinary_run();
  run.libc = "musl 1.2.3, static";
  const std::string html = to_html(run);
  EXPECT_THAT(html, HasSubstr("<dt>C library of the program</dt><dd>musl 1.2.3, statically "
                              "linked</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>C library of ctxconf</dt><dd>glibc 2.36</dd>"));
  EXPECT_THAT(html, HasSubstr(", child of 4000, musl 1.2.3</span>"));
}

TEST(Html, AFailureIsOpenAndWhatPassedIsNot) {
  const std::string html = to_html(ordinary_run());
  EXPECT_THAT(row(html, "pctx.header.version"), HasSubstr("data-outcome=\"fail\" open>"));
  EXPECT_THAT(row(html, "pctx.header.signature"), HasSubstr("data-outcome=\"pass\">"));
  EXPECT_THAT(row(html, "pctx.payload.semantic-conventions"), HasSubstr("\"info\">"));
  const std::string expected = row(to_html(run_with_expectations()), "pctx.header.version");
  EXPECT_THAT(expected, HasSubstr("data-outcome=\"fail\">"));
  EXPECT_THAT(expected,
              HasSubstr("expected by the expectations file: issue=https://example.com/7"));
}

TEST(Html, AFailureHasAllThatIsKnown) {
  const std::string failure = row(to_html(ordinary_run()), "pctx.header.version");
  for (const char* part :
       {"<dt>rule</dt><dd>the version is 2</dd>",
        "<dt>why</dt><dd>readers skip a version they do not know</dd>",
        "<dd>MUST (table), OTEP 4719@2026-04-07 <code>#header-structure</code></dd>",
        "<dd class=\"saw\">version is 0 <span class=\"muted\">(level snapshot)</span></dd>",
        "<code>src/process_ctx.rs:118 in publish_update, thread 4243</code>",
        "7f1200000000-7f1200001000 rw-p 00000000 00:01 7 /memfd:OTEL_CTX\n",
        "wrap <span class=\"option\">--only</span> pctx.header.version <span",
        "replay <span class=\"option\">--only</span> pctx.header.version &#39;out/traces/4242 "
        "a."}) {
    EXPECT_THAT(failure, HasSubstr(part));
  }
}

TEST(Html, MarksTheWrongBytes) {
  const std::string failure = row(to_html(ordinary_run()), "pctx.header.version");
  EXPECT_THAT(failure,
              HasSubstr("<span class=\"addr\">7f1200000000</span>  4f 54 45 4c 5f 43 54 58  "
                        "<mark>00 00 00 00</mark> 14 00 00 00  |OTEL_CTX<mark>....</mark>....|\n"
                        "<span class=\"addr\">7f1200000010</span>  de 00 00 00 00 00 00 00      "
                        "                     |........|\n"));
  EXPECT_THAT(failure, HasSubstr("<mark>+8, 4 bytes</mark> version: 0, want 2"));
}

TEST(Html, ShowsAGoldenVectorsBytesNextToThem) {
  const std::string failure = row(to_html(ordinary_run()), "pctx.header.version");
  EXPECT_THAT(failure,
              HasSubstr("<th scope=\"row\">version = 2</th><td class=\"mono want\">02 00 "
                        "00 00</td><td class=\"mono have\"><mark>00</mark> 00 00 00</td>"));
  EXPECT_THAT(failure,
              HasSubstr("<th scope=\"row\">payload_size: bytes of the message</th><td class=\"mono "
                        "want\">.. .. .. ..</td><td class=\"mono have\">14 00 00 00</td>"));
}

TEST(Html, ALongDumpIsCutAroundItsMarks) {
  RunResult run = ordinary_run();
  Hexdump& dump = run.results[0].findings[0].hexdumps[0];
  dump.bytes.assign(4096, 0xee);
  dump.marks = {{.offset = 2048, .length = 1, .label = "here"}};
  dump.expected.reset();
  const std::string failure = row(to_html(run), "pctx.header.version");
  EXPECT_THAT(failure, HasSubstr("7f1200000800</span>  <mark>ee</mark>"));
  EXPECT_THAT(failure, HasSubstr("48 of 4096 bytes shown"));
}

// How often `part` occurs in the text.
std::size_t times(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++out;
  return out;
}

TEST(Html, DrawsTheOperationOfAFailure) {
  const std::string figure =
      between(to_html(ordinary_run()), "<figure class=\"operation\">", "</figure>");
  EXPECT_THAT(figure, HasSubstr("<strong>✗ Step 6 is wrong</strong>: version is 0. readers "
                                "skip a version they do not know <code>process_ctx.rs:118"));
  EXPECT_THAT(figure, HasSubstr("Between steps 1 and 5 the timestamp is 0: a reader finds no "
                                "context and tries again later. Between steps 5 and 6 a reader may "
                                "mix the old with the new."));
  const std::string drawing = between(figure, "<svg class=\"operation\"", "</svg>");
  EXPECT_THAT(drawing, HasSubstr("aria-label=\"Update in 7 steps, step 6 is wrong\"><desc>"));
  EXPECT_EQ(times(drawing, "<circle class=\"store\""), 3U);
  EXPECT_EQ(times(drawing, "<circle class=\"again\""), 1U);
  EXPECT_EQ(times(drawing, "<circle class=\"wrong\""), 1U);
  EXPECT_EQ(times(drawing, "<path class=\"fork\""), 1U);
  EXPECT_EQ(times(drawing, "<rect class=\"call\""), 1U);
  EXPECT_EQ(times(drawing, "<rect class=\"zero\""), 1U);
  EXPECT_EQ(times(drawing, "<rect class=\"mixed\""), 1U);
  EXPECT_THAT(drawing, HasSubstr(">111 → 0 <tspan class=\"small\">timestamp</tspan>"));
  EXPECT_THAT(drawing, HasSubstr("a reader finds no context: the timestamp is 0</text>"));
  EXPECT_THAT(figure, HasSubstr("<th scope=\"row\">6 <strong class=\"wrong\">✗ wrong</strong></th>"
                                "<td>store</td><td>payload size 260 → 282</td><td>process_ctx.rs"));
}

TEST(Html, DrawsWhatWasRightWithoutRed) {
  const std::string program =
      between(to_html(ordinary_run()), "<section id=\"operations\"", "</section>");
  EXPECT_THAT(program, HasSubstr("<strong>Publication</strong> of the header at 0x7f1200000000 by "
                                 "thread 4243"));
  EXPECT_THAT(program, HasSubstr("Between steps 1 and 2 the timestamp is 0"));
  EXPECT_THAT(program, HasSubstr("a reader finds no context: it has no memory yet</text>"));
  EXPECT_THAT(program, HasSubstr("<line class=\"joined\""));
  EXPECT_THAT(program, Not(HasSubstr("\"wrong\"")));
}

TEST(Html, SaysWhatWasSeenAbovePicturesUpToItsList) {
  RunResult run = ordinary_run();
  Finding& finding = run.results[0].findings[0];
  finding.saw = "the version was left at 0; stores: version, payload";
  EXPECT_THAT(to_html(run), HasSubstr("is wrong</strong>: the version was left at 0. readers "));
  finding.saw.clear();
  EXPECT_THAT(to_html(run), HasSubstr("is wrong</strong>: version is not 2. readers "));
}

TEST(Html, ALongLineOfAPictureIsCutBetweenCharacters) {
  RunResult run = ordinary_run();
  const std::string at = "ctx.cc:118 in " + std::string(200, 'a') + "éé";
  for (PictureStep& step : run.operations[0].picture.steps) step.at = at;
  const std::string program = between(to_html(run), "<section id=\"operations\"", "</section>");
  EXPECT_THAT(program, HasSubstr(">ctx.cc:118 in " + std::string(34, 'a') + "…" +
                                 std::string(45, 'a') + "éé</text>"));
  for (PictureStep& step : run.operations[0].picture.steps) step.at = at.substr(0, 96);
  EXPECT_THAT(to_html(run), HasSubstr(">" + at.substr(0, 96) + "</text>"));
  for (PictureStep& step : run.operations[0].picture.steps) {
    step.at = "a.h:7 in (anonymous namespace)::f(void (*)(" + std::string(90, 'a') + "), int)";
  }
  EXPECT_THAT(to_html(run), HasSubstr(">a.h:7 in (anonymous namespace)::f(…)</text>"));
}

TEST(Html, SaysWhatWouldMakeItObservable) {
  EXPECT_THAT(row(to_html(ordinary_run()), "pctx.update.payload-moves"),
              HasSubstr("<dt>to see it</dt><dd>let the program change its context while it is "
                        "watched</dd>"));
  EXPECT_THAT(row(to_html(ordinary_run()), "tctx.tls.is-pointer"),
              HasSubstr("<dt>reason</dt><dd>capability: the program has no thread context"));
}

TEST(Html, GathersWhatCouldNotBeSeenByItsReason) {
  EXPECT_THAT(between(to_html(ordinary_run()), "<section id=\"unseen\"", "</section>"),
              HasSubstr("<li><strong>2</strong> no update was seen<br><span class=\"muted\">to see "
                        "it: let the program change its context while it is watched</span></li>"));
  RunResult run = ordinary_run();
  run.results[5].findings[0].saw = "too late";
  const std::string two = between(to_html(run), "<section id=\"unseen\"", "</section>");
  EXPECT_THAT(two, HasSubstr("<strong>1</strong> no update was seen<br>"));
  EXPECT_THAT(two, HasSubstr("<strong>1</strong> too late<br>"));
}

TEST(Html, NamesTheImagesOfAFailure) {
  const std::string failure = row(to_html(run_of_two_images()), "pctx.header.version");
  EXPECT_THAT(failure, HasSubstr("FAIL</span> in <code>4242#1 /opt/shop/checkout</code>"));
  EXPECT_THAT(failure, HasSubstr("WARN</span> in <code>5001 /opt/shop/cart</code>"));
  EXPECT_THAT(failure, HasSubstr("<li>fail in <code>5000 /opt/shop/checkout</code></li>"));
}

TEST(Html, SaysWhatHadToBeJudged) {
  const std::string section =
      between(to_html(run_with_expectations()), "<section id=\"floor\"", "</section>");
  EXPECT_THAT(section, HasSubstr("<code>pctx.update.visible</code> judged in base.json, as pass"));
  EXPECT_THAT(section, HasSubstr("no update was seen"));
  EXPECT_THAT(to_html(ordinary_run()), Not(HasSubstr("id=\"floor\"")));
}

TEST(Html, PrintsTheCommandThatMendsTheExpectations) {
  const std::string problems =
      between(to_html(run_with_expectations()), "<section id=\"expectations\"", "</section>");
  EXPECT_THAT(problems, HasSubstr("line 3: pctx.header.signature is listed as fail and passed<pre "
                                  "class=\"cmd\"><code>ctxconf expect prune expect.txt</code>"));
  EXPECT_THAT(problems, HasSubstr("WARN</span> line 4"));
}

TEST(Html, ACrashIsTheFirstThingToLookAt) {
  RunResult run = ordinary_run();
  run.problems = {{.outcome = Outcome::kCrash, .image = {}, .text = "app died of SIGSEGV"}};
  EXPECT_THAT(to_html(run), HasSubstr("<ul class=\"list\">\n<li><span class=\"badge o-fail\">CRASH"
                                      "</span> app died of SIGSEGV</li>\n<li><span"));
}

TEST(Html, AllowsOnlyItsOwnStyleAndScript) {
  const std::string html = to_html(hostile_run());
  EXPECT_EQ(between(html, "Content-Security-Policy\" content=\"", "\""),
            "default-src 'none'; style-src '" + policy_hash(between(html, "<style>", "</style>")) +
                "'; script-src '" + policy_hash(between(html, "<script>", "</script>")) +
                "'; base-uri 'none'; form-action 'none'");
}

TEST(Html, CapsWhatItWrites) {
  const RunResult run = huge_run();
  const std::string html = to_html(run);
  EXPECT_LT(html.size(), std::size_t{16} << 20);
  EXPECT_THAT(html, HasSubstr("… and 1950 more notes"));
  EXPECT_THAT(html, HasSubstr("… and 1500 more images"));
  EXPECT_THAT(html, HasSubstr("… and 1500 more problems"));
  for (const RequirementResult& result : run.results) row(html, result.requirement->id);
}

}  // namespace
}  // namespace ctxconf::conformance
