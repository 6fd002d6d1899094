// What the threads of a process wait for, according to the kernel.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ctxconf::conformance {

// One line per thread, at most 32: "4243 (worker): S, futex_do_wait, system call 202, stack
// futex_do_wait < do_syscall_64". Leaves out what cannot be read. Hostile: a thread names itself.
std::vector<std::string> thread_states(pid_t pid);

}  // namespace ctxconf::conformance
