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
      outcome("clock", "frozen", Outcome::kInfo, "it waits"),
      outcome("RLIMIT_FSIZE=0", "", Outcome::kUnobservable, "it wrote a file"),
  };
  faults[1].requirements = faults[2].requirements = {"pctx.publish.fallback-anon"};
  faults[1].options = {"--inject", "memfd_create:error=EINVAL"};
  faults[3].options = {"--inject", "prctl(PR_SET_VMA):error=EINVAL"};
  faults[3].output = "one\n\ntwo\n";
  constexpr const char* kLegend =
      "  ok breaks nothing; FAIL breaks a requirement; info worth knowing; CRASH died; - no such "
      "call was seen; ? nothing could be judged";
  const std::vector<std::string> lines = {
      "fault matrix: 5 of 7 faults came, and 1 broke nothing",
      "                  EPERM  ENOSYS EINVAL",
      "  memfd_create    ok     FAIL   FAIL",
      "  prctl                         CRASH",
      "  mremap          -",
      "",
      "  clock/frozen    info",
      "  RLIMIT_FSIZE=0  ?",
      kLegend,
      "  FAIL memfd_create (EINVAL, ENOSYS): pctx.publish.fallback-anon",
      "    alone: --inject memfd_create:error=EINVAL",
      "  CRASH prctl (EINVAL): died\\x1b[2J",
      "    alone: --inject 'prctl(PR_SET_VMA):error=EINVAL'",
      "    | one",
      "    | two",
      "  info clock (frozen): it waits",
      "  ? RLIMIT_FSIZE=0: it wrote a file",
  };
  EXPECT_EQ(fault_matrix_lines(faults), lines);
}

}  // namespace
}  // namespace ctxconf::conformance
