#include "conformance/report/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "conformance/report/escape.h"
#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;
using testing::Not;

const ExpositionRun kRun{.version = "1.2.3", .commit = "abc", .ended_at = 17, .seconds = 1.5};

const Requirement& requirement(std::size_t number) {
  return sample_catalogue().specifications().front().requirements.at(number);
}

ProcessVerdict broken_process(std::int32_t pid) {
  ProcessVerdict p;
  p.pid = pid;
  p.state = ProcessState::kBroken;
  p.executable = "/bin/app";
  p.broken = {{&requirement(0), Outcome::kFail, "wrong"}};
  p.totals.fail = 1;
  p.totals.pass = 20;
  return p;
}

ProcessVerdict unread_process(std::int32_t pid) {
  ProcessVerdict p;
  p.pid = pid;
  p.state = ProcessState::kUnread;
  p.command = "sshd";
  return p;
}

std::size_t lines_with(const std::string& text, const std::string& start) {
  std::size_t out = 0;
  for (auto at = text.find("\n" + start); at != std::string::npos;
       at = text.find("\n" + start, at + 1)) {
    ++out;
  }
  return out;
}

TEST(Exposition, CountsStatesAndOutcomes) {
  ProcessVerdicts verdicts;
  verdicts.processes = {broken_process(12), unread_process(13)};
  verdicts.without_context = 70;
  verdicts.unread_omitted = 5;
  const std::string text = to_exposition(kRun, verdicts);
  EXPECT_THAT(text, HasSubstr("ctxconf_build_info{version=\"1.2.3\",commit=\"abc\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_run_timestamp_seconds 17\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_run_duration_seconds 1.500\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes{state=\"broken\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes{state=\"clean\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes{state=\"no_context\"} 70\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes{state=\"unread\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_verdicts{outcome=\"pass\"} 20\n"));
  EXPECT_THAT(
      text,
      HasSubstr("\nctxconf_process_state{pid=\"13\",exe=\"sshd\",service=\"\",state=\"unread\"} "
                "1\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes_omitted{state=\"unread\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_requirement_broken_processes{requirement=\"" +
                              requirement(0).id + "\",outcome=\"fail\"} 1\n"));
}

TEST(Exposition, LimitsTheProcessesWithSeriesOfTheirOwn) {
  constexpr std::size_t kMany = kMostLabelledProcesses + 7;
  ProcessVerdicts verdicts;
  for (std::size_t i = 0; i < kMany; ++i) {
    verdicts.processes.push_back(broken_process(static_cast<std::int32_t>(1000 + i)));
    verdicts.processes.push_back(unread_process(static_cast<std::int32_t>(5000 + i)));
  }
  const std::string text = to_exposition(kRun, verdicts);
  EXPECT_EQ(lines_with(text, "ctxconf_process_requirement_broken{"), kMostLabelledProcesses);
  EXPECT_EQ(lines_with(text, "ctxconf_process_state{"), 2 * kMostLabelledProcesses);
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes_omitted{state=\"broken\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes_omitted{state=\"unread\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("\",outcome=\"fail\"} 107\n"));
}

TEST(Exposition, WarningsDoNotPushOutAFailure) {
  ProcessVerdicts verdicts;
  for (std::size_t i = 0; i < kMostLabelledProcesses + 3; ++i) {
    verdicts.processes.push_back(broken_process(static_cast<std::int32_t>(1000 + i)));
    verdicts.processes.back().state = ProcessState::kClean;
    verdicts.processes.back().broken.front().outcome = Outcome::kWarn;
  }
  verdicts.processes.push_back(broken_process(9000));
  const std::string text = to_exposition(kRun, verdicts);
  EXPECT_EQ(lines_with(text, "ctxconf_process_requirement_broken{pid=\"9000\""), 1U);
  EXPECT_EQ(lines_with(text, "ctxconf_process_requirement_broken{"), kMostLabelledProcesses + 1);
  EXPECT_EQ(lines_with(text, "ctxconf_process_state{"), 1U);
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes_omitted{state=\"broken\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\nctxconf_processes_omitted{state=\"clean\"} 3\n"));
}

TEST(Exposition, KeepsHostileNamesInTheirLabels) {
  ProcessVerdict p = broken_process(12);
  p.executable = "/tmp/a\"} 7\n# \\";
  p.resource = {{"service.name", hostile_text()}};
  ProcessVerdicts verdicts;
  verdicts.processes = {p};
  const std::string text = to_exposition(kRun, verdicts);
  EXPECT_THAT(text, HasSubstr(R"(exe="/tmp/a\"} 7\\x0a# \\",service=")"));
  const std::string service = escape(hostile_text(), Escape::kLabel, kMostServiceLabel);
  EXPECT_THAT(text, HasSubstr("service=\"" + service + "\",requirement="));
  for (const char c : text) EXPECT_FALSE(c != '\n' && static_cast<unsigned char>(c) < 0x20);
  EXPECT_EQ(lines_with(text, "ctxconf_process_requirement_broken{"), 1U);
}

TEST(Exposition, CutsLongNames) {
  ProcessVerdict p = broken_process(12);
  p.executable = std::string(4000, '\x01');
  p.resource = {{"service.name", std::string(4000, '"')}};
  ProcessVerdicts verdicts;
  verdicts.processes = {p};
  const std::string text = to_exposition(kRun, verdicts);
  constexpr std::size_t kLongestEscape = 5;  // \\x01
  EXPECT_LT(text.size(), 4000 + kLongestEscape * (kMostExecutableLabel + kMostServiceLabel));
  EXPECT_THAT(text, HasSubstr("bytes more)\""));
  EXPECT_THAT(text, Not(HasSubstr(std::string(kMostServiceLabel * 2 + 1, '"'))));
}

}  // namespace
}  // namespace ctxconf::conformance
