#include "sys/tracing_thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "sys/forked_child.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kStack = 256U << 10U;

TEST(Event, IsWaitedForBeforeAndAfterItHappens) {
  Event event;
  EXPECT_FALSE(event.wait_for(1ms));
  EXPECT_FALSE(event.wait_for(-1ms));
  event.happen();
  EXPECT_TRUE(event.wait_for(0ms));
  std::thread other([&] { event.happen(); });
  EXPECT_TRUE(event.wait_for(kLong));
  other.join();
}

TEST(TracingThread, BlocksSignals) {
  sigset_t blocked;
  TracingThread thread;
  ASSERT_EQ(thread.start(kStack, [&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }), 0);
  thread.join();
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  sigset_t ours;
  pthread_sigmask(SIG_SETMASK, nullptr, &ours);
  EXPECT_EQ(sigismember(&ours, SIGTERM), 0);
}

// Whether SIGCHLD, with which Linux tells of a stop, reaches the tracing thread.
bool is_child_signal_blocked_with(void (*handler)(int)) {
  struct sigaction before{};
  struct sigaction action{};
  action.sa_handler = handler;
  EXPECT_EQ(sigaction(SIGCHLD, &action, &before), 0);
  sigset_t blocked;
  TracingThread thread;
  EXPECT_EQ(thread.start(kStack,
                         [&] {
                           ignore_stop_signals();
                           pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
                         }),
            0);
  thread.join();
  sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1) << "only this one is changed";
  return sigismember(&blocked, SIGCHLD) == 1;
}

TEST(IgnoreStopSignals, ASignalThatNobodyHandlesWakesNobody) {
  EXPECT_FALSE(is_child_signal_blocked_with(SIG_DFL));
}

TEST(IgnoreStopSignals, AHandlerDoesNotRunInTheTracingThread) {
  EXPECT_TRUE(is_child_signal_blocked_with([](int) {}));
}

// Linux sends none for a stop then.
TEST(IgnoreStopSignals, OneThatIsIgnoredIsLeftBlocked) {
  EXPECT_TRUE(is_child_signal_blocked_with(SIG_IGN));
}

// Counts the SIGCHLD that come to this process while a thread stops `stops` times.
int child_signals_of_stops(int stops, bool handles_later) {
  static std::atomic<int> count;
  count = 0;
  const Forked child([](int) { return std::uint64_t{1}; });
  struct sigaction before{};
  struct sigaction action{};
  action.sa_handler = [](int) { ++count; };
  // A process may come to have a handler later.
  if (!handles_later) sigaction(SIGCHLD, &action, &before);
  TracingThread thread;
  EXPECT_EQ(thread.start(kStack,
                         [&] {
                           ignore_stop_signals();
                           if (handles_later) {
                             sigaction(SIGCHLD, &action, &before);
                             ignore_stop_signals();
                           }
                           for (int i = 0; i < stops && seize(child.pid()); ++i) {
                             ptrace(PTRACE_INTERRUPT, child.pid(), nullptr, nullptr);
                             if (const auto stop = wait_for_event(child.pid())) let_go(*stop);
                           }
                         }),
            0);
  thread.join();
  sigaction(SIGCHLD, &before, nullptr);
  return count;
}

TEST(IgnoreStopSignals, AHandlerOfThisProcessStillRunsElsewhere) {
  EXPECT_GT(child_signals_of_stops(3, /*handles_later=*/false), 0);
  EXPECT_GT(child_signals_of_stops(3, /*handles_later=*/true), 0) << "it came later";
}

TEST(TracingThread, LetsGoOfWhatItTracesWhenItHasEnded) {
  const Forked child([](int) { return std::uint64_t{1}; });
  TracingThread thread;
  bool seized = false;
  ASSERT_EQ(thread.start(kStack, [&] { seized = seize(child.pid()).has_value(); }), 0);
  thread.join();
  EXPECT_TRUE(seized);
  EXPECT_EQ(status_of(child.pid(), "TracerPid"), "0");
}

TEST(TracingThread, IsCancelledWhileItWaits) {
  const Forked child([](int) { return std::uint64_t{1}; });
  std::atomic<bool> returned = false;
  TracingThread thread;
  ASSERT_EQ(thread.start(kStack,
                         [&] {
                           if (!seize(child.pid())) return;
                           (void)wait_for_event(0);
                           returned = true;
                         }),
            0);
  ASSERT_TRUE(comes_true([&] { return status_of(child.pid(), "TracerPid") != "0"; }));
  thread.cancel();
  thread.join();
  EXPECT_FALSE(returned);
  EXPECT_EQ(status_of(child.pid(), "TracerPid"), "0");
}

TEST(TracingThread, SeesStopsAndEndsAndTakesNothing) {
  Forked child([](int) { return std::uint64_t{1}; });
  Result<siginfo_t> stop;
  Result<siginfo_t> end;
  TracingThread thread;
  ASSERT_EQ(thread.start(kStack,
                         [&] {
                           if (!seize(child.pid())) return;
                           ptrace(PTRACE_INTERRUPT, child.pid(), nullptr, nullptr);
                           stop = wait_for_event(child.pid());
                           kill(child.pid(), SIGKILL);
                           do {
                             end = wait_for_event(0);
                           } while (end && is_stop(*end));
                         }),
            0);
  thread.join();
  ASSERT_TRUE(stop);
  EXPECT_TRUE(is_stop(*stop));
  EXPECT_EQ(stop->si_pid, child.pid());
  ASSERT_TRUE(end);
  EXPECT_EQ(end->si_pid, child.pid());
  EXPECT_TRUE(WIFSIGNALED(child.wait())) << "the status is there for the parent";
}

TEST(TracingThread, ASignalOfAStopArrivesWhenItIsLetGo) {
  Forked child([](int) { return std::uint64_t{1}; });
  TracingThread thread;
  ASSERT_EQ(thread.start(kStack,
                         [&] {
                           if (!seize(child.pid())) return;
                           kill(child.pid(), SIGTERM);
                           if (const auto stop = wait_for_event(child.pid())) let_go(*stop);
                         }),
            0);
  thread.join();
  const int status = child.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(IsThreadOf, TellsThreadsOfOtherProcesses) {
  const Forked child([](int) { return std::uint64_t{1}; });
  EXPECT_TRUE(is_thread_of(child.pid(), child.pid()));
  EXPECT_TRUE(is_thread_of(gettid(), getpid()));
  EXPECT_FALSE(is_thread_of(child.pid(), getpid()));
}

}  // namespace
}  // namespace ctxconf::sys
