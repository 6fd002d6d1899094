#include "conformance/report/fault_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using testing::IsEmpty;

FaultOutcome outcome(const std::string& step, const std::string& fault, Outcome outcome,
                     const std::string& text = {}) {
  FaultOutcome out;
  out.step = step;
  out.fault = fault;
  out.outcome = outcome;
  out.text = text;
  return out;
}

TEST(FaultTable, HasARowAStepAndAColumnAnErrno) {
  EXPECT_THAT(fault_matrix_lines({}), IsEmpty());
  std::vector<FaultOutcome> faults = {
      outcome("memfd_create", "EPERM", Outcome::kPass),
      outcome("memfd_create", "EINVAL", Outcome::kFail),
      outcome("memfd_create", "ENOSYS", Outcome::kFail),
      outcome("prctl", "EINVAL", Outcome::kCrash, "died\x1b[2J"),
      outcome("mremap", "EPERM", Outcome::kNa, "no such call"),
      outcome("prctl", "EPERM", Outcome::kTimeout, "it still ran"),
      outcome("madvise", "EPERM", Outcome::kWarn),
      outcome("clock", "frozen", Outcome::kInfo, "it waits"),
      outcome("RLIMIT_FSIZE=0", "", Outcome::kUnobservable, "it wrote a file"),
  };
  faults[1].requirements = faults[2].requirements = {"pctx.publish.fallback-anon"};
  faults[1].options = {"--inject", "memfd_create:error=EINVAL"};
  faults[3].options = {"--inject", "prctl(PR_SET_VMA):error=EINVAL"};
  faults[3].output = "one\n\ntwo\n";
  faults[6].requirements = {"pctx.publish.failure-madvise"};
  constexpr const char* kLegend =
      "  PASS breaks nothing; FAIL breaks a requirement; WARN breaks a requirement of severity "
      "warning; INFO "
      "worth knowing; CRASH died; TIMEOUT had to be ended; - N/A: no such call was seen; ? "
      "UNOBSERVABLE: nothing could be judged";
  const std::vector<std::string> lines = {
      "fault matrix: 7 of 9 faults occurred, and 1 broke nothing",
      "                  EPERM   ENOSYS  EINVAL",
      "  memfd_create    PASS    FAIL    FAIL",
      "  prctl           TIMEOUT         CRASH",
      "  mremap          -",
      "  madvise         WARN",
      "",
      "  clock/frozen    INFO",
      "  RLIMIT_FSIZE=0  ?",
      kLegend,
      "  FAIL memfd_create (EINVAL, ENOSYS): pctx.publish.fallback-anon",
      "    alone: --inject memfd_create:error=EINVAL",
      "  CRASH prctl (EINVAL): died\\x1b[2J",
      "    alone: --inject 'prctl(PR_SET_VMA):error=EINVAL'",
      "    | one",
      "    | two",
      "  TIMEOUT prctl (EPERM): it still ran",
      "  WARN madvise (EPERM): pctx.publish.failure-madvise",
      "  INFO clock (frozen): it waits",
      "  ? RLIMIT_FSIZE=0: it wrote a file",
  };
  EXPECT_EQ(fault_matrix_lines(faults), lines);
}

}  // namespace
}  // namespace ctxconf::conformance
