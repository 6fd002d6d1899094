// Programs under test recorded in this process, or side by side: in processes of ours, since
// ptrace, SIGCHLD and the orphans of what is started belong to one process.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "conformance/testee/driver.h"

namespace ctxconf::conformance {

// More than there are groups.
inline constexpr unsigned kMostJobs = 64;

// Units of work, known by their index. Of a GroupRun `asked` may be left alone.
struct Jobs {
  std::vector<std::string> names;  // of the units
  // Does one; tells of its checks, where it has any, while they happen.
  std::function<GroupRun(std::size_t unit, const DriveCalls&)> drive;
  DriveCalls calls;  // in no order with several jobs
  // Called with what each unit gave, in the order of the units, whatever ended first. False: the
  // rest is not done, or ended and forgotten.
  std::function<bool(std::size_t unit, GroupRun run)> take;
};

struct JobsEnding {
  bool interrupted = false;   // by SIGINT, SIGTERM or SIGHUP, and everything was ended
  std::string harness_fault;  // of no unit
  bool unreachable = false;   // a process of ours has said why, and exited with kExitUnreachable
  unsigned stops = 0;         // of processes of ours by somebody else; they were continued
};

// Does every unit, at most `count` at once. With one job in this process; with more this process
// must have one thread. Nothing that was started is left when this returns. A job that somebody
// stops is continued, and ended where that goes on; the fault is then the adapter's. The longest
// that a job may be silent is stretched by `timeout_scale`.
JobsEnding do_all(const Jobs& jobs, unsigned count, double timeout_scale);

struct Unit {
  const Group* group = nullptr;
  std::uint32_t repeat = 0;
};

struct JobCalls {
  DriveCalls drive;  // in no order with several jobs
  // Called with what each unit gave, in the order of the units, whatever ended first. False: the
  // rest is not driven, or ended and forgotten.
  std::function<bool(const Unit& unit, GroupRun run)> take;
};

// do_all() for groups of checks.
JobsEnding drive_all(Driver& driver, std::span<const Unit> units, unsigned jobs,
                     double timeout_scale, const JobCalls& calls);

}  // namespace ctxconf::conformance
