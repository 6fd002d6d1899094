// Repeats a command, as for --every.
#pragma once

#include <chrono>
#include <functional>

namespace ctxconf::conformance {

// Runs `once` in a child process again and again, so that no run leaves anything to the next one.
// Begins each run `interval` after the one before, or when that has ended. Returns only on a
// usage error, or if no child can be created; then the exit code.
int repeat_every(std::chrono::milliseconds interval, const std::function<int()>& once);

}  // namespace ctxconf::conformance
