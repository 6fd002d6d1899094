#include "sys/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "sys/spawn.h"
#include "sys/started.h"
#include "sys/temporary_file.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

const std::string kTarget = std::string(CTXCONF_BIN_DIR) + "/trace_target";

ChildOptions target(std::vector<std::string> arguments) {
  ChildOptions o;
  o.argv = std::move(arguments);
  o.argv.insert(o.argv.begin(), kTarget);
  return o;
}

bool exists(pid_t pid) { return kill(pid, 0) == 0; }

class ChildTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(children_of_this_process().empty());
    EXPECT_EQ(std::distance(fds_before_.begin(), fds_before_.end()),
              static_cast<std::ptrdiff_t>(open_fds().size()));
  }
  static std::vector<int> open_fds() {
    std::vector<int> out;
    for (int fd = 0; fd < 256; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) out.push_back(fd);
    }
    return out;
  }
  std::vector<int> fds_before_ = open_fds();
};

TEST_F(ChildTest, ReportsTheExitCode) {
  const auto r = run_child(target({"exit", "7"}));
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 7);
  EXPECT_EQ(r->killed_by, std::nullopt);
  EXPECT_FALSE(r->timed_out);
}

TEST_F(ChildTest, ReportsTheSignal) {
  const auto r = run_child(target({"kill-self", std::to_string(SIGTERM)}));
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, std::nullopt);
  EXPECT_EQ(r->killed_by, SIGTERM);
}

TEST_F(ChildTest, LooksTheProgramUpInPath) {
  auto o = target({"exit", "7"});
  o.argv[0] = "trace_target";
  o.extra_env = {"PATH=/nonexistent::" + std::string(CTXCONF_BIN_DIR)};
  const auto r = run_child(o);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 7);
}

TEST_F(ChildTest, SaysWhyTheProgramDidNotStart) {
  const TemporaryFile not_executable("#!/bin/sh\n", 0644);
  const TemporaryFile no_program("neither ELF nor a script", 0755);
  ChildOptions o;
  for (const auto& [name, err] : {std::pair<std::string, int>{"ctxconf-no-such-program", ENOENT},
                                  {"/nonexistent/program", ENOENT},
                                  {"", ENOENT},
                                  {not_executable.path(), EACCES},
                                  {"/tmp", EACCES},
                                  {no_program.path(), ENOEXEC}}) {
    o.argv = {name};
    const auto r = run_child(o);
    ASSERT_FALSE(r) << name;
    EXPECT_EQ(r.error().err, err) << name;
    EXPECT_EQ(r.error().detail, name);
  }
  o.argv = {};
  EXPECT_EQ(run_child(o).error().err, EINVAL);
  o.argv = {not_executable.path().substr(5)};
  o.extra_env = {"PATH=/tmp"};
  EXPECT_EQ(run_child(o).error().err, EACCES);
}

TEST_F(ChildTest, KeepsBothStreamsUpToTheLimit) {
  auto o = target({"chatter", "300000"});
  o.output_limit = 100000;
  const auto r = run_child(o);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  EXPECT_TRUE(r->truncated);
  EXPECT_EQ(r->output.size(), 100000U);
  EXPECT_EQ(r->errors.size(), 100000U);

  o.output_limit = 1U << 20U;
  const auto all = run_child(o);
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_FALSE(all->truncated);
  EXPECT_EQ(all->output.size(), 292U * 1024U);
}

TEST_F(ChildTest, FeedsMoreInputThanAPipeHolds) {
  auto o = target({"echo"});
  while (o.input.size() < 1000000) o.input += std::to_string(o.input.size()) + "\n";
  const auto r = run_child(o);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  EXPECT_EQ(r->output, o.input);
}

TEST_F(ChildTest, SurvivesAChildThatDoesNotRead) {
  auto o = target({"exit", "0"});
  o.input.assign(1000000, 'x');
  const auto r = run_child(o);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
}

TEST_F(ChildTest, KillsAtTheDeadline) {
  auto o = target({"sleep"});
  o.deadline = 200ms;
  const auto r = run_child(o);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_TRUE(r->timed_out);
  EXPECT_EQ(r->killed_by, SIGKILL);
  EXPECT_EQ(r->output, "ready\n");
}

TEST_F(ChildTest, EndsWhatItLeavesBehind) {
  const auto r = run_child(target({"orphan"}));
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  const auto orphan = static_cast<pid_t>(std::strtol(r->output.c_str(), nullptr, 10));
  ASSERT_GT(orphan, 0);
  EXPECT_FALSE(exists(orphan));
}

TEST_F(ChildTest, InheritsNothingOfOurs) {
  const TemporaryFile report("", 0600);
  const int leak = open("/dev/null", O_RDONLY);
  ASSERT_GE(leak, 0);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto old = signal(SIGPIPE, SIG_IGN);
  const auto r = run_child([&] {
    auto o = target({"inheritance", report.path()});
    o.extra_env = {"CTXCONF_TEST_EXTRA=there", "PATH=/replaced"};
    return o;
  }());
  EXPECT_EQ(signal(SIGPIPE, old), SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(leak);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  const auto text = report.text();
  EXPECT_EQ(text.find("SigBlk:\t0000000000000000\n") == std::string::npos, false) << text;
  EXPECT_EQ(text.find("SigIgn:\t0000000000000000\n") == std::string::npos, false) << text;
  EXPECT_EQ(text.find("fd 3"), std::string::npos) << text;
  EXPECT_NE(text.find("PATH=/replaced\nEXTRA=there\n"), std::string::npos) << text;
}

TEST_F(ChildTest, LeavesOurSignalsAlone) {
  signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(run_child(target({"exit", "0"})));
  struct sigaction action{};
  sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

// The wait status of a process that starts programs while all of its group gets a signal again and
// again. It exits with 1 if its handler has run in another process that shares its memory.
int status_of_starting_next_to(int signo, bool own_group) {
  static std::atomic<pid_t> owner;
  static std::atomic<unsigned> elsewhere;
  const pid_t tested = fork();
  if (tested == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    owner = getpid();
    struct sigaction action{};
    action.sa_handler = [](int) { elsewhere += getpid() == owner ? 0 : 1; };
    sigaction(signo, &action, nullptr);
    std::atomic<bool> done = false;
    std::thread sender([&] {
      while (!done) kill(0, signo);
    });
    Spawn what;
    what.path = kTarget;
    what.argv = {kTarget, "exit", "0"};
    what.own_group = own_group;
    for (int i = 0; i < 200; ++i) {
      const auto pid = spawn(what);
      if (!pid) _exit(2);
      while (waitpid(*pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    done = true;
    sender.join();
    _exit(elsewhere == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(tested, &status, 0);
  return status;
}

TEST_F(ChildTest, RunsNoHandlerOfOurs) {
  EXPECT_EQ(status_of_starting_next_to(SIGUSR1, /*own_group=*/false), 0);
}

TEST_F(ChildTest, DoesNotStopBeforeTheProgramRuns) {
  EXPECT_EQ(status_of_starting_next_to(SIGTSTP, /*own_group=*/true), 0);
}

TEST_F(ChildTest, TalksLineByLine) {
  auto o = target({"echo"});
  o.input = "first\n";
  auto child = Child::start(o);
  ASSERT_TRUE(child) << to_string(child.error());
  EXPECT_GT(child->pid(), 0);
  EXPECT_EQ(child->read_line(5s), "first");
  ASSERT_TRUE(child->write("second\nthird\nno newline"));
  EXPECT_EQ(child->read_line(5s), "second");
  const auto r = child->wait(5s);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  EXPECT_EQ(r->output, "third\nno newline");
}

TEST_F(ChildTest, ReadsTheLastLineAndThenSaysSo) {
  auto child = Child::start(target({"orphan"}));
  ASSERT_TRUE(child) << to_string(child.error());
  ASSERT_TRUE(child->read_line(5s));
  const auto timeout = child->read_line(50ms);  // the orphan holds the pipe
  ASSERT_FALSE(timeout);
  EXPECT_EQ(timeout.error().err, ETIMEDOUT);

  auto other = Child::start(target({"exit", "0"}));
  ASSERT_TRUE(other) << to_string(other.error());
  const auto end = other->read_line(5s);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().err, 0);
  // Its stdout can close a moment before its stdin.
  auto late = other->write("x");
  while (late) late = other->write("x");
  EXPECT_EQ(late.error().err, EPIPE);
}

TEST_F(ChildTest, RefusesALineWithoutEnd) {
  auto o = target({"echo"});
  o.output_limit = 1000;
  o.input.assign(8192, 'x');
  auto child = Child::start(o);
  ASSERT_TRUE(child) << to_string(child.error());
  const auto line = child->read_line(5s);
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().err, E2BIG);
}

TEST_F(ChildTest, IsKilledWhenTheObjectGoes) {
  pid_t pid = 0;
  {
    auto child = Child::start(target({"sleep"}));
    ASSERT_TRUE(child) << to_string(child.error());
    EXPECT_EQ(child->read_line(5s), "ready");
    Child moved = std::move(*child);
    pid = moved.pid();
    EXPECT_TRUE(exists(pid));
  }
  EXPECT_FALSE(exists(pid));
}

TEST_F(ChildTest, WorksInAFork) {
  int here = 0;
  const auto r = run_forked(
      [&](int output) {
        here = 1;
        const std::string text(200000, 'x');
        for (std::size_t sent = 0; sent < text.size();) {
          const auto n = write(output, text.data() + sent, text.size() - sent);
          if (n <= 0) return;
          sent += static_cast<std::size_t>(n);
        }
      },
      30s, 150000);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 0);
  EXPECT_EQ(r->output.size(), 150000);
  EXPECT_TRUE(r->truncated);
  EXPECT_EQ(here, 0);
}

TEST_F(ChildTest, SaysHowAForkEnded) {
  const auto threw = run_forked([](int) { throw std::runtime_error("x"); }, 30s, 10);
  ASSERT_TRUE(threw) << to_string(threw.error());
  EXPECT_EQ(threw->exit_code, kForkThrew);
  const auto killed = run_forked([](int) { raise(SIGKILL); }, 30s, 10);
  ASSERT_TRUE(killed) << to_string(killed.error());
  EXPECT_EQ(killed->killed_by, SIGKILL);
  const auto late = run_forked(
      [](int) {
        while (true) pause();
      },
      50ms, 10);
  ASSERT_TRUE(late) << to_string(late.error());
  EXPECT_TRUE(late->timed_out);
}

// A tracer waits for every child; the owner of this one must still get the status.
TEST_F(ChildTest, GetsAStatusThatAnotherWaiterReaped) {
  auto child = Child::start(target({"exit", "5"}));
  ASSERT_TRUE(child) << to_string(child.error());
  int status = 0;
  ASSERT_EQ(waitpid(-1, &status, __WALL), child->pid());
  deposit_status(child->pid(), status);
  const auto r = child->wait(5s);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->exit_code, 5);
}

// A process in its own session, with an empty environment, whose parent has ended.
ChildOptions leaves_a_process() {
  ChildOptions o;
  // The line says that it has left the group; otherwise it would be killed with the group.
  o.argv = {"/bin/sh", "-c",
            "setsid -f env -i /bin/sh -c 'echo up; exec sleep 3600 </dev/null >/dev/null 2>&1' | "
            "head -n 1"};
  return o;
}

TEST_F(ChildTest, WhatLeftItsSessionAndItsEnvironmentIsEnded) {
  const Started started;
  const auto r = run_child(leaves_a_process());
  ASSERT_TRUE(r) << to_string(r.error());
  const auto left = started.running();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_TRUE(started.has(left.front()));
  EXPECT_EQ(started.end(0ms), left);  // nobody has waited for it yet
  EXPECT_TRUE(started.end(30s).empty());
  EXPECT_FALSE(exists(left.front()));
  EXPECT_TRUE(started.running().empty());
}

TEST_F(ChildTest, WhatWasThereBeforeOrHasAnOwnerIsLeftAlone) {
  const Started all;
  ASSERT_TRUE(run_child(leaves_a_process()));
  const Started later;
  EXPECT_TRUE(later.running().empty());
  auto child = Child::start(target({"sleep"}));
  ASSERT_TRUE(child) << to_string(child.error());
  EXPECT_TRUE(later.has(child->pid()));
  EXPECT_TRUE(later.end(30s).empty());
  EXPECT_TRUE(exists(child->pid()));
  EXPECT_EQ(all.running().size(), 1U);
  EXPECT_TRUE(all.end(30s).empty());
}

TEST_F(ChildTest, DiesWithTheProcessThatStartedIt) {
  const Started started;
  const auto r = run_forked(
      [](int output) {
        auto child = Child::start(target({"sleep"}));
        // As this process ends, its pipes are closed before the signal is sent: a child that still
        // wrote would die of SIGPIPE.
        if (!child || !child->read_line(30s)) return;
        const auto pid = std::to_string(child->pid());
        (void)!write(output, pid.data(), pid.size());
        _exit(0);  // runs no destructors
      },
      30s, 100);
  ASSERT_TRUE(r) << to_string(r.error());
  const pid_t pid = std::atoi(r->output.c_str());
  ASSERT_GT(pid, 0);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, __WALL), pid);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(ChildTest, NobodyWaitsForItAfterAnInterruption) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  ChildOptions options;
  options.argv = {"sleep", "3600"};
  options.interrupt = ends[0];
  auto child = Child::start(options);
  ASSERT_TRUE(child) << to_string(child.error());
  EXPECT_EQ(child->read_line(1ms).error().err, ETIMEDOUT);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_EQ(child->read_line(1h).error().err, ECANCELED);
  const auto r = child->wait(1h);
  ASSERT_TRUE(r) << to_string(r.error());
  EXPECT_EQ(r->killed_by, SIGKILL);
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace ctxconf::sys
