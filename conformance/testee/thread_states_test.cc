#include "conformance/testee/thread_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace ctxconf::conformance {
namespace {

using testing::Contains;
using testing::Optional;
using testing::StartsWith;

TEST(ThreadState, SaysWhatTheThreadWaitsFor) {
  EXPECT_THAT(
      thread_state(7, {.stat = "7 (worker) S 1 7 7 0",
                       .wchan = "futex_do_wait",
                       .syscall = "202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f00\n",
                       .stack = "[<0>] futex_do_wait+0x5e/0x90\n[<0>] do_poll+0x1/0x2 [nfs]\n"}),
      Optional(std::string("7 (worker): S, futex_do_wait, system call 202, "
                           "stack futex_do_wait < do_poll")));
}

TEST(ThreadState, LeavesOutWhatIsNotThere) {
  EXPECT_THAT(thread_state(
                  7, {.stat = "7 (worker) R 1", .wchan = "0", .syscall = "running\n", .stack = ""}),
              Optional(std::string("7 (worker): R, running")));
  EXPECT_THAT(thread_state(7, {.stat = "7 (worker) R 1", .wchan = "", .syscall = "", .stack = ""}),
              Optional(std::string("7 (worker): R")));
}

TEST(ThreadState, TakesTheWholeName) {
  EXPECT_THAT(
      thread_state(7, {.stat = "7 (a) R (\n) S 1", .wchan = "", .syscall = "", .stack = ""}),
      Optional(std::string("7 (a) R (\n): S")));
}

TEST(ThreadState, NeedsAName) {
  for (const char* stat : {"", "7 worker S", "7 (worker", ") S (worker", ") ("}) {
    EXPECT_EQ(thread_state(7, {.stat = stat, .wchan = "", .syscall = "", .stack = ""}),
              std::nullopt)
        << stat;
  }
}

TEST(ThreadState, SaysAtMostEightFrames) {
  std::string stack;
  for (char c = 'a'; c <= 'i'; ++c) stack += std::string("[<0>] ") + c + "+0x1/0x2\n";
  EXPECT_THAT(thread_state(7, {.stat = "7 (x) S", .wchan = "", .syscall = "", .stack = stack}),
              Optional(std::string("7 (x): S, stack a < b < c < d < e < f < g < h")));
}

TEST(ThreadStates, ReadsThoseOfThisProcess) {
  EXPECT_THAT(thread_states(getpid()), Contains(StartsWith(std::to_string(gettid()) + " (")));
}

}  // namespace
}  // namespace ctxconf::conformance
