// The rules about calls that fail and clocks against literal recordings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/judge/judge.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSeal = 8;  // MFD_NOEXEC_SEAL
constexpr std::uint64_t kKept = 3;  // MFD_CLOEXEC | MFD_ALLOW_SEALING

std::vector<std::byte> inline_header(std::uint64_t timestamp) {
  return header_bytes(timestamp, kMapping + 64);
}

struct FaultRecording : LiteralRecording {
  // Fault injection chose the result of the last call.
  FaultRecording& injected() {
    SystemCall& c = image().calls.back();
    c.injected = true;
    t.injections.push_back({c.name, c.name, *c.result, 1});
    return *this;
  }
  FaultRecording& memfd(std::uint64_t flags, std::int64_t result) {
    call("memfd_create", {0x1000, flags}, result).text = "OTEL_CTX";
    return *this;
  }
  FaultRecording& sized(std::int64_t result = 0) {
    call("ftruncate", {3, kPage}, result).file = "/memfd:OTEL_CTX (deleted)";
    return *this;
  }
  FaultRecording& mapped(std::int64_t result = static_cast<std::int64_t>(kMapping)) {
    call("mmap", {0, kPage, 3, MAP_PRIVATE, 3, 0}, result).file = "/memfd:OTEL_CTX (deleted)";
    return *this;
  }
  FaultRecording& anonymous(std::int64_t result = static_cast<std::int64_t>(kMapping)) {
    call("mmap", {0, kPage, 3, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0}, result);
    return *this;
  }
  FaultRecording& marked(std::int64_t result = 0) {
    call("madvise", {kMapping, kPage, MADV_DONTFORK}, result);
    return *this;
  }
  FaultRecording& named(std::uint64_t timestamp, std::int64_t result = -EINVAL) {
    SystemCall& c = call("prctl", {kNaming, 0, kMapping, kPage, 0x2000}, result);
    c.text = "OTEL_CTX";
    c.before = c.after = inline_header(timestamp);
    return *this;
  }
  // It comes `after_ns` after the call before it.
  FaultRecording& unmapped(std::uint64_t after_ns) {
    now += after_ns - 1'000'000;
    call("munmap", {kMapping, kPage}, 0);
    return *this;
  }
  FaultRecording& stored(std::vector<std::byte> before, std::vector<std::byte> after,
                         std::uint64_t after_ns = 1'000'000) {
    Store store;
    store.tid = 12;
    store.order = ++order;
    store.at_ns = now += after_ns;
    store.header = kMapping;
    store.words = 15;
    store.before = std::move(before);
    store.after = std::move(after);
    image().stores.push_back(std::move(store));
    return *this;
  }
  FaultRecording& zeroed(std::uint64_t timestamp, std::uint64_t after_ns) {
    return stored(inline_header(timestamp), inline_header(0), after_ns);
  }
  FaultRecording& clock(std::uint64_t id, std::uint64_t ns) {
    t.clock_calls = true;
    call("clock_gettime", {id, 0x3000}, 0).clock_ns = ns;
    return *this;
  }
  FaultRecording& seen(std::vector<std::byte> head, std::vector<Moment> moments,
                       std::string name = "/memfd:OTEL_CTX (deleted)") {
    Snapshot s;
    s.moment = moments.front();
    s.moments = std::move(moments);
    s.first_seen_ns = now += 1'000'000;
    s.last_seen_ns = now += 1'000'000;
    Candidate c = mapped_header(kMapping, std::move(name), std::move(head));
    c.memory.push_back(payload_block(kMapping + 64));
    s.candidates = {c};
    image().snapshots.push_back(std::move(s));
    return *this;
  }
  FaultRecording& nothing_seen(std::uint64_t for_ns) {
    Snapshot s;
    s.moments = {Moment::kPeriodic};
    s.first_seen_ns = now += 1'000'000;
    s.last_seen_ns = now += for_ns;
    image().snapshots.push_back(std::move(s));
    return *this;
  }
  FaultRecording& dies(int signo) {
    process().exit_code.reset();
    process().killed_by = signo;
    return *this;
  }
  FaultRecording& host_names(bool available) {
    t.host.push_back({std::string(sys::kHostAnonVmaName), available, "", ""});
    return *this;
  }
  // The usual way to a context with timestamp 1.
  FaultRecording& published() {
    return memfd(kKept | kSeal, 3)
        .sized()
        .mapped()
        .marked()
        .named(1)
        .seen(inline_header(1), {Moment::kPeriodic});
  }

  Finding judge(std::string_view id) const {
    const auto all = evidence_of(t);
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    EXPECT_EQ(all.size(), 1U);
    return rule == nullptr || all.empty() ? Finding{} : rule->rule(all.front());
  }
  Outcome outcome(std::string_view id) const { return judge(id).outcome; }
};

TEST(FaultRules, WithoutFaultsTheySayWhatTheyNeed) {
  FaultRecording r;
  r.published();
  for (const auto& rule : fault_rules()) {
    const Finding f = r.judge(rule.id);
    EXPECT_EQ(f.level, "syscalls");
    if (rule.id == "pctx.publish.name-failure-ignored") {
      EXPECT_EQ(f.outcome, Outcome::kPass) << "the host itself refused the name";
      continue;
    }
    EXPECT_EQ(f.outcome, Outcome::kUnobservable) << rule.id;
    EXPECT_TRUE(f.remedy.contains("--inject") || f.remedy.contains("--hide-vdso"))
        << rule.id << ": " << f.remedy;
  }
}

TEST(FaultRules, OnlyRequirementsThatHoldUnderFaultsAreJudged) {
  FaultRecording r;
  r.memfd(kKept | kSeal, -EINVAL).injected();
  r.memfd(kKept, 3).sized().mapped().named(1).seen(inline_header(1), {Moment::kPeriodic});
  const auto requirements = select(Catalogue::builtin(), Selection{});
  ASSERT_TRUE(requirements);
  const RunResult run = judge(r.t, *requirements);
  const auto outcome = [&](std::string_view id) {
    const auto it = std::ranges::find_if(
        run.results, [&](const RequirementResult& x) { return x.requirement->id == id; });
    return it == run.results.end() ? Outcome::kHarnessError : it->outcome;
  };
  EXPECT_EQ(outcome("pctx.publish.memfd-retry"), Outcome::kPass);
  EXPECT_EQ(outcome("pctx.header.signature"), Outcome::kPass);
  EXPECT_EQ(outcome("pctx.fork.dontfork"), Outcome::kUnobservable);
  EXPECT_EQ(outcome("pctx.publish.memfd-flags"), Outcome::kUnobservable);
  EXPECT_EQ(run.injections, std::vector<std::string>{"memfd_create, 1 time"});
}

constexpr const char* kSchemaVersion = "tctx.refdata.schema-version-present";

// The outcome for a thread that has a record, while the context has no reference data.
Outcome schema_version_outcome(FaultRecording r) {
  ThreadSample s;
  s.tid = 12;
  s.slot = 0x7f1100000010;
  s.value = kMapping + 1024;
  s.first_seen_ns = r.now;
  s.last_seen_ns = r.now + 1;
  MemoryBlock record;
  record.at = sys::RemoteAddr(s.value);
  record.bytes.resize(sizeof(abi::ThreadRecordHead), std::byte{1});
  record.bytes[26] = record.bytes[27] = std::byte{0};  // no attributes
  record.wanted = record.readable = record.bytes.size();
  s.record = record;
  r.image().threads = {s};
  return judge(r.t, {Catalogue::builtin().find(kSchemaVersion)}).results.front().outcome;
}

TEST(FaultRules, ReferenceDataIsJudgedUnderAFaultThatLeavesThePublication) {
  const auto retries = [] {
    FaultRecording r;
    return r.memfd(kKept | kSeal, -EINVAL).injected().memfd(kKept, 3).sized().mapped().marked();
  };
  const auto end = [](FaultRecording r) { return r.seen(inline_header(1), {Moment::kExit}); };
  EXPECT_EQ(schema_version_outcome(end(retries().named(1))), Outcome::kFail);
  EXPECT_EQ(schema_version_outcome(end(retries().named(1).injected())), Outcome::kFail);
  FaultRecording falls_back;
  falls_back.memfd(kKept | kSeal, -EPERM).injected().memfd(kKept, -EPERM).injected();
  falls_back.anonymous().marked().named(1).seen(inline_header(1), {Moment::kExit});
  EXPECT_EQ(schema_version_outcome(falls_back), Outcome::kFail);
  FaultRecording no_map;
  no_map.memfd(kKept, 3).sized().mapped(-ENOMEM).injected().anonymous().marked().named(1);
  EXPECT_EQ(schema_version_outcome(end(no_map)), Outcome::kFail);
  FaultRecording another_clock;
  another_clock.memfd(kKept, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 1).injected();
  another_clock.clock(CLOCK_MONOTONIC, 1).named(1);
  EXPECT_EQ(schema_version_outcome(end(another_clock)), Outcome::kFail);
  FaultRecording updates;
  updates.published().named(2).injected().seen(inline_header(2), {Moment::kExit});
  EXPECT_EQ(schema_version_outcome(updates), Outcome::kFail);
}

TEST(FaultRules, ReferenceDataThatAFaultMayHaveRefusedIsNotMissed) {
  FaultRecording nothing;
  nothing.memfd(kKept | kSeal, 3).sized(-ENOSPC).injected();
  EXPECT_EQ(schema_version_outcome(nothing), Outcome::kUnobservable);
  // A program that begins again may have had another first content.
  FaultRecording again;
  again.memfd(kKept | kSeal, -EMFILE).injected().published();
  EXPECT_EQ(schema_version_outcome(again), Outcome::kUnobservable);
  again = {};
  again.memfd(kKept | kSeal, 3).sized(-ENOSPC).injected().published();
  EXPECT_EQ(schema_version_outcome(again), Outcome::kUnobservable);
  again = {};
  again.clock(CLOCK_BOOTTIME, 1).injected().clock(CLOCK_BOOTTIME, 2).published();
  EXPECT_EQ(schema_version_outcome(again), Outcome::kUnobservable);
  FaultRecording another_thread;
  another_thread.memfd(kKept | kSeal, -EINVAL).injected().image().calls.back().tid = 13;
  another_thread.memfd(kKept, 3).sized().mapped().marked().named(1);
  another_thread.seen(inline_header(1), {Moment::kExit});
  EXPECT_EQ(schema_version_outcome(another_thread), Outcome::kUnobservable);
  FaultRecording refused_update;
  refused_update.published()
      .clock(CLOCK_BOOTTIME, 1)
      .injected()
      .seen(inline_header(1), {Moment::kExit});
  EXPECT_EQ(schema_version_outcome(refused_update), Outcome::kUnobservable);
  FaultRecording given_up;
  given_up.published().injected();
  given_up.seen(kBlank, {Moment::kExit});
  EXPECT_EQ(schema_version_outcome(given_up), Outcome::kUnobservable);
  FaultRecording half_seen;
  half_seen.published().named(2).injected().seen(inline_header(2), {Moment::kExit});
  half_seen.image().calls_dropped = 1;
  EXPECT_EQ(schema_version_outcome(half_seen), Outcome::kUnobservable);
}

TEST(FaultRules, ReferenceDataThatWasPublishedIsJudgedUnderEachFault) {
  FaultRecording r;
  r.published().clock(CLOCK_BOOTTIME, 1).injected();
  const auto all = evidence_of(r.t);
  ASSERT_EQ(all.size(), 1U);
  const auto is_judged = [&](const std::string& id) {
    return is_judged_under_faults(*rule_of(id), all.front());
  };
  for (const char* requirement : {"in-attributes", "schema-version-string", "key-map-array",
                                  "key-map-strings", "key-map-names-usable"}) {
    EXPECT_TRUE(is_judged(std::string("tctx.refdata.") + requirement)) << requirement;
  }
  for (const char* requirement : {"schema-version-present", "schema-version-value",
                                  "key-map-present", "before-first-record"}) {
    EXPECT_FALSE(is_judged(std::string("tctx.refdata.") + requirement)) << requirement;
  }
  EXPECT_TRUE(is_judged("tctx.record.layout"));
}

TEST(FaultRules, AnUpdateHasToShowWhateverTheClockSays) {
  const auto is_judged = [](const FaultRecording& r) {
    const auto all = evidence_of(r.t);
    return is_judged_under_faults(*rule_of("pctx.update.visible"), all.front());
  };
  FaultRecording r;
  r.published().clock(CLOCK_BOOTTIME, 1).injected();
  EXPECT_TRUE(is_judged(r));
  r.named(2).injected();
  EXPECT_FALSE(is_judged(r));
}

TEST(FaultRules, AFaultThatNeverHappenedIsSaid) {
  FaultRecording r;
  r.published();
  r.t.injections.push_back({"mremap:error=ENOMEM", "mremap", -ENOMEM, 0});
  const RunResult run = judge(r.t, {});
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_THAT(run.notes.front(), HasSubstr("mremap:error=ENOMEM was never applied"));
}

TEST(FaultRules, ADeathThatARequirementReportsIsNotASecondProblem) {
  FaultRecording r;
  r.memfd(kKept | kSeal, 3).sized(-ENOSPC).injected().mapped().dies(SIGBUS);
  const auto* requirement = Catalogue::builtin().find("pctx.publish.failure-ftruncate");
  ASSERT_NE(requirement, nullptr);
  const RunResult run = judge(r.t, {requirement});
  EXPECT_EQ(run.results.front().outcome, Outcome::kFail);
  EXPECT_TRUE(run.problems.empty());
  EXPECT_EQ(judge(r.t, {Catalogue::builtin().find("pctx.header.version")}).problems.size(), 1U);
}

TEST(MemfdRetry, WantsASecondAttemptWithoutTheSeal) {
  FaultRecording good;
  good.memfd(kKept | kSeal, -EINVAL).injected().memfd(kKept, 3).sized().mapped();
  EXPECT_EQ(good.outcome("pctx.publish.memfd-retry"), Outcome::kPass);
  EXPECT_EQ(good.outcome("pctx.publish.memfd-retry-flags"), Outcome::kPass);

  FaultRecording straight;
  straight.memfd(kKept | kSeal, -EINVAL).injected().anonymous();
  EXPECT_EQ(straight.outcome("pctx.publish.memfd-retry"), Outcome::kFail);
  EXPECT_EQ(straight.outcome("pctx.publish.memfd-retry-flags"), Outcome::kUnobservable);

  FaultRecording same;
  same.memfd(kKept | kSeal, -EINVAL).injected().memfd(kKept | kSeal, 3).sized().mapped();
  EXPECT_EQ(same.outcome("pctx.publish.memfd-retry"), Outcome::kFail);

  FaultRecording unused;
  unused.memfd(kKept | kSeal, -EINVAL).injected().memfd(kKept, 3);
  EXPECT_EQ(unused.outcome("pctx.publish.memfd-retry"), Outcome::kFail);

  FaultRecording denied;
  denied.memfd(kKept | kSeal, -EPERM).injected().anonymous();
  EXPECT_EQ(denied.outcome("pctx.publish.memfd-retry"), Outcome::kInfo);
}

TEST(MemfdRetry, SaysNothingOfAProgramThatWasKilledMeanwhile) {
  FaultRecording r;
  r.memfd(kKept | kSeal, -EINVAL).injected().dies(SIGKILL);
  EXPECT_EQ(r.outcome("pctx.publish.memfd-retry"), Outcome::kUnobservable);
}

TEST(MemfdRetryFlags, KeepCloseOnExecAndSealing) {
  FaultRecording none;
  none.memfd(kKept | kSeal, -EINVAL).injected().memfd(0, 3).sized().mapped();
  EXPECT_EQ(none.outcome("pctx.publish.memfd-retry-flags"), Outcome::kFail);
  FaultRecording more;
  more.memfd(kKept | kSeal, -EINVAL).injected().memfd(kKept | 0x10, 3).sized().mapped();
  EXPECT_EQ(more.outcome("pctx.publish.memfd-retry-flags"), Outcome::kInfo);
}

TEST(FallbackAnon, IsProvenByANameForAValidHeader) {
  FaultRecording r;
  r.host_names(true).memfd(kKept | kSeal, -EPERM).injected().memfd(kKept, -EPERM).injected();
  r.anonymous().marked().named(1, 0);
  EXPECT_EQ(r.outcome("pctx.publish.fallback-anon"), Outcome::kPass);
  EXPECT_EQ(r.outcome("pctx.publish.fallback-anon-exhausted"), Outcome::kUnobservable);
}

TEST(FallbackAnon, IsMissedOnlyWhereMemoryCanBeNamed) {
  FaultRecording r;
  r.host_names(true).memfd(kKept | kSeal, -EPERM).injected();
  EXPECT_EQ(r.outcome("pctx.publish.fallback-anon"), Outcome::kFail);
  FaultRecording exhausted;
  exhausted.host_names(true).memfd(kKept | kSeal, -EMFILE).injected();
  EXPECT_EQ(exhausted.outcome("pctx.publish.fallback-anon-exhausted"), Outcome::kFail);
  EXPECT_EQ(exhausted.outcome("pctx.publish.fallback-anon"), Outcome::kUnobservable);
  FaultRecording nameless;
  nameless.host_names(false).memfd(kKept | kSeal, -EPERM).injected();
  EXPECT_EQ(nameless.outcome("pctx.publish.fallback-anon"), Outcome::kUnobservable);
  FaultRecording refused = r;
  refused.t.injections.push_back({"prctl", "prctl", -EINVAL, 0});
  EXPECT_EQ(refused.outcome("pctx.publish.fallback-anon"), Outcome::kUnobservable);
}

TEST(FallbackAnon, IsNotNeededWhenALaterMemfdWorks) {
  FaultRecording r;
  r.host_names(true).memfd(kKept | kSeal, -EMFILE).injected().memfd(kKept, 3).sized().mapped();
  EXPECT_EQ(r.outcome("pctx.publish.fallback-anon-exhausted"), Outcome::kPass);
}

FaultRecording refused_name() {
  FaultRecording r;
  r.memfd(kKept | kSeal, 3).sized().mapped().marked().named(1, -EPERM).injected();
  return r;
}

TEST(NameFailureIgnored, WantsTheContextToStay) {
  constexpr std::string_view kRequirement = "pctx.publish.name-failure-ignored";
  EXPECT_EQ(refused_name().unmapped(100'000).nothing_seen(2'500'000'000).outcome(kRequirement),
            Outcome::kFail);
  EXPECT_EQ(refused_name().zeroed(1, 100'000).nothing_seen(2'500'000'000).outcome(kRequirement),
            Outcome::kFail);
  EXPECT_EQ(refused_name().unmapped(100'000).nothing_seen(500'000'000).outcome(kRequirement),
            Outcome::kUnobservable);
  FaultRecording in_passing = refused_name();
  in_passing.seen(inline_header(1), {Moment::kNaming, Moment::kPeriodic, Moment::kNamed});
  in_passing.image().snapshots.push_back(in_passing.image().snapshots.back());
  in_passing.image().snapshots.back().moments = {Moment::kNaming, Moment::kNamed};
  in_passing.unmapped(100'000);
  EXPECT_EQ(in_passing.nothing_seen(2'500'000'000).outcome(kRequirement), Outcome::kFail)
      << "the look itself took time";
}

TEST(NameFailureIgnored, AContextThatIsTakenAwayLaterMayHaveServedItsTime) {
  constexpr std::string_view kRequirement = "pctx.publish.name-failure-ignored";
  const auto outcome = [&](FaultRecording r) {
    return r.nothing_seen(2'500'000'000).outcome(kRequirement);
  };
  EXPECT_EQ(outcome(refused_name()), Outcome::kUnobservable);
  EXPECT_EQ(outcome(refused_name().unmapped(5'000'000)), Outcome::kUnobservable);
  EXPECT_EQ(outcome(refused_name().zeroed(1, 5'000'000).unmapped(100'000)), Outcome::kUnobservable);
  FaultRecording elsewhere = refused_name().unmapped(100'000);
  elsewhere.image().calls.back().tid = 13;
  EXPECT_EQ(outcome(elsewhere), Outcome::kUnobservable);
  FaultRecording busy = refused_name();
  busy.call("madvise", {0x1000, kPage, MADV_DONTFORK}, 0);
  EXPECT_EQ(outcome(busy.unmapped(100'000)), Outcome::kUnobservable);
}

TEST(NameFailureIgnored, WhatCameFirstMayNotHaveBeenKept) {
  constexpr std::string_view kRequirement = "pctx.publish.name-failure-ignored";
  const auto finding = [&](std::uint64_t Image::* dropped) {
    FaultRecording r = refused_name();
    if (dropped != nullptr) r.image().*dropped = 1;
    return r.unmapped(100'000).nothing_seen(2'500'000'000).judge(kRequirement);
  };
  EXPECT_EQ(finding(nullptr).outcome, Outcome::kFail);
  for (const auto dropped : {&Image::calls_dropped, &Image::other_calls_dropped,
                             &Image::stores_dropped, &Image::snapshots_dropped}) {
    const Finding f = finding(dropped);
    EXPECT_EQ(f.outcome, Outcome::kUnobservable);
    EXPECT_THAT(f.saw, HasSubstr("kept"));
  }
  // An update frees its old payload. If only this call is missing, the next store looks like the
  // first thing.
  FaultRecording updated = refused_name();
  updated.now -= 900'000;
  updated.call("munmap", {kMapping + 4 * kPage, kPage}, 0);
  updated.zeroed(1, 100'000).nothing_seen(2'500'000'000);
  EXPECT_EQ(updated.outcome(kRequirement), Outcome::kUnobservable);
  updated.image().calls.pop_back();
  EXPECT_EQ(updated.outcome(kRequirement), Outcome::kFail);
  updated.image().other_calls_dropped = 1;
  EXPECT_EQ(updated.outcome(kRequirement), Outcome::kUnobservable);
}

TEST(FailureMadvise, NothingMayBePublished) {
  FaultRecording bad;
  bad.memfd(kKept | kSeal, 3).sized().mapped().marked(-EINVAL).injected().named(1);
  bad.seen(inline_header(1), {Moment::kPeriodic, Moment::kExit});
  EXPECT_EQ(bad.outcome("pctx.publish.failure-madvise"), Outcome::kFail);
  EXPECT_EQ(bad.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kPass)
      << "one mistake, one requirement";

  // The mistake is not the call that failed, but to go on.
  const std::uint64_t refused = bad.image().calls[3].entered_order;
  const std::uint64_t named = bad.image().calls[4].entered_order;
  const auto event = [](const FaultRecording& r) {
    return r.judge("pctx.publish.failure-madvise").event.value_or(EventLocation{}).order;
  };
  EXPECT_EQ(event(bad), named);
  FaultRecording stored;
  stored.memfd(kKept | kSeal, 3).sized().mapped().marked(-EINVAL).injected();
  stored.stored(kBlank, inline_header(0)).stored(inline_header(0), inline_header(1)).named(1);
  stored.seen(inline_header(1), {Moment::kPeriodic, Moment::kExit});
  EXPECT_EQ(event(stored), stored.image().stores[1].order);
  bad.image().calls.pop_back();
  EXPECT_EQ(event(bad), refused);

  FaultRecording good;
  good.memfd(kKept | kSeal, 3).sized().mapped().marked(-EINVAL).injected();
  EXPECT_EQ(good.outcome("pctx.publish.failure-madvise"), Outcome::kPass);

  FaultRecording again;
  again.memfd(kKept | kSeal, 3).sized().mapped().marked(-EAGAIN).injected().marked().named(1);
  again.seen(inline_header(1), {Moment::kPeriodic, Moment::kExit});
  EXPECT_EQ(again.outcome("pctx.publish.failure-madvise"), Outcome::kPass);

  FaultRecording blank;
  blank.memfd(kKept | kSeal, 3).sized().mapped().marked(-EINVAL).injected();
  blank.seen(kBlank, {Moment::kExit});
  EXPECT_EQ(blank.outcome("pctx.publish.failure-madvise"), Outcome::kInfo);
}

TEST(FailureMmap, IsLivedThroughWithoutAMemfdLeft) {
  FaultRecording good;
  good.memfd(kKept | kSeal, 3).sized().mapped(-ENOMEM).injected().anonymous(-ENOMEM).injected();
  EXPECT_EQ(good.outcome("pctx.publish.failure-mmap"), Outcome::kPass);
  EXPECT_EQ(good.outcome("pctx.publish.failure-other-steps"), Outcome::kUnobservable);

  FaultRecording dead = good;
  dead.dies(SIGSEGV);
  const Finding f = dead.judge("pctx.publish.failure-mmap");
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_THAT(f.saw, HasSubstr("SIGSEGV"));

  FaultRecording open = good;
  Snapshot s;
  s.moments = {Moment::kExit};
  s.descriptors = {{5, "/memfd:OTEL_CTX (deleted)"}};
  open.image().snapshots.push_back(s);
  EXPECT_EQ(open.outcome("pctx.publish.failure-mmap"), Outcome::kFail);
}

TEST(FailureFtruncate, LeavesNoContextThatCannotBeFound) {
  FaultRecording good;
  good.memfd(kKept | kSeal, 3).sized(-EPERM).injected();
  EXPECT_EQ(good.outcome("pctx.publish.failure-ftruncate"), Outcome::kPass);

  FaultRecording hidden = good;
  hidden.anonymous().marked().named(1).seen(inline_header(1), {Moment::kExit}, "");
  EXPECT_EQ(hidden.outcome("pctx.publish.failure-ftruncate"), Outcome::kUnobservable)
      << "a kernel without names refused it";
  for (const bool by_us : {true, false}) {
    FaultRecording nameless = good;
    nameless.anonymous().marked();
    if (by_us) nameless.named(1).injected();
    nameless.seen(inline_header(1), {Moment::kExit}, "");
    EXPECT_EQ(nameless.outcome("pctx.publish.failure-ftruncate"), Outcome::kWarn);
  }

  FaultRecording anonymous = good;
  anonymous.anonymous().marked().named(1, 0).seen(inline_header(1), {Moment::kExit}, "");
  EXPECT_EQ(anonymous.outcome("pctx.publish.failure-ftruncate"), Outcome::kPass);
}

TEST(FailureOtherSteps, AreLivedThrough) {
  FaultRecording good;
  good.memfd(kKept | kSeal, 3).sized().mapped().marked();
  good.call("clock_gettime", {CLOCK_BOOTTIME, 0x3000}, -EINVAL);
  good.injected();
  EXPECT_EQ(good.outcome("pctx.publish.failure-other-steps"), Outcome::kPass);
  FaultRecording dead = good;
  dead.dies(SIGABRT);
  EXPECT_EQ(dead.outcome("pctx.publish.failure-other-steps"), Outcome::kFail);
  FaultRecording killed = good;
  killed.dies(SIGTERM);
  EXPECT_EQ(killed.outcome("pctx.publish.failure-other-steps"), Outcome::kUnobservable);
  FaultRecording other;
  other.call("clock_gettime", {CLOCK_BOOTTIME, 0x3000}, -EINVAL);
  other.injected();
  EXPECT_EQ(other.outcome("pctx.publish.failure-other-steps"), Outcome::kUnobservable);
  EXPECT_EQ(other.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kUnobservable);
  FaultRecording torn = good;
  torn.seen(inline_header(1), {Moment::kPeriodic, Moment::kExit});
  torn.image().snapshots.back().candidates.front().memory.back().bytes[1] = std::byte{9};
  EXPECT_EQ(torn.outcome("pctx.publish.failure-other-steps"), Outcome::kFail);
}

TEST(FailureLeavesNothingValid, WhatIsLeftTellsWhetherAPublicationWasGivenUp) {
  FaultRecording r;
  r.memfd(kKept | kSeal, 3).sized().mapped().marked();
  r.call("clock_gettime", {CLOCK_BOOTTIME, 0x3000}, -EINVAL);
  r.injected();
  FaultRecording blank = r;
  r.seen(inline_header(1), {Moment::kPeriodic, Moment::kExit});
  EXPECT_EQ(r.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kUnobservable)
      << "it may name nothing at all";
  FaultRecording torn = r;
  torn.image().snapshots.back().candidates.front().memory.back().bytes[1] = std::byte{9};
  EXPECT_EQ(torn.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kFail);
  for (const bool names : {true, false}) {
    FaultRecording without_fault;
    without_fault.memfd(kKept | kSeal, 3).sized().mapped().marked();
    if (names) without_fault.named(1);
    Process first = without_fault.process();
    first.session = 7;
    FaultRecording both = r;
    both.t.processes.push_back(first);
    const auto all = evidence_of(both.t);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(rule_of("pctx.publish.failure-leaves-nothing-valid")->rule(all.front()).outcome,
              names ? Outcome::kFail : Outcome::kPass);
  }
  r.named(1);
  EXPECT_EQ(r.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kPass);
  blank.seen(kBlank, {Moment::kExit});
  EXPECT_EQ(blank.outcome("pctx.publish.failure-leaves-nothing-valid"), Outcome::kInfo);
}

TEST(NoNameAtAll, LeavesNoValidHeader) {
  FaultRecording r;
  r.memfd(kKept | kSeal, -EPERM).injected().anonymous().marked().named(1, -EINVAL).injected();
  EXPECT_EQ(r.outcome("pctx.publish.no-name-at-all"), Outcome::kPass);
  r.seen(inline_header(1), {Moment::kExit}, "");
  EXPECT_EQ(r.outcome("pctx.publish.no-name-at-all"), Outcome::kWarn);
  FaultRecording host;
  host.memfd(kKept | kSeal, -EPERM).injected().anonymous().marked().named(1, -EINVAL);
  host.host_names(false).seen(inline_header(1), {Moment::kExit}, "");
  EXPECT_EQ(host.outcome("pctx.publish.no-name-at-all"), Outcome::kUnobservable)
      << "a verdict is the same on each kernel";
}

TEST(SurvivesTotalDenial, ADeathIsAContradictionAndAStatusIsNot) {
  FaultRecording r;
  r.memfd(kKept | kSeal, -EPERM).injected();
  r.t.injections.push_back({"madvise", "madvise", -EPERM, 0});
  EXPECT_EQ(r.outcome("pctx.publish.survives-total-denial"), Outcome::kUnobservable);
  r.t.injections.push_back({"prctl", "prctl", -EPERM, 0});
  EXPECT_EQ(r.outcome("pctx.publish.survives-total-denial"), Outcome::kPass);
  r.process().exit_code = 3;
  EXPECT_EQ(r.outcome("pctx.publish.survives-total-denial"), Outcome::kUnobservable);
  r.dies(SIGABRT);
  EXPECT_EQ(r.outcome("pctx.publish.survives-total-denial"), Outcome::kFail);
}

TEST(TimestampClock, IsTheOneWhoseReadingWasStored) {
  const auto with_clock = [](std::uint64_t id) {
    FaultRecording r;
    r.memfd(kKept | kSeal, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 77);
    r.clock(id, 5000).named(5000).seen(inline_header(5000), {Moment::kPeriodic});
    return r;
  };
  constexpr std::string_view kRequirement = "pctx.header.timestamp-clock";
  EXPECT_EQ(with_clock(CLOCK_BOOTTIME).outcome(kRequirement), Outcome::kPass);
  EXPECT_EQ(with_clock(CLOCK_MONOTONIC).outcome(kRequirement), Outcome::kFail);
  EXPECT_EQ(with_clock(CLOCK_REALTIME).outcome(kRequirement), Outcome::kFail);
  FaultRecording other = with_clock(CLOCK_REALTIME);
  other.image().calls[5].clock_ns = 5001;
  EXPECT_EQ(other.outcome(kRequirement), Outcome::kUnobservable);
}

TEST(TimestampLater, ComparesTheTimestampsOfUpdates) {
  const auto updated_to = [](std::uint64_t later) {
    FaultRecording r;
    r.memfd(kKept | kSeal, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 5000);
    r.named(5000)
        .seen(inline_header(5000), {Moment::kPeriodic})
        .clock(CLOCK_BOOTTIME, 4000)
        .injected();
    return r.named(later).seen(inline_header(later), {Moment::kPeriodic});
  };
  constexpr std::string_view kRequirement = "pctx.update.timestamp-later";
  EXPECT_EQ(updated_to(5001).outcome(kRequirement), Outcome::kPass);
  EXPECT_EQ(updated_to(4000).outcome(kRequirement), Outcome::kFail);
  EXPECT_EQ(updated_to(5000).outcome(kRequirement), Outcome::kUnobservable);
  EXPECT_EQ(updated_to(5001).outcome("pctx.header.timestamp-clock"), Outcome::kPass);
  FaultRecording untouched = updated_to(4000);
  untouched.image().calls[5].injected = false;
  EXPECT_EQ(untouched.outcome(kRequirement), Outcome::kFail) << "whatever the clock said";
}

TEST(TimestampLater, ARepeatedTimestampOfAnotherMessageDidNotRise) {
  constexpr std::string_view kRequirement = "pctx.update.timestamp-later";
  FaultRecording r;
  r.memfd(kKept | kSeal, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 5000);
  r.named(5000)
      .seen(inline_header(5000), {Moment::kPeriodic})
      .clock(CLOCK_BOOTTIME, 5000)
      .injected();
  r.named(5000);
  EXPECT_EQ(r.outcome(kRequirement), Outcome::kUnobservable) << "the same context, named twice";
  r.image().calls.back().before[12] = std::byte{3};
  EXPECT_EQ(r.outcome(kRequirement), Outcome::kFail);
  for (auto& c : r.image().calls) c.injected = false;
  EXPECT_EQ(r.outcome(kRequirement), Outcome::kUnobservable) << "timestamp-distinct says so";
}

TEST(TimestampLater, AZeroThatIsNamedAndStaysIsNoWithdrawal) {
  constexpr std::string_view kRequirement = "pctx.update.timestamp-later";
  FaultRecording r;
  r.memfd(kKept | kSeal, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 5000);
  r.named(5000).seen(inline_header(5000), {Moment::kPeriodic}).clock(CLOCK_BOOTTIME, 0).injected();
  FaultRecording withdrawn = r;
  withdrawn.seen(inline_header(0), {Moment::kPeriodic, Moment::kExit});
  EXPECT_EQ(withdrawn.outcome(kRequirement), Outcome::kUnobservable);
  r.named(0);
  FaultRecording updated = r;
  EXPECT_EQ(updated.named(5001).seen(inline_header(5001), {Moment::kExit}).outcome(kRequirement),
            Outcome::kPass);
  r.seen(inline_header(0), {Moment::kNaming, Moment::kNamed, Moment::kExit});
  EXPECT_EQ(r.outcome(kRequirement), Outcome::kFail);
  r.image().snapshots.back().first_seen_ns = r.image().calls.back().entered_ns - 1;
  EXPECT_EQ(r.outcome(kRequirement), Outcome::kFail);
}

TEST(TimestampLater, ABlankHeaderBeginsAnotherPublication) {
  constexpr std::string_view kRequirement = "pctx.update.timestamp-later";
  const auto again = [](bool blanked) {
    FaultRecording r;
    r.memfd(kKept | kSeal, 3).sized().mapped().marked().clock(CLOCK_BOOTTIME, 5000);
    r.named(5000).seen(inline_header(5000), {Moment::kPeriodic});
    if (blanked) r.seen(kBlank, {Moment::kPeriodic});
    r.clock(CLOCK_BOOTTIME, 4000).injected();
    return r.named(4000).seen(inline_header(4000), {Moment::kPeriodic, Moment::kExit});
  };
  EXPECT_EQ(again(true).outcome(kRequirement), Outcome::kUnobservable);
  EXPECT_EQ(again(false).outcome(kRequirement), Outcome::kFail);
}

TEST(TimestampLater, GoesByTheStoresWhereTheyAreKnown) {
  constexpr std::string_view kRequirement = "pctx.update.timestamp-later";
  enum class Between { kNothing, kWithdrawal, kSize };
  const auto updated = [](std::uint64_t later, Between between) {
    FaultRecording r;
    r.memfd(kKept | kSeal, 3).sized().mapped().marked().named(5000);
    r.seen(inline_header(5000), {Moment::kPeriodic}).clock(CLOCK_BOOTTIME, 4000).injected();
    Watch w;
    w.header = kMapping;
    w.begin = WatchBegin::kMemfd;
    w.found = inline_header(5000);
    r.image().watches = {w};
    r.stored(inline_header(5000), inline_header(0));
    auto now = inline_header(0);
    if (between == Between::kWithdrawal) r.stored(now, kBlank).stored(kBlank, now);
    if (between == Between::kSize) {
      auto sized = now;
      sized[12] = std::byte{3};
      r.stored(now, sized);
      now = sized;
    }
    auto last = inline_header(later);
    last[12] = now[12];
    r.stored(now, last);
    return r.seen(last, {Moment::kPeriodic, Moment::kExit});
  };
  EXPECT_EQ(updated(5001, Between::kSize).outcome(kRequirement), Outcome::kPass);
  EXPECT_EQ(updated(5000, Between::kSize).outcome(kRequirement), Outcome::kFail);
  EXPECT_EQ(updated(5000, Between::kNothing).outcome(kRequirement), Outcome::kUnobservable);
  EXPECT_EQ(updated(4000, Between::kNothing).outcome(kRequirement), Outcome::kFail);
  EXPECT_EQ(updated(4000, Between::kWithdrawal).outcome(kRequirement), Outcome::kUnobservable);
}

}  // namespace
}  // namespace ctxconf::conformance
