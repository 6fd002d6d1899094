// New pid namespaces, for the trampoline and for the probe of this host.
#pragma once

namespace ctxconf::sys {

// The children that this process makes from now on are in a new pid namespace, the first of them
// its process 1, and may make such namespaces in turn. Where that needs a right that this process
// lacks, it enters a user namespace in which user and group keep their numbers, and which gives it.
// For a process with one thread. Returns errno, or 0.
int unshare_pid_namespace();

}  // namespace ctxconf::sys
