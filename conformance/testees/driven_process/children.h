// The children of the adapter.
#pragma once

#include <sys/types.h>

#include <array>
#include <set>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/driven_process/sdk.h"

namespace ctxconf::testees {

using adapter::Loop;

extern const Choices kChildrenChoices;

class Children {
 public:
  Children(const Loop& loop, Sdk& sdk) : loop_(loop), sdk_(sdk) {}
  Reply fork_child(const json& request);
  Reply reap(const json& request) {
    sdk_.child_has_ended();
    return adapter::reap_child(children_, request);
  }

 private:
  [[noreturn]] void be_child(pid_t parent, const std::array<int, 2>& ends, const json& child) const;
  // The child has the memory and the thread pointer of its parent, so it only makes system calls.
  Reply share_memory();

  const Loop& loop_;
  Sdk& sdk_;
  std::set<pid_t> children_;
  std::vector<std::vector<char>> stacks_;
};

}  // namespace ctxconf::testees
