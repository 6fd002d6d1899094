// Shared by `run` and `reader`: drives an adapter over the testee protocol, one group of checks
// after another, and judges the recording.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conformance/command/options.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/testee.h"

namespace ctxconf::conformance {

struct AdapterRun {
  std::string name;  // of the command: "run"
  Mode mode = Mode::kRun;
  Role role = Role::kWriter;
  std::vector<const Group*> groups;  // what it is asked
  // Sets what is recorded, before anything starts.
  std::function<void(TesteeOptions& testee)> configure;

  std::vector<std::string> adapter;
  std::string channel = "stdio";          // or "fd3"
  std::string seed;                       // hexadecimal; empty: a new one
  std::vector<std::string> require_caps;  // globs over capabilities that must be declared
  unsigned repeat = 1;                    // how often everything is asked
  unsigned jobs = 1;                      // groups of checks driven at once
};

// --channel, --seed, --repeat, --jobs and --require-caps.
void add_adapter_options(CLI::App& app, CommonOptions& common, AdapterRun& run);

// Returns the exit code.
int drive_adapter(const JudgeOptions& options, const AdapterRun& run);

}  // namespace ctxconf::conformance
