// New PID namespaces, for the trampoline and for the probe of this host.
#pragma once

namespace ctxconf::sys {

// From now on the children of this process are in a new PID namespace. The first child is process 1
// of it, and may create such namespaces itself. If this process lacks the right to do so, it first
// enters a user namespace that gives it the right and keeps user and group ids. Only for a process
// with one thread. Returns errno, or 0.
int unshare_pid_namespace();

}  // namespace ctxconf::sys
