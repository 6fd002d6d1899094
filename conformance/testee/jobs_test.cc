#include "conformance/testee/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <map>
#include <string>

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;

// The results of three units.
struct Done {
  std::map<std::size_t, GroupRun> runs;
  JobsEnding ending;
};

Done do_three(const std::function<void(std::size_t unit)>& work) {
  Done done;
  Jobs jobs;
  jobs.names = {"a", "b", "c"};
  jobs.drive = [&](std::size_t unit, const DriveCalls&) {
    work(unit);
    GroupRun run;
    run.asked = unit + 1;
    return run;
  };
  jobs.take = [&](std::size_t unit, GroupRun run) {
    done.runs.emplace(unit, std::move(run));
    return true;
  };
  done.ending = do_all(jobs, 3, 1);
  return done;
}

TEST(Jobs, OneThatIsStoppedIsContinued) {
  const Done done = do_three([](std::size_t unit) {
    if (unit > 0) raise(SIGSTOP);
  });
  ASSERT_EQ(done.runs.size(), 3U);
  for (const auto& [unit, run] : done.runs) {
    EXPECT_EQ(run.asked, unit + 1);
    EXPECT_TRUE(run.goes_on()) << run.harness_fault << run.adapter_fault;
  }
  EXPECT_EQ(done.ending.stops, 2U);
  EXPECT_EQ(done.ending.harness_fault, "");
}

TEST(Jobs, OneThatIsStoppedAgainAndAgainIsEnded) {
  const Done done = do_three([](std::size_t unit) {
    while (unit == 1) raise(SIGSTOP);
  });
  ASSERT_TRUE(done.runs.contains(1));
  EXPECT_THAT(done.runs.at(1).adapter_fault, HasSubstr("stopped again and again"));
  EXPECT_EQ(done.ending.harness_fault, "");
}

}  // namespace
}  // namespace ctxconf::conformance
