#include "conformance/faults/fault_cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "conformance/rules/literal_recording.h"

namespace ctxconf::conformance {
namespace {

const CellPlan& named(const std::vector<CellPlan>& plans, const std::string& name) {
  const auto it = std::ranges::find(plans, name, &CellPlan::name);
  EXPECT_NE(it, plans.end()) << name;
  return it == plans.end() ? plans.front() : *it;
}

TEST(FaultCells, EachIsAnotherAndTakesSomethingAway) {
  for (const bool names_memory : {true, false}) {
    const auto plans = fault_cells(names_memory);
    std::set<std::string> names;
    EXPECT_EQ(plans.front().step, kClockCallsStep);
    for (const CellPlan& p : plans) {
      EXPECT_TRUE(names.insert(p.name()).second) << p.name();
      const bool watches = p.step == kClockCallsStep;
      EXPECT_EQ(watches || p.file_size_limit || p.time_namespace, p.injections.empty()) << p.name();
      for (const auto& spec : p.injections) {
        EXPECT_EQ(spec.call == "clock_gettime", p.clock_calls) << p.name();
      }
    }
    EXPECT_EQ(named(plans, "memfd_create+madvise+prctl/EPERM").injections.size(), 3U);
    EXPECT_EQ(names.contains("memory-seems-named"), names_memory);
    // If the kernel does not name memory, a writer that falls back must believe that it does.
    for (const char* cell : {"memfd_create/ENOSYS", "memfd_create(MFD_NOEXEC_SEAL)/EINVAL",
                             "ftruncate/ENOSPC", "mmap/ENOMEM"}) {
      EXPECT_EQ(named(plans, cell).injections.size(), names_memory ? 1U : 2U) << cell;
    }
    EXPECT_EQ(named(plans, "madvise/EINVAL").injections.size(), 1U);
  }
}

struct Program : LiteralRecording {
  Program() {
    call("memfd_create", {0x1000, 3}, 3).text = "OTEL_CTX";
    call("ftruncate", {3, 4096}, 0).file = "/memfd:OTEL_CTX (deleted)";
    call("mmap", {0, 4096, 3, 2, 3}, 0x20000).file = "/memfd:OTEL_CTX (deleted)";
    call("madvise", {0x20000, 4096, 10}, 0);
    read_clock(5);
    name();
  }
  void read_clock(std::uint64_t ns) {
    call("clock_gettime", {CLOCK_BOOTTIME, 0x3000}, 0).clock_ns = ns;
  }
  void name() { call("prctl", {0x53564d41, 0, 0x20000, 4096, 0x2000}, 0).text = "OTEL_CTX"; }
  bool reaches(const std::string& cell) const {
    return is_reached(named(fault_cells(true), cell), t.processes);
  }
};

TEST(FaultCells, OnlyCallsThatAreMadeCanFail) {
  Program p;
  for (const char* cell : {"memfd_create/EPERM", "ftruncate/ENOSPC", "mmap/ENOMEM", "prctl/EBADF",
                           "madvise/EINVAL", "clock_gettime/EINVAL", "clock/coarse",
                           "memfd_create+prctl/EINVAL", "RLIMIT_FSIZE=0", kTimeNamespaceStep}) {
    EXPECT_TRUE(p.reaches(cell)) << cell;
  }
  EXPECT_FALSE(p.reaches("memfd_create(MFD_NOEXEC_SEAL)/EINVAL"));
  EXPECT_FALSE(p.reaches("update:mremap/ENOMEM"));
  EXPECT_TRUE(p.reaches("clock/frozen")) << "not all readings are recorded";
  p.t.processes.front().images.front().calls.front().text = "another";
  EXPECT_FALSE(p.reaches("memfd_create/EPERM"));
}

TEST(FaultCells, UpdatesFollowTheFirstName) {
  Program p;
  EXPECT_FALSE(p.reaches("update:prctl/EPERM"));
  EXPECT_TRUE(p.reaches("update:clock_gettime/EINVAL")) << "not all readings are recorded";
  p.name();
  EXPECT_TRUE(p.reaches("update:prctl/EPERM"));
}

}  // namespace
}  // namespace ctxconf::conformance
