#include "conformance/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string plain(const RunResult& run, int verbosity = 0) {
  return to_console(run, {.verbosity = verbosity, .colour = Colour::kNever});
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Console, BeginsWithWhatJudgedAndWhere) {
  const std::string text = plain(ordinary_run());
  EXPECT_TRUE(text.starts_with(
      "ctxconf 0.1.0 (abcdef1)   OTEP 4719@2026-04-07, OTEP 4947@2026-07-17   wrap, level stores, "
      "reading reader-visible\n"
      "  host   6.12.1 x86_64; program: musl 1.2.3; ctxconf: glibc 2.36; has ptrace; lacks "
      "procmap-query\n"))
      << text;
  EXPECT_THAT(plain(ordinary_run(), 1),
              HasSubstr("lacks procmap-query: ioctl: Inappropriate ioctl for device; to fix: "
                        "Linux 6.11\n"));
}

TEST(Console, NamesTheLibrariesOfThePrograms) {
  RunResult run = ordinary_run();
  run.libc = "static";
  EXPECT_THAT(plain(run), HasSubstr("; program: statically linked; ctxconf: glibc 2.36; "));
  run.libc = "musl 1.2.3, static, ...";
  EXPECT_THAT(plain(run), HasSubstr("; program: musl 1.2.3, statically linked, ...; ctxconf: "));
  run.libc = "";
  EXPECT_THAT(plain(run), HasSubstr("  host   6.12.1 x86_64; ctxconf: glibc 2.36; "));
}

TEST(Console, NamesImagesThatPublishedFirst) {
  const std::string text = plain(ordinary_run());
  const auto app = text.find(
      "  image  4242#1 /opt/shop/checkout: exited 0; a reader sees service.name=checkout, 3 more; "
      "7 snapshots\n");
  const auto shell = text.find(
      "  image  4242 /bin/sh: replaced by exec; published nothing; 7 snapshots\n"
      "         memory cannot be read: EPERM\n");
  ASSERT_NE(app, std::string::npos) << text;
  ASSERT_NE(shell, std::string::npos) << text;
  EXPECT_LT(app, shell);
}

TEST(Console, ShowsAFailureWithTheWrongBytesMarked) {
  EXPECT_THAT(
      plain(ordinary_run()),
      HasSubstr(
          "\nFAIL  pctx.header.version   MUST (table)   OTEP 4719@2026-04-07 #header-structure\n"
          "  rule   the version is 2\n"
          "  saw    version is 0  (level snapshot)\n"
          "  in     4242#1 /opt/shop/checkout\n"
          "  at     src/process_ctx.rs:118 in publish_update, thread 4243\n"
          "         7f1200000000-7f1200001000 rw-p 00000000 00:01 7 /memfd:OTEL_CTX\n"
          "         little endian 0, big endian 0\n"
          "  vector pctx/sample, field by field:\n"
          "         000000  4f 54 45 4c 5f 43 54 58                          signature = "
          "\"OTEL_CTX\"\n"
          "         000008  02 00 00 00                                      version = 2\n"
          "          found  00 00 00 00\n"
          "                 ^^\n"
          "         00000c  .. .. .. ..                                      payload_size: bytes "
          "of "
          "the message\n"
          "         000010  .. .. .. .. .. .. .. ..                          timestamp: not 0\n"
          "  bytes  header at 0x7f1200000000\n"
          "         7f1200000000  4f 54 45 4c 5f 43 54 58  00 00 00 00 14 00 00 00  "
          "|OTEL_CTX........|\n"
          "                                                ^^ ^^ ^^ ^^ version: 0, want 2\n"
          "         7f1200000010  de 00 00 00 00 00 00 00                           |........|\n"
          "  why    readers skip a version they do not know\n"
          "  again  ctxconf wrap --only pctx.header.version --for=3s -- ./app --only\n"
          "  offline ctxconf replay --only pctx.header.version 'out/traces/4242 a.trace'\n"));
}

TEST(Console, ReplaysAFailureFromItsOwnTrace) {
  RunResult run = ordinary_run();
  run.results[0].trace_path = "out/traces/pctx.header.version.trace";
  EXPECT_THAT(plain(run), HasSubstr("  offline ctxconf replay --only pctx.header.version "
                                    "out/traces/pctx.header.version.trace\n"));
  run.mode = "replay";
  EXPECT_THAT(plain(run), Not(HasSubstr("offline")));
}

TEST(Console, OrdersProblemsByHowBadTheyAre) {
  RunResult run = ordinary_run();
  run.results[1].outcome = run.results[1].findings[0].outcome = Outcome::kHarnessError;
  run.results[5].outcome = run.results[5].findings[0].outcome = Outcome::kCrash;
  const std::string text = plain(run);
  std::size_t last = 0;
  for (const char* label :
       {"\nCRASH  pctx.update.payload-moves", "\nHARNESS-ERROR  pctx.header.signature",
        "\nFAIL  pctx.header.version", "\nWARN  pctx.publish.footprint", "\nINFO  pctx.payload."}) {
    const std::size_t at = text.find(label);
    ASSERT_NE(at, std::string::npos) << label << text;
    EXPECT_GT(at, last) << label;
    last = at;
  }
}

TEST(Console, GroupsWhatWasNotJudgedByItsReason) {
  const std::string text = plain(ordinary_run());
  EXPECT_THAT(text, HasSubstr("\n2 unobservable\n"
                              "       2 no update was seen\n"
                              "         to see it: let the program change its context while it is "
                              "watched\n"));
  EXPECT_THAT(text, HasSubstr("\n1 n/a\n       1 capability: the program has no thread context\n"));
  EXPECT_THAT(text, Not(HasSubstr("tctx.tls.is-pointer")));
  EXPECT_THAT(plain(ordinary_run(), 1), HasSubstr("           tctx.tls.is-pointer\n"));
}

TEST(Console, ListsWhatPassedWhenAskedTwice) {
  EXPECT_THAT(plain(ordinary_run(), 1), Not(HasSubstr("pctx.header.signature")));
  EXPECT_THAT(plain(ordinary_run(), 2),
              HasSubstr("\n1 passed\n  pass  pctx.header.signature  (level snapshot)\n"));
}

TEST(Console, EndsWithTheDenominatorAndTheExitCode) {
  EXPECT_TRUE(plain(ordinary_run())
                  .ends_with("the program itself: exited 3 (reported, not judged)\n"
                             "trace saved: 'out/traces/4242 a.trace'\n"
                             "1 passed, 1 failed, 1 warning, 1 info, 2 unobservable, 1 n/a of 7 "
                             "selected (OTEP 4719@2026-04-07, OTEP 4947@2026-07-17)\n"
                             "exit 1: 1 requirement failed\n"));
}

TEST(Console, SaysPlainlyThatNothingWasPublished) {
  EXPECT_THAT(plain(silent_run()),
              HasSubstr("\nno process published a context: nothing could be judged\n"));
  EXPECT_THAT(plain(ordinary_run()), Not(HasSubstr("no process")));
  RunResult run = ordinary_run();
  run.images.clear();
  EXPECT_THAT(plain(run), HasSubstr("\nno process was observed\n"));
}

TEST(Console, ShowsOneFailureForAllImagesThatHaveIt) {
  const std::string text = plain(run_of_two_images());
  EXPECT_EQ(count(text, "FAIL  pctx.header.version"), 1U);
  EXPECT_THAT(text, HasSubstr("  also   in 1 more image: 5000 /opt/shop/checkout\n"
                              "  also   warn in 5001 /opt/shop/cart: version is 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("unobservable in 4242")));
}

TEST(Console, ShowsExpectedFailuresInALineAndTheMendingCommand) {
  const std::string text = plain(run_with_expectations());
  EXPECT_THAT(text, HasSubstr("required but not judged\n  pctx.update.visible\n"));
  EXPECT_THAT(text, HasSubstr("judged in base.json, as pass"));
  EXPECT_THAT(text, Not(HasSubstr("FAIL  pctx.header.version")));
  EXPECT_THAT(text, HasSubstr("\nexpected by the expectations file\n"
                              "  fail    pctx.header.version  issue=https://example.com/7 "
                              "until=2030-01-01\n"));
  EXPECT_THAT(text,
              HasSubstr("\nthe expectations file\n"
                        "  error  line 3: pctx.header.signature is listed as fail and passed\n"
                        "  fix    ctxconf expect prune expect.txt\n"
                        "  warn   line 4: tctx.a is unobservable now\n"));
  EXPECT_THAT(text, HasSubstr(", 1 of them expected by the expectations file\n"));
}

TEST(Console, QuietIsProblemsAndTheSummary) {
  const std::string text = to_console(ordinary_run(), {.quiet = true, .colour = Colour::kNever});
  EXPECT_TRUE(text.starts_with("FAIL  pctx.header.version")) << text;
  EXPECT_EQ(count(text, "\n"), 8U) << text;
  EXPECT_THAT(text, HasSubstr("exit 1: "));
  EXPECT_THAT(to_console(silent_run(), {.quiet = true}), HasSubstr("no process published"));
}

TEST(Console, ColoursOnATerminalOrWhenAsked) {
  const RunResult run = ordinary_run();
  EXPECT_THAT(to_console(run, {.colour = Colour::kAlways}), HasSubstr("\x1b[1;31mFAIL\x1b[0m"));
  EXPECT_THAT(to_console(run, {.is_terminal = true}), HasSubstr("\x1b[1;31m00\x1b[0m"));
  EXPECT_THAT(to_console(run, {.is_terminal = false}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_console(run, {.colour = Colour::kNever, .is_terminal = true}),
              Not(HasSubstr("\x1b")));
}

TEST(Console, WrapsProseAndNeverCommandsOrBytes) {
  const std::string text = to_console(ordinary_run(), {.colour = Colour::kNever, .width = 40});
  EXPECT_THAT(text, HasSubstr("to see it: let the program\n"
                              "         change its context while it is\n"
                              "         watched\n"));
  EXPECT_THAT(text, HasSubstr("--only pctx.header.version --for=3s -- ./app --only\n"));
  RunResult run = ordinary_run();
  run.results[0].findings[0].saw = std::string(200, 'x') + " y";
  EXPECT_THAT(to_console(run, {.colour = Colour::kNever, .width = 20}),
              HasSubstr(std::string(200, 'x') + "\n         y"));
  EXPECT_THAT(to_console(run, {.colour = Colour::kNever, .width = 0}),
              HasSubstr(std::string(200, 'x') + " y  (level"));
}

TEST(Console, ColoursWhatDiffersFromAVector) {
  const std::string text = to_console(ordinary_run(), {.colour = Colour::kAlways});
  EXPECT_THAT(text, HasSubstr("\x1b[1;31m found  00 00 00 00\x1b[0m\n"));
  EXPECT_THAT(text, HasSubstr("\x1b[1;31m        ^^\x1b[0m\n"));
}

TEST(Console, ShowsTheEntriesOfARecordAsOneField) {
  RunResult run = ordinary_run();
  Hexdump& dump = run.results[0].findings[0].hexdumps[0];
  dump.bytes.assign(80, 0x61);
  dump.expected->vector = "rec/sample";
  dump.expected->bytes.assign(80, 0x61);
  dump.expected->bytes[24] = 1;
  dump.expected->masks = {{.offset = 28, .length = 52, .name = "attrs_data", .rule = "entries"}};
  EXPECT_THAT(plain(run),
              HasSubstr("         000018  01                                               "
                        "valid = 1\n"
                        "          found  61\n"
                        "                 ^^\n"));
  EXPECT_THAT(plain(run),
              HasSubstr("         00001c  .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..  "
                        "attrs_data: entries\n"
                        "  bytes  "));
  dump.expected->masks.clear();
  dump.expected->bytes[79] = 0;
  EXPECT_THAT(plain(run), HasSubstr("         00004c  61 61 61 00\n"
                                    "          found  61 61 61 61\n"
                                    "                          ^^\n"));
}

TEST(Console, MarksTheWholeOfAMarkThatSpansRows) {
  RunResult run = ordinary_run();
  Hexdump& dump = run.results[0].findings[0].hexdumps[0];
  dump.marks = {{.offset = 14, .length = 4, .label = "across"},
                {.offset = 7, .length = 1, .label = "last of the left"},
                {.offset = 4096, .length = 8, .label = "not read"}};
  EXPECT_THAT(
      plain(run),
      HasSubstr("14 00 00 00  |OTEL_CTX........|\n"
                "                                                                  ^^ ^^ across\n"
                "                                            ^^ last of the left\n"
                "         7f1200000010  de 00 00 00 00 00 00 00                           "
                "|........|\n"
                "                       ^^ ^^\n"
                "         at +4096: not read\n"));
}

TEST(Console, ShowsOnlyTheRowsAroundTheMarksOfALargeDump) {
  RunResult run = ordinary_run();
  Hexdump& dump = run.results[0].findings[0].hexdumps[0];
  dump.bytes.assign(100'000, 0x41);
  dump.marks = {{.offset = 0x8000, .length = 1, .label = "here"}};
  const std::string text = plain(run);
  EXPECT_THAT(text, HasSubstr("         …\n         7f1200007ff0  41"));
  EXPECT_THAT(text, HasSubstr("^^ here\n         7f1200008010  41"));
  EXPECT_THAT(text, HasSubstr("         … 48 of 100000 bytes shown\n"));
  EXPECT_EQ(count(text, "|AAAAAAAAAAAAAAAA|"), 3U);
}

TEST(Console, HostileTextStaysText) {
  for (const int verbosity : {0, 1, 2}) {
    const std::string text = plain(hostile_run(), verbosity);
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\u202e")));
    EXPECT_THAT(text, Not(HasSubstr("\xff")));
    EXPECT_EQ(text.find('\0'), std::string::npos);
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_THAT(text, HasSubstr("\\x1b]0;own\\x07"));
    EXPECT_LT(text.size(), 512U * 1024);
    std::istringstream lines(text);
    // A newline of the testee begins no line of ours.
    for (std::string line; std::getline(lines, line);) EXPECT_FALSE(line.starts_with("</script>"));
  }
}

TEST(Console, CapsWhatItPrints) {
  const RunResult run = huge_run();
  const std::string text = plain(run);
  EXPECT_LT(text.size(), 1U << 20);
  EXPECT_THAT(text, HasSubstr("… and 992 more lines\n"));
  EXPECT_THAT(text, HasSubstr("… and 1980 more images (-v shows more)\n"));
  EXPECT_THAT(text, HasSubstr("… and 84 more marks\n"));
}

TEST(Console, RunsAFailureAgainNextToTheReportsOfTheWholeRun) {
  RunResult run = ordinary_run();
  run.command_line = {"ctxconf",    "run", "--out", "o",     "--skip=x", "--out=p",
                      "--repeat=2", "--",  "./a",   "--out", "q"};
  EXPECT_THAT(plain(run), HasSubstr("  again  ctxconf run --only pctx.header.version --repeat=2 -- "
                                    "./a --out q\n"));
}

TEST(Console, RunsAFailureAgainWithItsSeed) {
  const auto again = [](const std::string& mode, const std::vector<std::string>& options) {
    RunResult run = ordinary_run();
    run.mode = mode;
    run.seed = "5eed";
    run.command_line = {"ctxconf", mode};
    run.command_line.insert(run.command_line.end(), options.begin(), options.end());
    run.command_line.insert(run.command_line.end(), {"--", "./a", "--seed", "1"});
    const std::string text = plain(run);
    const std::size_t at = text.find("  again  ");
    return text.substr(at + 9, text.find('\n', at) - at - 9);
  };
  const std::string only = " --only pctx.header.version ";
  EXPECT_EQ(again("run", {}), "ctxconf run" + only + "--seed 5eed -- ./a --seed 1");
  EXPECT_EQ(again("run", {"--seed", "5eed"}), "ctxconf run" + only + "--seed 5eed -- ./a --seed 1");
  EXPECT_EQ(again("run", {"--seed=5eed"}), "ctxconf run" + only + "--seed=5eed -- ./a --seed 1");
  EXPECT_EQ(again("wrap", {}), "ctxconf wrap" + only + "-- ./a --seed 1");
}

TEST(Console, FallsBackToTheGivenCommand) {
  RunResult run = ordinary_run();
  run.command_line.clear();
  EXPECT_THAT(plain(run), HasSubstr("  again  ctxconf wrap --for=3s -- ./app --only\n"));
}

TEST(Console, SaysNothingIsKnownWhenAResultHasNoFinding) {
  RunResult run = ordinary_run();
  for (RequirementResult& result : run.results) result.findings.clear();
  const std::string text = plain(run);
  EXPECT_THAT(text, HasSubstr("FAIL  pctx.header.version"));
  EXPECT_THAT(text, HasSubstr("(no finding says what was seen)"));
  EXPECT_THAT(text, HasSubstr("       2 no reason was given\n"));
}

}  // namespace
}  // namespace ctxconf::conformance
