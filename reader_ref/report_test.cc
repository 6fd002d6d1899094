#include "reader_ref/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "reader_ref/literal_context.h"

namespace ctxconf::reader {
namespace {

using nlohmann::json;
using opentelemetry::proto::common::v1::AnyValue;

// A report with a context that `fill` makes.
template <class Fill>
ProcessReport report_with(Fill fill) {
  auto context = std::make_shared<ProcessContext>();
  context->mapping.range = *sys::RemoteRange::from_size(sys::RemoteAddr(0x7000), 0x1000);
  context->mapping.name = "[anon:OTEL_CTX]";
  context->header.monotonic_published_at_ns = UINT64_MAX;
  fill(*context);
  ProcessReport report;
  report.pid = 42;
  report.executable = "/usr/bin/shop";
  report.context = std::move(context);
  return report;
}

json json_of(const ProcessReport& report) { return json::parse(to_line(to_json(report))); }

ThreadReport thread_with(ThreadContext context) { return {7, "worker", std::move(context), ""}; }

TEST(Report, HasEveryKindOfValue) {
  const auto report = report_with([](ProcessContext& c) {
    auto* a = c.message.mutable_resource()->mutable_attributes();
    add(a, "s")->set_string_value("text");
    add(a, "b")->set_bool_value(true);
    add(a, "i")->set_int_value(INT64_MIN);
    add(a, "d")->set_double_value(0.5);
    add(a, "nan")->set_double_value(std::numeric_limits<double>::quiet_NaN());
    add(a, "bytes")->set_bytes_value(std::string("\0\xff", 2));
    auto* list = add(a, "list")->mutable_array_value();
    list->add_values()->set_int_value(1);
    list->add_values();
    auto* map = add(a, "map")->mutable_kvlist_value()->add_values();
    map->set_key("k");
    map->mutable_value()->set_string_value("v");
    add(a, "index")->set_string_value_strindex(3);
    add(a, "none");
  });
  const auto j = json_of(report);
  EXPECT_EQ(j["context"]["published_at_ns"], UINT64_MAX);
  EXPECT_EQ(j["context"]["address"], "0x7000");
  EXPECT_EQ(j["context"]["resource"], json::parse(R"({
    "s": "text", "b": true, "i": -9223372036854775808, "d": 0.5, "nan": "NaN",
    "bytes": {"bytes": "00ff"}, "list": [1, null], "map": {"k": "v"}, "index": null,
    "none": null})"));
  EXPECT_EQ(j["thread_contexts"], nullptr);
  const std::string text = to_text(report, false);
  EXPECT_NE(text.find("    list   [1,null]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    none   (no value)\n"), std::string::npos) << text;
}

TEST(Report, TellsNoResourceFromAnEmptyOne) {
  const auto none = report_with([](ProcessContext&) {});
  const auto empty = report_with([](ProcessContext& c) { c.message.mutable_resource(); });
  EXPECT_EQ(json_of(none)["context"]["resource"], nullptr);
  EXPECT_EQ(json_of(empty)["context"]["resource"], json::object());
  EXPECT_NE(to_text(none, false).find("no resource"), std::string::npos);
}

TEST(Report, OfEqualKeysTheLastCounts) {
  const auto report = report_with([](ProcessContext& c) {
    add(c.message.mutable_attributes(), "a")->set_string_value("1");
    add(c.message.mutable_attributes(), "b")->set_string_value("2");
    add(c.message.mutable_attributes(), "a")->set_string_value("3");
  });
  EXPECT_EQ(to_json(report)["context"]["attributes"].dump(), R"({"a":"3","b":"2"})");
}

TEST(Report, HostileTextIsInert) {
  const std::string evil = "\x1b[2J\r\n\u202e\x07\xff";
  auto report = report_with([&](ProcessContext& c) {
    add(c.message.mutable_attributes(), evil)->set_string_value(evil);
    c.mapping.name = evil;
  });
  ThreadContext context;
  context.attributes = {{evil, evil}, {"empty", ""}, {"quote", "a \"b\""}};
  report.threads_read = true;
  report.threads = {thread_with(context), {8, evil, std::nullopt, evil}};
  report.variables = {{evil, {}}};
  report.executable = evil;
  report.notes = {evil};
  const std::string text = to_text(report, true);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << int{c};
  EXPECT_NE(text.find(R"(empty="" quote="a \"b\"")"), std::string::npos) << text;
  const std::string line = to_line(to_json(report));
  for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << int{c};
  const auto j = json::parse(line);
  EXPECT_EQ(j["executable"], "\x1b[2J\r\n\u202e\x07\ufffd");
}

TEST(Report, ShowsThreads) {
  ThreadContext context;
  context.link = TraceLink{};
  context.link->trace_id.fill(0xab);
  context.link->span_id.fill(0x0d);
  context.link->flags = 1;
  context.attributes = {{"http_route", "/cart"}};
  context.unknown = {7};
  auto report = report_with([](ProcessContext& c) {
    c.has_schema = true;
    c.schema = "tls_v1";
  });
  report.threads_read = true;
  report.threads = {thread_with(context), {8, "idle", std::nullopt, "the slot is null"}};
  report.variables = {{"/usr/bin/shop", {"local-exec"}}};
  const auto j = json_of(report)["thread_contexts"];
  EXPECT_EQ(j["schema_version"], "tls_v1");
  EXPECT_EQ(j["variables"],
            json::parse(R"([{"module": "/usr/bin/shop", "models": ["local-exec"]}])"));
  EXPECT_EQ(j["threads"], json::parse(R"([
    {"tid": 7, "name": "worker", "context": {
      "trace_id": "abababababababababababababababab", "span_id": "0d0d0d0d0d0d0d0d", "flags": 1,
      "attributes": {"http_route": "/cart"}, "unknown_indexes": [7], "notes": []}},
    {"tid": 8, "name": "idle", "context": null, "why": "the slot is null"}])"));
  const std::string brief = to_text(report, false);
  EXPECT_NE(brief.find("threads: 1 of 2 have a context\n"), std::string::npos);
  EXPECT_NE(brief.find("          7  worker           abababababababababababababababab  "
                       "0d0d0d0d0d0d0d0d  01    http_route=/cart (index 7: no name)\n"),
            std::string::npos)
      << brief;
  EXPECT_EQ(brief.find("idle"), std::string::npos);
  const std::string verbose = to_text(report, true);
  EXPECT_NE(verbose.find("          8  idle             none: the slot is null\n"),
            std::string::npos)
      << verbose;
}

// Damaged at random, but the same way each time.
TEST(Report, SurvivesDamagedPayloads) {
  ProcessContextMessage message;
  add(message.mutable_resource()->mutable_attributes(), "service.name")->set_string_value("shop");
  auto* list = add(message.mutable_attributes(), "list")->mutable_array_value();
  for (int i = 0; i < 20; ++i) list->add_values()->set_int_value(i);
  add(message.mutable_attributes(), "double")->set_double_value(0.1);
  const std::string good = message.SerializeAsString();
  std::uint32_t random = 1;
  const auto next = [&] { return (random = random * 1664525U + 1013904223U) >> 8U; };
  std::size_t decoded = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    for (std::uint32_t n = next() % 4; n-- > 0;)
      bad[next() % bad.size()] = static_cast<char>(next());
    auto context = decode_payload(std::as_bytes(std::span(bad)));
    if (!context) continue;
    ++decoded;
    ProcessReport report;
    report.context = *context;
    EXPECT_TRUE(json::accept(to_line(to_json(report))));
    EXPECT_FALSE(to_text(report, true).empty());
  }
  EXPECT_GT(decoded, 100U);
  EXPECT_LT(decoded, 2000U);
}

TEST(Report, ManyAttributesAreCutInText) {
  const auto report = report_with([](ProcessContext& c) {
    for (int i = 0; i < 1000; ++i) {
      add(c.message.mutable_attributes(), std::to_string(i))->set_int_value(i);
    }
  });
  EXPECT_NE(to_text(report, false).find("(488 more)"), std::string::npos);
  EXPECT_EQ(json_of(report)["context"]["attributes"].size(), 1000U);
}

}  // namespace
}  // namespace ctxconf::reader
