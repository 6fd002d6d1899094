// Options of adapter-lint and repl, which talk to an adapter without judging it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/command/command.h"
#include "conformance/command/options.h"

namespace ctxconf::conformance {

struct AdapterCommand {
  std::vector<std::string> adapter;
  std::string channel = "stdio";  // or "fd3"
  double timeout_scale = 1;
};

// The command `sub`, whose options are `o`.
Command command_by_hand(CLI::App* sub, const std::shared_ptr<AdapterCommand>& o,
                        int (*run)(const AdapterCommand&));

}  // namespace ctxconf::conformance
