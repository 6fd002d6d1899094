#include "sys/proc_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "sys/forked_child.h"

namespace ctxconf::sys {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;

std::uint64_t sleeps(int) { return 1; }

TEST(ProcDir, ReadsWhatIsInIt) {
  const auto own = ProcDir::open(getpid());
  ASSERT_TRUE(own) << to_string(own.error());
  EXPECT_EQ(own->id(), getpid());
  EXPECT_EQ(own->read_stat()->state, 'R');
  EXPECT_THAT(own->read_link("exe").value(), EndsWith("proc_dir_test"));
  EXPECT_THAT(own->read_file("cmdline", 4096).value(), ::testing::HasSubstr("proc_dir_test"));
  EXPECT_EQ(own->read_file("cmdline", 3)->size(), 3U);
  EXPECT_EQ(own->numbers_in("task", 10).value(), std::vector<int>{getpid()});
  EXPECT_THAT(own->numbers_in("fd", 1000).value(), Contains(own->fd()));
  EXPECT_EQ(own->numbers_in("fd", 2)->size(), 2U);
  EXPECT_EQ(own->open_file("no_such_file").error().err, ENOENT);
  EXPECT_THAT(ProcDir::open_root()->numbers_in(".", 1U << 22U).value(), Contains(getpid()));
}

TEST(ProcDir, ThereIsNoneForWhatIsNoProcess) {
  for (const pid_t pid : {0, -1, 1 << 30}) EXPECT_EQ(ProcDir::open(pid).error().err, ESRCH) << pid;
}

TEST(ProcDir, StaysWithItsProcess) {
  Forked child(sleeps);
  const auto dir = ProcDir::open(child.pid());
  ASSERT_TRUE(dir);
  EXPECT_TRUE(dir->read_stat());
  EXPECT_FALSE(has_ended(*dir->read_stat()));
  kill(child.pid(), SIGKILL);
  ASSERT_TRUE(comes_to(child.pid(), 'Z'));
  EXPECT_TRUE(has_ended(*dir->read_stat()));
  child.wait();
  EXPECT_EQ(dir->read_stat().error().err, ESRCH);
  EXPECT_EQ(dir->open_file("maps").error().err, ESRCH);
  EXPECT_EQ(dir->numbers_in("task", 10).error().err, ESRCH);
}

TEST(ProcDir, FindsALivingThreadWhenTheLeaderHasEnded) {
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
  const auto living = ProcDir::open_living(child.pid());
  ASSERT_TRUE(living);
  EXPECT_EQ(living->id(), other_thread(child.pid()));
  EXPECT_TRUE(living->read_link("exe"));
  EXPECT_EQ(ProcDir::open_living(getpid())->id(), getpid());
}

}  // namespace
}  // namespace ctxconf::sys
