// What is in a record of a thread: ids, flags, entries that are unusual, too many, or cut.
#include <string>
#include <utility>
#include <vector>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Program;

constexpr const char* kNoId = "00000000000000000000000000000000";

SceneBuilder begin_record(std::string name, std::string about, std::vector<std::string> key_map) {
  SceneBuilder s(std::move(name), std::move(about), Program::kSlot);
  publish(s.script(), reference_data(std::move(key_map)).encoded());
  require_plain_record(s);
  return s;
}

std::vector<AllowedAnswer> nothing_or(std::string content) {
  auto out = no_context();
  out.push_back(accept(std::move(content)));
  return out;
}

Scene at_the_end_of_memory() {
  SceneBuilder s = begin_record(
      "record-of-28-bytes", "a record of 28 bytes, after which nothing is mapped", {"http_route"});
  const Record r = numbered_record(1);
  const Attached a = attach(s.script(), r.encoded(), InPage::kAtTheEnd);
  s.ask(about_thread(a, {claim("tctx.reader.header-read-28", {accept(ids_content(r))},
                               "a record at the end of memory is not read")}));
  return std::move(s).scene();
}

Scene valid_values() {
  SceneBuilder s = begin_record("valid-values", "records whose valid byte is not 1", {});
  auto& b = s.script();
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
  SceneBuilder s = begin_record("trace-flags", "records with the flags 0 to 3", {});
  auto& b = s.script();
  const Record r = numbered_record(1);
  const Attached a = attach(b, r.encoded());
  for (std::uint8_t value = 0; value < 4; ++value) {
    b.store(a.record + 25, 1, value);
    s.ask(
        about_thread(a, {claim("tctx.reader.trace-flags",
                               {accept(R"({"trace_id":")" + r.trace_id + R"(","span_id":")" +
                                       r.span_id + R"(","flags":)" + std::to_string(value) + "}")},
                               "the flags are not those of the record")}));
  }
  return std::move(s).scene();
}

Scene zero_ids() {
  SceneBuilder s = begin_record("ids-zero", "a record without ids, with two attributes",
                                {"http_route", "http_method"});
  Record r;
  r.trace_id = kNoId;
  r.span_id = std::string(kNoId).substr(16);
  r.flags = 0;
  r.entries = {{0, "/cart"}, {1, "GET"}};
  const Attached a = attach(s.script(), r.encoded());
  s.ask(about_thread(a,
                     {claim("tctx.reader.zero-ids-no-link", nothing_or(R"({"link":false})"),
                            "ids of zeros are reported as a trace"),
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

AnswerClaim no_half_link() {
  return claim("tctx.reader.half-ids", nothing_or(R"({"link":false})"),
               "a record with one of the two ids is used as a link");
}

Scene half_ids() {
  SceneBuilder s =
      begin_record("ids-half", "a record with a trace id alone, and one with a span id alone", {});
  for (const bool trace : {true, false}) {
    s.ask(about_thread(attach(s.script(), half(trace).encoded()), {no_half_link()}));
  }
  return std::move(s).scene();
}

Scene half_ids_alone(bool trace) {
  SceneBuilder s(
      trace ? "record-trace-without-span" : "record-span-without-trace",
      std::string("bytes of a record with a ") + (trace ? "trace" : "span") + " id alone");
  Question q;
  q.claims = {no_half_link()};
  q.about = Question::About::kRecord;
  q.record = hex(half(trace).encoded());
  s.ask(std::move(q));
  return std::move(s).scene();
}

// With entries of this many bytes in all.
Record large_record(unsigned size) {
  Record out = numbered_record(size % 1000);
  out.entries = {{1, "GET"}};
  for (std::size_t left = size - 5; left > 0;) {
    const std::size_t entry = left <= 257 ? left : left == 258 ? 256 : 257;
    out.entries.emplace_back(0, std::string(entry - 2, 'x'));
    left -= entry;
  }
  return out;
}

constexpr unsigned kLargeSizes[] = {612U, 613U, 4096U, 65535U};

Scene large_records() {
  constexpr const char* kLargeSurvives = "tctx.reader.large-record-survives";
  SceneBuilder s =
      begin_record("records-that-are-large",
                   "records with 612 to 65535 bytes of attributes, each before a small one",
                   {"http_route", "http_method"});
  auto& b = s.script();
  const Record small = numbered_record(1);
  for (const unsigned size : kLargeSizes) {
    s.ask(about_thread(attach(b, large_record(size).encoded(), InPage::kAtTheEnd),
                       {claim(kLargeSurvives, nothing_or({}),
                              "the reader gives no valid answer for a large record")}));
    s.ask(about_thread(attach(b, small.encoded()),
                       {claim(kLargeSurvives, {accept(ids_content(small))},
                              "the record after a large one is not read")}));
  }
  return std::move(s).scene();
}

// The first attribute is within the first 640 bytes of any record.
Scene large_records_ids() {
  constexpr const char* kIds = "tctx.reader.large-record-ids";
  SceneBuilder s =
      begin_record("ids-of-large-records", "records with 612 to 65535 bytes of attributes",
                   {"http_route", "http_method"});
  s.also_shows(kIds);  // a crash is a matter of large-record-survives
  for (const unsigned size : kLargeSizes) {
    const Record r = large_record(size);
    AnswerClaim attribute = claim(kIds, {accept(R"({"names_has":{"http_method":"GET"}})")},
                                  "an attribute in the first 640 bytes of a record of " +
                                      std::to_string(28 + size) + " bytes is not reported");
    attribute.info = true;
    s.ask(about_thread(
        attach(s.script(), r.encoded(), InPage::kAtTheEnd),
        {claim(kIds, {accept(ids_content(r))},
               "the ids of a record of " + std::to_string(28 + size) + " bytes are not reported"),
         std::move(attribute)}));
  }
  return std::move(s).scene();
}

// The last entry does not fit into the size.
Scene cut_entry(const std::string& name, const std::string& about, const puppet::Bytes& tail) {
  SceneBuilder s =
      begin_record("entry-" + name, about, {"http_route", "http_method", "user_agent"});
  auto& b = s.script();
  const Record short_one = numbered_record(1);
  Question q = about_thread(attach(b, short_one.encoded(), InPage::kAtTheEnd), {});
  q.premise = claim("tctx.reader.header-read-28", {accept(ids_content(short_one))},
                    "the reader does not report a record at the end of memory");
  s.ask(std::move(q));
  Record r = numbered_record(2);
  r.entries = {{0, "/cart"}, {1, "GET"}};
  puppet::Bytes bytes = r.encoded();
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  bytes[26] = static_cast<std::byte>(bytes.size() - 28);
  const Attached a = attach(b, bytes, InPage::kAtTheEnd);
  s.ask(about_thread(
      a, {claim("tctx.reader.stop-at-short-entry", nothing_or(R"({"names_any":{"user_agent":[]}})"),
                "a value is made of a fragment"),
          claim("tctx.reader.keep-before-short-entry",
                {accept(R"({"trace_id":")" + r.trace_id +
                        R"(","names_has":{"http_route":"/cart","http_method":"GET"}})")},
                "ids and whole entries before a short one are lost")}));
  return std::move(s).scene();
}

Scene unknown_index() {
  SceneBuilder s =
      begin_record("entry-without-a-name", "an index without a name between two with one",
                   {"http_route", "http_method"});
  Record r = numbered_record(1);
  r.entries = {{0, "/cart"}, {7, "lost"}, {1, "GET"}};
  s.ask(about_thread(
      attach(s.script(), r.encoded()),
      {claim("tctx.reader.unknown-index-ignored",
             {accept(record_content(r, {{"http_route", "/cart"}, {"http_method", "GET"}}))},
             "the attributes are not those whose index has a name")}));
  return std::move(s).scene();
}

Scene bad_text() {
  SceneBuilder s = begin_record("values-that-are-no-text",
                                "values with bytes that are not UTF-8, a cut character, and a zero",
                                {"http_route", "http_method"});
  for (const std::string& value :
       {std::string("\xff\xfe"), std::string("caf\xc3"), std::string("a\0b", 3)}) {
    Record r = numbered_record(1);
    r.entries = {{0, value}, {1, "GET"}};
    s.ask(about_thread(
        attach(s.script(), r.encoded()),
        {claim("tctx.reader.bad-utf8", {accept(R"({"names_has":{"http_method":"GET"}})")},
               "an attribute is missing because another value is not text")}));
  }
  return std::move(s).scene();
}

}  // namespace

SceneGroup record_scenes() {
  SceneGroup out;
  out.name = "record-contents";
  auto& all = out.scenes;
  all.push_back(at_the_end_of_memory());
  all.push_back(valid_values());
  all.push_back(flags());
  all.push_back(zero_ids());
  all.push_back(half_ids());
  all.push_back(half_ids_alone(true));
  all.push_back(half_ids_alone(false));
  all.push_back(large_records());
  all.push_back(large_records_ids());
  all.push_back(cut_entry("index-alone", "two entries and an index", {std::byte{2}}));
  all.push_back(cut_entry("without-value", "two entries, an index and a length",
                          {std::byte{2}, std::byte{4}}));
  all.push_back(cut_entry("too-long", "two entries, and one whose length is one too large",
                          {std::byte{2}, std::byte{3}, std::byte{'x'}, std::byte{'y'}}));
  all.push_back(unknown_index());
  all.push_back(bad_text());
  return out;
}

}  // namespace ctxconf::conformance::reader
