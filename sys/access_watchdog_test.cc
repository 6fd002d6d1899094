#include "sys/access_watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sys/memory_reader.h"

namespace ctxconf::sys {
namespace {

using std::chrono::milliseconds;

void* map_page(int flags) {
  return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
}

// A child with a page that it is asked to fill but never fills.
class Withholder {
 public:
  Withholder() : page_(map_page(MAP_PRIVATE)) {
    auto* said = static_cast<std::atomic<int>*>(map_page(MAP_SHARED));
    pid_ = fork();
    if (pid_ < 0) return;
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
      uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
      uffdio_register range{.range = {.start = at().raw(), .len = 4096},
                            .mode = UFFDIO_REGISTER_MODE_MISSING,
                            .ioctls = 0};
      const bool ok =
          fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0;
      *said = ok ? 1 : 2;
      while (true) pause();
    }
    while (*said == 0) usleep(1000);
    holds_ = *said == 1;
    munmap(said, 4096);
  }
  ~Withholder() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    munmap(page_, 4096);
  }
  Withholder(const Withholder&) = delete;
  Withholder& operator=(const Withholder&) = delete;
  bool holds() const { return holds_; }
  pid_t pid() const { return pid_; }
  RemoteAddr at() const { return RemoteAddr(reinterpret_cast<std::uint64_t>(page_)); }

 private:
  void* page_;
  pid_t pid_ = 0;
  bool holds_ = false;
};

#ifdef SYS_pause
constexpr long kPause = SYS_pause;
#else
constexpr long kPause = SYS_ppoll;
#endif

// The number of the system call in which the thread of this process sleeps; 0: it runs.
long call_of(pid_t tid) {
  long number = 0;
  std::ifstream("/proc/self/task/" + std::to_string(tid) + "/syscall") >> number;
  return number;
}

TEST(AccessWatchdog, EndsACopyThatNobodyAnswers) {
  const Withholder child;
  if (!child.holds()) GTEST_SKIP() << "this user may not withhold pages from the kernel";
  std::vector<pid_t> stuck;
  {
    const AccessWatchdog dog(milliseconds(40), [&](pid_t pid) {
      stuck.push_back(pid);
      kill(pid, SIGKILL);
    });
    std::array<std::byte, 8> out{};
    // The owner is dead by now; whether the kernel copied a byte does not matter.
    (void)ProcessMemory(child.pid()).read_some(child.at(), out);
  }
  EXPECT_EQ(stuck, std::vector{child.pid()});
}

TEST(AccessWatchdog, FindsAnAccessThatOthersAreWithin) {
  std::atomic<int> stuck = 0;
  {
    const AccessWatchdog dog(milliseconds(4), [&](pid_t) { ++stuck; });
    const ProcessAccess outer(1);
    {
      const ProcessAccess inner(1);
    }
    while (stuck == 0) usleep(1000);
  }
  EXPECT_EQ(stuck, 1);
}

TEST(AccessWatchdog, KeepsAThreadWhereItWasStuck) {
  std::atomic<bool> is_over = false;
  std::atomic<bool> came_back = false;
  std::atomic<int> stuck = 0;
  std::atomic<pid_t> tid = 0;
  std::thread([&] {
    tid = gettid();
    const AccessWatchdog dog(milliseconds(4), [&](pid_t) { ++stuck; }, AfterStuck::kStays);
    {
      const ProcessAccess access(1);
      while (!is_over) usleep(1000);
    }
    came_back = true;
  }).detach();
  while (stuck == 0) usleep(1000);
  usleep(40'000);  // ten deadlines, in which it is not found stuck again
  is_over = true;
  while (!came_back && call_of(tid) != kPause) usleep(1000);
  EXPECT_FALSE(came_back);
  EXPECT_EQ(stuck, 1);
}

// Each access takes three seconds of a clock of its own; none is over its deadline. Returns how
// many began before `stuck` was called.
int accesses_within(std::chrono::seconds budget, int nested, AfterStuck after) {
  struct Shared {
    std::atomic<int> began = 0;
    std::atomic<int> stuck = 0;
    std::atomic<bool> is_done = false;
    AccessBudget::Clock::time_point now;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, budget, nested, after] {
    const AccessWatchdog dog(
        std::chrono::hours(1), [shared](pid_t pid) { shared->stuck += pid; }, after,
        std::make_shared<AccessBudget>(budget, [shared] { return shared->now; }));
    for (int i = 0; i < 8; ++i) {
      const ProcessAccess outer(1);
      if (shared->stuck == 0) ++shared->began;
      for (int j = 0; j < nested; ++j) {
        const ProcessAccess inner(1);
        if (shared->stuck == 0) ++shared->began;
        shared->now += std::chrono::seconds(3);
      }
      if (nested == 0) shared->now += std::chrono::seconds(3);
    }
    shared->is_done = true;
  }).detach();
  const bool stays = after == AfterStuck::kStays;
  while (stays ? shared->stuck == 0 : !shared->is_done) usleep(1000);
  EXPECT_EQ(shared->stuck, 1);
  EXPECT_EQ(shared->is_done, !stays);
  return shared->began;
}

TEST(AccessWatchdog, LimitsTheTimeOfAllAccessesTogether) {
  EXPECT_EQ(accesses_within(std::chrono::seconds(10), 0, AfterStuck::kGoesOn), 4);
  EXPECT_EQ(accesses_within(std::chrono::seconds(10), 0, AfterStuck::kStays), 4);
  EXPECT_EQ(accesses_within(std::chrono::seconds(0), 0, AfterStuck::kStays), 0);
}

TEST(AccessWatchdog, CountsTheTimeOfAnAccessThatOthersAreWithinOnce) {
  EXPECT_EQ(accesses_within(std::chrono::seconds(10), 5, AfterStuck::kStays), 1 + 4);
}

TEST(AccessBudget, CountsTheAccessInProgress) {
  AccessBudget::Clock::time_point now;
  AccessBudget budget(std::chrono::seconds(5), [&] { return now; });
  const auto pass = [&](int seconds) { now += std::chrono::seconds(seconds); };
  budget.begin();
  pass(3);
  budget.end();
  pass(100);
  EXPECT_FALSE(budget.is_used_up());
  budget.begin();
  pass(1);
  EXPECT_FALSE(budget.is_used_up());
  pass(1);
  EXPECT_TRUE(budget.is_used_up());
}

TEST(AccessBudget, MayBeAllowedOnlyALittleMore) {
  AccessBudget::Clock::time_point now;
  AccessBudget budget(std::chrono::seconds(10), [&] { return now; });
  const auto access = [&](int seconds) {
    budget.begin();
    now += std::chrono::seconds(seconds);
    budget.end();
  };
  access(4);
  budget.allow_only(std::chrono::seconds(2));
  access(1);
  EXPECT_FALSE(budget.is_used_up());
  budget.allow_only(std::chrono::seconds(2));
  access(1);
  EXPECT_FALSE(budget.is_used_up()) << "it counts from the last time";
  access(1);
  EXPECT_TRUE(budget.is_used_up());
  budget.allow_only(std::chrono::seconds(5));
  access(2);
  EXPECT_FALSE(budget.is_used_up());
  access(1);
  EXPECT_TRUE(budget.is_used_up()) << "10 seconds in all";
}

TEST(AccessWatchdog, WatchesNothingWhereNoThreadCanBeMade) {
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0)) _exit(2);
    const AccessWatchdog dog(milliseconds(1), [](pid_t) {});
    const ProcessAccess access(1);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    _exit(sigismember(&blocked, SIGTERM) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(AccessWatchdog, KnowsOnlyTheAccessesOfItsThread) {
  std::atomic<int> stuck = 0;
  std::atomic<bool> is_over = false;
  const AccessWatchdog dog(milliseconds(4), [&](pid_t) { ++stuck; });
  std::atomic<bool> has_begun = false;
  std::thread unwatched([&] {
    const ProcessAccess elsewhere(2);
    has_begun = true;
    while (!is_over) usleep(1000);
  });
  while (!has_begun) usleep(1000);
  // Another watchdog with a longer deadline shows how long that is enough.
  std::thread([&] {
    std::atomic<int> stuck_here = 0;
    const AccessWatchdog slower(milliseconds(8), [&](pid_t) { ++stuck_here; });
    const ProcessAccess access(3);
    while (stuck_here == 0) usleep(1000);
  }).join();
  is_over = true;
  unwatched.join();
  EXPECT_EQ(stuck, 0);
}

}  // namespace
}  // namespace ctxconf::sys
