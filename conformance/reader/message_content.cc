#include "conformance/reader/message_content.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "conformance/text/json_text.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance::reader {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;
using Json = nlohmann::json;

// As in OTLP/JSON.
Json json_of(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return {{"stringValue", value.string_value()}};
    case AnyValue::kBoolValue:
      return {{"boolValue", value.bool_value()}};
    case AnyValue::kIntValue:
      return {{"intValue", value.int_value()}};
    case AnyValue::kDoubleValue:
      return {{"doubleValue", value.double_value()}};
    case AnyValue::kBytesValue:
      return {{"bytesValue", base64(std::as_bytes(std::span(value.bytes_value())))}};
    case AnyValue::kArrayValue: {
      Json values = Json::array();
      for (const AnyValue& one : value.array_value().values()) values.push_back(json_of(one));
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
    case AnyValue::kKvlistValue: {
      Json values = Json::array();
      for (const auto& one : value.kvlist_value().values()) {
        values.push_back({{"key", one.key()}, {"value", json_of(one.value())}});
      }
      return {{"kvlistValue", {{"values", std::move(values)}}}};
    }
    default:
      return Json::object();
  }
}

template <class Pairs>
Json object_of(const Pairs& pairs) {
  Json out = Json::object();
  for (const auto& pair : pairs) out[pair.key()] = json_of(pair.value());
  return out;
}

}  // namespace

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      three = three << 8U | (j < bytes.size() ? std::to_integer<std::uint32_t>(bytes[j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kLetters[three >> (18 - 6 * j) & 63U];
    }
  }
  return out;
}

std::string content_of_message(const puppet::Bytes& message) {
  ProcessContext context;
  context.ParseFromArray(message.data(), static_cast<int>(message.size()));
  return Json{{"resource", object_of(context.resource().attributes())},
              {"attributes", object_of(context.attributes())}}
      .dump();
}

std::string schema_of_message(const puppet::Bytes& message) {
  ProcessContext context;
  context.ParseFromArray(message.data(), static_cast<int>(message.size()));
  for (const auto& pair : context.attributes()) {
    if (pair.key() == abi::kSchemaVersionKey) return pair.value().string_value();
  }
  return {};
}

bool has_ids(const puppet::Bytes& record) {
  const auto head = abi::decode_thread_record(record);
  return head && (abi::has_trace_id(*head) || abi::has_span_id(*head));
}

std::string content_of_record(const puppet::Bytes& record, const std::vector<std::string>& names,
                              bool attributes) {
  const auto head = abi::decode_thread_record(record).value();
  Json out = {{"trace_id", hex(std::as_bytes(std::span(head.trace_id)))},
              {"span_id", hex(std::as_bytes(std::span(head.span_id)))}};
  if (!attributes) return out.dump();
  const auto area = std::span(record).subspan(abi::kRecordHeadBytes);
  abi::AttributeCursor cursor(area.first(std::min<std::size_t>(area.size(), head.attrs_data_size)));
  std::map<std::string, std::string> last;
  while (const auto entry = cursor.next()) {
    if (entry->key >= names.size()) continue;
    last[names[entry->key]] =
        std::string(reinterpret_cast<const char*>(entry->value.data()), entry->value.size());
  }
  // A reader may leave out an empty value: open.tctx.empty-value.
  const bool all_shown = std::ranges::none_of(last, [](const auto& l) { return l.second.empty(); });
  Json& shown = out[all_shown ? "names" : "names_has"] = Json::object();
  for (const auto& [name, value] : last) {
    if (!value.empty()) shown[name] = value;
  }
  return out.dump();
}

}  // namespace ctxconf::conformance::reader
