#include "conformance/evidence/session_json.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "conformance/evidence/timeline.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using How = AdapterEnding::How;
using OrderedJson = JsonReader::Json;

Session one_operation() {
  Session s;
  s.checks.emplace_back().name = "hello";
  auto& question = s.operations.emplace_back().question.emplace();
  question.claims.emplace_back().allowed.emplace_back();
  return s;
}

// What is wrong with a session that was written and is read again; empty: nothing.
std::string problem_with(const Session& session) {
  std::string problem;
  const auto json = json_of(session);
  (void)session_from(JsonReader(json, "", &problem));
  return problem;
}

std::string problem_with(const Timeline& timeline) {
  const auto back = timeline_from_json(to_json(timeline));
  return back ? "" : back.error().detail;
}

TEST(SessionJson, RefusesTextThatIsLongerThanALine) {
  Session s = one_operation();
  Operation& o = s.operations.front();
  struct Case {
    std::string& text;
    const char* member;
  };
  for (const Case& c : {Case{s.hello, "/hello"}, Case{o.request, "/operations/0/request"},
                        Case{o.reply, "/operations/0/reply"},
                        Case{o.question->claims.front().allowed.front().content,
                             "/operations/0/question/claims/0/allowed/0/content"}}) {
    c.text.assign(kLongestKeptLine, 'x');
    EXPECT_EQ(problem_with(s), "") << c.member;
    c.text += 'x';
    EXPECT_EQ(problem_with(s),
              std::string(c.member) + " is longer than a line of the testee protocol");
    c.text.clear();
  }
}

TEST(SessionJson, RefusesMoreValuesInAllLinesThanInAFile) {
  constexpr std::size_t kInALine = std::size_t{1} << 20U;
  Session s = one_operation();
  s.operations.front().reply = "{\"a\":[" + std::string(kInALine, ',') + "]}";
  Timeline t;
  t.sessions = {s};
  EXPECT_EQ(problem_with(t), "");
  t.sessions.front().operations.resize(kMostJsonValues / kInALine, s.operations.front());
  EXPECT_EQ(problem_with(t), "/sessions have too many values in their lines");
}

Session read_back(OrderedJson json) {
  std::string problem;
  Session out = session_from(JsonReader(json, "", &problem));
  EXPECT_EQ(problem, "");
  return out;
}

TEST(SessionJson, HowTheAdapterEndedDoesNotRestOnTheText) {
  Session s = one_operation();
  for (const auto how : {How::kUnknown, How::kExitedZero, How::kExited, How::kKilled,
                         How::kKilledByUs, How::kRunaway}) {
    s.ending = {how, "in other words"};
    EXPECT_EQ(read_back(json_of(s)).ending, s.ending);
  }
}

TEST(SessionJson, InAnEarlierRecordingTheTextSaysHowTheAdapterEnded) {
  struct Case {
    const char* text;
    How how;
  };
  for (const Case& c :
       {Case{"", How::kUnknown}, Case{"exited 0", How::kExitedZero}, Case{"exited 5", How::kExited},
        Case{"killed by SIGSEGV", How::kKilled}, Case{"killed by signal 40", How::kKilled},
        Case{"killed by SIGKILL (by ctxconf)", How::kKilledByUs},
        Case{"ended as a runaway: more than 4096 processes", How::kRunaway}}) {
    Session s = one_operation();
    s.ending.text = c.text;
    OrderedJson json = json_of(s);
    ASSERT_EQ(json.erase("ended"), 1U);
    EXPECT_EQ(read_back(std::move(json)).ending, (AdapterEnding{c.how, c.text})) << c.text;
  }
}

TEST(SessionJson, RefusesAnUnknownEnding) {
  std::string problem;
  OrderedJson json = json_of(one_operation());
  json["ended"] = "somehow";
  (void)session_from(JsonReader(json, "", &problem));
  EXPECT_EQ(problem, "/ended is not a known ending");
}

TEST(KeptLine, HasNoValueBeyondItsLimits) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(value_of_kept_line(nested(kDeepestLine)).is_array());
  EXPECT_TRUE(value_of_kept_line(nested(kDeepestLine + 1)).is_discarded());
  EXPECT_TRUE(value_of_kept_line("1" + std::string(kLongestKeptLine - 1, ' ')).is_number());
  EXPECT_TRUE(value_of_kept_line("1" + std::string(kLongestKeptLine, ' ')).is_discarded());
  EXPECT_TRUE(value_of_kept_line("{\"a\":1...").is_discarded());
}

TEST(KeptLine, CountsItsValues) {
  EXPECT_EQ(most_values_in("7"), 1U);
  EXPECT_EQ(most_values_in(R"(["[,{\",", 2, 3])"), 4U);
  EXPECT_EQ(most_values_in(R"({"a": [1, 2], "b": {"c": 3}})"), 6U);
}

}  // namespace
}  // namespace ctxconf::conformance
