#include "conformance/reader/usable_time.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "conformance/reader/busy_processor.h"
#include "sys/process.h"

namespace ctxconf::conformance::reader {
namespace {

using std::chrono::nanoseconds;

// A process that does this until its end.
class Forked {
 public:
  explicit Forked(const std::function<void()>& action) : pid_(fork()) {
    if (pid_ != 0) return;
    alarm(60);  // if the test is killed
    for (;;) action();
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

struct Measured {
  nanoseconds usable;
  nanoseconds used;  // of a processor
};

void wait_until(const std::function<bool()>& is_true) {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_true()) {
    ASSERT_LT(std::chrono::steady_clock::now(), latest);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// After a few measurements.
Measured measure(pid_t process) {
  const std::vector<pid_t> processes{process};
  UsableTime usable;
  usable.by_now(processes);
  const auto before = processor_time(processes);
  nanoseconds sum{};
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(UsableTime::kInterval);
    sum = usable.by_now(processes);
  }
  return {.usable = sum, .used = processor_time(processes) - before};
}

TEST(UsableTimeTest, TimeInWhichAProcessWaitsForAProcessorDoesNotCount) {
  const int processor = sched_getcpu();
  const Forked process([processor] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof(set), &set);
    const sched_param none{};
    sched_setscheduler(0, SCHED_IDLE, &none);
    for (;;) {
    }
  });
  ASSERT_NO_FATAL_FAILURE(
      wait_until([&] { return sched_getscheduler(process.pid()) == SCHED_IDLE; }));
  const BusyProcessor busy(processor);
  const Measured m = measure(process.pid());
  // The first measurement is a moment earlier.
  EXPECT_LE(m.usable, m.used + UsableTime::kInterval);
}

TEST(UsableTimeTest, TimeInWhichAProcessSleepsCounts) {
  const Forked process([] { pause(); });
  ASSERT_NO_FATAL_FAILURE(wait_until([&] { return sys::thread_state(process.pid()) == 'S'; }));
  EXPECT_GE(measure(process.pid()).usable, 6 * UsableTime::kInterval);
}

}  // namespace
}  // namespace ctxconf::conformance::reader
