#include "conformance/report/process_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/report/sample_runs.h"

namespace ctxconf::conformance {
namespace {

std::vector<nlohmann::json> lines_of(const RunResult& run, const ProcessVerdicts& verdicts) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(to_process_lines(run, verdicts));
  for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST(ProcessLines, HaveWhatIsBrokenAndWhatCouldNotBeRead) {
  const auto& requirements = sample_catalogue().specifications().front().requirements;
  ProcessVerdicts verdicts;
  verdicts.processes.resize(2);
  ProcessVerdict& broken = verdicts.processes[0];
  broken.pid = 12;
  broken.state = ProcessState::kBroken;
  broken.executable = "/bin/app";
  broken.resource = {{"service.name", hostile_text()}};
  broken.broken = {{&requirements.at(0), Outcome::kFail, "wrong"},
                   {&requirements.at(1), Outcome::kWarn, "odd"}};
  broken.outcomes = {{&requirements.at(0), Outcome::kFail}, {&requirements.at(1), Outcome::kWarn}};
  broken.totals.selected = 2;
  ProcessVerdict& unread = verdicts.processes[1];
  unread.pid = 13;
  unread.state = ProcessState::kUnread;
  unread.command = "sshd";
  unread.unread = "no permission";
  verdicts.without_context = 3;

  const auto lines = lines_of(ordinary_run(), verdicts);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["state"], "broken");
  EXPECT_EQ(lines[0]["failed"][0]["id"], requirements.at(0).id);
  EXPECT_EQ(lines[0]["failed"][0]["saw"], "wrong");
  EXPECT_EQ(lines[0]["warned"][0]["id"], requirements.at(1).id);
  const nlohmann::json outcomes = {{requirements.at(0).id, "fail"},
                                   {requirements.at(1).id, "warn"}};
  EXPECT_EQ(lines[0]["outcomes"], outcomes);
  EXPECT_TRUE(lines[0]["resource"].contains("service.name"));
  EXPECT_EQ(lines[1]["command"], "sshd");
  EXPECT_EQ(lines[1]["unread"], "no permission");
  EXPECT_FALSE(lines[1].contains("counts"));
  EXPECT_EQ(lines[2]["kind"], "run");
  EXPECT_EQ(lines[2]["processes"]["no_context"], 3);
  EXPECT_EQ(lines[2]["processes"]["broken"], 1);
}

TEST(ProcessLines, AreAscii) {
  ProcessVerdicts verdicts;
  verdicts.processes.resize(1);
  verdicts.processes[0].executable = hostile_text();
  const std::string text = to_process_lines(ordinary_run(), verdicts);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
}

}  // namespace
}  // namespace ctxconf::conformance
