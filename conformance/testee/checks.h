// What `ctxconf run` asks of a program under test: operations that make a requirement visible. What
// they show is judged by the rules, from the recording.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testee/testee.h"

namespace ctxconf::conformance {

using Driven = Testee::Answer<void>;

struct Check {
  std::string_view name;
  // Capabilities without which it is left out, as in is_declared().
  std::vector<std::string_view> needs;
  // Globs over ids: rows that a crash, a hang or a refusal in this check decides, and which are not
  // applicable where it is left out and no other check is for them.
  std::vector<std::string_view> requirements;
  // Rows that it shows as well.
  std::vector<std::string_view> also;
  Driven (*drive)(Testee&);
};

// Checks that share a process, one after the other; each also works in a fresh one.
struct Group {
  std::string_view name;
  std::vector<Check> checks;
  // Stores to the record of the thread that was asked last are recorded, instead of those to the
  // header.
  bool records = false;
  // Changes to the header are walked through instruction by instruction.
  bool steps = false;
  // Changes to the variable and the record of the thread that was asked last are walked through
  // instruction by instruction, and memory that is given back is overwritten.
  bool slot_steps = false;
  // What the testee gives back to glibc's malloc is overwritten, as with slot_steps.
  bool overwrites_freed = false;
  // Nothing but states is recorded, so that the program runs as it does alone.
  bool race = false;
  // At each step of a request it is looked at what a child would have.
  bool forks = false;
  // The testee is process 1 of a pid namespace. Left out where the host makes none.
  bool pid_namespace = false;
  // Specs (conformance/observe/injection.h), a space between two, that its checks turn on and off;
  // clocks are read by system calls then. Or kFileSizeLimit. Left out where the host cannot answer
  // calls.
  const char* injections = "";
  // The same, and only where the kernel names no anonymous memory.
  const char* without_names = "";
};

std::span<const Group> process_groups();
std::span<const Group> thread_groups();
std::span<const Group> record_groups();

}  // namespace ctxconf::conformance
