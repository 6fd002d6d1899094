#include "conformance/evidence/timeline.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace ctxconf::conformance {
namespace {

using sys::RemoteAddr;
using sys::RemoteRange;

Timeline example() {
  Timeline t;
  t.suite_version = "0.1.0";
  t.mode = Mode::kWrap;
  t.target = {"./app", std::string("\x1b[31m\xff", 6)};
  t.kernel = "6.18";
  t.arch = "x86_64";
  t.started_at = "2026-01-01T00:00:00Z";
  t.seconds = 1.001;
  t.host = {{"ptrace", true, "seized a child", ""}};
  t.realtime_minus_boottime_ns = 1'790'000'000'000'000'000;
  t.expected_resource = {"service.name=a"};
  t.expected_trace_ids = {"0af7651916cd43dd8448eb211c80319c"};
  t.expected_span_ids = {"b7ad6b7169203331"};
  t.printed_trace_ids = {"1af7651916cd43dd8448eb211c80319c"};
  t.printed_span_ids = {"c7ad6b7169203331"};
  t.notes = {"a note"};
  Process p;
  p.pid = 12;
  p.parent = 1;
  p.killed_by = 11;
  Image i;
  i.key = {12, 3};
  i.executable = "/bin/app";
  i.command_line = {"app", "-x"};
  i.libc = "musl 1.2.3";
  i.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  i.elf64 = false;
  i.boottime_offset_ns = -5;
  i.started_ns = 77;
  i.ending = "exited 0";
  i.notes = {"memory cannot be read"};
  Snapshot s;
  s.moment = Moment::kNamed;
  s.moments = {Moment::kNamed, Moment::kExit};
  s.first_seen_ns = 100;
  s.last_seen_ns = 200;
  s.times = 4;
  s.descriptors = {{7, "/memfd:OTEL_CTX (deleted)"}};
  Race race;
  race.header = 0x7f0000000000;
  race.duration_ns = 5;
  race.reads = 21;
  race.none = 1;
  race.unreadable = 2;
  race.too_large = 3;
  race.overtaken = 4;
  race.accepted = 11;
  race.contents = 6;
  race.kept.push_back({9, 10, {std::byte{0x4f}}, {RemoteAddr(0x55), 4, 1, {std::byte{7}}, 8}});
  i.races = {race};
  i.races_unseen = "one processor";
  SlotView at_gate;
  at_gate.order = 4;
  SlotView attached;
  attached.step = 17;
  attached.order = 5;
  attached.value = 0x7f0000001000;
  attached.record = MemoryBlock{RemoteAddr(0x7f0000001000), 28, 1, {std::byte{9}}, 10};
  attached.published = 12345678901234567890U;
  attached.location = 0;
  attached.by_another = true;
  i.slot_step_traces = {{14, 0x7f0000002000, 18, true, "over", {at_gate, attached}}};
  i.slot_steps_unseen = "too many";
  Candidate c;
  sys::MapEntry e;
  e.range = *RemoteRange::from_size(RemoteAddr(0x7f0000000000), 4096);
  e.readable = true;
  e.shared = true;
  e.offset = 8192;
  e.dev_minor = 1;
  e.inode = 1234567890123;
  e.name = "/memfd:OTEL_CTX (deleted)";
  c.entries = {e};
  c.vm_flags = {"rd wr dc", std::nullopt};
  c.stable = false;
  c.named = false;
  c.found_at = 64;
  MemoryBlock b;
  b.at = RemoteAddr(0xffffffffffffffff);
  b.wanted = 4'000'000'000;
  b.readable = 3;
  b.bytes = {std::byte{0}, std::byte{0xff}, std::byte{0x7f}};
  b.hash = 0xdeadbeefcafebabe;
  c.memory = {b};
  c.neighbours = {e};
  s.candidates = {c};
  i.snapshots = {s};
  SystemCall call;
  call.tid = 14;
  call.name = "prctl";
  call.args = {0x53564d41, 0, 0x7f0000000000, 4096, 0xfffffffffffffff0, 0};
  call.result = -22;
  call.entered_ns = 99;
  call.text = std::string("OTEL\x00_CTX", 9);
  call.before = {std::byte{1}};
  call.after = {std::byte{2}, std::byte{3}};
  call.snapshot = 0;
  call.injected = true;
  call.entered_order = 1;
  call.left_order = 2;
  call.clock_ns = 12345678901234567890U;
  SystemCall never_returned;
  never_returned.tid = 15;
  never_returned.name = "ftruncate";
  never_returned.file = "/memfd:OTEL_CTX (deleted)";
  i.snapshots_dropped = 9;
  i.snapshots_judged = 8;
  i.calls = {call, never_returned};
  i.calls_dropped = 7;
  i.other_calls_dropped = 8;
  i.calls_unseen = "a filter";
  Watch w;
  w.header = 0x7f0000000000;
  w.armed_order = 3;
  w.armed_ns = 90;
  w.begin = WatchBegin::kMemfd;
  w.found = {std::byte{0}, std::byte{1}};
  w.ended_order = 9;
  w.end = WatchEnd::kUnmapped;
  w.unwatched = {14, 15};
  Watch to_the_end;
  to_the_end.header = 0x7f0000002000;
  i.watches = {w, to_the_end};
  Store st;
  st.tid = 14;
  st.order = 5;
  st.at_ns = 95;
  st.header = 0x7f0000000000;
  st.words = 15;
  st.before = {std::byte{9}};
  st.after = {std::byte{8}, std::byte{7}};
  st.location = 0;
  st.payload = b;
  st.prepared = b;
  st.threads = 3;
  st.call = "read";
  Store by_nobody;
  by_nobody.order = 6;
  i.stores = {st, by_nobody};
  i.stores_dropped = 4;
  i.stores_unseen = "no debug registers";
  i.forks = {{77, 78, "after a store\x01", i.snapshots.front().candidates}};
  i.forks_unseen = "there were too many of them";
  p.own_pid = 1;
  i.locations = {{0x401000, "/bin/app", 0x1000, "publish\x01", 12, "src/ctx.cc", 118}};
  i.locations.front().callers = i.locations;
  ModuleFacts m;
  m.path = "/lib/libsdk.so";
  m.machine = 62;
  m.type = 3;
  m.has_dynamic_section = true;
  m.tls = sys::ElfSegment{.address = 0x3df0, .file_size = 0, .memory_size = 8, .alignment = 8};
  m.dynamic_symbols = {{5, "otel_thread_ctx_v1", 0, 8, 6, 1, 0, 21}};
  m.relocations = {{sys::TlsRelocationKind::kTlsdesc, 36, 0x4000, 5, -8, 1, 2}};
  m.local_dynamic_code = {"1234: lea rax, [rax + 8]"};
  i.modules = {m};
  ThreadSample t1;
  t1.tid = 13;
  t1.first_seen_ns = 150;
  t1.last_seen_ns = 160;
  t1.slot = 0x7f0000000040;
  t1.value = 0x5000;
  t1.mapping = e;
  t1.record = b;
  t1.after = b;
  t1.inherited = true;
  i.threads = {t1};
  i.defined_together = {0};
  i.threads_dropped = 2;
  i.threads_judged = 1;
  i.requirements_dropped = {"tctx.attrs.utf8"};
  i.exits = {i.threads.front()};
  i.threads_unread = "ptrace: Operation not permitted";
  p.images = {i};
  t.processes = {p};
  FaultRun f;
  f.fault = "RLIMIT_FSIZE=0";
  f.killed_by = 25;
  f.last_file = "/memfd:OTEL_CTX (deleted)";
  t.faults = {f};
  t.injections = {{"prctl(PR_SET_VMA):error=EINVAL:when=1", "prctl", -22, 3}};
  FaultCell cell;
  cell.session = 1;
  cell.step = "prctl";
  cell.fault = "EPERM";
  cell.injections = {{"prctl(PR_SET_VMA):error=EPERM", "prctl", -1, 2}};
  cell.clock_calls = true;
  cell.hang = "it still ran";
  cell.output = "\x1b[2J";
  FaultCell left_out;
  left_out.session = 7;
  left_out.step = kFileSizeLimit;
  left_out.left_out = "setrlimit";
  t.cells = {cell, left_out};
  t.clock_calls = true;
  t.watches_lifetime = true;
  t.stops = 72;
  t.asked_for = {"pctx.header.version"};
  t.partial = true;
  t.incomplete = "the run was interrupted";
  return t;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

TEST(TimelineJson, ComesBackTheSame) {
  const std::string json = to_json(example());
  const auto back = timeline_from_json(json);
  ASSERT_TRUE(back) << sys::to_string(back.error());
  EXPECT_EQ(to_json(*back), json);
  const Candidate& c = back->processes.at(0).images.at(0).snapshots.at(0).candidates.at(0);
  EXPECT_EQ(c, example().processes[0].images[0].snapshots[0].candidates[0]);
  EXPECT_EQ(back->target, example().target);
  EXPECT_EQ(back->cells, example().cells);
  const Image& image = back->processes[0].images[0];
  ASSERT_EQ(image.calls.size(), 2U);
  EXPECT_EQ(image.calls[0].args, example().processes[0].images[0].calls[0].args);
  EXPECT_EQ(image.calls[0].result, -22);
  EXPECT_EQ(image.calls[0].text.size(), 9U);
  EXPECT_EQ(image.calls[0].snapshot, 0U);
  EXPECT_FALSE(image.calls[1].result);
  EXPECT_FALSE(image.calls[1].snapshot);
  EXPECT_TRUE(image.calls[0].injected);
  EXPECT_EQ(image.calls[0].left_order, 2U);
  EXPECT_EQ(image.calls[0].clock_ns, 12345678901234567890U);
  EXPECT_EQ(image.forks, example().processes[0].images[0].forks);
  EXPECT_EQ(image.forks.size(), 1U);
  EXPECT_EQ(image.forks_unseen, "there were too many of them");
  EXPECT_EQ(back->processes[0].own_pid, 1);
  EXPECT_EQ(image.watches, example().processes[0].images[0].watches);
  EXPECT_EQ(image.locations, example().processes[0].images[0].locations);
  ASSERT_EQ(image.stores.size(), 2U);
  EXPECT_EQ(image.stores[0].location, 0U);
  EXPECT_EQ(image.stores[0].prepared, image.stores[0].payload);
  EXPECT_EQ(image.stores[0].threads, 3U);
  EXPECT_FALSE(image.stores[1].payload);
  EXPECT_FALSE(image.stores[1].threads);
  EXPECT_EQ(back->injections, example().injections);
  EXPECT_EQ(image.modules, example().processes[0].images[0].modules);
  ASSERT_EQ(image.threads.size(), 1U);
  EXPECT_EQ(image.threads[0].record->at, RemoteAddr(0xffffffffffffffff));
  EXPECT_TRUE(image.threads[0].inherited);
  EXPECT_EQ(image.defined_together, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(image.threads[0].mapping->name, "/memfd:OTEL_CTX (deleted)");
  EXPECT_EQ(back->processes[0].killed_by, 11);
  EXPECT_FALSE(back->processes[0].exit_code);
}

// The text of a member of a recording that this version wrote, without `member`.
std::string without_member(std::string text, const std::string& member) {
  const auto name = text.find("\"" + member + "\":");
  EXPECT_NE(name, std::string::npos) << member;
  if (name == std::string::npos) return text;
  const auto comma = text.rfind(',', name);
  return text.erase(comma, text.find_first_of(",\n", name) - comma);
}

TEST(TimelineJson, WhereATraceEndedComesBackAsAFlagNotAsAText) {
  Timeline t = example();
  Image& image = t.processes[0].images[0];
  StepTrace trace;
  trace.tid = 14;
  trace.over = true;
  trace.ended_because = "in other words";
  SlotStepTrace early;
  early.tid = 14;
  early.ended_because = "over";
  image.step_traces = {trace};
  image.slot_step_traces = {early};
  const auto back = timeline_from_json(to_json(t));
  ASSERT_TRUE(back) << sys::to_string(back.error());
  EXPECT_TRUE(back->processes[0].images[0].step_traces.at(0).whole());
  EXPECT_EQ(back->processes[0].images[0].step_traces.at(0).ended_because, "in other words");
  EXPECT_FALSE(back->processes[0].images[0].slot_step_traces.at(0).whole());
}

TEST(TimelineJson, HowAWatchBeganComesBack) {
  using enum WatchBegin;
  const auto watch_from = [](const std::string& json) {
    const auto back = timeline_from_json(json);
    EXPECT_TRUE(back) << sys::to_string(back.error());
    return back ? back->processes.at(0).images.at(0).watches.at(0) : Watch{};
  };
  Timeline t = example();
  Watch& watch = t.processes[0].images[0].watches.at(0);
  for (const auto& [begin, word] :
       {std::pair(kMemfd, "mmap"), std::pair(kAnonymous, "madvise"), std::pair(kNamed, "prctl"),
        std::pair(kMoved, "mremap"), std::pair(kUnknown, "")}) {
    watch.begin = begin;
    const std::string json = to_json(t);
    EXPECT_TRUE(json.contains("\"because\": \"" + std::string(word) + "\"")) << word;
    EXPECT_EQ(watch_from(json).begin, begin) << word;
  }
  watch.begin = kMemfd;
  std::string json = to_json(t);
  const std::string known = "\"because\": \"mmap\"";
  json.replace(json.find(known), known.size(), "\"because\": \"a later version's\"");
  EXPECT_EQ(watch_from(json).begin, kUnknown);
}

TEST(TimelineJson, InAnEarlierRecordingTheTextSaysWhetherATraceIsWhole) {
  for (const auto& [text, whole] :
       {std::pair("over", true), std::pair("too many instructions", false)}) {
    Timeline t = example();
    t.processes[0].images[0].slot_step_traces.clear();
    t.processes[0].images[0].step_traces.resize(1);
    StepTrace& trace = t.processes[0].images[0].step_traces[0];
    trace.tid = 14;
    trace.ended_because = text;
    trace.over = !whole;  // is left out
    const auto back = timeline_from_json(without_member(to_json(t), "over"));
    ASSERT_TRUE(back) << sys::to_string(back.error());
    const StepTrace& read = back->processes[0].images[0].step_traces.at(0);
    EXPECT_EQ(read.whole(), whole) << text;
    EXPECT_EQ(read.ended_because, text);
  }
}

TEST(TimelineJson, InAnEarlierRecordingTheTextSaysWhetherACallIsMissing) {
  for (const auto& [text, missing] :
       {std::pair("no such call was seen", true), std::pair("setrlimit: refused", false)}) {
    Timeline t = example();
    t.cells.resize(1);
    t.cells[0].left_out = text;
    t.cells[0].no_such_call = !missing;  // is left out
    const auto back = timeline_from_json(without_member(to_json(t), "no_such_call"));
    ASSERT_TRUE(back) << sys::to_string(back.error());
    EXPECT_EQ(back->cells.at(0).no_such_call, missing) << text;
    EXPECT_EQ(back->cells.at(0).left_out, text);
  }
}

TEST(TimelineJson, InAnEarlierRecordingTheTextSaysThatACapabilityMustBeAbsent) {
  Timeline t;
  SkippedCheck& check = t.skipped.emplace_back();
  check.name = "tls/draft";
  check.capability = "reader.formats:H3";
  check.must_be_absent = true;
  const std::string now = to_json(t);
  const std::string old = replaced(without_member(now, "must_be_absent"), "\"reader.formats:H3\"",
                                   "\"not reader.formats:H3\"");
  for (const std::string& json : {now, old}) {
    const auto back = timeline_from_json(json);
    ASSERT_TRUE(back) << sys::to_string(back.error());
    EXPECT_EQ(back->skipped, t.skipped);
  }
}

TEST(TimelineJson, EveryEndOfAWatchHasTheWordThatRecordingsHaveForIt) {
  const std::vector<std::pair<WatchEnd, std::string>> words = {
      {WatchEnd::kWithImage, ""},
      {WatchEnd::kUnmapped, "unmapped"},
      {WatchEnd::kMoved, "moved"},
      {WatchEnd::kPublished, "published"},
      {WatchEnd::kPublishedElsewhere, "published elsewhere"},
      {WatchEnd::kTooManyStores, "too many stores"},
      {WatchEnd::kGivenUp, "given up"}};
  for (const auto& [end, word] : words) {
    Timeline t = example();
    t.processes[0].images[0].watches.resize(1);
    t.processes[0].images[0].watches[0].end = end;
    const std::string json = to_json(t);
    EXPECT_TRUE(json.contains("\"ended_because\": \"" + word + "\"")) << word;
    const auto back = timeline_from_json(json);
    ASSERT_TRUE(back) << sys::to_string(back.error());
    EXPECT_EQ(back->processes[0].images[0].watches.at(0).end, end) << word;
  }
  const auto unknown = timeline_from_json(
      replaced(to_json(example()), R"("ended_because": "unmapped")", R"("ended_because": "x")"));
  ASSERT_TRUE(unknown) << sys::to_string(unknown.error());
  EXPECT_EQ(unknown->processes[0].images[0].watches.at(0).end, WatchEnd::kOther);
}

TEST(TimelineJson, TheQuestionForAReaderComesBackTheSame) {
  ReaderQuestion question;
  AnswerClaim warns{.requirement = "pctx.reader.name-memfd",
                    .allowed = {{"accept", R"({"resource":[]})"}, {"absent", ""}},
                    .never = {"secret"},
                    .otherwise = "it is not found",
                    .info = false,
                    .warning = true};
  AnswerClaim mentions = warns;
  mentions.info = true;
  mentions.warning = false;
  question.claims = {warns, mentions};
  question.process = 12;
  question.thread = 13;
  question.shown = {{"header", 0x7f0000000000, 2, {std::byte{1}, std::byte{2}}}};
  ReaderCall call;
  call.tid = 14;
  call.name = "process_vm_readv";
  call.target = 12;
  call.ranges = {{0x7f0000000000, 32}};
  call.result = -14;
  call.entered_ns = 5;
  call.state = "S";
  call.ran_before = 6;
  call.ran_after = 7;
  call.held = "after the first read of the pointer";
  question.calls = {call};
  question.counted = true;
  question.repeated = true;
  question.calls_dropped = 8;
  question.missed = {"before the first read of the payload"};
  question.processor_ns = 9;
  question.peak_bytes = 11;
  question.before_bytes = 10;
  Timeline t;
  t.mode = Mode::kReader;
  Session& session = t.sessions.emplace_back();
  session.checks.emplace_back().name = "name-memfd";
  session.operations.emplace_back().question = question;
  const auto back = timeline_from_json(to_json(t));
  ASSERT_TRUE(back) << sys::to_string(back.error());
  EXPECT_EQ(back->sessions.at(0).operations.at(0).question, question);
}

struct Renamed {
  const char* now;
  const char* old;
};

constexpr auto kRenamed = std::to_array<Renamed>({
    {"\"after\": {", "\"behind\": {"},
    {"\"location\": ", "\"place\": "},
    {"\"locations\": ", "\"places\": "},
    {"\"requirements_dropped\": ", "\"rows_dropped\": "},
    {"\"slot_step_traces\": ", "\"slot_walks\": "},
    {"\"slot_steps_unseen\": ", "\"slot_walks_unseen\": "},
    {"\"stable\": ", "\"settled\": "},
    {"\"step_traces\": ", "\"walks\": "},
    {"\"steps_unseen\": ", "\"walks_unseen\": "},
});

TEST(TimelineJson, ReadsTheOldNamesOfVersion12) {
  const std::string now = to_json(example());
  std::string old = replaced(now, "\"version\": 13", "\"version\": 12");
  for (const Renamed& n : kRenamed) {
    ASSERT_NE(old.find(n.now), std::string::npos) << n.now;
    while (old.find(n.now) != std::string::npos) old = replaced(old, n.now, n.old);
  }
  const auto back = timeline_from_json(old);
  ASSERT_TRUE(back) << sys::to_string(back.error());
  EXPECT_EQ(to_json(*back), now);
}

TEST(TimelineJson, KnowsNoOldNamesInVersion13) {
  const std::string now = to_json(example());
  for (const Renamed& n : kRenamed) {
    std::string old = now;
    while (old.find(n.now) != std::string::npos) old = replaced(old, n.now, n.old);
    const auto read = timeline_from_json(old);
    EXPECT_TRUE(!read || to_json(*read) != now) << n.old;
  }
}

TEST(TimelineJson, SaysOnlyWhereItIsNotWhole) {
  const auto back = timeline_from_json(to_json(example()));
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->partial);
  EXPECT_EQ(back->incomplete, "the run was interrupted");
  EXPECT_EQ(back->asked_for, example().asked_for);
  const std::string whole = to_json(Timeline());
  EXPECT_FALSE(whole.contains("partial") || whole.contains("asked_for") ||
               whole.contains("incomplete"));
  EXPECT_TRUE(timeline_from_json(whole));
}

TEST(TimelineJson, IsGivenUpWhereItHasMoreBytesThanItMay) {
  Timeline t = example();
  t.processes.resize(3, t.processes.front());
  const std::string json = to_json(t);
  EXPECT_EQ(to_json(t, json.size()), json);
  for (const std::size_t most : {json.size() - 1, json.size() / 2, std::size_t{0}}) {
    EXPECT_EQ(to_json(t, most), std::nullopt) << most;
  }
}

TEST(TimelineJson, IsPlainTextWhateverTheTesteeSaid) {
  for (const char c : to_json(example())) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f));
  }
}

TEST(TimelineJson, RefusesWhatIsNotOneWithAReason) {
  const std::string good = to_json(example());
  struct Case {
    std::string text;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "not a recording"},
      {"{\"format\":\"other\"}", "not a recording"},
      {replaced(good, "\"version\": " + std::to_string(kTimelineVersion), "\"version\": 6"),
       "version 6 of the format, but 12 to 13 are read here"},
      {replaced(good, "\"version\": " + std::to_string(kTimelineVersion), "\"version\": 14"),
       "version 14"},
      {replaced(good, "\"words\": 15", "\"words\": 16"), "out of range"},
      {replaced(good, "\"location\": 0", "\"location\": 1"), "a location that is not listed"},
      {replaced(good, "\"order\": 6", "\"order\": 5"), "not in their order"},
      {replaced(good, "\"ended_order\": 9", "\"ended_order\": 2"), "lies before armed_order"},
      {replaced(good, "\"module\": 0", "\"module\": 1"), "a module that is not listed"},
      {replaced(good, "\"TLSDESC\"", "\"TLSDESK\""), "not a known relocation"},
      {replaced(good, "\"snapshot\": 0", "\"snapshot\": 1"), "a snapshot that is not listed"},
      {replaced(good, "\"snapshot\": 0", "\"snapshot\": -1"), "out of range"},
      {replaced(good, "\"0x53564d41\",", ""), "are not six"},
      {replaced(good, "\"0x53564d41\"", "\"0x53564d4g\""), "args"},
      {replaced(good, "\"0x53564d41\"", "1"), "args"},
      {replaced(good, "\"result\": -22", "\"result\": 9223372036854775808"), "out of range"},
      {replaced(good, "\"result\": -22", "\"result\": \"-22\""), "whole number"},
      {replaced(good, "\"tid\": 14", "\"tid\": 0"), "out of range"},
      {replaced(good, "\"before\": \"01", "\"before\": \"" + std::string(66, '0')),
       "more than a header"},
      {replaced(good, "\"tid\": 13", "\"tid\": 0"), "out of range"},
      {replaced(good, "\"mode\": \"wrap\"", "\"mode\": \"sleep\""), "/mode"},
      {replaced(good, "\"pid\": 12", "\"pid\": -1"), "/processes/0/pid"},
      {replaced(good, "\"pid\": 12", "\"pid\": \"12\""), "whole number"},
      {replaced(good, "0x7f0000000000", "0x7g"), "begin"},
      {replaced(good, "0x7f0000001000", "0x7e0000000000"), "lies before begin"},
      {replaced(good, "00ff7f", "00ff7"), "odd number"},
      {replaced(good, "00ff7f", "00fx7f"), "hex digits"},
      {replaced(good, "00ff7f", "00ff7f00"), "more than were readable"},
      {replaced(good, "\"readable\": 3", "\"readable\": 5000000000"), "more than was wanted"},
      {replaced(good, "\"named\",", "\"sometimes\","), "not a known moment"},
      {replaced(good, "\"r--s\"", "\"r-\""), "rw-p"},
      {replaced(good, "\"last_seen_ns\": 200", "\"last_seen_ns\": 1"), "out of range"},
      {replaced(good, "\"times\": 4", "\"times\": 0"), "out of range"},
      {replaced(good, "\"kernel\"", "\"kernal\""), "/kernel is missing"},
      {replaced(good, "-b7ad6b7169203331-01", "-0000000000000000-01"),
       "traceparent is not a traceparent"},
      {replaced(good, "\"musl 1.2.3\"", "\"musl 1.2.3 \""), "libc is not a C library"},
  };
  for (const auto& c : cases) {
    const auto t = timeline_from_json(c.text);
    ASSERT_FALSE(t) << c.says;
    EXPECT_NE(t.error().detail.find(c.says), std::string::npos) << t.error().detail;
  }
}

TEST(TimelineJson, RefusesMoreCallsThanAnImageCanHave) {
  Timeline t = example();
  auto& calls = t.processes[0].images[0].calls;
  calls.resize(kMaxCalls, calls[0]);
  EXPECT_TRUE(timeline_from_json(to_json(t)));
  calls.push_back(calls[0]);
  EXPECT_FALSE(timeline_from_json(to_json(t)));
}

TEST(TimelineJson, RefusesMoreStoresThanAnImageCanHave) {
  Timeline t = example();
  auto& stores = t.processes[0].images[0].stores;
  stores.clear();
  for (std::uint64_t n = 0; n < kMaxStores; ++n) stores.emplace_back().order = n;
  EXPECT_TRUE(timeline_from_json(to_json(t)));
  stores.emplace_back().order = kMaxStores;
  EXPECT_FALSE(timeline_from_json(to_json(t)));
}

TEST(TimelineJson, KeepsEveryTextWhateverItsBytes) {
  Timeline t = example();
  t.kernel = "\xff";
  t.processes[0].images[0].ending = "\x01\xc3";
  const auto back = timeline_from_json(to_json(t));
  ASSERT_TRUE(back) << sys::to_string(back.error());
  EXPECT_EQ(back->kernel, t.kernel);
  EXPECT_EQ(back->processes[0].images[0].ending, t.processes[0].images[0].ending);
}

TEST(TimelineJson, ToleratesAnyCutOfItself) {
  const std::string good = to_json(example());
  for (std::size_t n = 0; n + 3 < good.size(); n += 7) {
    EXPECT_FALSE(timeline_from_json(good.substr(0, n)));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
