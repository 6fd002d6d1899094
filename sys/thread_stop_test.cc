#include "sys/thread_stop.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sys/process.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 20s;

// A fork of this test that runs the body, passes its value here, and then sleeps.
class Forked {
 public:
  explicit Forked(const std::function<std::uint64_t(int answer)>& body) {
    std::array<int, 2> answer{};
    if (pipe(answer.data()) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::uint64_t value = body(answer[1]);
      if (write(answer[1], &value, sizeof value) != sizeof value) _exit(99);
      while (true) pause();
    }
    close(answer[1]);
    if (read(answer[0], &value_, sizeof value_) != sizeof value_) value_ = 0;
    close(answer[0]);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  std::uint64_t value() const { return value_; }
  int wait() {
    int status = -1;
    if (pid_ > 0 && waitpid(pid_, &status, 0) != pid_) ADD_FAILURE() << errno;
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  std::uint64_t value_ = 0;
};

std::uint64_t own_thread_pointer() {
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
}

char state_of(pid_t tid) {
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("State:\t")) return line[7];
  }
  return '-';
}

bool comes_to(pid_t tid, char state) {
  const auto latest = std::chrono::steady_clock::now() + kLong;
  while (state_of(tid) != state) {
    if (std::chrono::steady_clock::now() > latest) return false;
    usleep(1000);
  }
  return true;
}

// The thread that is not the leader.
pid_t other_thread(pid_t pid) {
  const std::vector<pid_t> threads = thread_list(pid).value();
  for (const pid_t tid : threads) {
    if (tid != pid) return tid;
  }
  return 0;
}

void spin(std::uint64_t value, int answer) {
  if (write(answer, &value, sizeof value) != sizeof value) _exit(99);
  for (volatile bool go_on = true; go_on;) {
  }
}

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

// The parent of a vfork child sleeps uninterruptibly.
TEST(ThreadStop, LetsGoOfAThreadThatDoesNotStop) {
  Forked child([](int answer) {
    const std::uint64_t ready = 1;
    if (write(answer, &ready, sizeof ready) != sizeof ready) _exit(99);
    if (vfork() == 0) {  // NOLINT(bugprone-unsafe-functions)
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pause();
      _exit(0);
    }
    _exit(7);
    return ready;
  });
  ASSERT_TRUE(comes_to(child.pid(), 'D'));
  for (int i = 0; i < 3; ++i) {
    const auto stopped = ThreadStop::stop(child.pid(), 5ms);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().err, ETIMEDOUT)
        << "the second time it would be EPERM if it were still traced";
  }
  // It continues when it can, without a stop that nobody handles.
  std::ifstream children("/proc/" + std::to_string(child.pid()) + "/task/" +
                         std::to_string(child.pid()) + "/children");
  pid_t grandchild = 0;
  if (!(children >> grandchild)) GTEST_SKIP() << "no list of children";
  kill(grandchild, SIGKILL);
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
