// `ctxconf run`: asks a testee for one group of checks after another, and judges the recording.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/drive_adapter.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/testee/checks.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

struct RunOptions {
  CommonOptions common;
  AdapterRun run;
  double race_seconds = 0.5;  // how long a race reader runs during updates
};

int run(RunOptions& o) {
  o.run.name = "run";
  for (const auto& groups : {process_groups(), thread_groups(), record_groups()}) {
    for (const Group& group : groups) o.run.groups.push_back(&group);
  }
  o.run.configure = [seconds = o.race_seconds](TesteeOptions& testee) {
    testee.race_for = std::chrono::milliseconds(std::llround(seconds * 1000));
    testee.recording.stores = true;
    testee.pid_namespaces = sys::Capabilities::of_this_host().has(sys::kHostPidNamespaces);
  };
  return drive_adapter(o.common.judge, o.run);
}

}  // namespace

Command run_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<RunOptions>();
  CLI::App* sub =
      app.add_subcommand("run", "drive a program under test over the testee protocol and judge it");
  add_common(*sub, o->common);
  CLI::Option* level = sub->get_option("--level");
  level->description(level->get_description() +
                     ";\nwith a lower level than steps, run is faster: it single-steps only where\n"
                     "nothing else gives evidence");
  add_expected_resource(*sub, o->common);
  add_on_fail(*sub, o->common);
  add_adapter_options(*sub, o->common, o->run);
  sub->add_option("--race", o->race_seconds,
                  "run a concurrent reader on another processor for N seconds; default: 0.5")
      ->check(CLI::Range(0.01, 3600.0));

  return {.app = sub,
          .run =
              [o, command_line](const Words& program) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                if (std::isnan(o->race_seconds)) {
                  return complain(kExitUsage, "--race: not a number");
                }
                o->run.adapter = program;
                return run(*o);
              },
          .takes = "adapter"};
}

}  // namespace ctxconf::conformance
