#include "reader_ref/protocol_answers.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "abi/thread_record.h"
#include "reader_ref/literal_context.h"

namespace ctxconf::reader {
namespace {

using nlohmann::json;
using opentelemetry::proto::common::v1::AnyValue;

template <class Fill>
sys::Result<ProcessReport> result_with(Fill fill) {
  auto context = std::make_shared<ProcessContext>();
  fill(context->message);
  ProcessReport report;
  report.context = std::move(context);
  return report;
}

sys::Result<ProcessReport> failed(int err) { return sys::fail("read process", err, ""); }

TEST(AnswerAboutProcess, HasEveryKindOfValueAsInOtlpJson) {
  const auto report = result_with([](ProcessContextMessage& m) {
    auto* a = m.mutable_attributes();
    add(a, "s")->set_string_value("text");
    add(a, "b")->set_bool_value(false);
    add(a, "i")->set_int_value(INT64_MIN);
    add(a, "d")->set_double_value(0.5);
    add(a, "nan")->set_double_value(std::numeric_limits<double>::quiet_NaN());
    add(a, "inf")->set_double_value(-std::numeric_limits<double>::infinity());
    add(a, "list")->mutable_array_value()->add_values()->set_int_value(1);
    add(a, "none");
    add(a, "index")->set_string_value_strindex(3);
  });
  EXPECT_EQ(answer_about_process(report), json::parse(R"({"result": "accept", "context":
    {"attributes": [
      {"key": "s", "value": {"stringValue": "text"}},
      {"key": "b", "value": {"boolValue": false}},
      {"key": "i", "value": {"intValue": "-9223372036854775808"}},
      {"key": "d", "value": {"doubleValue": 0.5}},
      {"key": "nan", "value": {"doubleValue": "NaN"}},
      {"key": "inf", "value": {"doubleValue": "-Infinity"}},
      {"key": "list", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
      {"key": "none", "value": {}},
      {"key": "index", "value": {}}]}})"));
}

TEST(AnswerAboutProcess, EncodesBytesOfEachLength) {
  for (const auto& [bytes, text] : {std::pair("", ""),
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"\xff\xfe", "//4="}}) {
    const auto report = result_with([&](ProcessContextMessage& m) {
      add(m.mutable_attributes(), "b")->set_bytes_value(bytes);
    });
    EXPECT_EQ(answer_about_process(report)["context"]["attributes"][0]["value"]["bytesValue"],
              text);
  }
}

TEST(AnswerAboutProcess, KeepsAnEmptyKeyAndTheLastOfEqualOnes) {
  const auto report = result_with([](ProcessContextMessage& m) {
    auto* a = m.mutable_resource()->mutable_attributes();
    for (const char* value : {"1", "2"}) {
      add(a, "")->set_string_value(value);
      add(a, "k")->set_string_value(value);
    }
    auto* map = add(a, "map")->mutable_kvlist_value();
    map->add_values()->mutable_value()->set_bool_value(true);
  });
  EXPECT_EQ(answer_about_process(report)["context"]["resource"]["attributes"], json::parse(R"([
      {"key": "", "value": {"stringValue": "2"}},
      {"key": "k", "value": {"stringValue": "2"}},
      {"key": "map", "value": {"kvlistValue": {"values": [
        {"key": "", "value": {"boolValue": true}}]}}}])"));
}

TEST(AnswerAboutProcess, SaysWhyThereIsNoContext) {
  EXPECT_EQ(answer_about_process(failed(ESRCH)), json({{"result", "absent"}}));
  EXPECT_EQ(answer_about_process(failed(EAGAIN)), json({{"result", "retry"}}));
  ProcessReport report;
  EXPECT_EQ(answer_about_process(report), json({{"result", "absent"}}));
  report.notes.emplace_back("the version is 3");
  EXPECT_EQ(answer_about_process(report), json({{"result", "reject"}}));
  report.busy = true;
  EXPECT_EQ(answer_about_process(report), json({{"result", "retry"}}));
}

TEST(AnswerAboutThread, IsThatOfTheThread) {
  ThreadContext context;
  context.link = TraceLink{{0x4b, 0xf9}, {0x0a}, 1};
  context.attributes = {{"route", "/cart"}, {"odd", "\xff"}};
  ProcessReport report;
  report.threads.push_back({7, "worker", context, ""});
  report.threads.push_back({8, "idle", std::nullopt, "the slot is null"});
  EXPECT_EQ(answer_about_thread(report, 7), json::parse(R"({"result": "accept", "record": {
      "trace_id": "4bf90000000000000000000000000000", "span_id": "0a00000000000000", "flags": 1,
      "attributes": {"route": "/cart", "odd": {"hex": "ff"}}}})"));
  EXPECT_EQ(answer_about_thread(report, 8), json({{"result", "absent"}}));
  EXPECT_EQ(answer_about_thread(report, 9), json({{"result", "absent"}}));
  report.busy = true;
  EXPECT_EQ(answer_about_thread(report, 9), json({{"result", "retry"}}));
  EXPECT_EQ(answer_about_thread(failed(EAGAIN), 7), json({{"result", "retry"}}));
  EXPECT_EQ(answer_about_thread(failed(EPERM), 7), json({{"result", "absent"}}));
}

TEST(AnswerAboutRecord, ReadsTheBytes) {
  abi::ThreadRecordHead head{};
  head.valid = abi::kRecordValid;
  std::vector<std::byte> area(16);
  abi::AttributeEncoder encoder{area};
  ASSERT_TRUE(encoder.append(1, std::as_bytes(std::span("x", 1))));
  head.attrs_data_size = static_cast<std::uint16_t>(encoder.size());
  std::vector<std::byte> bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes.insert(bytes.end(), area.begin(), area.begin() + head.attrs_data_size);
  EXPECT_EQ(answer_about_record(bytes, {"a", "b"}),
            json::parse(R"({"result": "accept", "record": {"attributes": {"b": "x"}}})"));
  EXPECT_EQ(answer_about_record({}, {}), json({{"result", "absent"}}));
  EXPECT_EQ(answer_about_record(std::span(bytes).first(sizeof head - 1), {}),
            json({{"result", "absent"}}));
  bytes[offsetof(abi::ThreadRecordHead, valid)] = std::byte{2};
  EXPECT_EQ(answer_about_record(bytes, {}), json({{"result", "absent"}}));
}

TEST(BytesOfHex, TakesPairsOfLowerCaseDigits) {
  EXPECT_EQ(bytes_of_hex(""), std::vector<std::byte>());
  EXPECT_EQ(bytes_of_hex("00ff1a"), (std::vector{std::byte{0}, std::byte{0xff}, std::byte{0x1a}}));
  for (const char* wrong : {"0", "0g", "0A", "0x", " 0"})
    EXPECT_EQ(bytes_of_hex(wrong), std::nullopt);
}

}  // namespace
}  // namespace ctxconf::reader
