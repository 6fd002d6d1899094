#include "conformance/judge/judge.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "abi/process_header.h"
#include "conformance/judge/all_requirements.h"
#include "conformance/judge/settle.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/state_rules.h"

namespace ctxconf::conformance {
namespace {

// A process whose image saw `headers` one after the other, with nothing after them.
Process process(pid_t pid, const std::vector<abi::ProcessHeader>& headers) {
  Process p;
  p.pid = pid;
  Image i;
  i.key = {pid, 0};
  i.executable = "/bin/app";
  i.ending = "exited 0";
  for (const auto& h : headers) {
    Snapshot s;
    s.moments = {Moment::kPeriodic};
    Candidate c;
    sys::MapEntry e;
    e.range = *sys::RemoteRange::from_size(sys::RemoteAddr(0x7f0000000000), 4096);
    e.readable = e.writable = true;
    e.name = "/memfd:OTEL_CTX (deleted)";
    c.entries = {e};
    c.vm_flags = {"rd wr dc"};
    MemoryBlock b;
    b.at = e.range.begin();
    b.wanted = b.readable = sizeof h;
    const auto bytes = std::as_bytes(std::span(&h, 1));
    b.bytes.assign(bytes.begin(), bytes.end());
    c.memory = {b};
    s.candidates = {c};
    i.snapshots.push_back(std::move(s));
  }
  p.images = {std::move(i)};
  return p;
}

constexpr abi::ProcessHeader kEmptyButValid{abi::kSignature, abi::kVersion, 0, 77, 0};

const RequirementResult& requirement(const RunResult& run, std::string_view id) {
  const auto it = std::ranges::find_if(
      run.results, [&](const RequirementResult& r) { return r.requirement->id == id; });
  EXPECT_NE(it, run.results.end()) << id;
  return *it;
}

TEST(Judge, ALeftOutCheckSaysWhatTheAdapterDeclares) {
  Timeline t;
  t.mode = Mode::kRun;
  t.skipped.resize(1);
  t.skipped[0].requirements = {"pctx.publish.mapping-private"};
  t.skipped[0].capability = "process.update";
  const auto reason = [&] {
    const RunResult run = judge(t, all_requirements());
    const RequirementResult& r = requirement(run, "pctx.publish.mapping-private");
    EXPECT_EQ(r.outcome, Outcome::kNa);
    return r.findings.empty() ? "" : r.findings.front().saw;
  };
  EXPECT_EQ(reason(), "the adapter does not declare process.update");
  t.skipped[0].must_be_absent = true;
  EXPECT_EQ(reason(), "the adapter declares process.update");
}

TEST(Judge, NothingPublishedJudgesNothing) {
  Timeline t;
  t.processes = {process(12, {})};
  t.processes[0].exit_code = 0;
  const RunResult run = judge(t, all_requirements());
  EXPECT_FALSE(run.results.empty());
  for (const auto& r : run.results) {
    EXPECT_TRUE(r.outcome == Outcome::kUnobservable || r.outcome == Outcome::kNa)
        << r.requirement->id;
  }
  EXPECT_TRUE(run.problems.empty());
  ASSERT_EQ(run.images.size(), 1U);
  EXPECT_FALSE(run.images[0].published);
  EXPECT_EQ(run.target_ending, "exited 0");
}

TEST(Judge, ARunHasTheLibrariesOfTheProgramsThatPublished) {
  Timeline t;
  t.libc = "glibc 2.36";
  const auto libc = [&] { return judge(t, all_requirements()).libc; };
  const auto add = [&](std::string name, std::vector<abi::ProcessHeader> headers = {}) {
    t.processes.push_back(process(static_cast<pid_t>(12 + t.processes.size()), headers));
    t.processes.back().images.front().libc = std::move(name);
  };
  EXPECT_EQ(libc(), "");
  EXPECT_EQ(judge(t, all_requirements()).suite_libc, "glibc 2.36");
  add("static");
  add("");
  EXPECT_EQ(libc(), "static");
  for (const char* name : {"glibc 2.31", "musl 1.2.3", "glibc 2.31", "glibc 2.36"}) add(name);
  EXPECT_EQ(libc(), "static, glibc 2.31, musl 1.2.3, glibc 2.36");
  add("glibc");
  EXPECT_EQ(libc(), "static, glibc 2.31, musl 1.2.3, glibc 2.36, ...");
  add("musl 1.2.5", {kEmptyButValid});
  EXPECT_EQ(libc(), "musl 1.2.5");
}

TEST(Judge, HowTheProgramEndedIsKnownWithoutItsWords) {
  using enum TargetEnd::How;
  Timeline t;
  t.processes = {process(12, {})};
  const auto end = [&] { return judge(t, all_requirements()).target_ended; };
  EXPECT_EQ(end(), std::nullopt);
  t.processes[0].exit_code = 77;
  EXPECT_EQ(end(), (TargetEnd{.how = kExited, .number = 77}));
  EXPECT_TRUE(end()->exited_with(77));
  EXPECT_FALSE(end()->exited_with(0));
  t.processes[0].exit_code.reset();
  t.processes[0].killed_by = SIGSEGV;
  EXPECT_EQ(end(), (TargetEnd{.how = kKilled, .number = SIGSEGV}));
  EXPECT_FALSE(end()->exited_with(SIGSEGV));
  t.processes[0].ended_by_us = true;
  EXPECT_EQ(end(), (TargetEnd{.how = kKilledByUs, .number = SIGSEGV}));
  t.mode = Mode::kRun;
  EXPECT_EQ(end(), std::nullopt);
}

TEST(Judge, NoPassRestsOnStatesThatNobodyHasSeen) {
  Timeline t;
  auto later = kEmptyButValid;
  later.monotonic_published_at_ns = 78;
  t.processes = {process(12, {kEmptyButValid, later})};
  Image& image = t.processes[0].images[0];
  const auto outcome = [&](std::string_view id) {
    return requirement(judge(t, all_requirements()), id).outcome;
  };
  EXPECT_EQ(outcome("pctx.publish.mapping-private"), Outcome::kPass);
  EXPECT_EQ(outcome("pctx.update.timestamp-distinct"), Outcome::kPass);
  image.snapshots_dropped = image.snapshots_judged = 3;
  EXPECT_EQ(outcome("pctx.publish.mapping-private"), Outcome::kPass);
  // A state that went was compared with its neighbours only.
  EXPECT_EQ(outcome("pctx.update.timestamp-distinct"), Outcome::kUnobservable);
  image.snapshots_judged = 2;
  const RunResult run = judge(t, all_requirements());
  const RequirementResult& unjudged = requirement(run, "pctx.publish.mapping-private");
  EXPECT_EQ(unjudged.outcome, Outcome::kUnobservable);
  EXPECT_EQ(unjudged.findings[0].saw.find("1 state was neither kept nor judged"), 0U)
      << unjudged.findings[0].saw;
}

TEST(Judge, ARunIsIncompleteWhereStatesWereNotJudged) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid})};
  Image& image = t.processes[0].images[0];
  EXPECT_EQ(judge(t, all_requirements()).incomplete, "");
  image.snapshots_dropped = image.snapshots_judged = 5;
  EXPECT_EQ(judge(t, all_requirements()).incomplete, "");
  image.snapshots_judged = 3;
  const RunResult run = judge(t, all_requirements());
  EXPECT_EQ(run.incomplete,
            "2 states of process 12 were neither kept nor judged: they were too many, or too "
            "large; observe it for a shorter time (--for)");
  // Nor is there a requirement that does not apply because the kept states have none of it.
  for (const RequirementResult& r : run.results) {
    const RequirementRule* const rule = rule_of(r.requirement->id);
    if (rule == nullptr || rule->rests_on != RestsOn::kStates) continue;
    if (r.requirement->otep == 4947) continue;  // the program has no threads with contexts
    for (const Finding& f : r.findings) {
      EXPECT_TRUE(f.outcome != Outcome::kNa || f.na_reason != NaReason::kCapability)
          << r.requirement->id;
    }
  }
}

TEST(Judge, ARunIsIncompleteWhereAContextWasNotRead) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid}), process(13, {})};
  Image& image = t.processes[1].images[0];
  const auto incomplete = [&] { return judge(t, all_requirements()).incomplete; };
  image.unread = "memory cannot be read: process_vm_readv: Operation not permitted";
  EXPECT_EQ(incomplete(), "") << "it may have none";
  SystemCall naming;
  naming.name = "prctl";
  naming.args = {PR_SET_VMA, PR_SET_VMA_ANON_NAME, 0x1000, 4096, 0, 0};
  naming.text = "OTEL_CTX";
  image.calls = {naming};
  EXPECT_EQ(incomplete(),
            "process 13 has a context, and memory cannot be read: process_vm_readv: Operation not "
            "permitted");
  t.cells.emplace_back().session = 1;
  t.processes[1].session = 1;
  EXPECT_EQ(incomplete(), "") << "only in a run with faults";
  image = {};
  image.unexamined = 2;
  t.cells.clear();
  EXPECT_EQ(incomplete(), "process 13 has 2 more mappings named OTEL_CTX than ctxconf examines");
}

TEST(Judge, NoPassRestsOnLooksAtThreadsThatNobodyHasSeen) {
  const auto reason = [](const Image& image, std::string_view id) {
    const auto f = rests_on_dropped(image, *rule_of(id));
    EXPECT_TRUE(!f || f->outcome == Outcome::kUnobservable);
    return f ? f->saw : "";
  };
  Image image;
  EXPECT_EQ(reason(image, "tctx.attrs.utf8"), "");
  image.threads_dropped = 2;
  image.threads_judged = 1;
  EXPECT_EQ(
      reason(image, "tctx.attrs.utf8").find("1 sample of a thread was neither kept nor judged"),
      0U);
  EXPECT_EQ(reason(image, "pctx.publish.mapping-private"), "");
  image.threads_judged = 2;
  EXPECT_EQ(reason(image, "tctx.attrs.utf8"), "");
  // What was seen after one operation is not judged without the others.
  EXPECT_NE(reason(image, "tctx.attach.visible"), "");
  // The others that broke it are kept: their finding decides, unless it is a pass.
  image.requirements_dropped = {"tctx.attrs.utf8"};
  EXPECT_NE(reason(image, "tctx.attrs.utf8"), "");
  EXPECT_EQ(reason(image, "tctx.attrs.packed"), "");
}

TEST(Judge, NoPassRestsOnCallsThatWereNotKept) {
  const auto reason = [](const Image& image, std::string_view id) {
    const auto f = rests_on_dropped_calls(image, *Catalogue::builtin().find(id), *rule_of(id));
    EXPECT_TRUE(!f || f->outcome == Outcome::kUnobservable);
    return f ? f->saw : "";
  };
  Image image;
  EXPECT_EQ(reason(image, "pctx.publish.memfd-name"), "");
  image.calls_dropped = 1;
  // These are of the levels syscalls, stores and steps, or about what is known of a child's memory.
  for (const char* id : {"pctx.publish.memfd-name", "pctx.update.zero-timestamp-first",
                         "pctx.publish.timestamp-last", "pctx.update.fence-after-zero",
                         "pctx.fork.child-has-none", "pctx.update.same-mapping"}) {
    EXPECT_EQ(reason(image, id), "1 system call was not kept: there were too many") << id;
  }
  for (const char* id : {"pctx.header.signature", "pctx.update.no-mixed-read", "tctx.attrs.utf8"}) {
    EXPECT_EQ(reason(image, id), "") << id;
  }
  image.other_calls_dropped = 2;
  EXPECT_EQ(reason(image, "pctx.publish.memfd-name").substr(0, 8), "1 system");
  for (const char* id : {"pctx.publish.existing-becomes-update", "pctx.update.same-mapping",
                         "pctx.update.old-payload-until-zero"}) {
    EXPECT_EQ(reason(image, id).substr(0, 8), "3 system") << id;
  }
}

TEST(Judge, APayloadThatWasNotKeptIsOneThatWasNotJudged) {
  LiteralRecording r;
  Candidate c =
      mapped_header(0x7f0000000000, "/memfd:OTEL_CTX (deleted)", header_bytes(77, 0x5000));
  c.stable = true;
  c.memory.push_back(payload_block(0x5000));
  Snapshot s;
  s.candidates = {c};
  s.first_seen_ns = s.last_seen_ns = r.now;
  r.image().snapshots = {s};
  EXPECT_EQ(judge(r.t, all_requirements()).incomplete, "");
  constexpr std::uint32_t kBytes = 0xffffffff;
  auto& memory = r.image().snapshots[0].candidates[0].memory;
  std::memcpy(memory[0].bytes.data() + offsetof(abi::ProcessHeader, payload_size), &kBytes,
              sizeof kBytes);
  memory[1].wanted = kBytes;
  memory[1].readable = kMostPayload;
  EXPECT_EQ(
      judge(r.t, all_requirements()).incomplete,
      "a payload of up to 4294967295 bytes was not judged: only 64 MiB of large ones are kept");
  // What cannot be copied is another matter, which a requirement tells.
  memory[1].readable = 2;
  EXPECT_EQ(judge(r.t, all_requirements()).incomplete, "");
}

TEST(Judge, ANamedProcessThatPublishedNothingIsOneThatWasNotJudged) {
  Timeline t;
  t.mode = Mode::kAttach;
  t.target = {"12", "13", "14"};
  t.processes = {process(12, {kEmptyButValid}), process(13, {}), process(14, {})};
  const auto incomplete = [&] { return judge(t, all_requirements()).incomplete; };
  EXPECT_EQ(incomplete(),
            "process 13 and 1 more: neither a context nor otel_thread_ctx_v1 was seen");
  t.processes[2].images[0].modules.emplace_back().dynamic_symbols.emplace_back();
  EXPECT_EQ(incomplete(), "process 13: neither a context nor otel_thread_ctx_v1 was seen");
  // It published before an exec.
  auto published = process(13, {kEmptyButValid}).images[0];
  t.processes[1].images.insert(t.processes[1].images.begin(), std::move(published));
  t.processes[1].images[1].key.image = 1;
  EXPECT_EQ(incomplete(), "");
  t.processes[1] = process(13, {});
  t.target = {"--all"};
  EXPECT_EQ(incomplete(), "");
  t.mode = Mode::kWrap;
  t.target = {"program"};
  EXPECT_EQ(incomplete(), "");
}

TEST(Judge, EachSelectedRequirementHasAResultWithAReason) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid})};
  const auto requirements = all_requirements();
  const RunResult run = judge(t, requirements);
  ASSERT_EQ(run.results.size(), requirements.size());
  for (const auto& r : run.results) {
    ASSERT_FALSE(r.findings.empty()) << r.requirement->id;
    for (const auto& f : r.findings) {
      EXPECT_EQ(f.requirement, r.requirement->id);
      if (f.outcome == Outcome::kUnobservable) {
        EXPECT_FALSE(f.saw.empty()) << f.requirement;
        EXPECT_FALSE(f.remedy.empty()) << f.requirement;
      }
      if (f.outcome == Outcome::kNa) {
        EXPECT_FALSE(f.saw.empty()) << f.requirement;
      }
    }
  }
}

TEST(Judge, TheReadingOfStepsMakesTheOutcomeOfWhatNoReaderNotices) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid})};
  t.processes[0].images[0].snapshots[0].candidates[0].entries[0].executable = true;
  const auto outcome = [](const RunResult& run) {
    return requirement(run, "pctx.publish.mapping-protection").outcome;
  };
  EXPECT_EQ(judge(t, all_requirements()).reading, Reading::kReaderVisible);
  EXPECT_EQ(outcome(judge(t, all_requirements())), Outcome::kWarn);
  t.reading = Reading::kStrict;
  // A recording remembers it.
  const auto again = timeline_from_json(to_json(t));
  ASSERT_TRUE(again) << sys::to_string(again.error());
  EXPECT_EQ(judge(*again, all_requirements()).reading, Reading::kStrict);
  EXPECT_EQ(outcome(judge(*again, all_requirements())), Outcome::kFail);
}

TEST(Judge, SeverityMakesTheOutcome) {
  auto wrong = kEmptyButValid;
  Timeline t;
  t.processes = {process(12, {wrong})};
  t.processes[0].images[0].snapshots[0].candidates[0].entries[0].shared = true;
  t.processes[0].images[0].snapshots[0].candidates[0].entries[0].executable = true;
  const RunResult run = judge(t, all_requirements());
  EXPECT_EQ(requirement(run, "pctx.publish.mapping-private").outcome, Outcome::kFail);
  EXPECT_EQ(requirement(run, "pctx.publish.mapping-protection").outcome, Outcome::kWarn);
  EXPECT_EQ(requirement(run, "pctx.publish.fields-nonzero").outcome, Outcome::kWarn);
}

TEST(Judge, TheWorstImageDecidesAndStandsFirst) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid}), process(13, {kEmptyButValid})};
  t.processes[1].images[0].snapshots[0].candidates[0].entries[0].shared = true;
  const RunResult run = judge(t, all_requirements());
  const auto& r = requirement(run, "pctx.publish.mapping-private");
  EXPECT_EQ(r.outcome, Outcome::kFail);
  ASSERT_EQ(r.findings.size(), 2U);
  EXPECT_EQ(r.findings[0].image.pid, 13);
  EXPECT_EQ(r.findings[1].outcome, Outcome::kPass);
}

TEST(Judge, RequirementsOfOtherModesDoNotApply) {
  Timeline t;
  t.mode = Mode::kAttach;
  t.processes = {process(12, {kEmptyButValid})};
  const RunResult run = judge(t, all_requirements());
  const auto& r = requirement(run, "pctx.header.timestamp-nanoseconds");
  EXPECT_EQ(r.outcome, Outcome::kNa);
  EXPECT_EQ(r.findings[0].na_reason, NaReason::kMode);
}

TEST(Judge, SaysHowDeepAModeLooks) {
  Timeline t;
  t.processes = {process(12, {kEmptyButValid})};
  const RunResult wrapped = judge(t, all_requirements());
  EXPECT_EQ(wrapped.level, "stores");
  for (const auto& r : wrapped.results) {
    EXPECT_EQ(r.findings[0].saw.find("needs level syscalls"), std::string::npos)
        << r.requirement->id;
  }
  t.mode = Mode::kAttach;
  EXPECT_EQ(judge(t, all_requirements()).level, "snapshot");
}

TEST(Judge, SaysHowDeepWrapLookedIndeed) {
  Timeline t;
  t.mode = Mode::kWrap;
  t.processes = {process(12, {kEmptyButValid})};
  Image& image = t.processes[0].images[0];
  Selection of_threads;
  of_threads.only = {"tctx.*"};
  const auto threads = select(Catalogue::builtin(), of_threads);
  ASSERT_TRUE(threads);
  image.stores_unseen = "the slot and the record of each thread were watched instead of the header";
  image.slot_steps_unseen = "no thread stored to its variable or record while it was watched";
  EXPECT_EQ(judge(t, *threads).level, "snapshot");
  EXPECT_EQ(judge(t, all_requirements()).level, "syscalls");
  image.calls_unseen = "this host has no system call filter for tracers";
  EXPECT_EQ(judge(t, all_requirements()).level, "snapshot");
  image.slot_step_traces.emplace_back().over = true;
  EXPECT_EQ(judge(t, *threads).level, "steps");
}

TEST(Judge, ADeathThatIsNotOursIsACrash) {
  Timeline t;
  t.processes = {process(12, {}), process(13, {kEmptyButValid}), process(14, {})};
  t.processes[0].killed_by = SIGTERM;
  t.processes[0].ended_by_us = true;
  t.processes[1].killed_by = SIGKILL;  // its parent may do that
  t.processes[2].killed_by = SIGSEGV;  // it never published
  EXPECT_TRUE(judge(t, all_requirements()).problems.empty());
  t.processes[1].killed_by = SIGSEGV;
  ASSERT_EQ(judge(t, all_requirements()).problems.size(), 1U);
  EXPECT_EQ(judge(t, all_requirements()).problems[0].outcome, Outcome::kCrash);
  t.processes[0].ended_by_us = false;
  EXPECT_EQ(judge(t, all_requirements()).problems.size(), 2U);
}

TEST(Judge, ARunawayIsATimeout) {
  Timeline t;
  t.processes = {process(12, {})};
  t.hang = "started 20001 processes";
  const RunResult run = judge(t, all_requirements());
  ASSERT_EQ(run.problems.size(), 1U);
  EXPECT_EQ(run.problems[0].outcome, Outcome::kTimeout);
}

Timeline two_sessions_of_one_pid() {
  Timeline t;
  t.mode = Mode::kRun;
  for (const std::uint32_t number : {1, 2}) {
    Process& p = t.processes.emplace_back(process(12, {kEmptyButValid}));
    p.session = p.images[0].key.session = number;
    Session& s = t.sessions.emplace_back();
    s.group = "group " + std::to_string(number);
    s.root = p.images[0].key;
    s.hello = R"({"id":1,"ok":true,"caps":{}})";
    s.checks.emplace_back().name = "hello";
    Operation& o = s.operations.emplace_back();
    o.after.emplace_back().image = s.root;
    o.after[0].snapshot = 0;
  }
  return t;
}

TEST(Judge, TellsSessionsApartThatHadOnePid) {
  const Timeline recorded = two_sessions_of_one_pid();
  const auto read = timeline_from_json(to_json(recorded));
  ASSERT_TRUE(read) << sys::to_string(read.error());
  for (const Timeline* t : {&recorded, &*read}) {
    const auto evidence = evidence_of(*t);
    ASSERT_EQ(evidence.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_NE(evidence[i].session, nullptr);
      EXPECT_EQ(evidence[i].session->session, &t->sessions[i]);
      EXPECT_EQ(evidence[i].session->image(t->sessions[i].operations[0].after[0].image),
                &evidence[i]);
    }
  }
}

TEST(Judge, RefusesSessionsThatShareANumber) {
  Timeline t = two_sessions_of_one_pid();
  t.sessions[1].root.session = 1;
  const auto read = timeline_from_json(to_json(t));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().detail.find("share a number"), std::string::npos) << read.error().detail;
}

// Two findings of one requirement about faults: that of the first process is of `kind`.
std::vector<std::string> settled(FindingKind kind) {
  Timeline t;
  t.cells.emplace_back().session = 1;
  Finding none = unobservable("in other words", "another fault");
  none.kind = kind;
  Finding died = unobservable("the program died", "a program that survives this fault");
  died.image.session = 1;
  Told told;
  const auto result = settle(t, {}, *Catalogue::builtin().find("pctx.publish.failure-madvise"),
                             std::nullopt, {none, died}, told);
  std::vector<std::string> out;
  out.reserve(result.findings.size());
  for (const Finding& f : result.findings) out.push_back(f.saw);
  return out;
}

TEST(Judge, ThatNoCallFailedSaysNothingAgainstAnotherReasonInWhateverWords) {
  EXPECT_EQ(settled(FindingKind::kNoSuchFault), std::vector<std::string>{"the program died"});
  EXPECT_EQ(settled(FindingKind::kOther),
            (std::vector<std::string>{"in other words", "the program died"}));
}

TEST(Judge, ADeathThatARuleExplainsIsToldOnceInWhateverWords) {
  const auto count = [](FindingKind kind) {
    Timeline t;
    t.mode = Mode::kRun;
    Session& s = t.sessions.emplace_back();
    s.root = {12, 0, 1};
    CheckRun& check = s.checks.emplace_back();
    check.requirements = {"pctx.publish.failure-madvise"};
    check.ending = CheckEnding::kCrash;
    Finding rules = failed("SIGSEGV ended the program", "in other words");
    rules.image = s.root;
    rules.kind = kind;
    Told told;
    return settle(t, {}, *Catalogue::builtin().find("pctx.publish.failure-madvise"), std::nullopt,
                  {rules}, told)
        .findings.size();
  };
  EXPECT_EQ(count(FindingKind::kDiedOfFault), 1U);
  EXPECT_EQ(count(FindingKind::kOther), 2U);
}

TEST(Judge, SaysWhichResultsNeedNoContext) {
  Timeline t;
  t.processes = {process(12, {})};
  std::vector<std::string> without;
  for (const RequirementResult& r : judge(t, all_requirements()).results) {
    if (r.holds_without_context) without.push_back(r.requirement->id);
  }
  EXPECT_EQ(without, (std::vector<std::string>{"pctx.publish.survives-total-denial",
                                               "pctx.publish.survives-file-size-limit"}));
}

TEST(Judge, AProblemThatIsHarmHasTheWordsOfTheScene) {
  Timeline t;
  t.mode = Mode::kReader;
  Session& s = t.sessions.emplace_back();
  s.group = "targets";
  CheckRun& scene = s.checks.emplace_back();
  scene.name = "stopped";
  scene.harm = "left its target stopped";
  const RunResult run = judge(t, {});
  ASSERT_EQ(run.problems.size(), 1U);
  EXPECT_EQ(run.problems[0].harm, "left its target stopped");
  EXPECT_EQ(run.problems[0].text, "the reader left its target stopped; in targets/stopped");
}

TEST(Judge, AFaultOfOursIsAProblemNextToWhatWasRecorded) {
  Timeline t = two_sessions_of_one_pid();
  t.harness_fault = "pipe: Too many open files";
  const auto read = timeline_from_json(to_json(t));
  ASSERT_TRUE(read) << sys::to_string(read.error());
  const RunResult run = judge(*read, all_requirements());
  ASSERT_EQ(run.problems.size(), 1U);
  EXPECT_EQ(run.problems[0].outcome, Outcome::kHarnessError);
  EXPECT_NE(run.problems[0].text.find("Too many open files"), std::string::npos);
  EXPECT_EQ(requirement(run, "pctx.header.version").outcome, Outcome::kPass);
}

}  // namespace
}  // namespace ctxconf::conformance
