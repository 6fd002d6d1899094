// Drives testees in this process, or at the same time in child processes: ptrace, SIGCHLD and
// orphans belong to one process.
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

// Units of work, known by their index. GroupRun::asked is optional.
struct Jobs {
  std::vector<std::string> names;  // of the units
  // Does one unit; reports its checks, if any, while they run.
  std::function<GroupRun(std::size_t unit, const DriveCalls&)> drive;
  DriveCalls calls;  // in no order with several jobs
  // Called with the result of each unit, in the order of units. False: the rest is not done, or is
  // ended and dropped.
  std::function<bool(std::size_t unit, GroupRun run)> take;
};

struct JobsEnding {
  bool interrupted = false;   // by SIGINT, SIGTERM, SIGHUP or SIGQUIT; everything was ended
  std::string harness_fault;  // not of a unit
  bool unreachable = false;   // a child printed why and exited with kExitUnreachable
  unsigned stops = 0;         // of our processes by others; they were continued
};

// Does every unit, at most `count` at once. One job runs in this process; with more jobs, this
// process must have a single thread. Leaves no process running. A job that another process stops is
// continued, and ended if that happens too often; the fault is then the adapter's. `timeout_scale`
// multiplies the longest silence of a job.
JobsEnding do_all(const Jobs& jobs, unsigned count, double timeout_scale);

struct Unit {
  const Group* group = nullptr;
  std::uint32_t repeat = 0;
};

struct JobCalls {
  DriveCalls drive;  // in no order with several jobs
  // Called with the result of each unit, in the order of units. False: the rest is not driven, or
  // is ended and dropped.
  std::function<bool(const Unit& unit, GroupRun run)> take;
};

// do_all() for groups of checks.
JobsEnding drive_all(Driver& driver, std::span<const Unit> units, unsigned jobs,
                     double timeout_scale, const JobCalls& calls);

}  // namespace ctxconf::conformance
