// Repeats a command, as for --every.
#pragma once

#include <chrono>
#include <functional>

namespace ctxconf::conformance {

struct Repetition {
  std::chrono::milliseconds interval{0};
  std::chrono::milliseconds deadline{0};  // a run that takes longer is killed
  bool needs_reader = false;              // the runs serve only those who read stdout
};

// Runs `once` in a child process again and again, so that no run leaves anything to the next one.
// Begins each run `interval` after the one before, or when that has ended. Returns only on a
// usage error, if no child can be created, or if stdout is a pipe that has lost the reader that it
// needs; then the exit code.
int repeat_every(const Repetition& how, const std::function<int()>& once);

}  // namespace ctxconf::conformance
