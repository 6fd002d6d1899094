// For tests: records a program that waits at gates. At each gate it writes its thread id, a pid_t,
// to its standard output, and continues when it can read a byte from its standard input.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/recording.h"
#include "conformance/observe/wrap.h"
#include "sys/fd.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// Runs until the program has ended. Calls `at_gate` with the thread that waits.
inline void record_gated(const WrapOptions& options, Timeline& timeline,
                         const std::function<void(Recording&, pid_t tid)>& at_gate) {
  using Clock = Recording::Clock;
  std::array<int, 2> to{};
  std::array<int, 2> from{};
  ASSERT_EQ(pipe2(to.data(), O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(from.data(), O_CLOEXEC), 0);
  const std::array<sys::Fd, 2> ours = {sys::Fd(to[1]), sys::Fd(from[0])};
  std::array<sys::Fd, 2> theirs = {sys::Fd(to[0]), sys::Fd(from[1])};
  sys::Launch launch;
  launch.stdio = {to[0], from[1], -1};
  auto recording = Recording::start(options, launch, timeline);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  for (auto& fd : theirs) fd.reset();
  EXPECT_TRUE(recording->wake_for(from[0], POLLIN));
  const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::minutes(1) * options.timeout_scale);
  for (bool runs = true; runs && Clock::now() < limit + recording->late();) {
    const auto stepped = recording->step(limit + recording->late());
    EXPECT_TRUE(stepped) << sys::to_string(stepped.error());
    runs = stepped.value_or(false);
    pollfd armed{.fd = from[0], .events = POLLIN, .revents = 0};
    if (poll(&armed, 1, 0) != 1) continue;
    pid_t tid = 0;
    if (read(from[0], &tid, sizeof tid) == static_cast<ssize_t>(sizeof tid)) {
      at_gate(*recording, tid);
      EXPECT_EQ(write(to[1], "", 1), 1);
    } else {
      EXPECT_TRUE(recording->wake_for(from[0], 0));
    }
  }
  EXPECT_TRUE(recording->finish());
}

}  // namespace ctxconf::conformance
