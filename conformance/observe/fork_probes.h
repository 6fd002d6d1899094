// The child that a thread would have if it forked now: makes copies of the process, examines them
// and ends them (docs/forks.md).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// Makes the fork probes of one image.
class ForkProbes {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // `filters`: seccomp filters with which the program began; nothing: unknown.
  explicit ForkProbes(std::optional<unsigned> filters) : filters_(filters) {}

  // Copies the process of a stopped thread and examines the copy, unless that has taken `most` so
  // far. Returns the time for which the thread stood still.
  Duration probe(sys::Tracer& tracer, pid_t tid, std::uint64_t order, std::string at,
                 Duration most);
  // The kernel did not complete a copy, and the process was ended.
  bool is_held_up() const { return held_up_; }
  void unseen(std::string why);

  void add_to(Image& image) &&;

 private:
  std::optional<unsigned> filters_;
  std::vector<ForkProbe> probes_;
  std::string unseen_;
  Duration probed_{};
  bool held_up_ = false;
};

// Decides when a process of a recording is copied.
class ForkProber {
 public:
  // Both must outlive this.
  ForkProber(const WrapOptions& options, sys::Tracer& tracer)
      : options_(options), tracer_(tracer) {}

  void set(bool on) { on_ = on; }  // options.forks: on or off from now on
  // The thread is stopped after an event, whose number in its image is `order`. Returns the time
  // for which the thread stood still.
  ForkProbes::Duration probe(ForkProbes& probes, pid_t pid, pid_t tid, std::uint64_t order,
                             std::string at);
  // We ended the process, because a fork in it did not finish.
  bool is_held_up(pid_t pid) const { return held_up_.contains(pid); }

 private:
  const WrapOptions& options_;
  sys::Tracer& tracer_;
  bool on_ = false;
  std::set<pid_t> held_up_;
};

}  // namespace ctxconf::conformance
