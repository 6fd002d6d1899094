#include "conformance/command/by_hand.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "conformance/command/judging.h"
#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {

Command command_by_hand(CLI::App* sub, const std::shared_ptr<AdapterCommand>& o,
                        int (*run)(const AdapterCommand&)) {
  add_channel(*sub, o->channel, o->timeout_scale);
  return {.app = sub,
          .run =
              [o, run, sub](const Words& program) {
                if (!std::isfinite(o->timeout_scale)) {
                  return complain(kExitUsage, "--timeout-scale: not a number");
                }
                if (const int code = check_children(sub->get_name()); code != 0) return code;
                o->adapter = program;
                return run(*o);
              },
          .takes = "adapter"};
}

}  // namespace ctxconf::conformance
