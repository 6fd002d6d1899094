#include "conformance/reader/target_harm.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>

#include "sys/forked_child.h"

namespace ctxconf::conformance::reader {
namespace {

using sys::comes_to;
using sys::comes_true;
using sys::Forked;

constexpr const char* kRuns = "made its target run, which was stopped";
constexpr const char* kStopped = "left its target stopped by a signal";
constexpr const char* kStoppedByTracer = "left its target stopped, as its tracer";
constexpr const char* kTraced =
    "stays the tracer of its target, so that no debugger and no other reader can stop that";

puppet::Script quiet() { return {}; }

puppet::Script that_sends(std::uint64_t signal) {
  puppet::Builder b;
  const puppet::Value child = b.fork();
  b.signal(signal, child, /*process=*/true);
  return std::move(b).script();
}

// A process that the script has not moved, with a second thread.
class Target : public Forked {
 public:
  Target()
      : Forked([](int) {
          std::thread([] {
            while (true) pause();
          }).detach();
          return std::uint64_t{1};
        }) {
    EXPECT_TRUE(comes_true([&] { return sys::other_thread(pid()) != 0; }));
  }
  pid_t other() const { return sys::other_thread(pid()); }
};

void stop_by_signal(pid_t pid) {
  kill(pid, SIGSTOP);
  ASSERT_TRUE(comes_to(pid, 'T'));
}

void stop_as_tracer(pid_t tid) {
  ASSERT_EQ(ptrace(PTRACE_SEIZE, tid, nullptr, nullptr), 0);
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr), 0);
  siginfo_t stop{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(tid), &stop, WSTOPPED | __WALL), 0);
}

void let_go(pid_t tid) { ASSERT_EQ(ptrace(PTRACE_DETACH, tid, nullptr, nullptr), 0); }

// Waits until the harm is seen, or is over ("").
bool comes_to_be(TargetHarm& harm, const std::string& what) {
  return comes_true([&] { return harm.look().what == what; });
}

TEST(TargetHarm, AProcessThatIsLeftAloneIsWell) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, AProcessThatIsStoppedForAMomentIsWell) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  stop_as_tracer(target.pid());
  let_go(target.pid());
  EXPECT_EQ(harm.look().what, "");
}

// It looks like this for a moment when another thread calls exec.
TEST(TargetHarm, OneWhoseFirstThreadHasEndedIsWell) {
  const Forked target([](int) {
    std::thread([] {
      while (true) pause();
    }).detach();
    signal(SIGUSR1, [](int) { syscall(SYS_exit, 0); });
    return std::uint64_t{1};
  });
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  syscall(SYS_tgkill, target.pid(), target.pid(), SIGUSR1);
  ASSERT_TRUE(comes_to(target.pid(), 'Z'));
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, OneThatWasKilledSaysHow) {
  Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  kill(target.pid(), SIGKILL);
  ASSERT_TRUE(comes_to_be(harm, "ended its target: killed by SIGKILL"));
  EXPECT_FALSE(harm.look().may_end);
  target.wait();
  EXPECT_EQ(harm.look().what, "ended its target") << "how it ended went with it";
}

TEST(TargetHarm, OneThatExited) {
  std::array<int, 2> leave{};
  ASSERT_EQ(pipe(leave.data()), 0);
  const Forked target([&](int answer) {
    const std::uint64_t ready = 1;
    if (write(answer, &ready, sizeof ready) != sizeof ready) _exit(99);
    close(leave[1]);
    char c = 0;
    (void)!read(leave[0], &c, 1);
    _exit(3);
    return ready;
  });
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, "");
  close(leave[1]);
  EXPECT_TRUE(comes_to_be(harm, "ended its target"));
  close(leave[0]);
}

TEST(TargetHarm, AScriptMayEndItsProcesses) {
  const auto exits = [] {
    puppet::Builder b;
    b.exit(0);
    return std::move(b).script();
  }();
  const auto leaves = [] {
    puppet::Builder b;
    b.exit_thread();
    return std::move(b).script();
  }();
  for (const auto& script : {that_sends(SIGKILL), exits, leaves}) {
    const Target target;
    TargetHarm harm(script, /*keeps_tracing=*/false);
    harm.begin(target.pid());
    kill(target.pid(), SIGKILL);
    ASSERT_TRUE(comes_to(target.pid(), 'Z'));
    EXPECT_EQ(harm.look().what, "");
  }
}

TEST(TargetHarm, AScriptThatStopsOrContinuesAProcessDoesNotEndIt) {
  for (const auto signal : {SIGSTOP, SIGCONT}) {
    const Target target;
    TargetHarm harm(that_sends(static_cast<std::uint64_t>(signal)), /*keeps_tracing=*/false);
    harm.begin(target.pid());
    kill(target.pid(), SIGKILL);
    EXPECT_TRUE(comes_to_be(harm, "ended its target: killed by SIGKILL")) << signal;
  }
}

TEST(TargetHarm, OneThatWasStoppedBySignalAndRuns) {
  const Target target;
  stop_by_signal(target.pid());
  TargetHarm harm(that_sends(SIGSTOP), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, "") << "it is as it was";
  kill(target.pid(), SIGCONT);
  ASSERT_TRUE(comes_to_be(harm, kRuns));
  EXPECT_TRUE(harm.look().may_end) << "a thread that is detached runs for a moment";
  stop_by_signal(target.pid());
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, AStoppedOneMayBeTracedAndLetGo) {
  const Target target;
  stop_by_signal(target.pid());
  TargetHarm harm(that_sends(SIGSTOP), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  stop_as_tracer(target.pid());
  let_go(target.pid());
  EXPECT_TRUE(comes_to_be(harm, "")) << harm.look().what;
  EXPECT_TRUE(comes_to(target.pid(), 'T'));
}

TEST(TargetHarm, AStoppedOneThatStaysTracedIsNotSaidToRun) {
  const Target target;
  stop_by_signal(target.pid());
  TargetHarm harm(that_sends(SIGSTOP), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  stop_as_tracer(target.pid());
  EXPECT_EQ(harm.look().what, kStoppedByTracer);
}

TEST(TargetHarm, AScriptMayLetAStoppedProcessRun) {
  const Target target;
  stop_by_signal(target.pid());
  TargetHarm harm(that_sends(SIGCONT), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  kill(target.pid(), SIGCONT);
  ASSERT_TRUE(comes_to(target.pid(), 'S'));
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, OneThatIsStoppedBySignal) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/true);
  harm.begin(target.pid());
  stop_by_signal(target.pid());
  const auto found = harm.look();
  EXPECT_EQ(found.what, kStopped);
  EXPECT_TRUE(found.may_end);
  kill(target.pid(), SIGCONT);
  EXPECT_TRUE(comes_to_be(harm, ""));
}

TEST(TargetHarm, AScriptMayStopItsProcesses) {
  const Target target;
  TargetHarm harm(that_sends(SIGSTOP), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  stop_by_signal(target.pid());
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, OneThatItsTracerKeepsStopped) {
  // No declaration allows that.
  for (const bool keeps_tracing : {false, true}) {
    const Target target;
    TargetHarm harm(that_sends(SIGSTOP), keeps_tracing);
    harm.begin(target.pid());
    stop_as_tracer(target.pid());
    const auto found = harm.look();
    EXPECT_EQ(found.what, kStoppedByTracer);
    EXPECT_TRUE(found.may_end);
    let_go(target.pid());
    EXPECT_TRUE(comes_to_be(harm, ""));
  }
}

TEST(TargetHarm, OneThatIsTraced) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  ASSERT_EQ(ptrace(PTRACE_SEIZE, target.pid(), nullptr, nullptr), 0);
  const auto found = harm.look();
  EXPECT_EQ(found.what, kTraced);
  EXPECT_TRUE(found.may_end);
}

TEST(TargetHarm, AReaderThatSaysSoMayStayTheTracer) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/true);
  harm.begin(target.pid());
  ASSERT_EQ(ptrace(PTRACE_SEIZE, target.pid(), nullptr, nullptr), 0);
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, TheTracerThatItHadBeforeIsNotTheReader) {
  const Target target;
  ASSERT_EQ(ptrace(PTRACE_SEIZE, target.pid(), nullptr, nullptr), 0);
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, "");
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, target.pid(), nullptr, nullptr), 0);
  ASSERT_TRUE(comes_to(target.pid(), 't'));
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, AThreadThatIsNotTheLeader) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  const pid_t other = target.other();
  stop_as_tracer(other);
  EXPECT_EQ(harm.look().what, kStoppedByTracer);
  let_go(other);  // otherwise the end of its process waits for us
}

TEST(TargetHarm, AThreadThatWasSeenToBeWellIsNotLookedAtAgain) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, "");
  const pid_t other = target.other();
  stop_as_tracer(other);
  EXPECT_EQ(harm.look().what, "") << "a reader that polls is in the middle of something";
  let_go(other);
  kill(target.pid(), SIGKILL);
  EXPECT_TRUE(comes_to_be(harm, "ended its target: killed by SIGKILL"));
}

TEST(TargetHarm, WhatCountsIsHowAProcessWasBeforeTheFirstQuestion) {
  const Target target;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(target.pid());
  stop_by_signal(target.pid());
  harm.begin(target.pid());
  EXPECT_EQ(harm.look().what, kStopped);
}

TEST(TargetHarm, OfProcessesThatHadEndedNothingIsSaid) {
  Target target;
  const pid_t pid = target.pid();
  kill(pid, SIGKILL);
  ASSERT_TRUE(comes_to(pid, 'Z'));
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(pid);
  target.wait();
  harm.begin(pid);
  harm.begin(0);
  harm.begin(-1);
  EXPECT_EQ(harm.look().what, "");
}

TEST(TargetHarm, AllProcessesAreLookedAt) {
  const Target first;
  const Target second;
  TargetHarm harm(quiet(), /*keeps_tracing=*/false);
  harm.begin(first.pid());
  harm.begin(second.pid());
  stop_by_signal(second.pid());
  EXPECT_EQ(harm.look().what, kStopped);
}

}  // namespace
}  // namespace ctxconf::conformance::reader
