// The rules about system calls against literal recordings: what keeps them, what breaks
// them, and silence.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kMemfdFlags = 1 | 2 | 8;  // of memfd_create

std::vector<std::byte> header(std::uint64_t timestamp) { return header_bytes(timestamp, kHeap); }

struct CallRecording : LiteralRecording {
  std::uint64_t size = kPage;
  bool file = true;  // what maps shows

  CallRecording& memfd(std::uint64_t flags = kMemfdFlags, std::int64_t result = 3,
                       std::string name = "OTEL_CTX") {
    call("memfd_create", {0x1000, flags}, result).text = std::move(name);
    return *this;
  }
  CallRecording& sized(std::uint64_t to = kPage) {
    call("ftruncate", {3, to}, 0).file = "/memfd:OTEL_CTX (deleted)";
    return *this;
  }
  CallRecording& mapped(std::uint64_t bytes = kPage, std::uint64_t at = kMapping) {
    call("mmap", {0, bytes, 3, MAP_PRIVATE, 3, 0}, static_cast<std::int64_t>(at));
    size = std::max(size, bytes);
    return *this;
  }
  CallRecording& marked(std::vector<std::byte> found = kBlank, std::uint64_t at = kMapping) {
    SystemCall& c = call("madvise", {at, size, MADV_DONTFORK}, 0);
    c.before = c.after = std::move(found);
    return *this;
  }
  CallRecording& named(std::vector<std::byte> found, std::uint64_t at = kMapping,
                       std::uint64_t bytes = 0, std::string name = "OTEL_CTX") {
    SystemCall& c = call("prctl", {kNaming, 0, at, bytes == 0 ? size : bytes, 0x2000}, -22);
    c.text = std::move(name);
    c.before = c.after = std::move(found);
    return *this;
  }
  CallRecording& seen(std::vector<std::byte> head, std::uint64_t at = kMapping,
                      Moment moment = Moment::kPeriodic) {
    Snapshot s;
    s.moment = moment;
    s.moments = {moment};
    s.first_seen_ns = s.last_seen_ns = now += 1'000'000;
    Candidate c;
    sys::MapEntry e;
    e.range = *sys::RemoteRange::from_size(sys::RemoteAddr(at), size);
    e.readable = e.writable = true;
    e.inode = file ? 7 : 0;
    e.name = file ? "/memfd:OTEL_CTX (deleted)" : "[anon:OTEL_CTX]";
    c.entries = {e};
    MemoryBlock b;
    b.at = sys::RemoteAddr(at);
    b.wanted = 32;
    b.readable = head.size();
    b.bytes = std::move(head);
    c.memory = {b};
    s.candidates = {c};
    image().snapshots.push_back(std::move(s));
    return *this;
  }
  // The usual way to a context with timestamp 1, without the naming call.
  CallRecording& made() { return memfd().sized().mapped().marked(); }
  CallRecording& published() { return made().named(header(1)).seen(header(1)); }

  Finding judge(std::string_view id) const {
    const auto all = evidence_of(t);
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    EXPECT_EQ(all.size(), 1U);
    return rule == nullptr || all.empty() ? Finding{} : rule->rule(all.front());
  }
};

using Ids = std::vector<std::string>;

Ids failures(const CallRecording& r) {
  Ids out;
  for (const auto& rule : call_rules()) {
    const Finding f = r.judge(rule.id);
    EXPECT_EQ(f.level, "syscalls");
    if (f.outcome == Outcome::kFail || f.outcome == Outcome::kInfo) {
      out.emplace_back(rule.id);
    }
    if (f.outcome == Outcome::kUnobservable) {
      EXPECT_FALSE(f.remedy.empty()) << rule.id;
    }
  }
  return out;
}

Ids silent(const CallRecording& r) {
  Ids out;
  for (const auto& rule : call_rules()) {
    if (r.judge(rule.id).outcome == Outcome::kUnobservable) {
      out.emplace_back(rule.id);
    }
  }
  return out;
}

TEST(CallRules, ALegalPublicationAndUpdateKeepAll) {
  CallRecording r;
  r.published().named(header(2)).seen(header(2));
  EXPECT_EQ(failures(r), Ids{});
  EXPECT_EQ(silent(r), Ids{});
}

TEST(CallRules, WithoutUpdatesTheRequirementsAboutThemAreSilent) {
  CallRecording r;
  r.published();
  EXPECT_EQ(failures(r), Ids{});
  EXPECT_EQ(silent(r), (Ids{"pctx.update.same-mapping", "pctx.update.name-always",
                            "pctx.update.name-after-timestamp"}));
}

TEST(CallRules, WithoutCallsAllAreSilent) {
  CallRecording none;
  none.seen(header(1));
  EXPECT_EQ(silent(none).size(), call_rules().size());
  CallRecording unseen;
  unseen.made().seen(header(1));
  unseen.image().calls_unseen = "no seccomp";
  EXPECT_EQ(silent(unseen).size(), call_rules().size());
  EXPECT_EQ(unseen.judge("pctx.publish.name-always").saw, "no seccomp");
  CallRecording attached;
  attached.made().seen(header(1));
  attached.t.mode = Mode::kAttach;
  EXPECT_EQ(silent(attached).size(), call_rules().size());
}

TEST(CallRules, OtherMemfdsAndMarksAreNobodysBusiness) {
  CallRecording r;
  r.call("memfd_create", {0, 0}, 5).text = "datadog-tracer-info-x";
  r.call("madvise", {kHeap, kPage, MADV_DONTFORK}, 0).before = header(9);
  r.named(kBlank, kHeap, kPage, "heap");
  r.published();
  EXPECT_EQ(failures(r), Ids{});
}

TEST(CallRules, AMemfdWithAnotherName) {
  CallRecording r;
  r.memfd(kMemfdFlags, 3, "otel_ctx").call("ftruncate", {3, kPage}, 0);
  r.mapped().marked().named(header(1)).seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.publish.memfd-name"});
}

TEST(CallRules, FlagsOfTheFirstAttemptCount) {
  CallRecording refused;
  refused.memfd(kMemfdFlags, -22)
      .memfd(1 | 2)
      .sized()
      .mapped()
      .marked()
      .named(header(1))
      .seen(header(1));
  EXPECT_EQ(failures(refused), Ids{});
  CallRecording careless;
  careless.memfd(0).sized().mapped().marked().named(header(1)).seen(header(1));
  EXPECT_EQ(failures(careless), Ids{"pctx.publish.memfd-flags"});
  CallRecording second;
  second.memfd(0, -22)
      .memfd(kMemfdFlags)
      .sized()
      .mapped()
      .marked()
      .named(header(1))
      .seen(header(1));
  EXPECT_EQ(failures(second), Ids{"pctx.publish.memfd-flags"});
}

TEST(CallRules, AMemfdWithoutASize) {
  CallRecording r;
  r.memfd().mapped().marked({}).seen({}).named({});
  EXPECT_EQ(failures(r), Ids{"pctx.publish.memfd-sized"});
  // The memfd is not used yet, or was given up: nobody touched it.
  CallRecording idle;
  idle.memfd().mapped().marked({}).seen({});
  EXPECT_EQ(failures(idle), Ids{});
  idle.process().exit_code.reset();
  idle.process().killed_by = 7;
  EXPECT_EQ(failures(idle), Ids{"pctx.publish.memfd-sized"});
}

TEST(CallRules, OtherWaysToSizeAreAnInfo) {
  CallRecording written;
  written.memfd().mapped().marked().named(header(1)).seen(header(1));
  EXPECT_EQ(written.judge("pctx.publish.memfd-sized").outcome, Outcome::kInfo);
  CallRecording late;
  late.memfd().mapped().sized().marked().named(header(1)).seen(header(1));
  EXPECT_EQ(late.judge("pctx.publish.memfd-sized").outcome, Outcome::kInfo);
  CallRecording small;
  small.memfd().sized(32).mapped(32).marked().named(header(1), kMapping, 32).seen(header(1));
  EXPECT_EQ(failures(small), Ids{});
}

TEST(CallRules, AnonymousMemoryIsTheSecondChoice) {
  CallRecording denied;
  denied.file = false;
  denied.memfd(kMemfdFlags, -24).memfd(1 | 2, -24).marked().named(header(1)).seen(header(1));
  EXPECT_EQ(failures(denied), Ids{});
  EXPECT_EQ(denied.judge("pctx.publish.memfd-first").outcome, Outcome::kPass);
  EXPECT_EQ(denied.judge("pctx.publish.memfd-name").outcome, Outcome::kUnobservable);

  CallRecording first;
  first.file = false;
  first.marked().named(header(1)).seen(header(1));
  EXPECT_EQ(failures(first), Ids{"pctx.publish.memfd-first"});
  first.image().calls_dropped = 1;
  EXPECT_EQ(failures(first), Ids{});
  first.image().calls_dropped = 0;
  first.t.host = {{"memfd", false, "memfd_create: ENOSYS", "Linux 3.17"}};
  EXPECT_EQ(first.judge("pctx.publish.memfd-first").outcome, Outcome::kNa);
}

TEST(CallRules, TheMemfdOfAnotherContextIsNoTry) {
  const auto again = [](std::int64_t result) {
    CallRecording r;
    r.published();
    r.call("munmap", {kMapping, kPage}, 0);
    if (result != 0) r.memfd(kMemfdFlags, result);
    r.file = false;
    r.call("mmap", {0, kPage, 3, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0},
           std::int64_t{kMapping});
    r.marked().named(header(2)).seen(header(2));
    return failures(r);
  };
  EXPECT_EQ(again(0), Ids{"pctx.publish.memfd-first"});
  EXPECT_EQ(again(-24), Ids{});
  // It was of no use, maybe because its size could not be set.
  EXPECT_EQ(again(3), Ids{});
}

TEST(CallRules, AChildsCopyIsNotItsPublication) {
  CallRecording r;
  r.memfd(kMemfdFlags, 5, "other").seen(header(1)).seen(header(2));
  EXPECT_EQ(failures(r), Ids{});
}

TEST(CallRules, APublicationWithoutANamingCall) {
  CallRecording r;
  r.made().seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.publish.name-always"});
  // It may be between timestamp and call.
  r.process().exit_code.reset();
  r.process().killed_by = 9;
  EXPECT_EQ(failures(r), Ids{});
  r.image().snapshots.back().last_seen_ns += 2'000'000'000;
  EXPECT_EQ(failures(r), Ids{"pctx.publish.name-always"});

  CallRecording at_exit;
  at_exit.made().seen(header(1), kMapping, Moment::kExit);
  EXPECT_EQ(failures(at_exit), Ids{});
}

TEST(CallRules, ANamingCallForOtherMemory) {
  CallRecording r;
  r.made().named(kBlank, kHeap).seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.publish.name-arguments"});
  CallRecording text;
  text.made().named(header(1), kMapping, kPage, "OTEL_CTX2").seen(header(1));
  EXPECT_EQ(failures(text), Ids{"pctx.publish.name-arguments"});
  CallRecording undone;
  undone.published().named(header(1), kMapping, kPage, "mine");
  EXPECT_EQ(failures(undone), Ids{"pctx.publish.name-arguments"});
  CallRecording alone;
  alone.made().named(header(1), kMapping, kPage, "mine").seen(header(1));
  EXPECT_EQ(failures(alone), Ids{"pctx.publish.name-arguments"});
}

TEST(CallRules, AWithdrawalMayTakeTheNameAwayOrGiveAnother) {
  for (const char* name : {"", "app-cache", "otel-gone"}) {
    CallRecording behind;
    behind.published().named(header(0), kMapping, kPage, name).seen(header(0));
    EXPECT_EQ(failures(behind), Ids{}) << name;
    CallRecording ahead;
    ahead.published().named(header(1), kMapping, kPage, name).seen(header(0));
    EXPECT_EQ(failures(ahead), Ids{}) << name;
    CallRecording unmapped;
    unmapped.published().named(header(1), kMapping, kPage, name);
    unmapped.call("munmap", {kMapping, kPage}, 0);
    EXPECT_EQ(failures(unmapped), Ids{}) << name;
  }
  CallRecording kept;
  kept.published().named(header(1), kMapping, kPage, "");
  EXPECT_EQ(failures(kept), Ids{});
}

TEST(CallRules, ACallWithAnotherNameAnnouncesNothing) {
  CallRecording label;
  label.made().named(kBlank, kMapping, kPage, "app-cache").seen(header(1)).seen(header(0));
  EXPECT_EQ(failures(label), Ids{"pctx.publish.name-always"});
  CallRecording update;
  update.published().seen(header(2)).named(header(2), kMapping, kPage, "").seen(header(0));
  EXPECT_EQ(failures(update), Ids{"pctx.update.name-always"});
}

TEST(CallRules, ANamingCallForAPartOfTheMapping) {
  CallRecording r;
  r.memfd().sized(2 * kPage).mapped(2 * kPage).marked().named(header(1), kMapping, kPage);
  r.seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.publish.name-whole-mapping"});
  CallRecording rounded;
  rounded.memfd().sized(2 * kPage).mapped(2 * kPage).marked().named(header(1), kMapping, kPage + 1);
  rounded.seen(header(1));
  EXPECT_EQ(failures(rounded), Ids{});
}

TEST(CallRules, AMappingThatWasCutOff) {
  CallRecording r;
  r.memfd().sized(2 * kPage).mapped(2 * kPage).marked().named(header(1), kMapping, kPage);
  r.size = kPage;
  r.seen(header(1));
  EXPECT_EQ(failures(r), Ids{});
  // It grows again for an update.
  CallRecording grown = r;
  grown.call("mremap", {kMapping, kPage, 2 * kPage, 0}, std::int64_t{kMapping});
  grown.size = 2 * kPage;
  grown.named(header(2)).seen(header(2));
  EXPECT_EQ(failures(grown), Ids{});
  // Where the kernel gave the first page another name, maps shows two entries.
  CallRecording split;
  split.memfd().sized(2 * kPage).mapped(2 * kPage).marked().named(header(1), kMapping, kPage);
  split.size = kPage;
  split.seen(header(1));
  Candidate rest = split.image().snapshots.back().candidates.front();
  split.image().snapshots.back().candidates.front().entries.front().name = "[anon_shmem:OTEL_CTX]";
  rest.entries.front().range =
      *sys::RemoteRange::from_size(sys::RemoteAddr(kMapping + kPage), kPage);
  rest.entries.front().offset = kPage;
  rest.memory.front().bytes = kBlank;
  split.image().snapshots.back().candidates.push_back(rest);
  EXPECT_EQ(failures(split), Ids{"pctx.publish.name-whole-mapping"});
}

TEST(CallRules, TheWholeMappingIsNamedBeforeTheNextUpdate) {
  CallRecording later;
  later.memfd().sized(2 * kPage).mapped(2 * kPage).marked();
  later.named(header(1), kMapping, kPage).seen(header(1)).named(header(2)).seen(header(2));
  EXPECT_EQ(failures(later), (Ids{"pctx.publish.name-whole-mapping"}));
  CallRecording twice;
  twice.memfd().sized(2 * kPage).mapped(2 * kPage).marked();
  twice.named(header(1), kMapping, kPage).named(header(1)).seen(header(1));
  twice.named(header(2), kMapping, kPage).seen(header(2));
  EXPECT_EQ(failures(twice), Ids{});
}

TEST(CallRules, OnlyTheUpdateNamesTheHeader) {
  CallRecording r;
  r.made().seen(header(1)).named(kBlank, kHeap).named(header(2)).seen(header(2));
  const Finding f = r.judge("pctx.publish.name-arguments");
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.saw, "the naming call is about memory other than the header's");
}

TEST(CallRules, ANamingCallOfMemoryThatCannotBeReadSaysNothingOfUpdates) {
  CallRecording r;
  r.memfd().mapped().named({}).sized().marked().named(header(1)).seen(header(1)).seen(header(2));
  EXPECT_EQ(r.judge("pctx.update.name-always").outcome, Outcome::kFail);
}

// Its first mapping is longer than what leaves a call when it is unmapped.
TEST(CallRules, AContextMayBeMappedWhereAnotherWas) {
  constexpr std::uint64_t kSecondMapping = kMapping + 2 * kPage;
  CallRecording r;
  r.memfd().sized(4 * kPage).mapped(4 * kPage).marked().named(header(1)).seen(header(1));
  r.size = kPage;
  r.memfd().sized().mapped(kPage, kSecondMapping).marked(kBlank, kSecondMapping);
  r.named(header(2), kSecondMapping).seen(header(2), kSecondMapping);
  r.named(header(3), kSecondMapping).seen(header(3), kSecondMapping);
  EXPECT_EQ(failures(r), Ids{});
  EXPECT_EQ(r.judge("pctx.update.name-always").outcome, Outcome::kPass);
}

TEST(CallRules, TheSecondContextIsMappedOverTheBeginningOfTheFirst) {
  constexpr std::uint64_t kSecondMapping = kMapping - kPage;
  CallRecording r;
  r.memfd().sized(4 * kPage).mapped(4 * kPage).marked().named(header(1)).seen(header(1));
  r.memfd().sized(4 * kPage).mapped(4 * kPage, kSecondMapping).marked(kBlank, kSecondMapping);
  r.named(kBlank, kMapping, 3 * kPage).seen(header(2), kSecondMapping);
  EXPECT_EQ(r.judge("pctx.publish.name-arguments").outcome, Outcome::kFail);
}

TEST(CallRules, ANamingCallBeforeThePublication) {
  CallRecording r;
  r.made().named(kBlank).seen(kBlank).seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.publish.name-after-timestamp"});
  r.named(header(1));
  EXPECT_EQ(failures(r), Ids{});
}

TEST(CallRules, AnUpdateWithoutANamingCall) {
  CallRecording r;
  r.published().seen(header(2)).seen(header(3));
  EXPECT_EQ(failures(r), Ids{"pctx.update.name-always"});
  CallRecording running;
  running.published().seen(header(2));
  running.process().exit_code.reset();
  EXPECT_EQ(failures(running), Ids{});
  // The end of the process may have come before the call of its second thread.
  CallRecording background;
  background.published().named(header(2)).seen(header(3));
  background.image().calls.back().tid = background.process().pid + 1;
  EXPECT_EQ(failures(background), Ids{});
  background.seen(header(4));
  EXPECT_EQ(failures(background), Ids{"pctx.update.name-always"});
}

TEST(CallRules, ANamingCallInsideTheUpdate) {
  CallRecording r;
  r.published().named(header(0)).seen(header(2));
  EXPECT_EQ(failures(r), Ids{"pctx.update.name-after-timestamp"});
  r.named(header(2));
  EXPECT_EQ(failures(r), Ids{});
}

TEST(CallRules, NamingCallsMayComeAfterUpdatesOfOtherThreads) {
  CallRecording r;
  r.published().seen(header(2)).seen(header(3)).named(header(3)).named(header(3));
  EXPECT_EQ(failures(r), Ids{});
}

TEST(CallRules, NamingCallsMayBeOvertakenByTheNextUpdate) {
  CallRecording r;
  r.published().seen(header(2)).named(header(0)).seen(header(3)).named(header(3));
  EXPECT_EQ(failures(r), Ids{});
  r.seen(header(4)).named(header(0)).seen(header(5)).named(header(0)).seen(header(6));
  EXPECT_EQ(failures(r), Ids{"pctx.update.name-after-timestamp"});
}

TEST(CallRules, AnotherMappingMayBeAnotherPublication) {
  constexpr std::uint64_t kElsewhere = kMapping + (1U << 20U);
  CallRecording r;
  r.published().seen(header(2)).named(header(2));
  EXPECT_EQ(r.judge("pctx.update.same-mapping").outcome, Outcome::kPass);
  r.call("munmap", {kMapping, kPage}, 0);
  r.call("mmap", {0, kPage, 3, 2, 4, 0}, std::int64_t{kElsewhere});
  r.named(header(3), kElsewhere).seen(header(3), kElsewhere);
  const Finding f = r.judge("pctx.update.same-mapping");
  EXPECT_EQ(f.outcome, Outcome::kUnobservable);
  EXPECT_NE(f.saw.find("withdrawal"), std::string::npos) << f.saw;
}

TEST(CallRules, AMovedHeader) {
  constexpr std::uint64_t kElsewhere = kMapping + (1U << 20U);
  CallRecording r;
  r.published();
  r.call("mremap", {kMapping, kPage, 2 * kPage, MREMAP_MAYMOVE}, std::int64_t{kElsewhere}).before =
      header(0);
  r.size = 2 * kPage;
  r.named(header(2), kElsewhere).seen(header(2), kElsewhere);
  EXPECT_EQ(failures(r), Ids{"pctx.update.same-mapping"});

  CallRecording grown;
  grown.published();
  grown.call("mremap", {kMapping, kPage, 2 * kPage, 0}, std::int64_t{kMapping});
  grown.size = 2 * kPage;
  grown.named(header(2)).seen(header(2));
  EXPECT_EQ(failures(grown), Ids{});
  EXPECT_EQ(grown.judge("pctx.update.same-mapping").outcome, Outcome::kPass);
}

TEST(CallRules, TwoPublicationsAtOneAddress) {
  CallRecording r;
  r.published().made().named(header(2)).seen(header(2));
  EXPECT_EQ(failures(r), Ids{});
  EXPECT_EQ(r.judge("pctx.update.name-always").outcome, Outcome::kUnobservable);
}

TEST(CallRules, AHeaderBeforeItsMark) {
  CallRecording r;
  r.memfd().sized().mapped().marked(header(0)).named(header(1)).seen(header(1));
  EXPECT_EQ(failures(r), Ids{"pctx.fork.dontfork-before-header"});
  EXPECT_TRUE(r.judge("pctx.fork.dontfork-before-header").unnoticed);
  // With its timestamp it is what a child's readers accept.
  CallRecording valid;
  valid.memfd().sized().mapped().marked(header(1)).named(header(1)).seen(header(1));
  EXPECT_EQ(failures(valid), Ids{"pctx.fork.dontfork-before-header"});
  EXPECT_FALSE(valid.judge("pctx.fork.dontfork-before-header").unnoticed);
  // Advice that is repeated later says nothing.
  CallRecording repeated;
  repeated.published().marked(header(1));
  EXPECT_EQ(failures(repeated), Ids{});
}

TEST(CallRules, AHeaderThatAChildGetsBeforeTheMark) {
  const auto with = [](std::uint64_t order, const std::vector<std::byte>& head) {
    CallRecording r;
    r.published();
    CallRecording child;
    child.seen(head);
    ForkProbe fork{.tid = 12, .order = order, .at = "after mmap", .candidates = {}};
    fork.candidates = child.image().snapshots.front().candidates;
    r.image().forks = {fork};
    return failures(r);
  };
  constexpr std::uint64_t kBehindMmap = 6;
  constexpr std::uint64_t kInMadvise = 7;
  constexpr std::uint64_t kBehindMadvise = 8;
  for (const auto order : {kBehindMmap, kInMadvise}) {
    EXPECT_EQ(with(order, header(0)), Ids{"pctx.fork.dontfork-before-header"}) << order;
    EXPECT_EQ(with(order, kBlank), Ids{}) << order;
  }
  // What remains is for another requirement, or concerns a mapping that was there before.
  EXPECT_EQ(with(kBehindMadvise, header(1)), Ids{});
  EXPECT_EQ(with(kBehindMmap - 1, header(1)), Ids{});
}

TEST(CallRules, HostileNumbersDoNotWrap) {
  CallRecording r;
  r.made().named(header(1), kMapping, UINT64_MAX);
  r.call("madvise", {UINT64_MAX, UINT64_MAX, MADV_DONTFORK}, 0);
  r.call("mmap", {0, UINT64_MAX, 3, MAP_PRIVATE, 3, 0}, std::int64_t{kMapping});
  r.call("ftruncate", {3, UINT64_MAX}, 0);
  r.named(header(2), kMapping + 1, 1).named({}, kMapping, 0).seen(header(2));
  for (const auto& rule : call_rules()) r.judge(rule.id);
}

}  // namespace
}  // namespace ctxconf::conformance
