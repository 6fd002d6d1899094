#include "conformance/reader/message_content.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "conformance/text/json_text.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance::reader {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;
using Json = nlohmann::json;

// Of a record.
constexpr std::size_t kSpanAt = 16;
constexpr std::size_t kSpanEnd = 24;
constexpr std::size_t kSizeAt = 26;
constexpr std::size_t kArea = 28;

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
      return {{"bytesValue", base64(value.bytes_value())}};
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

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      three = three << 8U | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
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

bool has_ids(const puppet::Bytes& record) {
  return std::ranges::any_of(std::span(record).first(kSpanEnd),
                             [](std::byte b) { return b != std::byte{0}; });
}

std::string content_of_record(const puppet::Bytes& record, const std::vector<std::string>& names,
                              bool attributes) {
  const auto ids = std::span(record).first(kSpanEnd);
  Json out = {{"trace_id", hex(ids.first(kSpanAt))}, {"span_id", hex(ids.subspan(kSpanAt))}};
  if (!attributes) return out.dump();
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(record[at]); };
  const std::size_t size_field = byte(kSizeAt) | byte(kSizeAt + 1) << 8U;
  const std::size_t end = std::min(record.size(), kArea + size_field);
  std::map<std::string, std::string> last;
  for (std::size_t at = kArea; at + 2 <= end;) {
    const std::size_t index = byte(at);
    const std::size_t size = byte(at + 1);
    at += 2;
    if (size > end - at) break;
    if (index < names.size()) {
      last[names[index]] = std::string(reinterpret_cast<const char*>(record.data() + at), size);
    }
    at += size;
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
