// Moves a scripted process through a script while it is recorded like any program of `wrap`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/observe/wrap.h"
#include "conformance/puppet/script.h"
#include "conformance/timeline.h"
#include "sys/result.h"

namespace ctxconf::conformance::puppet {

enum class StepOutcome : std::uint8_t {
  kDone,
  kRefused,     // the kernel's error is in `result`
  kSkipped,     // by its `if` or `unless`, or since something that may fail is missing
  kBegun,       // its answer comes later
  kLost,        // the process or thread ended instead of an answer
  kUnanswered,  // none came in time
};

struct Step {
  std::size_t operation = 0;  // index into Script::operations
  StepOutcome outcome = StepOutcome::kDone;
  std::int64_t result = 0;  // -errno of what was refused
  Bytes bytes;              // of `read`
  friend bool operator==(const Step&, const Step&) = default;
};
// "= 0x7f12a0000000", "= -1 EINVAL (Invalid argument)", "the process ended"
std::string to_string(const Step& step);

struct PuppetOptions {
  WrapOptions wrap;           // how it is recorded; the command line is set here
  std::string programs;       // the folder of ctxconf-puppet and ctxconf-puppet-slot
  bool shows_output = false;  // what it prints goes to our stdout; false: nowhere
  std::chrono::milliseconds operation_within{5000};  // scaled by wrap.timeout_scale
  // How long what was started by `exec` of another program may run once the script is at its end.
  std::chrono::milliseconds others_within{5000};
  std::function<void(const Step&)> told;  // of each step, and again of a late answer
};

struct Played {
  std::vector<Step> steps;  // those with a late answer once, with it
  // What stopped the script: an operation that was refused although it may not fail, that had no
  // answer, or that somebody was to make who has ended. What was recorded until then is there.
  std::optional<ScriptProblem> problem;
  bool interrupted = false;  // by a signal to ourselves
};

// Appends the recording to `timeline`, as record_wrap() does, whatever the script does. Nothing of
// the process is left. The error is one of the harness: the process could not be started. One at a
// time in a process of ours.
sys::Result<Played> record_script(const Script& script, const PuppetOptions& options,
                                  Timeline& timeline);

// Where ctxconf-puppet is: beside the running program or in ../libexec/ctxconf.
sys::Result<std::string> find_puppets();

}  // namespace ctxconf::conformance::puppet
