// A scripted process that nobody traces, so that a reader under test may.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/puppet/player.h"
#include "sys/result.h"

namespace ctxconf::conformance::reader {

struct TargetOptions {
  std::string programs;  // the folder of the scripted processes
  double timeout_scale = 1;
  // Called while an answer is awaited, until the time or until one of the descriptors is ready:
  // moves the reader, which may have stopped a thread of the target. Returns whether the run goes
  // on. Not called while the reader is held.
  std::function<bool(puppet::PlayerHost::Clock::time_point until)> meanwhile;
  std::function<sys::Result<>(int fd, short events)> wake_for;
};

// Ends its processes in the destructor.
class Target {
 public:
  // `script` must outlive it. The error is that of starting the process, or ETIMEDOUT.
  static sys::Result<std::unique_ptr<Target>> start(const puppet::Script& script,
                                                    const TargetOptions& options);
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target();

  pid_t pid() const;
  // Makes operations of the script. False: the script stops there, and problem() says why.
  sys::Result<bool> play(std::size_t from, std::size_t to);
  std::size_t played() const;  // the index after the last operation that was made
  // While `on`, nothing else is moved.
  void hold(bool on);
  std::optional<std::uint64_t> value_of(const puppet::Value& value) const;
  std::string problem() const;

 private:
  struct State;
  explicit Target(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ctxconf::conformance::reader
