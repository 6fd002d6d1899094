// Threads: whose record is read, when, and what happens to one that cannot be read.
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Program;
using puppet::Value;

constexpr std::uint64_t kValidAt = offsetof(abi::ThreadRecordHead, valid);
constexpr const char* kOwn = "tctx.reader.own-thread-pointer";
constexpr const char* kSurvivesPointer = "tctx.reader.survives-bad-pointer";

std::vector<AllowedAnswer> ids_of(const Record& r) { return {accept(ids_content(r))}; }

// The program, with a context, and a first thread whose plain record the reader reports.
SceneBuilder begin_threads(std::string name, std::string about) {
  SceneBuilder s(std::move(name), std::move(about), Program::kSlot);
  publish(s.script(), reference_data({"http_route"}).encoded());
  require_plain_record(s);
  return s;
}

Attached attach_in(puppet::Builder& b, const Value& thread, const Record& r) {
  b.by(thread);
  Attached out = attach(b, r.encoded());
  out.thread = thread;
  b.by_first();
  return out;
}

void ask_own(SceneBuilder& s, const Attached& a, const Record& r) {
  s.ask(about_thread(a, {claim(kOwn, ids_of(r), "a thread is not given its own record")}));
}

Scene null_slot() {
  constexpr const char* kNull = "tctx.reader.null-slot";
  SceneBuilder s("slot-null", "a slot that was never set, and one that was set and is null again",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  Attached a;
  a.slot = b.slot_address();
  Question q = about_thread(a, {claim(kNull, no_context(), "a null slot is taken for a record")});
  q.shown.pop_back();
  s.ask(q);
  attach(b, Record().encoded());
  b.slot(0);
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene own_thread_pointer() {
  SceneBuilder s = begin_threads("eight-threads", "eight threads with records of their own");
  auto& b = s.script();
  std::vector<Attached> attached;
  attached.reserve(8);
  for (unsigned i = 0; i < 8; ++i) {
    attached.push_back(attach_in(b, b.thread(), numbered_record(i)));
  }
  for (unsigned i = 0; i < 8; ++i) ask_own(s, attached[i], numbered_record(i));
  return std::move(s).scene();
}

Scene crowd() {
  constexpr unsigned kThreads = 2000;
  constexpr unsigned kStride = 64;
  SceneBuilder s =
      begin_threads("two-thousand-threads", "two thousand threads with records of their own");
  s.needs("reader.thread");  // one that looks by itself may need very long for each look
  auto& b = s.script();
  const Value records = b.map_anonymous(kThreads * kStride, kReadWrite, MAP_PRIVATE);
  const Value tids = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  const Value stacks = b.map_anonymous(kThreads * kPage, kReadWrite, MAP_PRIVATE);
  const std::vector<unsigned> asked = {0, 1999};
  for (const unsigned i : asked) b.write(records + i * kStride, numbered_record(i).encoded());
  b.crowd(
      {.count = kThreads, .records = records, .stride = kStride, .tids = tids, .stacks = stacks});
  for (const unsigned i : asked) {
    const Value thread = b.load(tids + 4 * i, 4);
    Question q;
    q.about = Question::About::kThread;
    q.thread = thread;
    q.shown = {{"record", {records + i * kStride, abi::kRecordHeadBytes}}};
    q.claims = {claim(kOwn, ids_of(numbered_record(i)),
                      "one of very many threads is not given its own record")};
    q.attempts = kAttempts;  // a reader that looks at all of them by itself needs time
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

Scene threads_that_come_and_go() {
  SceneBuilder s = begin_threads("threads-that-come-and-go",
                                 "a thread ends and others begin, next to one that goes on");
  s.needs("reader.thread");  // one that reports by itself has nothing to say of an ended thread
  auto& b = s.script();
  const Attached first = attach(b, numbered_record(1).encoded());
  const Value ending = b.thread();
  const Attached ended = attach_in(b, ending, numbered_record(2));
  ask_own(s, ended, numbered_record(2));
  b.by(ending).exit_thread();
  b.by_first();
  s.ask(about_thread(ended, {claim(kOwn, not_used(), "a thread that has ended has a record")}));
  for (unsigned i = 3; i < 6; ++i) {
    const Value next = b.thread();
    const Attached a = attach_in(b, next, numbered_record(i));
    ask_own(s, a, numbered_record(i));
    b.by(next).exit_thread();
    b.by_first();
  }
  ask_own(s, first, numbered_record(1));
  return std::move(s).scene();
}

// The variable is at another place in the second program.
Scene exec_between() {
  SceneBuilder s("exec-between", "the process executes another program with the variable",
                 Program::kLibcAligned);
  s.rests_on(Premise::kUpdate);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  require_plain_record(s);
  b.exec("slot");
  publish(b, reference_data({}).encoded());
  const Record r = numbered_record(1);
  const Attached a = attach(b, r.encoded());
  s.ask(about_thread(a, {claim("tctx.reader.late-libraries", ids_of(r),
                               "the variable is looked for where the earlier program had it")}));
  return std::move(s).scene();
}

Scene bad_pointers() {
  SceneBuilder s = begin_threads("slot-bad-pointers",
                                 "slots that point nowhere useful, next to a thread with a record");
  auto& b = s.script();
  const Value thread = b.thread();
  require_plain_record(s, thread, kOwn);
  const Record r = numbered_record(1);
  const Attached good = attach_in(b, thread, r);
  Attached bad;
  bad.slot = b.slot_address();
  // A whole record at an odd address.
  const Value odd = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE) + 1;
  b.write(odd, numbered_record(2).encoded());
  const Value page = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  b.unmap(page + kPage, kPage);
  for (const Value& value :
       {Value(1), Value(0xffffffff81000000), page + kPage, page + kPage - 10, odd}) {
    b.slot(value);
    Question q = about_thread(bad, {claim(kSurvivesPointer, no_context(),
                                          "a record is made of a slot that points nowhere")});
    q.shown.pop_back();
    s.ask(std::move(q));
    s.ask(about_thread(
        good, {claim(kSurvivesPointer, ids_of(r),
                     "the record of a thread is missing because another has a bad slot")}));
  }
  return std::move(s).scene();
}

// A record that is not valid, with attributes where nothing is mapped.
Record invalid_record(std::uint16_t size) {
  Record out = numbered_record(7);
  out.valid = 0;
  out.size = size;
  return out;
}

Scene attributes_not_mapped() {
  SceneBuilder s = begin_threads("attributes-not-mapped",
                                 "a record whose attributes run into memory that is not mapped");
  auto& b = s.script();
  const Value thread = b.thread();
  require_plain_record(s, thread, kOwn);
  const Attached good = attach_in(b, thread, numbered_record(1));
  Question q = about_thread(attach(b, invalid_record(65535).encoded(), InPage::kAtTheEnd), {});
  q.premise = claim("tctx.reader.attrs-read-when-needed", no_context(),
                    "the reader reads attributes of a record that is not valid");
  s.ask(std::move(q));
  Record r = numbered_record(2);
  r.entries = {{0, "/cart"}};
  r.size = 100;
  auto either = no_context();
  either.push_back(accept(ids_content(r)));
  s.ask(about_thread(
      attach(b, r.encoded(), InPage::kAtTheEnd),
      {claim(kSurvivesPointer, either,
             "a record whose attributes cannot be read leads to an error, or to other ids")}));
  s.ask(about_thread(
      good,
      {claim(
          kSurvivesPointer, ids_of(numbered_record(1)),
          "the record of a thread is missing because the attributes of another cannot be read")}));
  return std::move(s).scene();
}

Scene attributes_when_needed() {
  constexpr const char* kNeeded = "tctx.reader.attrs-read-when-needed";
  SceneBuilder s("invalid-with-a-size",
                 "a record that is not valid announces attributes that are not mapped; then one "
                 "has 600 bytes of them, with more memory after it",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route", "http_method", "user_agent"}).encoded());
  require_plain_record(s);
  const Attached a = attach(b, invalid_record(65535).encoded(), InPage::kAtTheEnd);
  s.ask(about_thread(
      a, {claim(kNeeded, no_context(), "a record that is not valid is used or fails")}));
  Record full;
  full.entries = {
      {0, std::string(198, 'a')}, {1, std::string(198, 'b')}, {2, std::string(198, 'c')}};
  const Attached second = attach(b, full.encoded());
  s.ask(about_thread(
      second, {claim(kNeeded, ids_of(full), "a record with 600 bytes of attributes is not used")}));
  return std::move(s).scene();
}

Scene stopped_process() {
  constexpr const char* kStopped = "pctx.reader.target-may-be-stopped";
  SceneBuilder s =
      begin_threads("stopped-thread", "a thread of a process that SIGSTOP has stopped");
  auto& b = s.script();
  const Value child = b.fork();
  b.by(child);
  publish(b, reference_data({}).encoded());
  const Record r = numbered_record(1);
  Attached a = attach(b, r.encoded());
  a.thread = child;
  b.by_first();
  b.signal(SIGSTOP, child, /*process=*/true);
  Question q =
      about_thread(a, {claim(kStopped, ids_of(r), "a thread of a stopped process is not read")});
  q.process = child;
  q.state = 'T';
  s.ask(std::move(q));
  return std::move(s).scene();
}

// The first thread counts while it runs.
Scene while_stopped() {
  SceneBuilder s = begin_threads("running-thread", "a thread that runs all the time, and counts");
  auto& b = s.script();
  s.also_shows("tctx.reader.one-stop-per-sample");
  const Value counter = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  Record r = numbered_record(1);
  r.entries = {{0, "/cart"}};
  const Attached a = attach(b, r.encoded());
  b.later().repeat(UINT64_MAX >> 1U, {counter, 8, 0, 1});
  for (int i = 0; i < 5; ++i) {
    Question q = about_thread(
        a, {claim("tctx.reader.only-while-stopped", ids_of(r), "a thread that runs is not read")});
    q.counter = counter;
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

// A record whose bytes differ from those of another number at the end of each id, and in the value.
Record record_in_place(unsigned number) {
  Record out = numbered_record(number);
  out.entries = {{0, "/" + std::to_string(number)}};
  return out;
}

// Its ids, and of the attribute no other value.
std::string whole_content(const Record& r) {
  nlohmann::json out = nlohmann::json::parse(ids_content(r));
  out["names_any"]["http_route"] = {r.entries.front().second};
  return out.dump();
}

std::vector<AllowedAnswer> one_of(const Record& first, const Record& second) {
  auto out = not_used();
  out.push_back(accept(whole_content(first)));
  out.push_back(accept(whole_content(second)));
  return out;
}

// OTEP 4947, "Context Attachment": the valid byte is the switch.
void rewrite(puppet::Builder& b, const Value& record, const Record& r) {
  const puppet::Bytes bytes = r.encoded();
  const auto at = bytes.begin() + kValidAt;
  b.store(record + kValidAt, 1, 0);
  b.write(record, puppet::Bytes(bytes.begin(), at));
  b.write(record + kValidAt + 1, puppet::Bytes(at + 1, bytes.end()));
  b.store(record + kValidAt, 1, 1);
}

// The thread is asleep, and not stopped, when the reader begins.
Scene wakes_during_the_read() {
  SceneBuilder s = begin_threads("record-of-a-sleeper",
                                 "a thread sleeps; between two reads of its record it wakes up and "
                                 "rewrites the record in place, if it is not stopped");
  auto& b = s.script();
  const Record first = record_in_place(1);
  const Record second = record_in_place(2);
  const Attached a = attach(b, first.encoded());
  Hold hold = s.hold("after the first read of the record", Hold::When::kAfter,
                     {a.record, abi::kRecordHeadBytes}, [&] { rewrite(b, a.record, second); });
  hold.unless_stopped = true;
  Question q = about_thread(a, {claim("tctx.reader.only-while-stopped", one_of(first, second),
                                      "an answer mixes two contents of a record")});
  q.state = 'S';
  q.holds.push_back(std::move(hold));
  s.ask(std::move(q));
  return std::move(s).scene();
}

// The stores of one round: each content stays for a quarter of it.
std::vector<Value> round_of(const Value& record, const Value& counter, const puppet::Bytes& first,
                            const puppet::Bytes& second) {
  constexpr int kStays = 3;
  std::vector<Value> out;
  const auto add = [&](const Value& at, std::uint64_t width, std::uint64_t value,
                       std::uint64_t more = 0) { out.insert(out.end(), {at, width, value, more}); };
  for (const puppet::Bytes* bytes : {&first, &second}) {
    add(record + kValidAt, 1, 0);
    for (std::size_t i = 0; i < bytes->size(); ++i) {
      if (first[i] != second[i]) add(record + i, 1, std::to_integer<std::uint64_t>((*bytes)[i]));
    }
    add(record + kValidAt, 1, 1);
    for (int i = 0; i < kStays; ++i) add(counter, 8, 0, 1);
  }
  return out;
}

// The first thread rewrites its record without end, and counts.
Scene rewritten_in_place() {
  constexpr const char* kOneStop = "tctx.reader.one-stop-per-sample";
  SceneBuilder s =
      begin_threads("record-in-place", "a thread rewrites its record in place as fast as it can");
  auto& b = s.script();
  Question invalid = about_thread(attach(b, invalid_record(0).encoded()), {});
  invalid.premise = claim("tctx.reader.valid-other-values", no_context(),
                          "the reader uses a record that is not valid");
  s.ask(std::move(invalid));
  const Record first = record_in_place(1);
  const Record second = record_in_place(2);
  const Value counter = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  const Attached a = attach(b, first.encoded());
  b.later().repeat(UINT64_MAX >> 1U,
                   round_of(a.record, counter, first.encoded(), second.encoded()));
  constexpr int kQuestions = 60;
  constexpr std::chrono::milliseconds kApart{20};  // on a busy machine the thread runs now and then
  for (int i = 0; i < kQuestions; ++i) {
    Question q = about_thread(
        a, {claim(kOneStop, one_of(first, second), "an answer mixes two contents of a record")});
    q.counter = counter;
    q.repeated = true;
    s.ask(std::move(q));
    s.wait({.duration = kApart, .counter = counter});
  }
  return std::move(s).scene();
}

// A tracer, as a debugger is one, keeps others from stopping a thread.
Scene traced_by_another() {
  constexpr const char* kNoRight = "tctx.reader.no-permission";
  SceneBuilder s = begin_threads(
      "thread-of-a-debugger", "a thread that another process traces, next to one that it does not");
  auto& b = s.script();
  const Value child = b.fork();
  b.by(child);
  publish(b, reference_data({}).encoded());
  const Record hidden = numbered_record(1);
  Attached a = attach(b, hidden.encoded());
  a.thread = child;
  b.by_first();
  const Record open = numbered_record(2);
  const Attached other = attach(b, open.encoded());
  b.syscall(SYS_ptrace, {std::uint64_t{PTRACE_SEIZE}, child, 0, 0});
  auto either = not_used();
  either.push_back(accept(ids_content(hidden)));
  Question q = about_thread(
      a, {claim(kNoRight, either, "other content is reported of a thread that it may not stop")});
  q.process = child;
  s.ask(std::move(q));
  s.ask(about_thread(
      other, {claim(kNoRight, ids_of(open),
                    "the record of a thread is missing because another may not be stopped")}));
  return std::move(s).scene();
}

Scene second_source() {
  SceneBuilder s = begin_threads("second-source", "another source names another trace");
  auto& b = s.script();
  for (const std::uint8_t flags : {std::uint8_t{1}, std::uint8_t{0}}) {
    Record r = numbered_record(flags);
    r.flags = flags;
    Question q = about_thread(attach(b, r.encoded()),
                              {claim("tctx.reader.authoritative", ids_of(r),
                                     "another source wins over the published context")});
    q.second_trace_id = "0af7651916cd43dd8448eb211c80319c";
    q.second_span_id = "b7ad6b7169203331";
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

}  // namespace

SceneGroup crowd_scenes() {
  SceneGroup out;
  out.name = "crowd";
  out.full_speed = true;  // a reader may look at all threads for each answer
  out.scenes.push_back(crowd());
  return out;
}

SceneGroup thread_scenes() {
  SceneGroup out;
  out.name = "threads";
  auto& all = out.scenes;
  all.push_back(null_slot());
  all.push_back(own_thread_pointer());
  all.push_back(threads_that_come_and_go());
  all.push_back(exec_between());
  all.push_back(bad_pointers());
  all.push_back(attributes_not_mapped());
  all.push_back(attributes_when_needed());
  all.push_back(stopped_process());
  all.push_back(while_stopped());
  all.push_back(wakes_during_the_read());
  all.push_back(rewritten_in_place());
  all.push_back(traced_by_another());
  all.push_back(second_source());
  return out;
}

}  // namespace ctxconf::conformance::reader
