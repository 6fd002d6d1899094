#include "sys/process_handle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "sys/forked_child.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

std::uint64_t sleeps(int) { return 1; }

TEST(ProcessHandle, KnowsItsProcess) {
  const Forked child(sleeps);
  auto process = ProcessHandle::open(child.pid());
  ASSERT_TRUE(process) << to_string(process.error());
  EXPECT_EQ(process->pid(), child.pid());
  EXPECT_EQ(process->start_ticks(), process_facts(child.pid())->start_ticks);
  EXPECT_TRUE(process->lives());
  EXPECT_THAT(process->executable().value(), EndsWith("process_handle_test"));
  EXPECT_THAT(process->threads().value(), ElementsAre(child.pid()));
}

TEST(ProcessHandle, KnowsThatItHasEnded) {
  Forked child(sleeps);
  auto process = ProcessHandle::open(child.pid());
  ASSERT_TRUE(process);
  ASSERT_TRUE(process->threads());
  kill(child.pid(), SIGKILL);
  ASSERT_TRUE(comes_to(child.pid(), 'Z'));
  EXPECT_EQ(process->executable().error().err, ESRCH);
  child.wait();
  EXPECT_FALSE(process->lives());
  EXPECT_EQ(process->executable().error().err, ESRCH);
  const auto threads = process->threads();
  EXPECT_TRUE(!threads || threads->empty());
  EXPECT_EQ(ProcessHandle::open(0).error().err, ESRCH);
}

TEST(ProcessHandle, LivesOnWithoutItsLeader) {
  const Forked child([](int answer) {
    static const int to = answer;
    pthread_t thread;
    const auto body = [](void*) -> void* {
      comes_to(getpid(), 'Z');
      const std::uint64_t ready = 1;
      if (write(to, &ready, sizeof ready) != sizeof ready) _exit(99);
      while (true) pause();
    };
    if (pthread_create(&thread, nullptr, body, nullptr) != 0) _exit(98);
    syscall(SYS_exit, 0);  // ends this thread alone
    return std::uint64_t{0};
  });
  auto process = ProcessHandle::open(child.pid());
  ASSERT_TRUE(process);
  EXPECT_TRUE(process->lives());
  EXPECT_THAT(process->executable().value(), EndsWith("process_handle_test"));
  EXPECT_EQ(process->threads()->size(), 2U);
}

TEST(ProcessHandle, NoThreadIsMissingWhileOthersEnd) {
  constexpr std::size_t kLasting = 50;
  const Forked child([](int) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64U << 10U);
    const auto start = [&](void* (*body)(void*)) {
      pthread_t thread;
      if (pthread_create(&thread, &small, body, nullptr) != 0) _exit(98);
    };
    for (std::size_t i = 0; i < kLasting; ++i) {
      start([](void*) -> void* {
        usleep(1000);
        return nullptr;
      });
      start([](void*) -> void* {
        while (true) pause();
      });
    }
    return std::uint64_t{1};
  });
  auto process = ProcessHandle::open(child.pid());
  ASSERT_TRUE(process);
  std::vector<std::vector<pid_t>> lists;
  ASSERT_TRUE(comes_true([&] {
    lists.push_back(process->threads().value());
    return lists.back().size() == kLasting + 1;
  }));
  for (const std::vector<pid_t>& list : lists) {
    EXPECT_TRUE(std::ranges::is_sorted(list));
    EXPECT_TRUE(std::ranges::includes(list, lists.back()));
  }
}

}  // namespace
}  // namespace ctxconf::sys
