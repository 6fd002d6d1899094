// For tests of probe results in a process with fewer rights.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "sys/child.h"

namespace ctxconf::sys {

// Makes this system call fail with EPERM from now on; false if the filter could not be installed.
inline bool refuse(long nr) {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(nr), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{code.size(), code.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

// What `probe` returns in a process of its own, which first runs `confine`. The test fails if
// `confine` returns false or if the probe leaves a child running.
inline std::string text_of_child(const std::function<bool()>& confine,
                                 const std::function<std::string()>& probe) {
  constexpr std::size_t kLongest = 1U << 20U;
  const auto work = [&](int output) {
    if (!confine()) _exit(1);
    const std::string text = probe();
    const bool written =
        write(output, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    // ECHILD: every child of the probe was reaped.
    const bool reaped = waitpid(-1, nullptr, WNOHANG | __WALL) < 0 && errno == ECHILD;
    _exit(written ? (reaped ? 0 : 2) : 1);
  };
  const auto ran = run_forked(work, std::chrono::seconds(60), kLongest);
  if (!ran) {
    ADD_FAILURE() << to_string(ran.error());
    return {};
  }
  EXPECT_EQ(ran->exit_code, 0);
  return ran->output;
}

}  // namespace ctxconf::sys
