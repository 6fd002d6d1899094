// What the threads of a process wait for, according to the kernel.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ctxconf::conformance {

// The files of one thread in /proc; empty: it cannot be read.
struct ThreadTexts {
  std::string stat;
  std::string wchan;
  std::string syscall;
  std::string stack;
};

// "4243 (worker): S, futex_do_wait, system call 202, stack futex_do_wait < do_syscall_64". Leaves
// out what is empty. Nothing: the stat has no name. Hostile: a thread names itself.
std::optional<std::string> thread_state(pid_t tid, const ThreadTexts& texts);

// One line per thread, at most 32.
std::vector<std::string> thread_states(pid_t pid);

}  // namespace ctxconf::conformance
