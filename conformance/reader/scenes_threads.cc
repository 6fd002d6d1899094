// Threads and their records, in a program whose variable has a fixed place.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Program;
using puppet::Value;

// Ids that differ from those of other numbers.
Record numbered_record(unsigned number) {
  Record out;
  const std::string digits = std::to_string(1'000 + number);
  out.trace_id.replace(28, 4, digits);
  out.span_id.replace(12, 4, digits);
  return out;
}

std::vector<AllowedAnswer> exactly(const Record& r, const Pairs& names = {}) {
  return {accept(record_content(r, names))};
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
  SceneBuilder s("eight-threads", "eight threads with records of their own", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  std::vector<Attached> attached;
  for (unsigned i = 0; i < 8; ++i) {
    const Value thread = b.thread();
    b.by(thread);
    attached.push_back(attach(b, numbered_record(i).encoded()));
    attached.back().thread = thread;
  }
  b.by_first();
  for (unsigned i = 0; i < 8; ++i) {
    s.ask(about_thread(attached[i],
                       {claim("tctx.reader.own-thread-pointer", exactly(numbered_record(i)),
                              "a thread is given the record of another one")}));
  }
  return std::move(s).scene();
}

Scene crowd() {
  constexpr unsigned kThreads = 2000;
  constexpr unsigned kStride = 64;
  SceneBuilder s("two-thousand-threads", "two thousand threads with records of their own",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Value records = b.map_anonymous(kThreads * kStride, kReadWrite, MAP_PRIVATE);
  const Value tids = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  const Value stacks = b.map_anonymous(kThreads * kPage, kReadWrite, MAP_PRIVATE);
  const std::vector<unsigned> asked = {0, 999, 1999};
  for (const unsigned i : asked) b.write(records + i * kStride, numbered_record(i).encoded());
  b.crowd(
      {.count = kThreads, .records = records, .stride = kStride, .tids = tids, .stacks = stacks});
  for (const unsigned i : asked) {
    const Value thread = b.load(tids + 4 * i, 4);
    Question q;
    q.about = Question::About::kThread;
    q.thread = thread;
    q.shown = {{"record", {records + i * kStride, 28}}};
    q.claims = {claim("tctx.reader.own-thread-pointer", exactly(numbered_record(i)),
                      "one of very many threads is not given its record")};
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

Scene ended_thread() {
  SceneBuilder s("thread-that-ends", "a thread that has ended, next to one that goes on",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  Attached first = attach(b, numbered_record(1).encoded());
  const Value thread = b.thread();
  b.by(thread);
  Attached other = attach(b, numbered_record(2).encoded());
  other.thread = thread;
  constexpr const char* kOwn = "tctx.reader.own-thread-pointer";
  s.ask(about_thread(
      other, {claim(kOwn, exactly(numbered_record(2)), "a thread is not given its record")}));
  b.by(thread).exit_thread();
  b.by_first();
  s.ask(about_thread(other, {claim(kOwn, not_used(), "a thread that has ended has a record")}));
  s.ask(about_thread(
      first, {claim(kOwn, exactly(numbered_record(1)), "a thread is not given its record")}));
  return std::move(s).scene();
}

Scene at_the_end_of_memory() {
  SceneBuilder s("record-of-28-bytes", "a record of 28 bytes, after which nothing is mapped",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route"}).encoded());
  const Attached a = attach(b, Record().encoded(), InPage::kAtTheEnd);
  s.ask(about_thread(a, {claim("tctx.reader.header-read-28", exactly(Record()),
                               "a record at the end of memory is not read")}));
  return std::move(s).scene();
}

Scene attributes_when_needed() {
  constexpr const char* kNeeded = "tctx.reader.attrs-read-when-needed";
  SceneBuilder s(
      "invalid-with-a-size",
      "a record that is not valid announces attributes that are not mapped; then one of 600 bytes",
      Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route", "http_method", "user_agent"}).encoded());
  Record invalid;
  invalid.valid = 0;
  invalid.size = 65535;
  const Attached a = attach(b, invalid.encoded(), InPage::kAtTheEnd);
  s.ask(about_thread(
      a, {claim(kNeeded, no_context(), "a record that is not valid is used or fails")}));
  Record full;
  full.entries = {
      {0, std::string(198, 'a')}, {1, std::string(198, 'b')}, {2, std::string(198, 'c')}};
  const Attached second = attach(b, full.encoded(), InPage::kAtTheEnd);
  s.ask(about_thread(second, {claim(kNeeded,
                                    exactly(full, {{"http_route", std::string(198, 'a')},
                                                   {"http_method", std::string(198, 'b')},
                                                   {"user_agent", std::string(198, 'c')}}),
                                    "600 bytes of attributes are not read as they are")}));
  return std::move(s).scene();
}

Scene valid_values() {
  SceneBuilder s("valid-values", "records whose valid byte is not 1", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Attached a = attach(b, Record().encoded());
  for (const unsigned valid : {0U, 2U, 3U, 0x7fU, 0x80U, 0x81U, 0xffU}) {
    b.store(a.record + 24, 1, valid);
    s.ask(
        about_thread(a, {claim("tctx.reader.valid-other-values", no_context(),
                               "a record is used whose valid byte is " + std::to_string(valid))}));
  }
  return std::move(s).scene();
}

Scene flags() {
  SceneBuilder s("trace-flags", "records with the flags 0 to 3", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Attached a = attach(b, Record().encoded());
  for (std::uint8_t value = 0; value < 4; ++value) {
    Record r;
    r.flags = value;
    b.store(a.record + 25, 1, value);
    s.ask(about_thread(a, {claim("tctx.reader.trace-flags", exactly(r),
                                 "the flags are not those of the record")}));
  }
  return std::move(s).scene();
}

constexpr const char* kNoId = "00000000000000000000000000000000";

Scene zero_ids() {
  SceneBuilder s("ids-zero", "a record without ids, with two attributes", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route", "http_method"}).encoded());
  Record r;
  r.trace_id = kNoId;
  r.span_id = std::string(kNoId).substr(16);
  r.flags = 0;
  r.entries = {{0, "/cart"}, {1, "GET"}};
  const Attached a = attach(b, r.encoded());
  auto any = no_context();
  any.push_back(accept(R"({"link":false})"));
  s.ask(about_thread(
      a, {claim("tctx.reader.zero-ids-no-link", any, "ids of zeros are reported as a trace"),
          claim("tctx.reader.zero-ids-keep-attributes",
                {accept(R"({"names_has":{"http_route":"/cart","http_method":"GET"}})")},
                "attributes of a record without ids are lost")}));
  return std::move(s).scene();
}

Record half(bool trace) {
  Record r;
  if (trace) {
    r.span_id = std::string(kNoId).substr(16);
  } else {
    r.trace_id = kNoId;
  }
  return r;
}

Question about_half_ids() {
  Question q;
  auto any = no_context();
  any.push_back(accept(R"({"link":false})"));
  q.claims = {
      claim("tctx.reader.half-ids", any, "a record with one of the two ids is used as a link")};
  return q;
}

Scene half_ids() {
  SceneBuilder s("ids-half", "a record with a trace id alone, and one with a span id alone",
                 Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  for (const bool trace : {true, false}) {
    s.ask(about_thread(attach(b, half(trace).encoded()), about_half_ids().claims));
  }
  return std::move(s).scene();
}

Scene half_ids_alone(bool trace) {
  SceneBuilder s(
      trace ? "record-trace-without-span" : "record-span-without-trace",
      std::string("bytes of a record with a ") + (trace ? "trace" : "span") + " id alone");
  Question q = about_half_ids();
  q.about = Question::About::kRecord;
  for (const std::byte byte : half(trace).encoded()) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    q.record += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    q.record += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene bad_pointers() {
  constexpr const char* kSurvives = "tctx.reader.survives-bad-pointer";
  SceneBuilder s("slot-bad-pointers",
                 "slots that point nowhere useful, next to a thread with a record", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Value thread = b.thread();
  b.by(thread);
  Attached good = attach(b, Record().encoded());
  good.thread = thread;
  b.by_first();
  const Value unmapped = b.map_anonymous(2 * kPage, kReadWrite, MAP_PRIVATE);
  b.unmap(unmapped + kPage, kPage);
  Attached bad;
  bad.slot = b.slot_address();
  for (const Value& value : {Value(1), Value(0xffffffff81000000), unmapped + kPage,
                             unmapped + kPage - 10, unmapped + 1}) {
    b.slot(value);
    Question q = about_thread(
        bad, {claim(kSurvives, no_context(), "a record is made of a slot that points nowhere")});
    q.shown.pop_back();
    s.ask(std::move(q));
  }
  s.ask(about_thread(
      good, {claim(kSurvives, exactly(Record()), "a bad slot costs another thread its record")}));
  return std::move(s).scene();
}

Scene large(unsigned size) {
  SceneBuilder s(
      "record-with-" + std::to_string(size) + "-bytes",
      "a record with " + std::to_string(size) + " bytes of attributes, and then a small one",
      Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route"}).encoded());
  Record r;
  for (std::size_t left = size; left > 0;) {
    const std::size_t entry = left <= 257 ? left : left == 258 ? 256 : 257;
    r.entries.emplace_back(0, std::string(entry - 2, 'x'));
    left -= entry;
  }
  const Attached a = attach(b, r.encoded(), InPage::kAtTheEnd);
  auto any = no_context();
  any.push_back(accept());
  s.ask(about_thread(
      a, {claim("tctx.reader.large-record-survives", any, "a large record is not survived"),
          claim("tctx.reader.large-record-ids",
                {accept(R"({"trace_id":")" + r.trace_id + R"(","span_id":")" + r.span_id + "\"}")},
                "the ids of a large record are not reported")}));
  Record small = numbered_record(1);
  small.entries = {{0, "/cart"}};
  const Attached after = attach(b, small.encoded());
  s.ask(about_thread(
      after, {claim("tctx.reader.large-record-survives", exactly(small, {{"http_route", "/cart"}}),
                    "the record after a large one is read wrongly")}));
  return std::move(s).scene();
}

// The last entry does not fit into the size.
Scene cut_entry(const std::string& name, const std::string& about, const puppet::Bytes& tail) {
  SceneBuilder s("entry-" + name, about, Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route", "http_method", "user_agent"}).encoded());
  Record r;
  r.entries = {{0, "/cart"}, {1, "GET"}};
  puppet::Bytes bytes = r.encoded();
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  bytes[26] = static_cast<std::byte>(bytes.size() - 28);
  const Attached a = attach(b, bytes, InPage::kAtTheEnd);
  auto fragment = no_context();
  fragment.push_back(accept(R"({"names_any":{"user_agent":[]}})"));
  s.ask(about_thread(
      a, {claim("tctx.reader.stop-at-short-entry", fragment, "a value is made of a fragment"),
          claim("tctx.reader.keep-before-short-entry",
                {accept(record_content(r, {{"http_route", "/cart"}, {"http_method", "GET"}}))},
                "ids and whole entries before a short one are lost")}));
  return std::move(s).scene();
}

Scene stopped_process() {
  constexpr const char* kStopped = "pctx.reader.target-may-be-stopped";
  SceneBuilder s("stopped-thread", "a thread of a process that SIGSTOP has stopped",
                 Program::kSlot);
  auto& b = s.script();
  const Value child = b.fork();
  b.by(child);
  publish(b, reference_data({}).encoded());
  Attached a = attach(b, Record().encoded());
  a.thread = child;
  b.by_first();
  b.signal(SIGSTOP, child, /*process=*/true);
  Question q = about_thread(
      a, {claim(kStopped, exactly(Record()), "a thread of a stopped process is not read")});
  q.process = child;
  s.ask(std::move(q));
  return std::move(s).scene();
}

// The thread counts while it runs.
Scene while_stopped() {
  SceneBuilder s("running-thread", "a thread that runs all the time, and counts", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({"http_route"}).encoded());
  const Value counter = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  const Value thread = b.thread();
  b.by(thread);
  Record r;
  r.entries = {{0, "/cart"}};
  Attached a = attach(b, r.encoded());
  a.thread = thread;
  b.later().repeat(UINT64_MAX >> 1U, {counter, 8, 0, 1});
  b.by_first();
  for (int i = 0; i < 3; ++i) {
    Question q = about_thread(
        a, {claim("tctx.reader.only-while-stopped", exactly(r, {{"http_route", "/cart"}}),
                  "a running thread is not read")});
    q.counter = counter;
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

Scene second_source() {
  SceneBuilder s("second-source", "another source names another trace", Program::kSlot);
  auto& b = s.script();
  publish(b, reference_data({}).encoded());
  const Attached a = attach(b, Record().encoded());
  Question q = about_thread(a, {claim("tctx.reader.authoritative", exactly(Record()),
                                      "another source wins over the published context")});
  q.second_trace_id = "0af7651916cd43dd8448eb211c80319c";
  q.second_span_id = "b7ad6b7169203331";
  s.ask(std::move(q));
  return std::move(s).scene();
}

}  // namespace

SceneGroup thread_scenes() {
  SceneGroup out;
  out.name = "threads";
  out.scenes.push_back(null_slot());
  out.scenes.push_back(own_thread_pointer());
  out.scenes.push_back(crowd());
  out.scenes.push_back(ended_thread());
  out.scenes.push_back(at_the_end_of_memory());
  out.scenes.push_back(attributes_when_needed());
  out.scenes.push_back(valid_values());
  out.scenes.push_back(flags());
  out.scenes.push_back(zero_ids());
  out.scenes.push_back(half_ids());
  out.scenes.push_back(half_ids_alone(true));
  out.scenes.push_back(half_ids_alone(false));
  out.scenes.push_back(bad_pointers());
  for (const unsigned size : {612U, 613U, 4096U, 65535U}) out.scenes.push_back(large(size));
  out.scenes.push_back(cut_entry("index-alone", "two entries and an index", {std::byte{2}}));
  out.scenes.push_back(cut_entry("without-value", "two entries, an index and a length",
                                 {std::byte{2}, std::byte{4}}));
  out.scenes.push_back(cut_entry("too-long", "two entries, and one whose length is one too large",
                                 {std::byte{2}, std::byte{3}, std::byte{'x'}, std::byte{'y'}}));
  out.scenes.push_back(stopped_process());
  out.scenes.push_back(while_stopped());
  out.scenes.push_back(second_source());
  return out;
}

}  // namespace ctxconf::conformance::reader
