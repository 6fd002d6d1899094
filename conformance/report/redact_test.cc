#include "conformance/report/redact.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/report/console.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/result_json.h"
#include "conformance/report/sample_runs.h"
#include "conformance/report/sarif.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr RedactionKey kKey = {1, 2, 3};
constexpr const char* kHash = "redacted-[0-9a-f]+";

void tell(OperationPicture& picture, const std::string& word) {
  for (PictureStep& step : picture.steps) {
    step.at = word;
    if (step.kind == PictureStep::Kind::kCall) step.text = "memfd_create(\"" + word + "\")";
    if (!step.changes.empty()) {
      step.changes[0] = {Lane::kSignature, word, word};
    }
  }
}

// A run in which every text that can quote the program contains the word.
RunResult telling_run() {
  RunResult run = run_of_two_images();
  const std::string word = "s3cret \"w0rd\" s3cret";
  run.command_line = {"ctxconf",
                      "wrap",
                      "--expect-resource",
                      "service.name=s3cret",
                      "--expect-resource=host.name=s3cret",
                      "--",
                      "./s3cret",
                      "--token=s3cret"};
  run.target = {"./s3cret", "--token=s3cret"};
  run.again = "ctxconf wrap -- ./s3cret";
  run.source = {.root = "/s3cret", .program = "s3cret", .expectations = "ci/expect.txt"};
  run.notes = {word};
  run.libc = "glibc 2.36, musl s3cret";
  for (ImageSummary& image : run.images) {
    image.executable = "/opt/s3cret";
    image.path = "s3cret";
    image.command_line = {"/opt/s3cret", word};
    image.libc = "musl s3cret";
    image.context = "service.name=s3cret, 3 more, 3 more attributes";
    image.notes = {word};
  }
  for (RequirementResult& result : run.results) {
    for (Finding& finding : result.findings) {
      finding.image_name = "4242#1 /opt/s3cret";
      finding.saw = finding.at = word;
      finding.code = {{.function = word,
                       .source_file = "/s3cret/ctx.c",
                       .source_line = 1,
                       .module = "/opt/s3cret",
                       .offset = 1,
                       .path = "s3cret.c"}};
      finding.evidence = {word, word};
      Hexdump dump;
      dump.title = word;
      dump.address = 0x1000;
      dump.bytes.assign(word.begin(), word.end());
      dump.marks = {{.offset = 2, .length = 3, .label = word}};
      dump.expected = {.vector = "pctx/sample", .bytes = dump.bytes, .masks = {}};
      finding.hexdumps = {dump};
      if (finding.operation) tell(*finding.operation, word);
    }
  }
  for (OperationSummary& operation : run.operations) {
    operation.image_name = "4242#1 /opt/s3cret";
    tell(operation.picture, word);
  }
  run.problems = {
      {.outcome = Outcome::kCrash, .image = {}, .text = word + " died", .harm = word + " killed"}};
  run.exit_reason = run.problems[0].text;
  run.expectation_problems = {
      {.line = 1, .exit_code = 1, .text = "ended as fail in \"4 " + word + "\"", .mend = "vi x"}};
  return run;
}

std::vector<std::string> all_formats(const RunResult& run) {
  return {to_result_json(run), to_junit(run, {}), to_sarif(run),
          to_html(run),        to_markdown(run),  to_console(run, {.verbosity = 2})};
}

std::string hex(const std::string& text) {
  std::string out;
  for (const char c : text) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

TEST(Redact, LeavesNoWordOfTheProgramInAnyFormat) {
  for (const std::string& text : all_formats(telling_run())) {
    ASSERT_THAT(text, HasSubstr("s3cret"));
  }
  for (const std::string& text : all_formats(redacted(telling_run(), kKey))) {
    EXPECT_THAT(text, Not(HasSubstr("s3cret")));
    EXPECT_THAT(text, Not(HasSubstr("w0rd")));
    EXPECT_THAT(text, Not(HasSubstr(hex("s3cret"))));
    EXPECT_THAT(text, HasSubstr("redacted-"));
  }
}

TEST(Redact, HashesTheSameTextAlikeUnderOneKeyOnly) {
  const RunResult run = redacted(telling_run(), kKey);
  EXPECT_EQ(run.images[0].executable, run.images[1].executable);
  EXPECT_EQ(run.results[0].findings[0].image_name, "4242#1 " + run.images[0].executable);
  EXPECT_NE(run.images[0].executable, run.images[0].notes[0]);
  EXPECT_THAT(run.images[0].executable, MatchesRegex(kHash));
  EXPECT_EQ(redacted(telling_run(), kKey).images[0].executable, run.images[0].executable);
  EXPECT_NE(redacted(telling_run(), {9}).images[0].executable, run.images[0].executable);
  EXPECT_NE(random_redaction_key(), random_redaction_key());
}

TEST(Redact, KeepsHowARunUnderAFaultEnded) {
  const auto text_of = [](const std::string& text) {
    RunResult run = ordinary_run();
    run.faults.emplace_back();
    run.faults[0].text = text;
    run.faults[0].output = "w0rd";
    run = redacted(std::move(run), kKey);
    EXPECT_THAT(run.faults[0].output, MatchesRegex(kHash));
    return run.faults[0].text;
  };
  for (const char* ours :
       {"", "the program was killed by SIGABRT", "the program was killed by signal 34",
        "the program makes no such call", "no such call was made for a publication",
        "this kernel does not move the program to another time namespace",
        "it still ran after 3.1 s and was ended; without a fault it ended after 0.2 s",
        "it was ended as a runaway: started 20001 processes"}) {
    EXPECT_EQ(text_of(ours), ours);
  }
  for (const char* others : {"the program was killed by SIGS3CRET", "w0rd was killed by SIGABRT",
                             "execve: /opt/s3cret: No such file or directory"}) {
    EXPECT_THAT(text_of(others), MatchesRegex(kHash)) << others;
  }
}

TEST(Redact, KeepsKeysAndOurOwnWords) {
  const RunResult run = redacted(telling_run(), kKey);
  EXPECT_THAT(run.images[0].context,
              MatchesRegex(std::string("service.name=") + kHash + ", 3 more attributes"));
  EXPECT_EQ(run.command_line[0], "ctxconf");
  EXPECT_THAT(run.command_line[3], MatchesRegex(std::string("service.name=") + kHash));
  EXPECT_THAT(run.command_line[4],
              MatchesRegex(std::string("--expect-resource=host.name=") + kHash));
  EXPECT_EQ(run.command_line[5], "--");
  EXPECT_EQ(run.command_line[6], run.target[0]);
  const Finding& finding = run.results[0].findings[0];
  EXPECT_THAT(finding.saw, MatchesRegex(std::string("version is not 2 .") + kHash + "."));
  EXPECT_EQ(finding.signature, "version is not 2");
  EXPECT_THAT(finding.evidence, ElementsAre("2 lines of evidence left out",
                                            "20 bytes at 0x1000 left out; marked +2, 3 bytes"));
  EXPECT_THAT(run.expectation_problems[0].text,
              MatchesRegex(std::string("ended as fail in ") + kHash));
  EXPECT_EQ(run.expectation_problems[0].mend, "vi x");
  EXPECT_EQ(run.exit_reason, run.problems[0].text);
  EXPECT_EQ(run.totals.fail, telling_run().totals.fail);
}

TEST(Redact, KeepsReasonsThatAreWhollyOurs) {
  const auto reason = [](const char* saw, Outcome outcome = Outcome::kUnobservable) {
    RunResult run = ordinary_run();
    run.results[2].findings[0].outcome = outcome;
    run.results[2].findings[0].saw = saw;
    return redacted(std::move(run), kKey).results[2].findings[0].saw;
  };
  EXPECT_EQ(reason("no update was seen"), "no update was seen");
  EXPECT_EQ(reason("3 records", Outcome::kPass), "3 records");
  EXPECT_EQ(reason("the program is 64-bit", Outcome::kNa), "the program is 64-bit");
  for (const char* telling : {"no update of s3cret was seen", "the value is \"payload\"",
                              "context=payload", "/context/payload", "context 'payload'"}) {
    EXPECT_THAT(reason(telling), MatchesRegex(kHash)) << telling;
  }
  EXPECT_THAT(reason("no update was seen", Outcome::kFail), MatchesRegex(kHash));
}

TEST(Redact, KeepsPidsOfAttachAndPlainReasons) {
  RunResult run = ordinary_run();
  run.command_line = {"ctxconf", "attach", "4242"};
  run.target = {"4242"};
  run = redacted(std::move(run), kKey);
  EXPECT_THAT(run.command_line, ElementsAre("ctxconf", "attach", "4242"));
  EXPECT_EQ(run.exit_reason, "1 requirement failed");
  run.exit_code = kExitUnreachable;
  EXPECT_THAT(redacted(std::move(run), kKey).exit_reason, MatchesRegex(kHash));
}

TEST(Redact, HashesTheFilesOfElf) {
  RunResult run = ordinary_run();
  run.command_line = {"ctxconf", "elf", "--only", "tctx.*", "/lib/s3cret.so"};
  run.target = {};
  run.images[0].executable = "/lib/s3cret.so";
  run = redacted(std::move(run), kKey);
  EXPECT_EQ(run.command_line[3], "tctx.*");
  EXPECT_EQ(run.command_line[4], run.images[0].executable);
}

TEST(Redact, TheResultIsAResult) {
  const RunResult run = redacted(telling_run(), kKey);
  const auto again = result_from_json(to_result_json(run), sample_catalogue());
  ASSERT_TRUE(again) << sys::to_string(again.error());
  EXPECT_TRUE(to_html(*again) == to_html(run));
  for (const RunResult& other : {hostile_run(), silent_run(), RunResult{}}) {
    const std::string json = to_result_json(redacted(other, kKey));
    EXPECT_TRUE(result_from_json(json, sample_catalogue()));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
