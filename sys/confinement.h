// What prevents this process from looking into others: Yama, a seccomp filter, an AppArmor profile,
// namespaces, missing capabilities. Reads /proc, and says how to lift the restriction, in
// containers too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sys/capabilities.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct Confinement {
  int user = -1;                 // effective; -1: unknown
  bool traces_any_user = false;  // CAP_SYS_PTRACE is effective
  bool is_traced = false;        // by strace, gdb, another ctxconf
  int seccomp_filters = 0;       // 0: none; 1 at least one, where the kernel does not count them
  int yama_scope = -1;           // kernel.yama.ptrace_scope; -1: no Yama
  std::string apparmor;          // "docker-default (enforce)"; empty: unconfined or no AppArmor
  bool own_pid_namespace = false;
  bool own_user_namespace = false;

  static Confinement of_this_process();
  // Takes the text of /proc/self/status, kernel.yama.ptrace_scope and /proc/self/attr/current, and
  // the links /proc/self/ns/pid and /proc/self/ns/user; a text that could not be read is empty.
  static Confinement from(std::string_view status, std::string_view yama, std::string_view apparmor,
                          std::string_view pid_namespace, std::string_view user_namespace);
};

// What may refuse ptrace or process_vm_readv, and what would allow it; never empty.
std::string remedy_for_tracing_a_child(const Confinement&);
std::string remedy_for_tracing_another(const Confinement&);
// The same for a process that may be of another user.
std::string remedy_for_reading_another(const Confinement&);

// Whether a child can be made, and is in the PID namespace of this process; tried at each call.
HostFact probe_children();
inline constexpr std::string_view kHostChildren = "children";
// What refuses a child with this error, and what would allow it.
std::string remedy_for_children(int err, const Confinement&);

// Whether the memory of a child can be copied in any way; tried at each call.
Result<> try_memory_of_a_child();

// Which processes `attach` can reach, in three facts: a process of the same user that is not our
// child (tried), processes of any user, and processes outside this container.
std::vector<HostFact> probe_reach();
std::vector<HostFact> reach_of(const Confinement&, int seize_error, int read_error);
inline constexpr std::string_view kReachSameUser = "same-user";
inline constexpr std::string_view kReachAnyUser = "any-user";
inline constexpr std::string_view kReachAllProcesses = "all-processes";

}  // namespace ctxconf::sys
