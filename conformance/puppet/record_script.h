// Moves a scripted process through a script, and records it as `wrap` records any program.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "conformance/puppet/script.h"
#include "sys/result.h"

namespace ctxconf::conformance::puppet {

enum class StepOutcome : std::uint8_t {
  kDone,
  kRefused,     // `result` has the kernel's error
  kSkipped,     // because of its `if` or `unless`, or because a result that may fail is missing
  kBegun,       // its answer comes later
  kLost,        // the process or thread ended before it answered
  kUnanswered,  // no answer in time
};

struct Step {
  std::size_t operation = 0;  // index into Script::operations
  StepOutcome outcome = StepOutcome::kDone;
  std::int64_t result = 0;  // -errno if refused
  Bytes bytes;              // of `read`
  friend bool operator==(const Step&, const Step&) = default;
};
// "= 0x7f12a0000000", "= -1 EINVAL (Invalid argument)", "the process ended"
std::string to_string(const Step& step);

struct PuppetOptions {
  WrapOptions wrap;           // how to record; this file sets the command line
  std::string programs;       // the folder of ctxconf-puppet and ctxconf-puppet-slot
  bool shows_output = false;  // its output goes to our stdout; false: it is discarded
  std::chrono::milliseconds operation_within{5000};  // scaled by wrap.timeout_scale
  // How long a program that the script started with `exec` may run after the end of the script.
  std::chrono::milliseconds others_within{5000};
  std::function<void(const Step&)> told;  // called for each step, and again for a late answer
};

struct Played {
  std::vector<Step> steps;  // a step with a late answer is there once, with the answer
  // Why the script stopped: an operation was refused although it may not fail, had no answer, or
  // belongs to a thread that has ended. The recording until then is valid.
  std::optional<ScriptProblem> problem;
  bool interrupted = false;  // by a signal to this process
};

// Appends the recording to `timeline`, as record_wrap() does, whatever the script does. Leaves
// nothing of the process. An error is one of the harness: the process could not be started. One at
// a time per process.
sys::Result<Played> record_script(const Script& script, const PuppetOptions& options,
                                  Timeline& timeline);

// The path of ctxconf-puppet: next to the running program or in ../libexec/ctxconf.
sys::Result<std::string> find_puppets();

}  // namespace ctxconf::conformance::puppet
