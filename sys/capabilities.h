// What this host allows an observer to do. Each capability is probed once by trying it. Every
// report prints the result first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::sys {

struct HostFact {
  std::string name;  // "procmap-query"
  bool available = false;
  std::string detail;  // what was tried and what the kernel said
  std::string remedy;  // what would make it available; empty when it is
};

class Capabilities {
 public:
  // Probes at the first call, and reaps the children that the probes fork.
  static const Capabilities& of_this_host();
  // Used by tests and replay.
  explicit Capabilities(std::vector<HostFact> facts) : facts_(std::move(facts)) {}

  const std::vector<HostFact>& facts() const { return facts_; }
  // False for a name that was not probed.
  bool has(std::string_view name) const;

 private:
  std::vector<HostFact> facts_;
};

// Names of the probed capabilities.
inline constexpr std::string_view kHostPtrace = "ptrace";               // seize a child of ours
inline constexpr std::string_view kHostSeccompTrace = "seccomp-trace";  // SECCOMP_RET_TRACE
inline constexpr std::string_view kHostWatchpoints = "watchpoints";  // debug registers of a child
inline constexpr std::string_view kHostProcessVmReadv = "process-vm-readv";
inline constexpr std::string_view kHostProcmapQuery = "procmap-query";  // Linux 6.11
inline constexpr std::string_view kHostSmapsVmFlags = "smaps-vmflags";  // CONFIG_PROC_PAGE_MONITOR
inline constexpr std::string_view kHostAnonVmaName =
    "anon-vma-name";  // prctl(PR_SET_VMA) on anonymous memory
inline constexpr std::string_view kHostShmemVmaName = "shmem-vma-name";  // ... on a memfd
inline constexpr std::string_view kHostMemfd = "memfd";
inline constexpr std::string_view kHostMemfdNoexecSeal = "memfd-noexec-seal";  // Linux 6.3
inline constexpr std::string_view kHostTimeNamespaces = "time-namespaces";
// A new PID namespace for a child and its children.
inline constexpr std::string_view kHostPidNamespaces = "pid-namespaces";
inline constexpr std::string_view kHost32Bit = "32-bit";  // runs i386 programs

}  // namespace ctxconf::sys
