#include "sys/thread_stop.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sys/forked_child.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

TEST(ThreadStop, KnowsTheThreadPointerOfASleeperAndOfARunner) {
  const Forked sleeper([](int) { return own_thread_pointer(); });
  const Forked runner([](int answer) {
    spin(own_thread_pointer(), answer);
    return std::uint64_t{0};
  });
  for (const Forked* child : {&sleeper, &runner}) {
    const auto stopped = ThreadStop::stop(child->pid(), kLong);
    ASSERT_TRUE(stopped) << to_string(stopped.error());
    EXPECT_EQ(stopped->tid(), child->pid());
    EXPECT_EQ(state_of(child->pid()), 't');
    EXPECT_EQ(stopped->thread_pointer().value(), RemoteAddr(child->value()));
  }
  EXPECT_TRUE(comes_to(sleeper.pid(), 'S'));
  EXPECT_TRUE(comes_to(runner.pid(), 'R'));
}

TEST(ThreadStop, StopsAThreadWhoseLeaderHasEnded) {
  const Forked child([](int answer) {
    static std::atomic<int> to = answer;
    pthread_t thread;
    const auto body = [](void*) -> void* {
      comes_to(getpid(), 'Z');
      spin(own_thread_pointer(), to);
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, body, nullptr) != 0) _exit(98);
    syscall(SYS_exit, 0);  // ends this thread alone
    return std::uint64_t{0};
  });
  EXPECT_EQ(ThreadStop::stop(child.pid(), kLong).error().err, ESRCH) << "the zombie leader";
  const auto stopped = ThreadStop::stop(other_thread(child.pid()), kLong);
  ASSERT_TRUE(stopped) << to_string(stopped.error());
  EXPECT_EQ(stopped->thread_pointer().value(), RemoteAddr(child.value()));
}

TEST(ThreadStop, TellsWhoCannotBeStopped) {
  Forked gone([](int) { return std::uint64_t{1}; });
  const pid_t pid = gone.pid();
  kill(pid, SIGKILL);
  ASSERT_TRUE(comes_to(pid, 'Z'));
  EXPECT_EQ(ThreadStop::stop(pid, kLong).error().err, ESRCH) << "zombie";
  gone.wait();
  EXPECT_EQ(ThreadStop::stop(pid, kLong).error().err, ESRCH);
  EXPECT_EQ(ThreadStop::stop(0, kLong).error().err, ESRCH);
  EXPECT_EQ(ThreadStop::stop(-1, kLong).error().err, ESRCH);
  EXPECT_EQ(ThreadStop::stop(getpid(), kLong).error().err, EPERM) << "ourselves";

  const Forked child([](int) { return std::uint64_t{1}; });
  const Forked debugger(
      [&](int) { return std::uint64_t{ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) == 0}; });
  ASSERT_EQ(debugger.value(), 1U);
  const auto traced = ThreadStop::stop(child.pid(), kLong);
  ASSERT_FALSE(traced);
  EXPECT_EQ(traced.error().err, EPERM);
  EXPECT_TRUE(
      traced.error().detail.ends_with(" is traced by process " + std::to_string(debugger.pid())))
      << traced.error().detail;
}

TEST(ThreadStop, TakesNoThreadOfAnotherProcess) {
  const Forked child([](int) { return std::uint64_t{1}; });
  const Forked other([](int) { return std::uint64_t{1}; });
  EXPECT_TRUE(ThreadStop::stop(child.pid(), kLong, child.pid()));
  EXPECT_EQ(ThreadStop::stop(child.pid(), kLong, other.pid()).error().err, ESRCH);
  EXPECT_TRUE(ThreadStop::stop(child.pid(), kLong)) << "it has been released";
}

// Pins both to one CPU.
class OneCpu {
 public:
  OneCpu() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;
  ~OneCpu() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST(ThreadStop, ComesToItsTurnAmongBusyThreads) {
  constexpr std::size_t kBusy = 60;
  const OneCpu one_cpu;
  const Forked child([](int) {
    const auto body = [](void*) -> void* {
      for (volatile bool go_on = true; go_on;) {
      }
      return nullptr;
    };
    for (std::size_t i = 0; i < kBusy; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, body, nullptr) != 0) _exit(98);
    }
    return std::uint64_t{1};
  });
  ASSERT_EQ(child.value(), 1U);
  const std::vector<pid_t> threads = thread_list(child.pid()).value();
  ASSERT_EQ(threads.size(), kBusy + 1);
  for (std::size_t i = 0; i < threads.size(); i += 8) {
    const auto stopped = ThreadStop::stop(threads[i], 5s);
    EXPECT_TRUE(stopped) << i << ": " << to_string(stopped.error());
  }
}

// A program that embeds this waits for its children itself.
TEST(ThreadStop, LeavesTheEndOfAChildToItsParent) {
  for (int i = 0; i < 100; ++i) {
    Forked child([](int) { return std::uint64_t{1}; });
    kill(child.pid(), SIGKILL);
    (void)ThreadStop::stop(child.pid(), kLong);
    const int status = child.wait();
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
  }
}

TEST(ThreadStop, AGroupStoppedThreadStaysSo) {
  const Forked child([](int) { return own_thread_pointer(); });
  kill(child.pid(), SIGSTOP);
  ASSERT_TRUE(comes_to(child.pid(), 'T'));
  for (int i = 0; i < 3; ++i) {
    const auto stopped = ThreadStop::stop(child.pid(), kLong);
    ASSERT_TRUE(stopped) << to_string(stopped.error());
    EXPECT_EQ(stopped->thread_pointer().value(), RemoteAddr(child.value()));
  }
  EXPECT_TRUE(comes_to(child.pid(), 'T'));
  kill(child.pid(), SIGCONT);
  EXPECT_TRUE(comes_to(child.pid(), 'S'));
}

TEST(ThreadStop, AStopSignalThatComesMeanwhileStopsIt) {
  const Forked child([](int) { return std::uint64_t{1}; });
  {
    const auto stopped = ThreadStop::stop(child.pid(), kLong);
    ASSERT_TRUE(stopped);
    kill(child.pid(), SIGSTOP);
  }
  EXPECT_TRUE(comes_to(child.pid(), 'T'));
}

TEST(ThreadStop, LosesNoSignalOfMany) {
  constexpr int kSignals = 100;
  Forked child([](int answer) {
    static volatile int seen = 0;
    struct sigaction action{};
    action.sa_handler = [](int) { seen = seen + 1; };
    sigaction(SIGRTMIN, &action, nullptr);
    const std::uint64_t ready = 1;
    if (write(answer, &ready, sizeof ready) != sizeof ready) _exit(99);
    while (seen < kSignals) {
    }
    _exit(7);
    return ready;
  });
  for (int i = 0; i < kSignals; ++i) {
    if (i % 2 == 0) kill(child.pid(), SIGRTMIN);
    const auto stopped = ThreadStop::stop(child.pid(), kLong);
    if (i % 2 != 0) kill(child.pid(), SIGRTMIN);
  }
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(ThreadStop, AThreadThatIsKilledMeanwhileIsNoTrouble) {
  Forked child([](int) { return std::uint64_t{1}; });
  {
    const auto stopped = ThreadStop::stop(child.pid(), kLong);
    ASSERT_TRUE(stopped);
    kill(child.pid(), SIGKILL);
  }
  const int status = child.wait();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(ThreadStop, LetsGoOfAThreadThatDoesNotStop) {
  Unstoppable child;
  for (int i = 0; i < 3; ++i) {
    const auto stopped = ThreadStop::stop(child.pid(), 5ms);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().err, ETIMEDOUT)
        << "the second time it would be EPERM if it were still traced";
  }
  // It continues when it can, without a stop that nobody handles.
  if (!child.release()) GTEST_SKIP() << "no list of children";
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(ThreadStop, ManyAtOnceAndMoved) {
  const Forked a([](int) { return own_thread_pointer(); });
  const Forked b([](int) { return own_thread_pointer(); });
  auto first = ThreadStop::stop(a.pid(), kLong);
  auto second = ThreadStop::stop(b.pid(), kLong);
  ASSERT_TRUE(first && second);
  ThreadStop moved = std::move(*first);
  *second = std::move(moved);
  EXPECT_EQ(second->tid(), a.pid());
  EXPECT_EQ(state_of(a.pid()), 't');
  EXPECT_TRUE(comes_to(b.pid(), 'S')) << "released by the assignment";
}

TEST(ThreadActivity, DoesNotChangeForASleeper) {
  const Forked child([](int) { return std::uint64_t{1}; });
  ASSERT_TRUE(comes_to(child.pid(), 'S'));
  const auto before = thread_activity(child.pid(), child.pid());
  ASSERT_TRUE(before) << to_string(before.error());
  EXPECT_TRUE(before->sleeping);
  EXPECT_EQ(thread_activity(child.pid(), child.pid()).value(), *before);
  EXPECT_TRUE(ThreadStop::stop(child.pid(), kLong));
  ASSERT_TRUE(comes_to(child.pid(), 'S'));
  EXPECT_NE(thread_activity(child.pid(), child.pid()).value(), *before) << "it has run";
}

TEST(ThreadActivity, TellsRunnersAndTheGone) {
  Forked child([](int answer) {
    spin(1, answer);
    return std::uint64_t{1};
  });
  const pid_t pid = child.pid();
  EXPECT_FALSE(thread_activity(pid, pid)->sleeping);
  EXPECT_EQ(thread_activity(pid, getpid()).error().err, ESRCH) << "of another process";
  kill(pid, SIGKILL);
  child.wait();
  EXPECT_EQ(thread_activity(pid, pid).error().err, ESRCH);
}

}  // namespace
}  // namespace ctxconf::sys
