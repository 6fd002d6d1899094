// Options of adapter-lint and repl, which talk to an adapter without judging it.
#pragma once

#include <string>
#include <vector>

#include "conformance/command/options.h"

namespace ctxconf::conformance {

struct AdapterCommand {
  std::vector<std::string> adapter;
  std::string channel = "stdio";  // or "fd3"
  double timeout_scale = 1;
};

}  // namespace ctxconf::conformance
