// What the threads of a process are waiting for, as the kernel says it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ctxconf::conformance {

// A line a thread, at most 32: "4243 (worker): S, futex_do_wait, system call 202, stack
// futex_do_wait < do_syscall_64". What may not be read is left out. Hostile: a thread names itself.
std::vector<std::string> thread_states(pid_t pid);

}  // namespace ctxconf::conformance
