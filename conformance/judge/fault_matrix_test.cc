// The fault matrix of literal recordings.
#include "conformance/judge/fault_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include "conformance/judge/judge.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Snapshot snapshot_of_context() {
  Snapshot s;
  s.moments = {Moment::kPeriodic, Moment::kExit};
  s.times = 2;
  s.first_seen_ns = 2'000'000'000;
  s.last_seen_ns = 3'000'000'000;
  Candidate c = mapped_header(kMapping, "/memfd:OTEL_CTX (deleted)",
                              header_bytes(1'900'000'000, kMapping + 64));
  c.vm_flags = {"rd wr mr mw me"};
  c.memory.push_back(payload_block(kMapping + 64));
  s.candidates = {c};
  return s;
}

struct Matrix : LiteralRecording {
  Matrix() { image().snapshots = {snapshot_of_context()}; }

  // Another run, with one call of that name, whose result is injected.
  Process& cell(const std::string& step, const std::string& fault, Injection injection) {
    FaultCell c;
    c.session = static_cast<std::uint32_t>(t.cells.size()) + 1;
    c.step = step;
    c.fault = fault;
    c.injections = {std::move(injection)};
    const bool applied = c.injections.front().times > 0;
    Process p;
    p.pid = 12;
    p.session = c.session;
    p.exit_code = 0;
    Image i;
    i.key = {.pid = 12, .image = 0, .session = c.session};
    i.executable = "/bin/app";
    SystemCall call;
    call.tid = 12;
    call.name = c.injections.front().call;
    call.args = {kMapping, 4096, 10};
    call.entered_ns = 1'500'000'000;
    call.entered_order = 1;
    call.left_order = 2;
    call.injected = applied;
    call.result = applied ? c.injections.front().result : 0;
    i.calls = {call};
    p.images = {i};
    t.cells.push_back(std::move(c));
    t.processes.push_back(std::move(p));
    return t.processes.back();
  }
  FaultCell& left_out(const std::string& step, const std::string& why) {
    FaultCell& c = t.cells.emplace_back();
    c.session = static_cast<std::uint32_t>(t.cells.size());
    c.step = step;
    c.left_out = why;
    return c;
  }
  // A run whose anonymous mapping is refused, and which a signal then ends.
  void without_memory_killed_by(int signo) {
    Process& p = cell("mmap(MAP_ANONYMOUS)", "ENOMEM",
                      {"mmap(MAP_ANONYMOUS):error=ENOMEM", "mmap", -ENOMEM, 1});
    p.exit_code.reset();
    p.killed_by = signo;
  }
  RunResult judged(const std::string& id) const {
    const Requirement* requirement = Catalogue::builtin().find(id);
    EXPECT_NE(requirement, nullptr) << id;
    return requirement == nullptr ? RunResult{} : judge(t, {requirement});
  }
};

const Injection kRefusedMark{"madvise:error=EINVAL", "madvise", -EINVAL, 1};
constexpr const char* kMark = "pctx.publish.failure-madvise";

TEST(FaultMatrix, NamesTheCellThatBreaksARequirement) {
  Matrix m;
  m.cell("madvise", "EINVAL", kRefusedMark).images[0].snapshots = {snapshot_of_context()};
  m.cell("madvise", "EPERM", {"madvise:error=EPERM", "madvise", -EPERM, 1});
  const RunResult run = m.judged(kMark);
  ASSERT_EQ(run.faults.size(), 2U);
  EXPECT_EQ(run.faults[0].outcome, Outcome::kWarn);
  EXPECT_THAT(run.faults[0].requirements, ElementsAre(kMark));
  EXPECT_THAT(run.faults[0].options, ElementsAre("--inject", "madvise:error=EINVAL"));
  EXPECT_EQ(run.faults[1].outcome, Outcome::kPass);
  ASSERT_EQ(run.results.size(), 1U);
  EXPECT_EQ(run.results[0].outcome, Outcome::kWarn);
  EXPECT_EQ(run.results[0].findings.front().image.session, 1U);
  EXPECT_THAT(run.results[0].findings.front().image_name, HasSubstr("(madvise/EINVAL)"));
  EXPECT_EQ(run.images.size(), 1U) << "those of cells are not listed";
}

TEST(FaultMatrix, ARequirementThatSeveralProcessesOfACellBreakIsNamedOnce) {
  Matrix m;
  Process child = m.cell("madvise", "EINVAL", kRefusedMark);
  child.pid = child.images[0].key.pid = 13;
  m.t.processes.back().images[0].snapshots = {snapshot_of_context()};
  child.images[0].snapshots = {snapshot_of_context()};
  m.t.processes.push_back(child);
  const RunResult run = m.judged(kMark);
  ASSERT_EQ(run.results.size(), 1U);
  EXPECT_EQ(run.results[0].findings.size(), 2U);
  EXPECT_THAT(run.faults.at(0).requirements, ElementsAre(kMark));
}

TEST(FaultMatrix, WithoutItsFaultACellSaysNothing) {
  Matrix m;
  m.cell("madvise", "EINVAL", {"madvise:error=EINVAL", "madvise", -EINVAL, 0}).images[0].snapshots =
      {snapshot_of_context()};
  m.left_out("mremap", "the program never asks for it").no_such_call = true;
  m.left_out("time-namespace", "refused");
  const RunResult run = m.judged(kMark);
  EXPECT_EQ(run.results[0].outcome, Outcome::kUnobservable);
  EXPECT_EQ(run.faults[0].outcome, Outcome::kNa);
  EXPECT_THAT(run.faults[0].text, HasSubstr("no such call was made"));
  EXPECT_EQ(run.faults[1].outcome, Outcome::kNa);
  EXPECT_EQ(run.faults[2].outcome, Outcome::kUnobservable);
  EXPECT_EQ(run.faults[2].text, "refused");
}

TEST(FaultMatrix, WhatIsBrokenWithoutAFaultAsWellIsToldOnce) {
  Matrix m;
  Process& under_fault =
      m.cell("ftruncate", "EPERM", {"ftruncate:error=EPERM", "ftruncate", -1, 1});
  for (Image* image : {&under_fault.images[0], &m.image()}) {
    image->snapshots = {snapshot_of_context()};
    image->snapshots[0].candidates[0].memory[0].bytes[8] = std::byte{3};
  }
  const RunResult run = m.judged("pctx.header.version");
  EXPECT_EQ(run.results[0].outcome, Outcome::kFail);
  ASSERT_EQ(run.results[0].findings.size(), 1U);
  EXPECT_EQ(run.results[0].findings[0].image.session, 0U);
  EXPECT_EQ(run.faults[0].outcome, Outcome::kPass);
}

TEST(FaultMatrix, RequirementsThatAFaultExplainsAreNotAskedUnderIt) {
  Matrix m;
  m.image().snapshots[0].candidates[0].vm_flags = {"rd wr mr mw me dc"};
  m.cell("madvise", "EINVAL", kRefusedMark).images[0].snapshots = {snapshot_of_context()};
  const RunResult run = m.judged("pctx.fork.dontfork");
  EXPECT_EQ(run.results[0].outcome, Outcome::kPass) << run.results[0].findings.front().saw;
  EXPECT_EQ(run.faults[0].outcome, Outcome::kUnobservable);
}

TEST(FaultMatrix, ADeathOrAHangIsOfItsCell) {
  Matrix m;
  Process& dies = m.cell("prctl", "EPERM", {"prctl(PR_SET_VMA):error=EPERM", "prctl", -EPERM, 1});
  dies.exit_code.reset();
  dies.killed_by = SIGSEGV;
  m.cell("ftruncate", "EPERM", {"ftruncate:error=EPERM", "ftruncate", -EPERM, 1});
  m.t.cells.back().hang = "it still ran";
  m.t.cells.back().output = "waiting";
  const RunResult run = m.judged(kMark);
  ASSERT_EQ(run.problems.size(), 2U);
  EXPECT_THAT(run.problems[0].text,
              HasSubstr("SIGSEGV without having published, under prctl/EPERM"));
  EXPECT_EQ(run.problems[1].outcome, Outcome::kTimeout);
  EXPECT_EQ(run.faults[0].outcome, Outcome::kCrash);
  EXPECT_EQ(run.faults[1].outcome, Outcome::kTimeout);
  EXPECT_THAT(run.problems[1].text, HasSubstr("did not end by itself, under ftruncate/EPERM"));
  EXPECT_EQ(run.faults[0].text, "the program was killed by SIGSEGV");
  EXPECT_EQ(run.faults[1].text, "it still ran");
  EXPECT_EQ(run.faults[1].output, "waiting");
}

TEST(FaultMatrix, OneProblemTellsOfAllErrorsOfACall) {
  Matrix m;
  for (const char* name : {"EPERM", "EINVAL"}) {
    m.cell("ftruncate", name, {"ftruncate:error=EPERM", "ftruncate", -EPERM, 1});
    m.t.cells.back().hang = "it still ran";
  }
  const RunResult run = m.judged(kMark);
  ASSERT_EQ(run.problems.size(), 1U);
  EXPECT_THAT(run.problems[0].text, HasSubstr(", under ftruncate/EPERM, EINVAL"));
  EXPECT_EQ(run.faults[1].outcome, Outcome::kTimeout);
}

TEST(FaultMatrix, WhoTriesAgainAndAgainHasNotGotStuck) {
  Matrix m;
  m.cell("ftruncate", "EPERM", {"ftruncate:error=EPERM", "ftruncate", -EPERM, 20});
  m.t.cells.back().hang = "it still ran";
  const RunResult run = m.judged(kMark);
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_EQ(run.faults[0].outcome, Outcome::kInfo);
}

TEST(FaultMatrix, AnAddressThatWasNotGivenIsNotUsed) {
  Matrix m;
  m.without_memory_killed_by(SIGSEGV);
  EXPECT_EQ(m.judged(kMark).faults[0].outcome, Outcome::kCrash);
}

TEST(FaultMatrix, ARuntimeWithoutMemoryMayDieAndWhoNeedsTheTimeMayWait) {
  Matrix m;
  m.without_memory_killed_by(SIGABRT);
  m.cell("clock", "frozen", {"clock_gettime:value=frozen", "clock_gettime", 0, 1});
  m.t.cells.back().hang = "it still ran";
  const RunResult run = m.judged(kMark);
  EXPECT_THAT(run.problems, IsEmpty());
  EXPECT_EQ(run.faults[0].outcome, Outcome::kInfo);
  EXPECT_EQ(run.faults[0].text, "the program was killed by SIGABRT");
  EXPECT_EQ(run.faults[1].outcome, Outcome::kInfo);
  EXPECT_EQ(run.faults[1].text, "it still ran");
}

TEST(FaultMatrix, TheRequirementAboutTheFileSizeLimitJudgesItsCell) {
  constexpr const char* kLimit = "pctx.publish.survives-file-size-limit";
  Matrix m;
  FaultCell& cell = m.t.cells.emplace_back();
  cell.session = 1;
  cell.step = kFileSizeLimit;
  FaultRun& limited = m.t.faults.emplace_back();
  limited.fault = kFileSizeLimit;
  limited.killed_by = SIGXFSZ;
  limited.last_syscall = "ftruncate";
  limited.last_file = "/memfd:OTEL_CTX (deleted)";
  const RunResult run = m.judged(kLimit);
  ASSERT_EQ(run.results.at(0).outcome, Outcome::kWarn) << run.results[0].findings.front().saw;
  EXPECT_EQ(run.faults.at(0).outcome, Outcome::kWarn);
  EXPECT_THAT(run.faults[0].requirements, ElementsAre(kLimit));
  const RunResult other = m.judged(kMark);
  EXPECT_EQ(other.faults.at(0).outcome, Outcome::kUnobservable);
  EXPECT_THAT(other.faults[0].requirements, IsEmpty());
}

TEST(FaultMatrix, HasTheGroupsOfRun) {
  Timeline t;
  t.mode = Mode::kRun;
  const auto session = [&](const std::string& group, std::vector<std::string> faults) {
    Session& s = t.sessions.emplace_back();
    s.group = group;
    s.root.session = static_cast<std::uint32_t>(t.sessions.size());
    s.faults = std::move(faults);
  };
  session("publish", {});
  session("publish-denied-eperm", {"memfd_create:error=EPERM", "prctl(PR_SET_VMA):value=0"});
  session("publish-without-seal", {"memfd_create:error=EINVAL:when=1"});
  session("publish-without-name", {"memfd_create:error=EPERM", "prctl(PR_SET_VMA):error=EINVAL"});
  session("update-without-clock", {"clock_gettime:error=EINVAL"});
  session("update-at-time-zero", {"clock_gettime:value=0:when=2+"});
  session("publish-without-file-size", {kFileSizeLimit});
  std::vector<std::string> names;
  for (const FaultOutcome& f :
       fault_matrix(t, {{2, {.judged = true, .failed = {}}}}, {}, nullptr)) {
    names.push_back(f.name() + " " + std::string(to_string(f.outcome)));
  }
  EXPECT_THAT(names,
              ElementsAre("memfd_create/EPERM pass", "memfd_create:when=1/EINVAL na",
                          "memfd_create+prctl/EPERM+EINVAL na", "update:clock_gettime/EINVAL na",
                          "clock/zero na", "RLIMIT_FSIZE=0 unobservable"));
}

}  // namespace
}  // namespace ctxconf::conformance
