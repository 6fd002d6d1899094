#include "reader_ref/process_reader.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "reader_ref/target_child.h"

namespace ctxconf::reader {
namespace {

TEST(ProcessReader, ThreadsThatTheTimeDoesNotSufficeForAreNamed) {
  const Target target;
  ReaderTools tools;
  ReaderOptions options;
  options.stop_budget = std::chrono::milliseconds(0);
  const auto report = ProcessReader(target.pid(), options, tools).read();
  ASSERT_TRUE(report) << sys::to_string(report.error());
  ASSERT_TRUE(report->threads_read) << report->threads_why;
  ASSERT_EQ(report->threads.size(), 2);
  for (const ThreadReport& thread : report->threads) {
    EXPECT_FALSE(thread.context);
    EXPECT_EQ(thread.why, "not read: time is up");
  }
}

TEST(ProcessReader, NamesTheThreadsThatAnotherProcessTraces) {
  const Target target;
  const pid_t debugger = fork();
  if (debugger == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The reader may have it at that moment.
    while (ptrace(PTRACE_SEIZE, target.pid(), nullptr, nullptr) != 0) usleep(100);
    while (true) pause();
  }
  ReaderTools tools;
  ProcessReader reader(target.pid(), {}, tools);
  sys::Result<ProcessReport> report;
  // Reads until the debugger has seized it.
  do {
    report = reader.read();
    ASSERT_TRUE(report) << sys::to_string(report.error());
    ASSERT_EQ(report->threads.size(), 2U);
    EXPECT_TRUE(report->threads[1].context) << report->threads[1].why;
  } while (report->threads[0].why == "the slot is null");
  EXPECT_EQ(report->threads[0].why, "PTRACE_SEIZE: thread " + std::to_string(target.pid()) +
                                        " is traced by process " + std::to_string(debugger) +
                                        ": Operation not permitted");
  kill(debugger, SIGKILL);
  waitpid(debugger, nullptr, 0);
}

// Many times: the one may have a thread while the other wants it.
TEST(ProcessReader, TwoReadersSeeAllThreads) {
  const Target target;
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ReaderTools tools;
    ProcessReader reader(target.pid(), {}, tools);
    while (reader.read()) {
    }
    _exit(1);
  }
  ReaderTools tools;
  ReaderOptions options;
  options.relist = std::chrono::hours(1);
  ProcessReader reader(target.pid(), options, tools);
  for (int i = 0; i < 300; ++i) {
    const auto report = reader.read();
    ASSERT_TRUE(report) << sys::to_string(report.error());
    ASSERT_EQ(report->threads.size(), 2U);
    EXPECT_EQ(report->threads[0].why, "the slot is null");
    EXPECT_TRUE(report->threads[1].context) << report->threads[1].why;
  }
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(ProcessReader, ReadsOneThreadOrNone) {
  Target target;
  ReaderTools tools;
  ProcessReader reader(target.pid(), {}, tools);
  EXPECT_FALSE(reader.knows_context());
  const auto context = reader.read_context();
  ASSERT_TRUE(context && context->context);
  EXPECT_FALSE(context->threads_read);
  EXPECT_TRUE(context->threads.empty());
  EXPECT_TRUE(reader.knows_context());
  const auto leader = reader.read_thread(target.pid());
  ASSERT_TRUE(leader);
  ASSERT_EQ(leader->threads.size(), 1U);
  EXPECT_EQ(leader->threads[0].tid, target.pid());
  EXPECT_TRUE(reader.read_thread(getpid())->threads.empty()) << "of another process";
  target.end();
  EXPECT_EQ(reader.read().error().err, ESRCH);
}

// A reader that lists mappings once sees an update, and that the context has gone, all the same.
TEST(ProcessReader, SeesChangesBetweenTwoLists) {
  const Target target;
  ReaderTools tools;
  ReaderOptions options;
  options.relist = std::chrono::hours(1);
  ProcessReader reader(target.pid(), options, tools);
  const auto first = reader.read_context();
  ASSERT_TRUE(first && first->context);
  EXPECT_EQ(reader.read_context()->context, first->context) << "not decoded again";
  const auto until = [&](const auto& condition) {
    for (int i = 0; i < 20'000; ++i) {
      const auto report = reader.read_context();
      if (report && condition(*report)) return true;
      usleep(1000);
    }
    return false;
  };
  target.order("grow name");
  EXPECT_TRUE(until([&](const ProcessReport& r) {
    return r.context && r.context->keys.size() > first->context->keys.size();
  }));
  target.order("drop");
  EXPECT_TRUE(until([](const ProcessReport& r) { return !r.context; }));
  reader.relist();
  target.order("publish");
  EXPECT_TRUE(until([&](const ProcessReport& r) {
    reader.relist();
    return r.context != nullptr;
  }));
}

// Each step is taken when its condition holds of a report; all within one loop.
TEST(ProcessReader, SeesChangesWithinOneLoop) {
  Target target;
  ReaderTools tools;
  ProcessReader reader(target.pid(), {}, tools);
  struct Step {
    std::function<bool(const sys::Result<ProcessReport>&)> holds;
    std::function<void()> change;
  };
  std::size_t keys = 0;
  const std::vector<Step> steps = {
      {[&](const auto& r) {
         if (r && r->context) keys = r->context->keys.size();
         return r && r->threads.size() == 2 && r->threads[0].why == "the slot is null" &&
                r->threads[1].context;
       },
       [&] { target.order("grow name"); }},
      {[&](const auto& r) { return r && r->context && r->context->keys.size() > keys; },
       [&] { target.order("drop"); }},
      {[](const auto& r) { return r && !r->context; }, [&] { target.order("publish"); }},
      {[](const auto& r) { return r && r->threads.size() == 2 && r->threads[1].context; },
       [&] { target.end(); }},
      {[](const auto& r) { return !r && r.error().err == ESRCH; }, [] {}},
  };
  std::size_t done = 0;
  int reads = 0;
  reader.read_while([&](const sys::Result<ProcessReport>& report) {
    if (steps[done].holds(report)) {
      steps[done++].change();
    } else {
      usleep(1000);
    }
    return done < steps.size() && ++reads < 20'000;
  });
  EXPECT_EQ(done, steps.size());
}

TEST(ProcessReader, ALoopCanDoWithoutThreadsAndWithoutAProcess) {
  Target target;
  ReaderTools tools;
  ReaderOptions options;
  options.threads = false;
  ProcessReader reader(target.pid(), options, tools);
  int reads = 0;
  reader.read_while([&](const sys::Result<ProcessReport>& report) {
    EXPECT_TRUE(report && report->context && !report->threads_read);
    return ++reads < 3;
  });
  EXPECT_EQ(reads, 3);
  target.end();
  reader.read_while([&](const sys::Result<ProcessReport>& report) {
    EXPECT_EQ(report.error().err, ESRCH);
    return ++reads < 6;
  });
  EXPECT_EQ(reads, 6);
}

TEST(ProcessReader, AnExceptionEndsTheLoop) {
  const Target target;
  ReaderTools tools;
  ProcessReader reader(target.pid(), {}, tools);
  int reads = 0;
  const auto fails = [&](const sys::Result<ProcessReport>&) {
    if (++reads == 3) throw std::runtime_error("a bug");
    return true;
  };
  EXPECT_THROW(reader.read_while(fails), std::runtime_error);
  EXPECT_EQ(reads, 3);
  const auto report = reader.read();
  ASSERT_TRUE(report && report->threads.size() == 2);
  EXPECT_TRUE(report->threads[1].context) << report->threads[1].why;
}

}  // namespace
}  // namespace ctxconf::reader
