// The checks of `ctxconf run`: operations that make a requirement visible. The rules judge the
// recording.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testee/testee.h"

namespace ctxconf::conformance {

using Driven = Testee::Answer<void>;

struct Check {
  std::string_view name;
  // The check is left out without these capabilities, as in is_declared().
  std::vector<std::string_view> needs;
  // Globs over ids of requirements that a crash, a hang or a refusal in this check decides. They
  // are not applicable if the check is left out and no other check is for them.
  std::vector<std::string_view> requirements;
  // More requirements that the check shows.
  std::vector<std::string_view> also;
  std::function<Driven(Testee&)> drive;
};

// Checks that share a process, one after the other; each also works in a fresh process.
struct Group {
  std::string_view name;
  std::vector<Check> checks;
  // Records stores to the record of the thread of the last request, instead of stores to the
  // header.
  bool records = false;
  // Changes to the header are single-stepped.
  bool steps = false;
  // Changes to the slot and the record of the thread of the last request are single-stepped, and
  // freed memory is overwritten.
  bool slot_steps = false;
  // Memory that the testee frees to glibc's malloc is overwritten, as with slot_steps.
  bool overwrites_freed = false;
  // Records only snapshots, so that the program runs at full speed.
  bool race = false;
  // At each step of a request ctxconf forks the testee and looks at the child's memory.
  bool forks = false;
  bool without_ptrace_right = false;  // as in TesteeOptions
  // System calls are not recorded, so that the testee runs at its own speed.
  bool full_speed = false;
  // The testee is process 1 of a pid namespace. The group is left out if the host does not allow
  // that.
  bool pid_namespace = false;
  // Specs (conformance/faults/injection.h), separated by spaces, that its checks turn on and off;
  // clocks are then read by system calls. Or kFileSizeLimit. The group is left out if the host
  // cannot inject faults.
  const char* injections = "";
  // More specs, used only if the kernel does not name anonymous memory.
  const char* without_names = "";
  // Not empty: called before the testee of the group is started.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::function<void()> before = {};
};

// Publishes once per process: publishing again may set up the SDK again.
Driven publish_once(Testee& t, const std::string& service_name);
// Publishes this Resource with pairs next to it, or without them where an SDK refuses them.
Driven publish_with_pairs(Testee& t, const nlohmann::json& resource);

std::span<const Group> process_groups();
std::span<const Group> thread_groups();
std::span<const Group> record_groups();

}  // namespace ctxconf::conformance
