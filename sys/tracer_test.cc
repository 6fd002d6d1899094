#include "sys/tracer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "sys/capabilities.h"
#include "sys/child.h"
#include "sys/fd.h"
#include "sys/memory_reader.h"
#include "sys/process.h"
#include "sys/spawn.h"
#include "sys/temporary_file.h"
#include "sys/trampoline_file.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPrSetVmaNumber = 0x53564d41;
const std::string kTarget = std::string(CTXCONF_BIN_DIR) + "/trace_target";
const std::string kTarget32 = std::string(CTXCONF_BIN_DIR) + "/trace_target32";
const std::string kTrampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";

Launch target(std::vector<std::string> arguments) {
  Launch launch;
  launch.argv = std::move(arguments);
  launch.argv.insert(launch.argv.begin(), kTarget);
  return launch;
}

std::string maps_of(pid_t pid) {
  std::ostringstream out;
  out << std::ifstream("/proc/" + std::to_string(pid) + "/maps").rdbuf();
  return out.str();
}

// All events of a run, and what must hold for each of them.
struct Recording {
  std::vector<TraceEvent> events;
  bool to_exit = false;                         // calls resume_to_exit at every entry
  std::size_t steps = 0;                        // steps this many times instead of resuming
  bool killed = false;                          // the test has sent SIGKILL
  std::function<void(const TraceEvent&)> also;  // before the resume
  std::set<pid_t> announced;
  std::set<pid_t> ended;

  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& e : events) {
      if (const auto* found = std::get_if<T>(&e)) out.push_back(*found);
    }
    return out;
  }
  std::optional<Gone> end_of(pid_t process) const {
    for (const auto& g : all<Gone>()) {
      if (g.process == process) return g;
    }
    return std::nullopt;
  }

  void check(const NewTask& e) {
    EXPECT_TRUE(announced.insert(e.tid).second) << "announced twice: " << e.tid;
    ended.erase(e.tid);
    if (e.process != e.tid) {
      EXPECT_TRUE(announced.contains(e.process)) << "thread of an unknown process";
    }
  }
  template <class T>
  void check(const T& e) {
    EXPECT_TRUE(announced.contains(e.process)) << "not announced: " << e.process;
    EXPECT_FALSE(ended.contains(e.process)) << "has ended: " << e.process;
    if constexpr (std::is_same_v<T, Gone>) {
      ended.insert(e.process);
      announced.erase(e.process);
      EXPECT_NE(e.exit_code.has_value(), e.killed_by.has_value());
    } else if constexpr (std::is_same_v<T, Exiting>) {
      EXPECT_TRUE(killed || !maps_of(e.tid).empty()) << "memory is gone";
      EXPECT_TRUE(e.whole_process || e.tid != e.process);
      if (e.tid != e.process) announced.erase(e.tid);
    } else if constexpr (std::is_same_v<T, Execed>) {
      if (e.former_tid != e.process) announced.erase(e.former_tid);
    }
  }

  // The loader sets the thread pointer and protects relocated memory.
  static bool is_of_start(const SyscallEntry& e) {
#if defined(__x86_64__)
    if (e.nr == SYS_arch_prctl) return true;
#endif
    return e.nr == SYS_mprotect || e.nr == SYS_munmap;
  }

  Result<> go_on(Tracer& tracer, pid_t tid, int signo = 0) {
    // A handler of SIGTRAP runs while SIGTRAP is blocked.
    if (signo == SIGTRAP) steps = 0;
    if (steps == 0) return tracer.resume(tid, signo);
    --steps;
    return tracer.step(tid, signo);
  }

  Result<> answer(Tracer& tracer, const TraceEvent& event) {
    if (const auto* e = std::get_if<SyscallEntry>(&event)) {
      return to_exit ? tracer.resume_to_exit(e->tid) : go_on(tracer, e->tid);
    }
    if (const auto* e = std::get_if<SignalStop>(&event)) return go_on(tracer, e->tid, e->signo);
    if (const auto* e = std::get_if<NewTask>(&event)) return go_on(tracer, e->tid);
    if (const auto* e = std::get_if<SyscallExit>(&event)) return go_on(tracer, e->tid);
    if (const auto* e = std::get_if<Execed>(&event)) return go_on(tracer, e->process);
    if (const auto* e = std::get_if<Exiting>(&event)) return go_on(tracer, e->tid);
    if (const auto* e = std::get_if<Interrupted>(&event)) return go_on(tracer, e->tid);
    if (const auto* e = std::get_if<WatchpointHit>(&event)) return go_on(tracer, e->tid);
    if (const auto* e = std::get_if<Stepped>(&event)) return go_on(tracer, e->tid);
    return {};
  }

  // Runs until nothing is left, `stop` says so, or a minute has passed.
  void drive(Tracer& tracer, const std::function<bool()>& stop = [] { return false; }) {
    announced.insert(tracer.root());
    const auto deadline = Clock::now() + 60s;
    while (!stop()) {
      auto next = tracer.next(deadline);
      if (!next) {
        EXPECT_EQ(next.error().err, ECHILD) << to_string(next.error());
        EXPECT_TRUE(tracer.processes().empty());
        EXPECT_EQ(tracer.tasks(), 0U);
        return;
      }
      ASSERT_TRUE(next->has_value()) << "no event within a minute";
      const TraceEvent& event = **next;
      std::visit([&](const auto& e) { check(e); }, event);
      const auto* call = std::get_if<SyscallEntry>(&event);
      const bool of_start = call != nullptr && is_of_start(*call);
      if (!of_start) events.push_back(event);
      if (also) also(event);
      const auto answered = of_start ? tracer.resume(call->tid) : answer(tracer, event);
      EXPECT_TRUE(answered) << to_string(answered.error());
    }
  }
};

class TracerTest : public testing::Test {
 protected:
  // The trampoline's descriptor stays open as long as this process exists.
  static void SetUpTestSuite() { ASSERT_TRUE(find_trampoline()); }
  void TearDown() override {
    EXPECT_TRUE(children_of_this_process().empty());
    EXPECT_EQ(open_fds(), fds_before_);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGCHLD), 0);
    EXPECT_EQ(sigismember(&mask, SIGINT), 0);
  }
  static std::vector<int> open_fds() {
    std::vector<int> out;
    for (int fd = 0; fd < 256; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) out.push_back(fd);
    }
    return out;
  }
  // Runs it traced to its end and expects the same end as without tracing.
  Recording run_as_alone(const Launch& launch, bool to_exit = false, std::size_t steps = 0) {
    ChildOptions alone;
    alone.argv = launch.argv;
    alone.extra_env = launch.extra_env;
    const auto reference = run_child(alone);
    EXPECT_TRUE(reference) << to_string(reference.error());
    Recording run;
    run.to_exit = to_exit;
    run.steps = steps;
    auto tracer = Tracer::launch(launch, kTrampoline);
    EXPECT_TRUE(tracer) << to_string(tracer.error());
    if (!tracer || !reference) return run;
    root_ = tracer->root();
    run.drive(*tracer);
    const auto end = run.end_of(root_);
    EXPECT_TRUE(end.has_value());
    if (end) {
      EXPECT_EQ(end->exit_code, reference->exit_code);
      EXPECT_EQ(end->killed_by, reference->killed_by);
    }
    EXPECT_TRUE(tracer->end());
    return run;
  }
  pid_t root_ = 0;
  std::vector<int> fds_before_ = open_fds();
};

TEST_F(TracerTest, FollowsAProgramFromItsExecToItsEnd) {
  const auto run = run_as_alone(target({"exit", "7"}));
  ASSERT_EQ(run.events.size(), 3U);
  const auto execed = run.all<Execed>();
  ASSERT_EQ(execed.size(), 1U);
  EXPECT_EQ(execed[0].process, root_);
  EXPECT_EQ(execed[0].former_tid, root_);
  const auto exiting = run.all<Exiting>();
  ASSERT_EQ(exiting.size(), 1U);
  EXPECT_TRUE(exiting[0].whole_process);
  EXPECT_EQ(WEXITSTATUS(exiting[0].wait_status), 7);
  EXPECT_EQ(run.end_of(root_)->exit_code, 7);
}

TEST_F(TracerTest, TheProgramHasNotRunBeforeItsFirstEvent) {
  auto tracer = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  const auto link = "/proc/" + std::to_string(tracer->root()) + "/exe";
  std::array<char, 4096> executable{};
  ASSERT_GT(readlink(link.c_str(), executable.data(), executable.size() - 1), 0);
  EXPECT_EQ(std::string(executable.data()), kTarget);
  // Only the image that the kernel made: the dynamic linker has not mapped libc.
  EXPECT_EQ(maps_of(tracer->root()).find("libc.so"), std::string::npos);
  EXPECT_EQ(tracer->processes(), std::vector{tracer->root()});
  EXPECT_EQ(tracer->tasks(), 1U);
}

TEST_F(TracerTest, AProgramDoesNotNoticeThatItWasCopied) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "only on x86-64";
#endif
  constexpr int kCalls = 20;
  auto tracer = Tracer::launch(target({"childless", std::to_string(kCalls)}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.to_exit = true;
  std::set<pid_t> copies;
  const auto copy = [&](pid_t tid) {
    const auto made = tracer->with_copy(tid, [&](pid_t pid) {
      EXPECT_TRUE(copies.insert(pid).second);
      EXPECT_EQ(maps_of(pid), maps_of(tid));
    });
    EXPECT_TRUE(made) << to_string(made.error());
  };
  run.also = [&](const TraceEvent& event) {
    const auto* entry = std::get_if<SyscallEntry>(&event);
    if (entry != nullptr && entry->nr == SYS_memfd_create) copy(entry->tid);
    if (const auto* exit = std::get_if<SyscallExit>(&event)) copy(exit->tid);
    // It is running, or is about to get a signal.
    const auto* signal = std::get_if<SignalStop>(&event);
    if (signal != nullptr) {
      EXPECT_EQ(tracer->with_copy(signal->tid, {}).error().err, EINVAL);
    }
  };
  run.drive(*tracer);
  const auto end = run.end_of(tracer->root());
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 0);
  EXPECT_GE(copies.size(), 2U * kCalls);
  EXPECT_TRUE(run.all<NewTask>().empty());
  EXPECT_TRUE(tracer->end());
}

TEST_F(TracerTest, AProcess1OfItsOwnNamespace) {
  if (!Capabilities::of_this_host().has(kHostPidNamespaces)) GTEST_SKIP() << "no pid namespaces";
  auto launch = target({"own-number"});
  launch.pid_namespace = true;
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  EXPECT_EQ(own_number(tracer->root()).value_or(0), 1);
  Recording run;
  run.drive(*tracer);
  ASSERT_TRUE(run.end_of(tracer->root()));
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
  EXPECT_TRUE(tracer->end());
}

TEST_F(TracerTest, KeepsTheEndOfASignal) {
  for (const int signo : {SIGTERM, SIGSEGV, SIGKILL}) {
    const auto run = run_as_alone(target({"kill-self", std::to_string(signo)}));
    EXPECT_EQ(run.end_of(root_)->killed_by, signo);
    EXPECT_EQ(run.all<SignalStop>().size(), signo == SIGKILL ? 0U : 1U);
    EXPECT_EQ(run.all<Exiting>().size(), 1U);
  }
}

TEST_F(TracerTest, ASignalCanBeWithheld) {
  auto tracer = Tracer::launch(target({"kill-self", std::to_string(SIGTERM)}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  while (true) {
    const auto next = tracer->next(Clock::now() + 30s);
    ASSERT_TRUE(next && *next);
    if (const auto* e = std::get_if<SignalStop>(&**next)) {
      EXPECT_EQ(e->signo, SIGTERM);
      ASSERT_TRUE(tracer->resume(e->tid));
    } else if (const auto* g = std::get_if<Gone>(&**next)) {
      EXPECT_EQ(g->exit_code, 1);
      break;
    } else {
      ASSERT_TRUE(tracer->resume(tracer->root()));
    }
  }
}

TEST_F(TracerTest, FollowsAChainOfExecs) {
  const auto run = run_as_alone(target({"exec-chain", "5"}));
  EXPECT_EQ(run.all<Execed>().size(), 6U);
  // The exec of the program itself is not an event.
  EXPECT_EQ(run.all<SyscallEntry>().size(), 5U);
}

TEST_F(TracerTest, FollowsForkAndExec) {
  const auto run = run_as_alone(target({"fork-exec", "20"}));
  EXPECT_EQ(run.all<NewTask>().size(), 20U);
  EXPECT_EQ(run.all<Execed>().size(), 21U);
  EXPECT_EQ(run.all<Gone>().size(), 21U);
  for (const auto& e : run.all<NewTask>()) {
    EXPECT_EQ(e.maker, root_);
    EXPECT_EQ(e.process, e.tid);
    EXPECT_FALSE(e.shares_memory);
    EXPECT_EQ(run.end_of(e.tid)->exit_code, 3);
  }
}

TEST_F(TracerTest, FollowsVfork) {
  const auto run = run_as_alone(target({"vfork"}));
  const auto made = run.all<NewTask>();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_TRUE(made[0].shares_memory);
  EXPECT_EQ(run.end_of(made[0].tid)->exit_code, 3);
}

TEST_F(TracerTest, KnowsThatAChildWhoseMakerWaitsMayHaveMemoryOfItsOwn) {
  const auto run = run_as_alone(target({"vfork-copy"}));
  const auto made = run.all<NewTask>();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_STREQ(made[0].how, "vfork");
  EXPECT_FALSE(made[0].shares_memory);
  EXPECT_EQ(run.end_of(made[0].tid)->exit_code, 3);
}

TEST_F(TracerTest, FollowsAShellPipeline) {
  Launch launch;
  launch.argv = {"sh", "-c", "(echo a; echo b) | cat | { read x; test $x = a; } && exit 4"};
  const auto run = run_as_alone(launch);
  EXPECT_EQ(run.end_of(root_)->exit_code, 4);
}

TEST_F(TracerTest, AnnouncesEveryThreadOnce) {
  const auto run = run_as_alone(target({"threads", "200"}));
  EXPECT_EQ(run.all<NewTask>().size(), 200U);
  EXPECT_EQ(run.all<Exiting>().size(), 201U);
  for (const auto& e : run.all<NewTask>()) EXPECT_EQ(e.process, root_);
  for (const auto& e : run.all<Exiting>()) EXPECT_EQ(e.whole_process, e.tid == root_);
  EXPECT_EQ(run.all<Gone>().size(), 1U);
}

TEST_F(TracerTest, AnInterruptIsNotLostWhereAThreadIsMade) {
  auto tracer = Tracer::launch(target({"threads", "1000"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  std::size_t asked = 0;
  bool waiting = false;
  run.also = [&](const TraceEvent& event) {
    if (std::holds_alternative<Interrupted>(event)) waiting = false;
    if (!std::holds_alternative<NewTask>(event) || waiting) return;
    // Its maker is about to stop for the same clone.
    EXPECT_TRUE(tracer->interrupt(tracer->root()));
    waiting = true;
    ++asked;
  };
  run.drive(*tracer);
  EXPECT_GT(asked, 10U);
  EXPECT_EQ(run.all<Interrupted>().size(), asked);
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
}

TEST_F(TracerTest, AnExecInAThreadEndsTheOthers) {
  const auto run = run_as_alone(target({"exec-in-thread"}));
  const auto execed = run.all<Execed>();
  ASSERT_EQ(execed.size(), 2U);
  EXPECT_EQ(execed[1].process, root_);
  EXPECT_NE(execed[1].former_tid, root_);
  EXPECT_EQ(run.all<SyscallEntry>()[0].tid, execed[1].former_tid);
  EXPECT_EQ(run.end_of(root_)->exit_code, 6);
}

TEST_F(TracerTest, AnExecAndAForkInDifferentThreadsLoseNoTask) {
  const auto run = run_as_alone(target({"exec-against-fork", "20"}));
  EXPECT_EQ(run.end_of(root_)->exit_code, 7);
  EXPECT_EQ(run.all<Execed>().size(), 22U);
}

TEST_F(TracerTest, KeepsGroupStops) {
  const auto run = run_as_alone(target({"stop-and-continue"}));
  EXPECT_EQ(run.end_of(root_)->exit_code, 0);
  std::vector<int> signals;
  for (const auto& e : run.all<SignalStop>()) signals.push_back(e.signo);
  EXPECT_THAT(signals, testing::Contains(SIGSTOP));
  EXPECT_THAT(signals, testing::Contains(SIGCONT));
}

TEST_F(TracerTest, DeliversTheProgramsOwnSigtrap) {
  const auto run = run_as_alone(target({"own-sigtrap"}));
  EXPECT_EQ(run.end_of(root_)->exit_code, 0);
  for (const auto& e : run.all<SignalStop>()) EXPECT_EQ(e.signo, SIGTRAP);
  EXPECT_FALSE(run.all<SignalStop>().empty());
}

TEST_F(TracerTest, LosesNoSignal) {
  const auto run = run_as_alone(target({"signal-storm", "500"}));
  EXPECT_EQ(run.end_of(root_)->exit_code, 0);
  const auto stops = run.all<SignalStop>();
  EXPECT_EQ(std::count_if(stops.begin(), stops.end(),
                          [](const SignalStop& e) { return e.signo == SIGRTMIN; }),
            500);
}

// Steps all its tasks from their first instruction, up to this total, and then lets them run.
TEST_F(TracerTest, AProgramThatIsSteppedEndsAsAlone) {
  constexpr std::size_t kSteps = 4000;
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"exit", "4"}, {"fork-exec", "2"}, {"vfork-exec"}, {"exec-chain", "2"}}) {
    const auto run = run_as_alone(target(arguments), false, kSteps);
    EXPECT_GT(run.all<Stepped>().size(), kSteps / 2) << arguments[0];
    for (const auto& e : run.all<Stepped>()) EXPECT_NE(e.pc, 0U);
  }
}

bool sleeps(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(stat), {});
  return text.substr(text.rfind(')') + 1).starts_with(" S");
}

// The trap of the step comes after the requested stop, when the thread runs without steps again.
TEST_F(TracerTest, AStepThatBlocksMayBeGivenUp) {
  std::array<int, 2> to{};
  ASSERT_EQ(pipe2(to.data(), O_CLOEXEC), 0);
  Fd ours(to[1]);
  Fd theirs(to[0]);
  Launch launch;
  launch.argv = {"cat"};
  launch.stdio = {theirs.get(), -1, -1};
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  theirs.reset();
  int interruptions = 0;
  const auto until = Clock::now() + 30s;
  while (Clock::now() < until) {
    const auto next = tracer->next(Clock::now() + 10ms);
    ASSERT_TRUE(next);
    if (!*next) {
      if (!sleeps(tracer->root())) continue;
      if (interruptions < 4) {
        ASSERT_TRUE(tracer->interrupt(tracer->root()));
      } else {
        ours.reset();
      }
    } else if (const auto* stop = std::get_if<Interrupted>(&**next)) {
      // Alternates: a step into the call, then a plain resume.
      ASSERT_TRUE(++interruptions % 2 == 1 ? tracer->step(stop->tid) : tracer->resume(stop->tid));
    } else if (const auto* step = std::get_if<Stepped>(&**next)) {
      ASSERT_TRUE(tracer->step(step->tid));
    } else if (const auto* signal = std::get_if<SignalStop>(&**next)) {
      ADD_FAILURE() << "signal " << signal->signo;
      ASSERT_TRUE(tracer->resume(signal->tid));
    } else if (const auto* g = std::get_if<Gone>(&**next)) {
      EXPECT_EQ(g->exit_code, 0);
      EXPECT_EQ(interruptions, 4);
      return;
    } else if (const auto* end = std::get_if<Exiting>(&**next)) {
      ASSERT_TRUE(tracer->resume(end->tid));
    } else {
      ASSERT_TRUE(tracer->resume(tracer->root()));
    }
  }
  FAIL() << "it did not end";
}

TEST_F(TracerTest, StopsAtTheNamingOfMemoryAndItsResult) {
  const auto run = run_as_alone(target({"name-memory", "50"}), true);
  const auto entries = run.all<SyscallEntry>();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].nr, SYS_prctl);
  EXPECT_EQ(entries[0].args[0] & UINT32_MAX, kPrSetVmaNumber);
  EXPECT_EQ(entries[0].args[3], 4096U);
  const auto exits = run.all<SyscallExit>();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].tid, entries[0].tid);
  EXPECT_EQ(-exits[0].result, run.end_of(root_)->exit_code);
}

TEST_F(TracerTest, HasNoExitEventUnlessItIsAskedFor) {
  const auto run = run_as_alone(target({"name-memory", "0"}));
  EXPECT_EQ(run.all<SyscallEntry>().size(), 1U);
  EXPECT_TRUE(run.all<SyscallExit>().empty());
}

TEST_F(TracerTest, WithoutAFilterNoCallStops) {
  auto launch = target({"name-memory", "0"});
  launch.no_filter = true;
  const auto run = run_as_alone(launch);
  EXPECT_TRUE(run.all<SyscallEntry>().empty());
}

TEST_F(TracerTest, ReportsTheResultOfAFailedExec) {
  const auto run = run_as_alone(target({"failing-exec"}), true);
  const auto exits = run.all<SyscallExit>();
  ASSERT_EQ(exits.size(), 1U);
  EXPECT_EQ(exits[0].result, -ENOENT);
}

TEST_F(TracerTest, AnExecThatWorksHasNoExitEvent) {
  const auto run = run_as_alone(target({"exec-chain", "2"}), true);
  EXPECT_EQ(run.all<SyscallEntry>().size(), 2U);
  EXPECT_EQ(run.all<Execed>().size(), 3U);
  EXPECT_TRUE(run.all<SyscallExit>().empty());
}

TEST_F(TracerTest, AnswersACallInsteadOfTheKernel) {
  for (const std::int64_t answer : {-EACCES, 77}) {
    auto tracer = Tracer::launch(target({"memfd"}), kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    Recording run;
    run.to_exit = true;
    run.also = [&](const TraceEvent& event) {
      if (const auto* e = std::get_if<SyscallEntry>(&event)) {
        if (e->nr != SYS_memfd_create) return;
        EXPECT_TRUE(tracer->answer(e->tid, answer));
      } else if (const auto* left = std::get_if<SyscallExit>(&event)) {
        EXPECT_EQ(tracer->answer(left->tid, 0).error().err, EINVAL);
      }
    };
    run.drive(*tracer);
    const auto exits = run.all<SyscallExit>();
    ASSERT_EQ(exits.size(), 1U);
    EXPECT_EQ(exits[0].result, answer);
    EXPECT_EQ(run.end_of(tracer->root())->exit_code, answer < 0 ? EACCES : 77);
  }
}

TEST_F(TracerTest, SignalsDoNotDisturbAnAnsweredCall) {
  auto tracer = Tracer::launch(target({"refused-memfds", "500"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.to_exit = true;
  run.also = [&](const TraceEvent& event) {
    const auto* e = std::get_if<SyscallEntry>(&event);
    if (e == nullptr || e->nr != SYS_memfd_create) return;
    EXPECT_TRUE(tracer->answer(e->tid, -EACCES));
  };
  run.drive(*tracer);
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
  EXPECT_EQ(run.all<SyscallExit>().size(), 500U);
  EXPECT_FALSE(run.all<SignalStop>().empty());
}

TEST_F(TracerTest, ACallOfAKilledProcessCanBeAnswered) {
  auto tracer = Tracer::launch(target({"memfd"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.to_exit = run.killed = true;
  run.also = [&](const TraceEvent& event) {
    const auto* e = std::get_if<SyscallEntry>(&event);
    if (e == nullptr || e->nr != SYS_memfd_create) return;
    tracer->signal_all(SIGKILL);
    EXPECT_TRUE(tracer->answer(e->tid, -EACCES));
  };
  run.drive(*tracer);
  EXPECT_EQ(run.end_of(tracer->root())->killed_by, SIGKILL);
}

TEST_F(TracerTest, WithoutAVdsoTheClockIsASystemCall) {
  for (const char* mode : {"seconds", "seconds-by-vdso"}) {
    auto launch = target({mode});
    launch.extra_calls.clock_gettime = true;
    auto tracer = Tracer::launch(launch, kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    Recording run;
    std::size_t readings = 0;
    run.also = [&](const TraceEvent& event) {
      if (const auto* start = std::get_if<Execed>(&event)) {
        const auto hidden = tracer->hide_vdso(start->process);
        ASSERT_TRUE(hidden) << to_string(hidden.error());
        EXPECT_TRUE(*hidden);
        const auto again = tracer->hide_vdso(start->process);
        ASSERT_TRUE(again) << to_string(again.error());
        EXPECT_FALSE(*again);
      }
      const auto* e = std::get_if<SyscallEntry>(&event);
      if (e == nullptr || e->nr != SYS_clock_gettime || e->args[0] != CLOCK_BOOTTIME) return;
      ++readings;
      EXPECT_FALSE(e->short_time);
      const timespec now{41, 0};
      EXPECT_TRUE(tracer->write(e->tid, RemoteAddr(e->args[1]), std::as_bytes(std::span(&now, 1))));
      EXPECT_TRUE(tracer->answer(e->tid, 0));
    };
    run.drive(*tracer);
    EXPECT_EQ(readings, 1U) << mode;
    EXPECT_EQ(run.end_of(tracer->root())->exit_code, 41) << mode;
  }
}

TEST_F(TracerTest, WritesOnlyWhereTheProgramMay) {
  auto tracer = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.also = [&](const TraceEvent& event) {
    const auto* start = std::get_if<Execed>(&event);
    if (start == nullptr) return;
    const std::array<std::byte, 4> bytes{};
    EXPECT_EQ(tracer->write(start->process, RemoteAddr(0x10), bytes).error().err, EFAULT);
    const auto maps = maps_of(start->process);
    const auto code = std::stoull(maps.substr(0, maps.find('-')), nullptr, 16);
    EXPECT_EQ(tracer->write(start->process, RemoteAddr(code), bytes).error().err, EFAULT);
    EXPECT_EQ(tracer->write(1, RemoteAddr(code), bytes).error().err, EINVAL);
  };
  run.drive(*tracer);
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
}

TEST_F(TracerTest, KnowsTheCallInProgress) {
  auto tracer = Tracer::launch(target({"name-memory", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.also = [&](const TraceEvent& event) {
    if (const auto* e = std::get_if<SyscallEntry>(&event);
        e != nullptr && !Recording::is_of_start(*e)) {
      const auto call = tracer->syscall_of(e->tid);
      ASSERT_TRUE(call) << to_string(call.error());
      EXPECT_EQ(call->nr, SYS_prctl);
      EXPECT_EQ(call->args, e->args);
    } else if (const auto* x = std::get_if<Exiting>(&event)) {
      const auto call = tracer->syscall_of(x->tid);
      ASSERT_TRUE(call) << to_string(call.error());
      EXPECT_EQ(call->nr, SYS_exit_group);
    }
  };
  run.drive(*tracer);
  EXPECT_EQ(tracer->syscall_of(1).error().err, ESRCH);
}

#if defined(__x86_64__)
TEST_F(TracerTest, AnInterruptedThreadShowsItsThreadPointer) {
  auto tracer = Tracer::launch(target({"sleep"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  std::uint64_t set = 0;
  bool interrupted = false;
  Recording run;
  run.also = [&](const TraceEvent& event) {
    if (const auto* call = std::get_if<SyscallEntry>(&event);
        call != nullptr && call->nr == SYS_arch_prctl) {
      set = call->args[1];
      EXPECT_TRUE(tracer->interrupt(call->tid));
    }
    if (const auto* stop = std::get_if<Interrupted>(&event)) {
      interrupted = true;
      const auto pointer = tracer->thread_pointer(stop->tid);
      ASSERT_TRUE(pointer) << to_string(pointer.error());
      EXPECT_EQ(pointer->raw(), set);
    }
  };
  run.drive(*tracer, [&] { return interrupted; });
  EXPECT_NE(set, 0U);
  EXPECT_TRUE(tracer->interrupt(1));  // not a thread of the program
  EXPECT_TRUE(tracer->end());
}
#endif

#if defined(__x86_64__)
constexpr std::size_t kOwnTraps = 3;
#else
// After its own `brk` it would be there again, and one of TRAP_HWBKPT is taken for a late trap.
constexpr std::size_t kOwnTraps = 1;
#endif

// A program that announces 32 bytes, which are watched from then on, and stores to them.
class WatchTest : public TracerTest {
 protected:
  void SetUp() override {
    if (!Capabilities::of_this_host().has(kHostWatchpoints)) {
      GTEST_SKIP() << "this host has no watchpoints for tracers";
    }
  }
  // With `threads`, new threads of the process are watched as well.
  void watch_stores(const std::string& how, bool threads = false) {
    auto tracer = Tracer::launch(target({"stores", how}), kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    std::optional<RemoteAddr> first;
    run_.also = [&](const TraceEvent& event) {
      const auto watch = [&](pid_t tid) {
        const auto watched = tracer->watch(tid, *first);
        EXPECT_TRUE(watched) << to_string(watched.error());
      };
      if (const auto* call = std::get_if<SyscallEntry>(&event);
          call != nullptr && call->nr == SYS_prctl && !first) {
        first = RemoteAddr(call->args[2]);
        run_.steps = steps_;
        watch(call->tid);
        if (threads) also_watched_(*tracer, call->tid);
      } else if (const auto* made = std::get_if<NewTask>(&event);
                 made != nullptr && threads && first && made->process == tracer->root()) {
        watch(made->tid);
      } else if (const auto* stopped = std::get_if<Interrupted>(&event); stopped != nullptr) {
        watch(stopped->tid);
      } else if (const auto* hit = std::get_if<WatchpointHit>(&event); hit != nullptr) {
        const auto value = ProcessMemory(hit->tid).read<std::uint64_t>({*first});
        EXPECT_TRUE(value && (hit->words != 1 || *value != 0)) << "before the store";
        const auto code = ProcessMemory(hit->tid).read<std::uint64_t>({RemoteAddr(hit->pc)});
        under_way_.push_back(is_under_way(*hit, code.value_or(0)));
      }
    };
    run_.drive(*tracer);
    root_ = tracer->root();
    const auto end = run_.end_of(root_);
    ASSERT_TRUE(end && end->exit_code);
    exit_code_ = *end->exit_code;
  }
  std::vector<int> words() const {
    std::vector<int> out;
    for (const auto& e : run_.all<WatchpointHit>()) out.push_back(e.words);
    return out;
  }
  std::vector<int> stepped_words() const {
    std::vector<int> out;
    for (const auto& e : run_.all<Stepped>()) {
      if (e.words != 0) out.push_back(e.words);
    }
    return out;
  }
  Recording run_;
  std::size_t steps_ = 0;        // since the watch began
  std::vector<bool> under_way_;  // for each hit
  int exit_code_ = -1;
  // Called when the watch begins.
  std::function<void(Tracer&, pid_t caller)> also_watched_ = [](Tracer&, pid_t) {};
};

TEST_F(WatchTest, EachStoreStopsItsThreadRightBehindIt) {
  watch_stores("words");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(words(), testing::ElementsAre(1, 2, 4, 8));
  for (const auto& e : run_.all<WatchpointHit>()) {
    EXPECT_EQ(e.tid, root_);
    EXPECT_EQ(e.process, root_);
    EXPECT_NE(e.pc, 0U);
  }
  EXPECT_THAT(under_way_, testing::Each(false));
  EXPECT_TRUE(run_.all<SignalStop>().empty());
}

TEST_F(WatchTest, AStoreOverAllWordsIsOneHit) {
  watch_stores("vector");
  if (exit_code_ == 77) GTEST_SKIP() << "this processor has no vectors of 32 bytes";
  EXPECT_THAT(words(), testing::ElementsAre(15));
}

TEST_F(WatchTest, ASmallStoreHitsItsWordAndOneBesideHitsNone) {
  watch_stores("byte");
  EXPECT_THAT(words(), testing::ElementsAre(4));
  run_ = {};
  watch_stores("beside");
  EXPECT_TRUE(words().empty());
}

TEST_F(WatchTest, ACopyHitsEveryWord) {
  watch_stores("memcpy");
  int all = 0;
  for (const int w : words()) all |= w;
  EXPECT_EQ(all, 15);
}

#if defined(__x86_64__)
TEST_F(WatchTest, AStringInstructionHitsAtEveryStep) {
  watch_stores("rep");
  EXPECT_EQ(exit_code_, 0);
  // One byte per step while a debug register is armed.
  EXPECT_THAT(words(), testing::SizeIs(testing::Ge(4U)));
  EXPECT_EQ(words().back(), 8);
  const auto hits = run_.all<WatchpointHit>();
  ASSERT_EQ(under_way_.size(), hits.size());
  for (std::size_t i = 0; i < hits.size(); ++i) {
    EXPECT_EQ(under_way_[i], hits[i].pc == hits.front().pc);
  }
  EXPECT_TRUE(under_way_.front());
  EXPECT_FALSE(under_way_.back());
}

TEST_F(WatchTest, AFailedExchangeIsAStore) {
  watch_stores("failed-exchange");
  EXPECT_THAT(words(), testing::ElementsAre(2));
}
#elif defined(__aarch64__)
// The second stores what the first has stored, and more.
TEST_F(WatchTest, AStoreOfUnknownSizeHitsWhatItChanges) {
  for (const std::size_t steps : {0U, 5000U}) {
    run_ = {};
    steps_ = steps;
    watch_stores("scalable-vector");
    if (exit_code_ == 77) GTEST_SKIP() << "this processor has no SVE of 32 bytes";
    EXPECT_EQ(exit_code_, 0);
    const auto hit = steps == 0 ? words() : stepped_words();
    ASSERT_THAT(hit, testing::SizeIs(2));
    EXPECT_EQ(hit[0], 3);
    EXPECT_EQ(hit[1] & 12, 12);
  }
}

TEST_F(WatchTest, AnExclusiveStoreEndsAndIsOneHit) {
  watch_stores("exclusive");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(words(), testing::ElementsAre(2, 2, 2));
  EXPECT_TRUE(run_.all<SignalStop>().empty());
}

TEST_F(WatchTest, AnExclusiveStoreIsOneStepFromItsLoad) {
  steps_ = 5000;
  watch_stores("exclusive");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(stepped_words(), testing::ElementsAre(2, 2, 2));
  EXPECT_TRUE(words().empty());
  EXPECT_TRUE(run_.all<SignalStop>().empty());
  constexpr std::uint64_t kBehindStore = 12;  // ldaxr, add, stlxr
  const auto steps = run_.all<Stepped>();
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].words != 0) EXPECT_EQ(steps[i].pc, steps[i - 1].pc + kBehindStore);
  }
}

TEST_F(WatchTest, AStepThatWaitsInAnExclusiveLoopIsInterrupted) {
  auto tracer = Tracer::launch(target({"stores", "locked"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  std::uint64_t page = 0;
  std::uint64_t before = 0;
  bool waited = false;
  run_.also = [&](const TraceEvent& event) {
    if (const auto* call = std::get_if<SyscallEntry>(&event);
        call != nullptr && call->nr == SYS_prctl) {
      page = call->args[2];
      run_.steps = 5000;
    } else if (const auto* step = std::get_if<Stepped>(&event)) {
      // From the load to itself, or back to it.
      if (!waited && step->pc <= before && before - step->pc <= 4) {
        waited = true;
        const std::uint64_t zero = 0;
        EXPECT_TRUE(
            tracer->write(step->tid, RemoteAddr(page + 40), std::as_bytes(std::span(&zero, 1))));
      }
      before = step->pc;
    }
  };
  run_.drive(*tracer);
  EXPECT_TRUE(waited);
  EXPECT_EQ(run_.end_of(tracer->root())->exit_code, 0);
}
#endif

// The trap of a step and that of its store are the same trap.
TEST_F(WatchTest, AStepSaysWhichWordsItTouched) {
  steps_ = 5000;
  watch_stores("words");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(stepped_words(), testing::ElementsAre(1, 2, 4, 8));
  EXPECT_TRUE(words().empty());
  EXPECT_TRUE(run_.all<SignalStop>().empty());
#if defined(__x86_64__)
  run_ = {};
  watch_stores("rep");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(stepped_words(), testing::SizeIs(32)) << "one step for each round";
#endif
}

TEST_F(WatchTest, TheProgramsOwnTrapsAreNoSteps) {
  steps_ = 5000;
  watch_stores("own-sigtrap");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(stepped_words(), testing::ElementsAre(1));
  EXPECT_THAT(words(), testing::ElementsAre(2));
  EXPECT_EQ(run_.all<SignalStop>().size(), kOwnTraps);
}

TEST_F(WatchTest, ForksAndThreadsOfASteppedThreadAreStepped) {
  for (const auto* how : {"by-fork", "by-vfork", "by-the-kernel", "by-a-new-thread"}) {
    steps_ = 20000;
    run_ = {};
    watch_stores(how);
    EXPECT_EQ(exit_code_, 0) << how;
    EXPECT_GT(run_.all<Stepped>().size(), 10U) << how;
  }
}

TEST_F(WatchTest, AThreadIsWatchedFromItsOwnCallOn) {
  watch_stores("by-a-new-thread");
  EXPECT_TRUE(words().empty());
  run_ = {};
  watch_stores("by-a-new-thread", /*threads=*/true);
  EXPECT_THAT(words(), testing::ElementsAre(1, 2, 4, 8));
  for (const auto& e : run_.all<WatchpointHit>()) {
    EXPECT_NE(e.tid, root_);
    EXPECT_EQ(e.process, root_);
  }
}

TEST_F(WatchTest, AThreadThatRunsIsInterruptedForIt) {
  also_watched_ = [&](Tracer& tracer, pid_t caller) {
    for (const auto& e : run_.all<NewTask>()) {
      EXPECT_NE(e.tid, caller);
      EXPECT_EQ(tracer.watch(e.tid, RemoteAddr(0x1000)).error().err, EINVAL);
      EXPECT_TRUE(tracer.interrupt(e.tid));
      // The caller waits until it has stopped.
      while (true) {
        auto event = tracer.next(Clock::now() + 30s);
        ASSERT_TRUE(event && *event);
        run_.events.push_back(**event);
        run_.also(**event);
        const bool stopped = std::holds_alternative<Interrupted>(**event);
        EXPECT_TRUE(run_.answer(tracer, **event));
        if (stopped) break;
      }
    }
  };
  watch_stores("by-an-old-thread", /*threads=*/true);
  EXPECT_THAT(words(), testing::ElementsAre(1, 2, 4, 8));
}

TEST_F(WatchTest, TheProgramsOwnTrapsAreDelivered) {
  watch_stores("own-sigtrap");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(words(), testing::ElementsAre(1, 2));
  EXPECT_EQ(run_.all<SignalStop>().size(), kOwnTraps);
}

TEST_F(WatchTest, ABlockedOrIgnoredTrapIsNoMoreSoAfterAHit) {
  watch_stores("blocked");
  EXPECT_THAT(words(), testing::ElementsAre(1));
  EXPECT_EQ(exit_code_, 1);  // only SIGTRAP is unblocked
  run_ = {};
  watch_stores("ignored");
  EXPECT_THAT(words(), testing::ElementsAre(1));
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(WatchTest, OtherProcessesAndTheKernelAreNotWatched) {
  for (const auto* how : {"by-fork", "by-vfork", "by-the-kernel"}) {
    run_ = {};
    watch_stores(how);
    EXPECT_EQ(exit_code_, 0) << how;
    EXPECT_TRUE(words().empty()) << how;
  }
}

TEST_F(WatchTest, AnExecEndsTheWatch) {
  watch_stores("exec");
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(words(), testing::ElementsAre(1));
  EXPECT_EQ(run_.all<Execed>().size(), 2U);
}

TEST_F(WatchTest, AWatchMovesAndEnds) {
  auto tracer = Tracer::launch(target({"stores", "words"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  run_.also = [&](const TraceEvent& event) {
    if (const auto* call = std::get_if<SyscallEntry>(&event);
        call != nullptr && call->nr == SYS_prctl) {
      const auto page = call->args[2];
      EXPECT_EQ(tracer->watch(call->tid, RemoteAddr(page + 4)).error().err, EINVAL);
      EXPECT_TRUE(tracer->watch(call->tid, RemoteAddr(page + 64)));
      // Two of the words are its words 0 and 1.
      EXPECT_TRUE(tracer->watch(call->tid, RemoteAddr(page + 8)));
    } else if (const auto* hit = std::get_if<WatchpointHit>(&event);
               hit != nullptr && hit->words == 2) {
      EXPECT_TRUE(tracer->unwatch(hit->tid));
      EXPECT_TRUE(tracer->unwatch(hit->tid));
    }
  };
  run_.drive(*tracer);
  EXPECT_THAT(words(), testing::ElementsAre(1, 2));
  EXPECT_TRUE(tracer->watch(1, RemoteAddr(0)));  // not a thread of the program
}

TEST_F(WatchTest, FourWordsNeedNotBeNextToEachOther) {
  auto tracer = Tracer::launch(target({"stores", "words"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  run_.also = [&](const TraceEvent& event) {
    const auto* call = std::get_if<SyscallEntry>(&event);
    if (call == nullptr || call->nr != SYS_prctl) return;
    const auto at = [&](std::uint64_t offset) { return RemoteAddr(call->args[2] + offset); };
    EXPECT_EQ(tracer->watch(call->tid, WatchedWords{at(0), at(8), at(20), at(24)}).error().err,
              EINVAL);
    const auto watched = tracer->watch(call->tid, WatchedWords{at(16), at(64), at(0), at(0)});
    EXPECT_TRUE(watched) << to_string(watched.error());
  };
  run_.drive(*tracer);
  EXPECT_THAT(words(), testing::ElementsAre(4 | 8, 1)) << "one of them is there twice";
}

// A requested stop comes before the trap of a store that was just made.
TEST_F(WatchTest, ATrapThatComesLateIsNeverTheProgramsNorOfAnotherWatch) {
  auto tracer = Tracer::launch(target({"stores", "without-end"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  std::uint64_t page = 0;
  int stops = 0;
  int watching = 0;  // 0: nothing, 1: its words, 2: what it does not store to
  run_.also = [&](const TraceEvent& event) {
    if (const auto* call = std::get_if<SyscallEntry>(&event);
        call != nullptr && call->nr == SYS_prctl) {
      page = call->args[2];
      EXPECT_TRUE(tracer->interrupt(call->tid));
    } else if (const auto* stop = std::get_if<Interrupted>(&event)) {
      watching = ++stops % 3;
      EXPECT_TRUE(watching == 0   ? tracer->unwatch(stop->tid)
                  : watching == 1 ? tracer->watch(stop->tid, RemoteAddr(page))
                                  : tracer->watch(stop->tid, RemoteAddr(page + 64)));
      EXPECT_TRUE(tracer->interrupt(stop->tid));
    } else if (const auto* hit = std::get_if<WatchpointHit>(&event)) {
      EXPECT_NE(watching, 2);
      EXPECT_TRUE(tracer->interrupt(hit->tid));
    }
  };
  run_.drive(*tracer, [&] { return stops >= 600; });
  EXPECT_TRUE(run_.all<SignalStop>().empty());
  EXPECT_TRUE(tracer->end());
}

TEST_F(WatchTest, A32BitProgramIsWatchedToo) {
  if (access(kTarget32.c_str(), X_OK) != 0) GTEST_SKIP() << "the compiler makes no 32-bit programs";
  if (!Capabilities::of_this_host().has(kHost32Bit)) GTEST_SKIP() << "no 32-bit programs here";
  Launch launch;
  launch.argv = {kTarget32};
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  run_.also = [&](const TraceEvent& event) {
    if (const auto* call = std::get_if<SyscallEntry>(&event);
        call != nullptr && call->nr == SYS_prctl) {
      const auto watched = tracer->watch(call->tid, RemoteAddr(call->args[3]));
      EXPECT_TRUE(watched) << to_string(watched.error());
    }
  };
  run_.drive(*tracer);
  EXPECT_THAT(words(), testing::ElementsAre(1, 1, 2, 2, 4, 4, 8, 8));
  EXPECT_EQ(run_.end_of(tracer->root())->exit_code, 7);
}

TEST_F(TracerTest, AnInterruptWaitsForTheEndOfAGroupStop) {
  auto tracer = Tracer::launch(target({"kill-self", std::to_string(SIGSTOP)}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return !run.all<SignalStop>().empty(); });
  // Waits until the program is in the group stop and the tracer has been told of it.
  const auto stands = [&] {
    std::ifstream stat("/proc/" + std::to_string(tracer->root()) + "/stat");
    std::string id;
    std::string name;
    char state = 0;
    stat >> id >> name >> state;
    return state == 't';
  };
  for (bool standing = false; !standing;) {
    standing = stands();
    const auto none = tracer->next(Clock::now());
    ASSERT_TRUE(none && !*none);
  }
  EXPECT_TRUE(tracer->interrupt(tracer->root()));
  const auto none = tracer->next(Clock::now() + 100ms);
  EXPECT_TRUE(none && !*none) << "it runs";
  tracer->signal_all(SIGCONT);
  run.drive(*tracer);
  EXPECT_EQ(run.all<Interrupted>().size(), 1U);
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 1);
}

TEST_F(TracerTest, RefusesAnswersThatFitNoStop) {
  auto tracer = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  const pid_t root = tracer->root();
  EXPECT_EQ(tracer->resume(root, SIGTERM).error().err, EINVAL);
  EXPECT_EQ(tracer->resume_to_exit(root).error().err, EINVAL);
  ASSERT_TRUE(tracer->resume(root));
  EXPECT_EQ(tracer->resume(root).error().err, EINVAL);
  EXPECT_TRUE(tracer->resume(1));  // not a thread of the program
}

TEST_F(TracerTest, AProcessOutlivesItsFirstThread) {
  const auto run = run_as_alone(target({"main-exits-first"}));
  EXPECT_EQ(run.end_of(root_)->exit_code, 8);
  EXPECT_EQ(run.all<Exiting>().size(), 2U);
  for (const auto& e : run.all<Exiting>()) EXPECT_TRUE(e.whole_process);
}

TEST_F(TracerTest, SaysWhyTheProgramDidNotStart) {
  const TemporaryFile not_executable("#!/bin/sh\n", 0644);
  const TemporaryFile no_program("neither ELF nor a script", 0755);
  const TemporaryFile no_interpreter("#!/nonexistent/interpreter\n", 0755);
  for (const auto& [name, err] : {std::pair<std::string, int>{"ctxconf-no-such-program", ENOENT},
                                  {"/nonexistent/program", ENOENT},
                                  {not_executable.path(), EACCES},
                                  {"/tmp", EACCES},
                                  {no_program.path(), ENOEXEC},
                                  {no_interpreter.path(), ENOENT}}) {
    Launch launch;
    launch.argv = {name};
    const auto tracer = Tracer::launch(launch, kTrampoline);
    ASSERT_FALSE(tracer) << name;
    EXPECT_EQ(tracer.error().err, err) << to_string(tracer.error());
    EXPECT_EQ(tracer.error().detail, name);
    EXPECT_TRUE(children_of_this_process().empty());
  }
  EXPECT_EQ(Tracer::launch({}, kTrampoline).error().err, EINVAL);
  const auto no_trampoline = Tracer::launch(target({"exit", "0"}), "/nonexistent/trampoline");
  ASSERT_FALSE(no_trampoline);
  EXPECT_EQ(no_trampoline.error().err, ENOENT);
  EXPECT_STREQ(no_trampoline.error().op, "trampoline");
  // A trampoline that does not do its work.
  const auto wrong = Tracer::launch(target({"exit", "0"}), "/bin/false");
  EXPECT_FALSE(wrong);
}

TEST_F(TracerTest, IsTheOnlyOne) {
  auto first = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_TRUE(first) << to_string(first.error());
  const auto second = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().err, EBUSY);
  Tracer moved = std::move(*first);
  EXPECT_TRUE(moved.end());
}

TEST_F(TracerTest, TheProgramInheritsNothingOfOurs) {
  const TemporaryFile report("", 0600);
  const int leak = open("/dev/null", O_RDONLY);
  ASSERT_GE(leak, 0);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  auto launch = target({"inheritance", report.path()});
  launch.extra_env = {"CTXCONF_TEST_EXTRA=there", "PATH=/replaced"};
  launch.discard_output = true;
  auto tracer = Tracer::launch(launch, kTrampoline);
  Recording run;
  if (tracer) run.drive(*tracer);
  signal(SIGPIPE, old);
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  close(leak);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
  // Destroyed before the mask is compared.
  tracer = fail("end of test", 0, "");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto text = report.text();
  EXPECT_THAT(text, HasSubstr("SigBlk:\t0000000000000000\n"));
  EXPECT_THAT(text, HasSubstr("SigIgn:\t0000000000000000\n"));
  EXPECT_THAT(text, HasSubstr("fd 0 null\nfd 1 null\nfd 2 null\nPATH=/replaced\nEXTRA=there\n"));
  // Only a tracer without privileges needs it.
  if (geteuid() == 0) {
    EXPECT_THAT(text, HasSubstr("NoNewPrivs:\t0\n"));
  }
}

TEST_F(TracerTest, LimitsTheSizeOfFiles) {
  const TemporaryFile file("", 0600);
  auto launch = target({"big-file", file.path()});
  launch.file_size_limit = 100000;
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer);
  EXPECT_EQ(run.end_of(tracer->root())->killed_by, SIGXFSZ);
  EXPECT_EQ(file.text().size(), 100000U);
}

TEST_F(TracerTest, NothingIsLeftOfABomb) {
  auto tracer = Tracer::launch(target({"bomb", "400"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return tracer->processes().size() >= 100; });
  EXPECT_GE(tracer->tasks(), 100U);
  const auto ended = tracer->end();
  EXPECT_TRUE(ended) << to_string(ended.error());
  EXPECT_TRUE(children_of_this_process().empty());
  EXPECT_EQ(tracer->next(Clock::now()).error().err, ECHILD);
}

void get_no_processor(int) {
  const int before = errno;
  const timespec longer_than_a_task_may_take{2, 100'000'000};
  nanosleep(&longer_than_a_task_may_take, nullptr);
  errno = before;
}

TEST_F(TracerTest, TimeThatAnEndSpendsWaitingForAProcessorIsNotTheTasks) {
  auto tracer = Tracer::launch(target({"bomb", "400"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return tracer->processes().size() >= 100; });
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = get_no_processor;
  sigaction(SIGALRM, &action, &before);
  // By then the first have stopped, and some have not ended.
  const itimerval soon{{0, 0}, {0, 1000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  const auto ended = tracer->end();
  EXPECT_TRUE(ended) << to_string(ended.error());
  EXPECT_TRUE(children_of_this_process().empty());
  sigaction(SIGALRM, &before, nullptr);
}

TEST_F(TracerTest, AKillEndsABombEventByEvent) {
  auto tracer = Tracer::launch(target({"bomb", "400"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return tracer->processes().size() >= 100; });
  const auto known = tracer->processes();
  tracer->signal_all(SIGKILL);
  run.killed = true;
  run.drive(*tracer);
  for (const pid_t pid : known) {
    const auto end = run.end_of(pid);
    ASSERT_TRUE(end.has_value()) << pid;
    EXPECT_EQ(end->killed_by, SIGKILL);
  }
  EXPECT_TRUE(children_of_this_process().empty());
}

TEST_F(TracerTest, AKillInTheMiddleOfThreadsAndForksLeavesNothing) {
  for (const std::size_t after : {1U, 5U, 17U, 40U, 95U}) {
    for (const auto* mode : {"threads", "fork-exec", "exec-against-fork", "signal-storm"}) {
      auto tracer = Tracer::launch(target({mode, "100000"}), kTrampoline);
      ASSERT_TRUE(tracer) << to_string(tracer.error());
      Recording run;
      run.drive(*tracer, [&] { return run.events.size() >= after; });
      tracer->signal_all(SIGKILL);
      run.killed = true;
      run.drive(*tracer);
      EXPECT_EQ(run.end_of(tracer->root())->killed_by, SIGKILL) << mode << after;
    }
  }
}

TEST_F(TracerTest, AThreadKilledWhileStoppedStillReportsItsExit) {
  auto tracer = Tracer::launch(target({"name-memory", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.also = [&](const TraceEvent& event) {
    if (std::holds_alternative<SyscallEntry>(event)) tracer->signal_all(SIGKILL);
  };
  run.drive(*tracer);
  EXPECT_EQ(run.all<Exiting>().size(), 1U);
  EXPECT_EQ(run.end_of(tracer->root())->killed_by, SIGKILL);
}

TEST_F(TracerTest, KnowsThatAStoppedThreadWasKilled) {
  auto tracer = Tracer::launch(target({"name-memory", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  bool asked = false;
  run.also = [&](const TraceEvent& event) {
    const auto* entry = std::get_if<SyscallEntry>(&event);
    if (entry == nullptr || std::exchange(asked, true)) return;
    EXPECT_FALSE(tracer->is_ending(entry->tid));
    tracer->signal_all(SIGKILL);
    const auto patience = Clock::now() + 60s;
    while (!tracer->is_ending(entry->tid) && Clock::now() < patience) {
      const auto other = tracer->next(Clock::now() + 10ms);
      ASSERT_TRUE(other) << to_string(other.error());
      EXPECT_FALSE(*other);
    }
    EXPECT_TRUE(tracer->is_ending(entry->tid));
  };
  run.killed = true;
  run.drive(*tracer);
  EXPECT_TRUE(asked);
  EXPECT_EQ(run.end_of(tracer->root())->killed_by, SIGKILL);
}

TEST_F(TracerTest, SignalsReachEveryProcess) {
  auto tracer = Tracer::launch(target({"bomb", "10"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return tracer->processes().size() >= 5; });
  const auto known = tracer->processes();
  EXPECT_TRUE(std::find(known.begin(), known.end(), tracer->root()) == known.begin());
  tracer->signal_all(SIGTERM);
  run.drive(*tracer, [&] {
    return std::all_of(known.begin(), known.end(),
                       [&](pid_t pid) { return run.end_of(pid).has_value(); });
  });
  for (const pid_t pid : known) EXPECT_EQ(run.end_of(pid)->killed_by, SIGTERM);
}

TEST_F(TracerTest, EndsStoppedProcesses) {
  auto tracer = Tracer::launch(target({"kill-self", std::to_string(SIGSTOP)}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer, [&] { return !run.all<SignalStop>().empty(); });
  const auto quiet = tracer->next(Clock::now() + 100ms);
  ASSERT_TRUE(quiet);
  EXPECT_FALSE(quiet->has_value());
  EXPECT_FALSE(tracer->interrupted());
  EXPECT_TRUE(tracer->end());
}

// The state and the tracer of each thread, from /proc.
std::vector<std::string> states_of(pid_t pid) {
  std::vector<std::string> out;
  const auto threads = thread_list(pid);
  if (!threads) return out;
  for (const pid_t tid : *threads) {
    std::ifstream status("/proc/" + std::to_string(tid) + "/status");
    std::string state;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:")) state += line.substr(line.find_first_not_of(" \t", 6), 1);
      if (line.starts_with("TracerPid:")) state += line.substr(line.find_last_of(" \t"));
    }
    out.push_back(std::move(state));
  }
  return out;
}

TEST_F(TracerTest, AReleasedProcessStandsStillAndOutlivesUs) {
  auto tracer = Tracer::launch(target({"stores", "by-an-old-thread"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  const pid_t root = tracer->root();
  Recording run;
  bool released = false;
  run.also = [&](const TraceEvent& event) {
    const auto* call = std::get_if<SyscallEntry>(&event);
    if (call == nullptr || call->nr != SYS_prctl) return;
    // The other thread runs until this one continues.
    const auto done = tracer->release(root);
    EXPECT_TRUE(done) << to_string(done.error());
    released = true;
  };
  run.drive(*tracer, [&] { return released; });
  EXPECT_TRUE(tracer->processes().empty());
  EXPECT_TRUE(tracer->end());
  const std::vector<std::string> still = {"T\t0", "T\t0"};
  for (const auto until = Clock::now() + 10s; states_of(root) != still && Clock::now() < until;) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(states_of(root), still);
  EXPECT_EQ(tracer->release(root).error().err, ESRCH);
  kill(root, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(root, &status, 0), root);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(TracerTest, AnOrphanIsStillTraced) {
  auto launch = target({"orphan"});
  launch.discard_output = true;
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer,
            [&] { return run.end_of(tracer->root()).has_value() && !run.all<NewTask>().empty(); });
  EXPECT_EQ(tracer->processes().size(), 1U);
  tracer->signal_all(SIGTERM);
  run.drive(*tracer);
  EXPECT_EQ(run.all<Gone>().size(), 2U);
}

TEST_F(TracerTest, EndsWhatEscapedTheTracer) {
  auto launch = target({"untraced-orphan"});
  launch.discard_output = true;
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.drive(*tracer);
  EXPECT_TRUE(run.all<NewTask>().empty());
  EXPECT_EQ(children_of_this_process().size(), 1U);
  EXPECT_TRUE(tracer->end());
  EXPECT_TRUE(children_of_this_process().empty());
}

TEST_F(TracerTest, AWakeUpSignalInterruptsTheWait) {
  // A background job and nohup ignore some of them.
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) signal(signo, SIG_DFL);
  auto tracer = Tracer::launch(target({"kill-self", std::to_string(SIGSTOP)}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    kill(getpid(), signo);
    const auto next = tracer->next(Clock::now() + 30s);
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->has_value());
    EXPECT_TRUE(tracer->interrupted());
  }
  // Later events are still there.
  const auto next = tracer->next(Clock::now() + 30s);
  ASSERT_TRUE(next && *next);
  EXPECT_TRUE(std::holds_alternative<Execed>(**next));
}

TEST_F(TracerTest, AnIgnoredWakeUpSignalIsNone) {
  const auto old = signal(SIGHUP, SIG_IGN);
  {
    auto tracer = Tracer::launch(target({"exit", "0"}), kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    kill(getpid(), SIGHUP);
    Recording run;
    run.drive(*tracer);
    EXPECT_FALSE(tracer->interrupted());
  }
  signal(SIGHUP, old);
}

TEST_F(TracerTest, WorksWhereChildrenAreReapedBySomebodyElse) {
  const auto old = signal(SIGCHLD, SIG_IGN);
  {
    auto tracer = Tracer::launch(target({"fork-exec", "3"}), kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    Recording run;
    run.drive(*tracer);
    EXPECT_EQ(run.end_of(tracer->root())->exit_code, 0);
  }
  EXPECT_EQ(signal(SIGCHLD, old), SIG_IGN);
}

TEST_F(TracerTest, LeavesOtherChildrenToTheirOwners) {
  ChildOptions other;
  other.argv = {kTarget, "exit", "9"};
  auto child = Child::start(other);
  ASSERT_TRUE(child) << to_string(child.error());
  {
    auto tracer = Tracer::launch(target({"fork-exec", "5"}), kTrampoline);
    ASSERT_TRUE(tracer) << to_string(tracer.error());
    Recording run;
    run.drive(*tracer);
  }
  const auto r = child->wait(10s);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 9);
}

// Every event of the program, within the time limit of a program that is never quiet.
TEST_F(TracerTest, ADeadlineInThePastStillGivesWhatIsThere) {
  auto tracer = Tracer::launch(target({"exit", "0"}), kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  const auto next = tracer->next(Clock::now() - 1s);
  ASSERT_TRUE(next && *next);
  EXPECT_TRUE(std::holds_alternative<Execed>(**next));
  const auto none = tracer->next(Clock::now() - 1s);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

// Boost.Process closes every descriptor above the highest one that it is told to keep.
TEST_F(TracerTest, CarriesTheTrampolineInAFileInMemory) {
  const auto found = find_trampoline();
  ASSERT_TRUE(found) << to_string(found.error());
  constexpr std::string_view kFolder = "/proc/self/fd/";
  ASSERT_TRUE(found->starts_with(kFolder)) << *found;
  constexpr int kHigh = 100;
  const Fd high(dup2(std::stoi(found->substr(kFolder.size())), kHigh));
  ASSERT_TRUE(high.is_open());
  for (const auto& path : {*found, std::string(kFolder) + std::to_string(kHigh)}) {
    auto tracer = Tracer::launch(target({"exit", "3"}), path);
    ASSERT_TRUE(tracer) << path << ": " << to_string(tracer.error());
    Recording run;
    run.drive(*tracer);
    const auto end = run.end_of(tracer->root());
    ASSERT_TRUE(end) << path;
    EXPECT_EQ(end->exit_code, 3) << path;
  }
  EXPECT_EQ(find_trampoline().value_or(""), *found) << "each call makes a file";
}

#if defined(__x86_64__)
TEST_F(TracerTest, NumbersTheCallsOfA32BitProgramNatively) {
  if (access(kTarget32.c_str(), X_OK) != 0) GTEST_SKIP() << "the compiler makes no 32-bit programs";
  Launch launch;
  launch.argv = {kTarget32};
  if (const auto alone = run_child({.argv = launch.argv, .extra_env = {}, .input = {}}); !alone) {
    GTEST_SKIP() << to_string(alone.error());
  }
  const auto run = run_as_alone(launch, true);
  const auto entries = run.all<SyscallEntry>();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].nr, SYS_prctl);
  EXPECT_EQ(entries[0].args[0], kPrSetVmaNumber);
  EXPECT_EQ(entries[0].args[2], 0x1000U);
  EXPECT_EQ(entries[1].nr, SYS_execve);
  EXPECT_EQ(entries[2].nr, SYS_execveat);
  const auto exits = run.all<SyscallExit>();
  ASSERT_EQ(exits.size(), 3U);
  EXPECT_LT(exits[0].result, 0);
  EXPECT_EQ(exits[1].result, -ENOENT);
  EXPECT_EQ(exits[2].result, -ENOENT);
  EXPECT_EQ(run.end_of(root_)->exit_code, 7);
}

TEST_F(TracerTest, AnswersACallOfA32BitProgram) {
  Launch launch;
  launch.argv = {kTarget32};
  if (!run_child({.argv = launch.argv, .extra_env = {}, .input = {}})) {
    GTEST_SKIP() << "no 32-bit program runs here";
  }
  auto tracer = Tracer::launch(launch, kTrampoline);
  ASSERT_TRUE(tracer) << to_string(tracer.error());
  Recording run;
  run.to_exit = true;
  run.also = [&](const TraceEvent& event) {
    const auto* e = std::get_if<SyscallEntry>(&event);
    if (e == nullptr) return;
    EXPECT_TRUE(tracer->answer(e->tid, -ENXIO));
  };
  run.drive(*tracer);
  const auto exits = run.all<SyscallExit>();
  ASSERT_EQ(exits.size(), 3U);
  for (const auto& e : exits) EXPECT_EQ(e.result, -ENXIO);
  EXPECT_EQ(run.end_of(tracer->root())->exit_code, 7);
}
#endif

}  // namespace
}  // namespace ctxconf::sys
