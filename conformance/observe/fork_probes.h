// The child that a thread would have if it forked now: makes copies of the process, examines them
// and ends them (docs/forks.md).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

class ForkProbes {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // Copies the process of a stopped thread and examines the copy. `filters`: seccomp filters with
  // which the program began. Returns the time for which the thread stood still.
  Duration probe(sys::Tracer& tracer, pid_t tid, std::uint64_t order, std::string at,
                 std::optional<unsigned> filters, Duration most);
  // The kernel did not complete a copy, and the process was ended.
  bool is_held_up() const { return held_up_; }
  void unseen(std::string why);

  void add_to(Image& image) &&;

 private:
  std::vector<ForkProbe> probes_;
  std::string unseen_;
  Duration probed_{};
  bool held_up_ = false;
};

}  // namespace ctxconf::conformance
