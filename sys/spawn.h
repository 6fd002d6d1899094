// How child.cc and tracee.cc start a program: by Boost.Process with vfork and exec, with the signal
// mask and the ignored signals with which this process itself was started, and without our
// descriptors.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sys/result.h"

namespace ctxconf::sys {

struct Spawn {
  std::string path;  // /proc/self/fd/N: the program that our descriptor N names
  std::vector<std::string> argv;
  std::vector<std::string> extra_env;       // replaces a variable with the same key
  std::array<int, 3> stdio = {-1, -1, -1};  // -1: ours
  int kept = -1;   // one more descriptor, kept under its number (4 or more)
  int third = -1;  // becomes descriptor 3
  bool own_group = false;
  bool own_session = false;  // which also means its own group
  // SIGKILL when the thread that starts it ends. An exec that changes its credentials cancels this.
  bool dies_with_us = false;
};
// Returns once the program runs, or a signal has killed it before. Otherwise returns the errno of
// what failed, and no process is left.
Result<pid_t> spawn(const Spawn& what);

// The path that a shell would find. ENOENT; EACCES if it found only files that are not executable.
Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& extra_env);

// A tracer waits for every child and may reap one that belongs to somebody else. Such a child is
// registered, so that its owner still gets the status.
void register_child(pid_t pid);
void forget_child(pid_t pid);
bool is_registered_child(pid_t pid);
void deposit_status(pid_t pid, int status);  // ignored when `pid` is not registered
// Reaps a registered child: nullopt while it is running.
std::optional<int> reap_child(pid_t pid);

// The processes whose parent is this process.
std::vector<pid_t> children_of_this_process();
// These and their descendants; each parent before its children.
std::vector<pid_t> descendants_of_this_process();

}  // namespace ctxconf::sys
