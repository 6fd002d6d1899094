#include "sys/threads_stopper.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sys/forked_child.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSmallStack = 64U << 10U;

void start_thread(void* (*body)(void*)) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kSmallStack);
  pthread_t thread;
  if (pthread_create(&thread, &small, body, nullptr) != 0) _exit(98);
}

void* sleep_forever(void*) {
  while (true) pause();
}

void* run_forever(void*) {
  for (volatile bool go_on = true; go_on;) {
  }
  return nullptr;
}

// A process with `threads` threads in addition to the leader.
class ManyThreads {
 public:
  ManyThreads(std::size_t threads, void* (*body)(void*))
      : child_([&](int) {
          for (std::size_t i = 0; i < threads; ++i) start_thread(body);
          return own_thread_pointer();
        }),
        tids_(thread_list(child_.pid()).value()) {
    EXPECT_EQ(tids_.size(), threads + 1);
  }
  pid_t pid() const { return child_.pid(); }
  const std::vector<pid_t>& tids() const { return tids_; }
  std::uint64_t leader_pointer() const { return child_.value(); }

 private:
  Forked child_;
  std::vector<pid_t> tids_;
};

enum class Way { kOnePass, kWithinLoop };

// The tests of a pass run on a pass by itself, and on one that the tracing thread goes on to.
class ThreadsStopperTest : public testing::TestWithParam<Way> {
 protected:
  static void visit_each(ThreadsStopper& stopper, pid_t pid, std::span<const pid_t> tids,
                         const StopLimits& limits, const ThreadsStopper::Visit& visit) {
    if (GetParam() == Way::kOnePass) return stopper.visit_each(pid, tids, limits, visit);
    const Forked first([](int) { return std::uint64_t{1}; });
    const std::vector<pid_t> first_tids = {first.pid()};
    std::vector<StopPass> passes = {{pid, tids, limits},
                                    {first.pid(), first_tids, {.deadline = kLong}}};
    bool in_first = true;
    stopper.visit_while(
        [&]() -> std::optional<StopPass> {
          if (passes.empty()) return std::nullopt;
          in_first = passes.size() == 2;
          const StopPass pass = passes.back();
          passes.pop_back();
          return pass;
        },
        [&](std::size_t i, const Result<RemoteAddr>& pointer) {
          if (!in_first) return visit(i, pointer);
          EXPECT_TRUE(pointer) << to_string(pointer.error());
        });
  }

  // What was said of each thread; each once.
  static std::map<pid_t, Result<RemoteAddr>> visit(ThreadsStopper& stopper, pid_t pid,
                                                   const std::vector<pid_t>& tids,
                                                   const StopLimits& limits) {
    std::map<pid_t, Result<RemoteAddr>> seen;
    visit_each(stopper, pid, tids, limits, [&](std::size_t i, const Result<RemoteAddr>& pointer) {
      EXPECT_FALSE(seen.contains(tids[i])) << "twice";
      if (pointer) {
        EXPECT_EQ(state_of(tids[i]), 't');
      }
      seen.emplace(tids[i], pointer);
    });
    EXPECT_EQ(seen.size(), tids.size());
    return seen;
  }
};

INSTANTIATE_TEST_SUITE_P(, ThreadsStopperTest, testing::Values(Way::kOnePass, Way::kWithinLoop),
                         [](const auto& way) {
                           return way.param == Way::kOnePass ? "OnePass" : "WithinLoop";
                         });

int error_of(const Result<RemoteAddr>& pointer) { return pointer ? 0 : pointer.error().err; }

TEST_P(ThreadsStopperTest, StopsEachOnceAndLetsGo) {
  ThreadsStopper stopper;
  for (const auto body : {sleep_forever, run_forever}) {
    const ManyThreads child(20, body);
    for (int i = 0; i < 3; ++i) {
      const auto seen = visit(stopper, child.pid(), child.tids(), {.deadline = kLong});
      std::map<std::uint64_t, pid_t> pointers;
      for (const auto& [tid, pointer] : seen) {
        ASSERT_TRUE(pointer) << to_string(pointer.error());
        pointers[pointer->raw()] = tid;
      }
      EXPECT_EQ(pointers.size(), child.tids().size()) << "each has its own";
      EXPECT_EQ(pointers[child.leader_pointer()], child.pid());
    }
    for (const pid_t tid : child.tids()) EXPECT_EQ(status_of(tid, "TracerPid"), "0");
    EXPECT_TRUE(comes_to(child.tids().back(), body == run_forever ? 'R' : 'S'));
  }
}

// An exec waits until all other threads are gone, the traced ones until their tracer has taken
// them. Until then PTRACE_SEIZE of a thread of this process does not return. With one thread, none
// is seized after the one that is killed during its visit.
TEST_P(ThreadsStopperTest, NeitherItNorAnExecWaitsForTheOther) {
  for (const std::size_t threads : {1U, 20U}) {
    const Forked child([&](int) {
      signal(SIGUSR1, [](int) { execl("/bin/sleep", "sleep", "60", nullptr); });
      for (std::size_t i = 0; i < threads; ++i) start_thread(sleep_forever);
      return own_thread_pointer();
    });
    auto tids = thread_list(child.pid()).value();
    std::erase(tids, child.pid());
    std::size_t seen = 0;
    ThreadsStopper stopper;
    visit_each(stopper, child.pid(), tids, {.deadline = kLong},
               [&](std::size_t, const Result<RemoteAddr>& pointer) {
                 if (++seen > 1) return;
                 EXPECT_TRUE(pointer) << to_string(pointer.error());
                 syscall(SYS_tgkill, child.pid(), child.pid(), SIGUSR1);
                 EXPECT_TRUE(comes_to(child.pid(), 'D'));
               });
    EXPECT_EQ(seen, threads);
    EXPECT_TRUE(comes_true([&] { return status_of(child.pid(), "Name") == "sleep"; }));
  }
}

TEST_P(ThreadsStopperTest, NamesThoseThatAreNotThere) {
  const Forked child([](int) { return own_thread_pointer(); });
  const Forked other([](int) { return own_thread_pointer(); });
  Forked gone([](int) { return std::uint64_t{1}; });
  const pid_t pid = gone.pid();
  gone.wait_after_kill();
  ThreadsStopper stopper;
  const auto seen = visit(stopper, child.pid(), {0, -1, pid, other.pid(), getpid(), child.pid()},
                          {.deadline = kLong});
  EXPECT_EQ(error_of(seen.at(0)), ESRCH);
  EXPECT_EQ(error_of(seen.at(-1)), ESRCH);
  EXPECT_EQ(error_of(seen.at(pid)), ESRCH);
  EXPECT_EQ(error_of(seen.at(other.pid())), ESRCH) << "of another process";
  EXPECT_EQ(error_of(seen.at(getpid())), ESRCH) << "of this one, which cannot be traced";
  EXPECT_EQ(seen.at(child.pid()).value(), RemoteAddr(child.value()));
}

TEST_P(ThreadsStopperTest, AZombieIsNotThere) {
  Forked child([](int) { return std::uint64_t{1}; });
  kill(child.pid(), SIGKILL);
  ASSERT_TRUE(comes_to(child.pid(), 'Z'));
  ThreadsStopper stopper;
  const auto seen = visit(stopper, child.pid(), {child.pid()}, {.deadline = kLong});
  EXPECT_EQ(error_of(seen.at(child.pid())), ESRCH);
}

TEST_P(ThreadsStopperTest, StopsThreadsWhoseLeaderHasEnded) {
  const Forked child([](int answer) {
    static std::atomic<int> to = answer;
    start_thread([](void*) -> void* {
      comes_to(getpid(), 'Z');
      spin(own_thread_pointer(), to);
      return nullptr;
    });
    syscall(SYS_exit, 0);  // ends this thread alone
    return std::uint64_t{0};
  });
  const pid_t tid = other_thread(child.pid());
  ThreadsStopper stopper;
  const auto seen = visit(stopper, child.pid(), {child.pid(), tid}, {.deadline = kLong});
  EXPECT_EQ(error_of(seen.at(child.pid())), ESRCH);
  EXPECT_EQ(seen.at(tid).value(), RemoteAddr(child.value()));
}

TEST_P(ThreadsStopperTest, SaysWhoTracesAThread) {
  const ManyThreads child(1, sleep_forever);
  const pid_t traced = child.tids().back();
  const Forked debugger(
      [&](int) { return std::uint64_t{ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0}; });
  ASSERT_EQ(debugger.value(), 1U);
  ThreadsStopper stopper;
  const auto seen = visit(stopper, child.pid(), child.tids(), {.deadline = kLong});
  EXPECT_TRUE(seen.at(child.pid()));
  ASSERT_EQ(error_of(seen.at(traced)), EPERM);
  EXPECT_TRUE(seen.at(traced).error().detail.ends_with(" is traced by process " +
                                                       std::to_string(debugger.pid())));
}

TEST_P(ThreadsStopperTest, WaitsForAnotherProfiler) {
  const ManyThreads child(3, sleep_forever);
  for (int i = 0; i < 5; ++i) {
    const Forked profiler([&](int answer) {
      std::uint64_t traced = 0;
      for (const pid_t tid : child.tids()) {
        traced += ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0 ? 1 : 0;
      }
      if (write(answer, &traced, sizeof traced) != sizeof traced) _exit(99);
      usleep(5000);
      _exit(0);
      return traced;
    });
    ASSERT_EQ(profiler.value(), child.tids().size());
    ThreadsStopper stopper;
    const auto seen =
        visit(stopper, child.pid(), child.tids(), {.deadline = kLong, .tracer_patience = kLong});
    for (const auto& [tid, pointer] : seen) {
      EXPECT_TRUE(pointer) << to_string(pointer.error());
    }
  }
}

TEST_P(ThreadsStopperTest, AThreadThatDoesNotStopDelaysNobodyForLong) {
  Unstoppable stuck;
  ThreadsStopper stopper;
  for (int i = 0; i < 3; ++i) {
    const auto seen = visit(stopper, stuck.pid(), {stuck.pid()}, {.deadline = 5ms});
    EXPECT_EQ(error_of(seen.at(stuck.pid())), ETIMEDOUT)
        << "the second time it would be EPERM if it were still traced";
  }
  if (!stuck.release()) GTEST_SKIP() << "no list of children";
  const int status = stuck.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// The child is a process with threads, of which the first ones cannot stop.
TEST_P(ThreadsStopperTest, ThreadsThatDoNotStopComeLast) {
  constexpr std::size_t kStuck = 20;
  const Forked child([](int) {
    for (std::size_t i = 0; i < kStuck; ++i) {
      start_thread([](void*) -> void* {
        if (vfork() == 0) {  // NOLINT(bugprone-unsafe-functions)
          prctl(PR_SET_PDEATHSIG, SIGKILL);
          pause();
          _exit(0);
        }
        return nullptr;
      });
    }
    for (std::size_t i = 0; i < kStuck; ++i) start_thread(sleep_forever);
    return std::uint64_t{1};
  });
  std::vector<pid_t> tids = thread_list(child.pid()).value();
  ASSERT_EQ(tids.size(), 2 * kStuck + 1);
  for (std::size_t i = 1; i <= kStuck; ++i) ASSERT_TRUE(comes_to(tids[i], 'D'));
  ThreadsStopper stopper;
  const auto seen = visit(stopper, child.pid(), tids, {.deadline = 200ms});
  for (std::size_t i = 0; i < tids.size(); ++i) {
    const bool stuck = i >= 1 && i <= kStuck;
    EXPECT_EQ(error_of(seen.at(tids[i])), stuck ? ETIMEDOUT : 0) << i;
  }
}

TEST_P(ThreadsStopperTest, StopsNobodyAfterTheEnd) {
  const ManyThreads child(10, sleep_forever);
  ThreadsStopper stopper;
  const auto over = visit(stopper, child.pid(), child.tids(),
                          {.deadline = kLong, .end = std::chrono::steady_clock::now()});
  for (const auto& [tid, pointer] : over) EXPECT_EQ(error_of(pointer), ETIME);

  std::size_t visited = 0;
  StopLimits limits{.deadline = kLong};
  limits.end = std::chrono::steady_clock::now() + kLong;
  visit_each(stopper, child.pid(), {}, limits, [&](std::size_t, const auto&) { ++visited; });
  EXPECT_EQ(visited, 0U);
}

TEST_P(ThreadsStopperTest, PassesOnWhatAVisitThrows) {
  const ManyThreads child(10, sleep_forever);
  ThreadsStopper stopper;
  std::size_t visits = 0;
  const auto fails = [&](std::size_t, const Result<RemoteAddr>&) {
    if (++visits == 3) throw std::runtime_error("a bug");
  };
  EXPECT_THROW(visit_each(stopper, child.pid(), child.tids(), {.deadline = kLong}, fails),
               std::runtime_error);
  EXPECT_EQ(visits, 3U);
  for (const pid_t tid : child.tids()) EXPECT_EQ(status_of(tid, "TracerPid"), "0");
  for (const auto& [tid, pointer] :
       visit(stopper, child.pid(), child.tids(), {.deadline = kLong})) {
    EXPECT_TRUE(pointer) << to_string(pointer.error());
  }
}

TEST_P(ThreadsStopperTest, LosesNoSignal) {
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
  ThreadsStopper stopper;
  const std::vector<pid_t> tids = {child.pid()};
  for (int i = 0; i < kSignals; ++i) {
    if (i % 2 == 0) kill(child.pid(), SIGRTMIN);
    visit_each(stopper, child.pid(), tids, {.deadline = kLong},
               [&](std::size_t, const Result<RemoteAddr>&) {
                 if (i % 2 != 0) kill(child.pid(), SIGRTMIN);
               });
  }
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST_P(ThreadsStopperTest, AGroupStoppedProcessStaysSo) {
  const ManyThreads child(3, sleep_forever);
  kill(child.pid(), SIGSTOP);
  for (const pid_t tid : child.tids()) ASSERT_TRUE(comes_to(tid, 'T'));
  ThreadsStopper stopper;
  for (const auto& [tid, pointer] :
       visit(stopper, child.pid(), child.tids(), {.deadline = kLong})) {
    EXPECT_TRUE(pointer) << to_string(pointer.error());
  }
  for (const pid_t tid : child.tids()) EXPECT_TRUE(comes_to(tid, 'T'));
  kill(child.pid(), SIGCONT);
  for (const pid_t tid : child.tids()) EXPECT_TRUE(comes_to(tid, 'S'));
}

// A program that embeds this waits for its children itself.
TEST_P(ThreadsStopperTest, LeavesTheEndOfAChildToItsParent) {
  ThreadsStopper stopper;
  for (int i = 0; i < 100; ++i) {
    Forked child([](int) { return std::uint64_t{1}; });
    const bool meanwhile = i % 2 == 0;
    if (!meanwhile) kill(child.pid(), SIGKILL);
    const std::vector<pid_t> tids = {child.pid()};
    visit_each(stopper, child.pid(), tids, {.deadline = kLong},
               [&](std::size_t, const Result<RemoteAddr>&) {
                 if (meanwhile) kill(child.pid(), SIGKILL);
               });
    const int status = child.wait();
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
  }
}

// This is what a paused virtual machine does: the time was over when the thread could at last stop.
TEST_P(ThreadsStopperTest, TimeInWhichTheReaderDoesNotRunDoesNotCount) {
  constexpr auto kDeadline = 2s;
  const Unstoppable target;
  Forked reader([&](int answer) {
    const std::uint64_t ready = 1;
    if (write(answer, &ready, sizeof ready) != sizeof ready) _exit(99);
    ThreadsStopper stopper;
    const auto seen = visit(stopper, target.pid(), {target.pid()}, {.deadline = kDeadline});
    _exit(seen.at(target.pid()) ? 7 : 1);
    return ready;
  });
  ASSERT_TRUE(comes_true([&] { return status_of(target.pid(), "TracerPid") != "0"; }));
  kill(reader.pid(), SIGSTOP);
  ASSERT_TRUE(comes_to(reader.pid(), 'T'));
  std::this_thread::sleep_for(kDeadline);
  const bool released = target.release();
  if (released) {
    ASSERT_TRUE(comes_to(target.pid(), 't'));
  }
  kill(reader.pid(), SIGCONT);
  const int status = reader.wait();
  if (!released) GTEST_SKIP() << "no list of children";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

// Gives `count` passes over all of `tids`.
ThreadsStopper::NextPass so_many_passes(int count, pid_t pid, const std::vector<pid_t>& tids) {
  return [=, &tids, left = count]() mutable -> std::optional<StopPass> {
    if (left-- == 0) return std::nullopt;
    return StopPass{pid, tids, {.deadline = kLong}};
  };
}

void expect_none_is_traced(const std::vector<pid_t>& tids) {
  for (const pid_t tid : tids) EXPECT_EQ(status_of(tid, "TracerPid"), "0");
}

TEST(VisitWhile, EndsWhenNoPassIsGiven) {
  constexpr int kPasses = 5;
  const ManyThreads child(10, sleep_forever);
  ThreadsStopper stopper;
  std::size_t visits = 0;
  std::set<pid_t> tracing_threads;
  const auto count = [&](std::size_t, const Result<RemoteAddr>& pointer) {
    EXPECT_TRUE(pointer) << to_string(pointer.error());
    ++visits;
    tracing_threads.insert(gettid());
  };
  stopper.visit_while(so_many_passes(0, child.pid(), child.tids()), count);
  EXPECT_EQ(visits, 0U);
  stopper.visit_while(so_many_passes(kPasses, child.pid(), child.tids()), count);
  EXPECT_EQ(visits, kPasses * child.tids().size());
  EXPECT_FALSE(tracing_threads.contains(gettid()));
  expect_none_is_traced(child.tids());
}

// The first pass is asked for by the caller.
TEST(VisitWhile, TheTracingThreadAsksForTheNextPass) {
  const ManyThreads child(3, sleep_forever);
  ThreadsStopper stopper;
  pid_t tracing_thread = 0;
  int asked = 0;
  const auto three = so_many_passes(3, child.pid(), child.tids());
  stopper.visit_while(
      [&] {
        EXPECT_TRUE(++asked == 1 || gettid() == tracing_thread);
        expect_none_is_traced(child.tids());
        return three();
      },
      [&](std::size_t, const auto&) { tracing_thread = gettid(); });
  EXPECT_EQ(asked, 4);
}

TEST(VisitWhile, APassMayBeEmptyOrOverOrOfAnotherProcess) {
  const ManyThreads one(3, sleep_forever);
  const ManyThreads other(5, sleep_forever);
  const auto now = std::chrono::steady_clock::now();
  const std::vector<StopPass> passes = {
      {one.pid(), {}, {.deadline = kLong}},
      {one.pid(), one.tids(), {.deadline = kLong}},
      {one.pid(), {}, {.deadline = kLong}},
      {one.pid(), one.tids(), {.deadline = kLong, .end = now}},
      {other.pid(), other.tids(), {.deadline = kLong}},
      {one.pid(), other.tids(), {.deadline = kLong}},
  };
  std::vector<std::map<int, std::size_t>> errors;
  ThreadsStopper stopper;
  stopper.visit_while(
      [&]() -> std::optional<StopPass> {
        if (errors.size() == passes.size()) return std::nullopt;
        errors.emplace_back();
        return passes[errors.size() - 1];
      },
      [&](std::size_t, const Result<RemoteAddr>& pointer) { ++errors.back()[error_of(pointer)]; });
  const std::vector<std::map<int, std::size_t>> expected = {{},           {{0, 4}}, {},
                                                            {{ETIME, 4}}, {{0, 6}}, {{ESRCH, 6}}};
  EXPECT_EQ(errors, expected);
}

// It ends like a sampler that goes on until its target has ended.
TEST(VisitWhile, SeesTheEndOfItsTarget) {
  for (const bool is_stopped : {true, false}) {
    Forked child([](int) {
      for (int i = 0; i < 3; ++i) start_thread(sleep_forever);
      return std::uint64_t{1};
    });
    const auto tids = thread_list(child.pid()).value();
    ThreadsStopper stopper;
    int passes = 0;
    std::size_t gone = 0;
    stopper.visit_while(
        [&]() -> std::optional<StopPass> {
          if (gone == tids.size()) return std::nullopt;
          gone = 0;
          if (++passes == 3 && !is_stopped) kill(child.pid(), SIGKILL);
          return StopPass{child.pid(), tids, {.deadline = kLong}};
        },
        [&](std::size_t, const Result<RemoteAddr>& pointer) {
          if (passes == 3 && is_stopped) kill(child.pid(), SIGKILL);
          if (!pointer) {
            EXPECT_EQ(pointer.error().err, ESRCH);
            ++gone;
          }
        });
    EXPECT_GE(passes, 3);
    EXPECT_TRUE(WIFSIGNALED(child.wait())) << "the status is there for the parent";
  }
}

TEST(VisitWhile, PassesOnWhatNextThrows) {
  const ManyThreads child(10, sleep_forever);
  ThreadsStopper stopper;
  for (const int good : {0, 1, 3}) {
    std::size_t visits = 0;
    int asked = 0;
    const auto next = [&]() -> std::optional<StopPass> {
      if (++asked > good) throw std::runtime_error("a bug");
      return StopPass{child.pid(), child.tids(), {.deadline = kLong}};
    };
    EXPECT_THROW(stopper.visit_while(next, [&](std::size_t, const auto&) { ++visits; }),
                 std::runtime_error);
    EXPECT_EQ(asked, good + 1);
    EXPECT_EQ(visits, static_cast<std::size_t>(good) * child.tids().size());
    expect_none_is_traced(child.tids());
  }
}

TEST(VisitWhile, AVisitThatThrowsIsTheLast) {
  const ManyThreads child(10, sleep_forever);
  ThreadsStopper stopper;
  std::size_t visits = 0;
  const auto fails = [&](std::size_t, const auto&) {
    if (++visits == child.tids().size() + 2) throw std::runtime_error("a bug");
  };
  EXPECT_THROW(stopper.visit_while(so_many_passes(3, child.pid(), child.tids()), fails),
               std::runtime_error);
  EXPECT_EQ(visits, child.tids().size() + 2);
  expect_none_is_traced(child.tids());
}

// The tracing thread has to end for it; another one goes on.
TEST(VisitWhile, GoesOnAfterAThreadThatDoesNotStop) {
  constexpr int kPasses = 4;
  Unstoppable stuck;
  const ManyThreads child(3, sleep_forever);
  const std::vector<pid_t> stuck_tids = {stuck.pid()};
  ThreadsStopper stopper;
  std::set<pid_t> tracing_threads;
  int passes = 0;
  int stopped = 0;
  int timeouts = 0;
  stopper.visit_while(
      [&]() -> std::optional<StopPass> {
        EXPECT_EQ(status_of(stuck.pid(), "TracerPid"), "0");
        if (passes++ == kPasses) return std::nullopt;
        if (passes % 2 == 0) return StopPass{stuck.pid(), stuck_tids, {.deadline = 5ms}};
        return StopPass{child.pid(), child.tids(), {.deadline = kLong}};
      },
      [&](std::size_t, const Result<RemoteAddr>& pointer) {
        if (passes % 2 == 0) {
          EXPECT_EQ(error_of(pointer), ETIMEDOUT);
          ++timeouts;
        } else {
          EXPECT_TRUE(pointer) << to_string(pointer.error());
          tracing_threads.insert(gettid());
          ++stopped;
        }
      });
  EXPECT_EQ(timeouts, kPasses / 2);
  EXPECT_EQ(stopped, kPasses / 2 * static_cast<int>(child.tids().size()));
  EXPECT_GE(tracing_threads.size(), 2U);
}

// Neither counts as time in which a thread does not stop.
TEST(VisitWhile, NextAndVisitMayTakeTheirTime) {
  constexpr auto kDeadline = 500ms;
  const ManyThreads child(2, sleep_forever);
  ThreadsStopper stopper;
  int asked = 0;
  std::size_t visits = 0;
  stopper.visit_while(
      [&]() -> std::optional<StopPass> {
        if (++asked == 2) std::this_thread::sleep_for(2 * kDeadline);
        if (asked > 2) return std::nullopt;
        return StopPass{child.pid(), child.tids(), {.deadline = kDeadline}};
      },
      [&](std::size_t, const Result<RemoteAddr>& pointer) {
        EXPECT_TRUE(pointer) << to_string(pointer.error());
        if (++visits == 1) std::this_thread::sleep_for(2 * kDeadline);
      });
  EXPECT_EQ(visits, 2 * child.tids().size());
}

}  // namespace
}  // namespace ctxconf::sys
