#include "reader_ref/protocol_answers.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "reader_ref/report.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"

namespace ctxconf::reader {
namespace {

using Json = nlohmann::json;
using opentelemetry::proto::common::v1::AnyValue;

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      three = three << 8U | (i + j < bytes.size() ? static_cast<std::uint8_t>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > bytes.size() ? '=' : kBase64[three >> (18 - 6 * j) & 63U];
    }
  }
  return out;
}

Json pairs_json(const KeyValues& pairs);

// As in OTLP/JSON.
Json value_json(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return {{"stringValue", value.string_value()}};
    case AnyValue::kBoolValue:
      return {{"boolValue", value.bool_value()}};
    case AnyValue::kIntValue:
      return {{"intValue", std::to_string(value.int_value())}};
    case AnyValue::kDoubleValue: {
      const double number = value.double_value();
      if (std::isfinite(number)) return {{"doubleValue", number}};
      return {{"doubleValue", std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity"}};
    }
    case AnyValue::kArrayValue: {
      Json values = Json::array();
      for (const AnyValue& v : value.array_value().values()) values.push_back(value_json(v));
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
    case AnyValue::kKvlistValue:
      return {{"kvlistValue", {{"values", pairs_json(value.kvlist_value().values())}}}};
    case AnyValue::kBytesValue:
      return {{"bytesValue", base64(value.bytes_value())}};
    case AnyValue::kStringValueStrindex:
    case AnyValue::VALUE_NOT_SET:
      break;
  }
  return Json::object();
}

// Of equal keys the last one counts.
Json pairs_json(const KeyValues& pairs) {
  std::map<std::string_view, const KeyValue*> last;
  for (const KeyValue& pair : pairs) last[pair.key()] = &pair;
  Json out = Json::array();
  for (const KeyValue& pair : pairs) {
    if (last[pair.key()] != &pair) continue;
    out.push_back({{"key", pair.key()}, {"value", value_json(pair.value())}});
  }
  return out;
}

bool is_text(std::string_view bytes) {
  try {
    (void)Json(std::string(bytes)).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Json record_json(const ThreadContext& context) {
  Json out = {{"attributes", Json::object()}};
  if (context.link) {
    out["trace_id"] = to_hex(context.link->trace_id);
    out["span_id"] = to_hex(context.link->span_id);
    out["flags"] = context.link->flags;
  }
  for (const NamedValue& a : context.attributes) {
    if (is_text(a.value)) {
      out["attributes"][a.key] = a.value;
    } else {
      const std::span bytes(reinterpret_cast<const std::uint8_t*>(a.value.data()), a.value.size());
      out["attributes"][a.key] = {{"hex", to_hex(bytes)}};
    }
  }
  return out;
}

// The error of a process that is changing too fast says so; the others are about a process of which
// nothing can be known.
const char* result_of(const sys::Error& error) { return error.err == EAGAIN ? "retry" : "absent"; }

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

Json answer_about_process(const sys::Result<ProcessReport>& report) {
  if (!report) return {{"result", result_of(report.error())}};
  if (!report->context) {
    const char* const none = report->notes.empty() ? "absent" : "reject";
    return {{"result", report->busy ? "retry" : none}};
  }
  const auto& message = report->context->message;
  Json context = {{"attributes", pairs_json(message.attributes())}};
  if (message.has_resource()) {
    context["resource"] = {{"attributes", pairs_json(message.resource().attributes())}};
  }
  return {{"result", "accept"}, {"context", std::move(context)}};
}

Json answer_about(const ThreadReport& thread) {
  if (!thread.context) return {{"result", "absent"}};
  return {{"result", "accept"}, {"record", record_json(*thread.context)}};
}

Json answer_about_thread(const sys::Result<ProcessReport>& report, pid_t tid) {
  if (!report) return {{"result", result_of(report.error())}};
  for (const ThreadReport& t : report->threads) {
    if (t.tid == tid) return answer_about(t);
  }
  return {{"result", report->busy ? "retry" : "absent"}};
}

std::optional<std::vector<std::byte>> bytes_of_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit_of(hex[i]);
    const int low = digit_of(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(16 * high + low));
  }
  return bytes;
}

Json answer_about_record(std::span<const std::byte> record, const KeyMap& keys) {
  constexpr sys::RemoteAddr kRecord(0x10000);
  constexpr sys::RemoteAddr kSlot(0x100);
  const std::uint64_t pointer = kRecord.raw();
  sys::SnapshotMemory memory;
  memory.put(kSlot, std::as_bytes(std::span(&pointer, 1)));
  memory.put(kRecord, record);
  const auto copy = copy_record(memory, kSlot, Attributes::kRead);
  if (!copy || copy->state != RecordState::kValid) return {{"result", "absent"}};
  return {{"result", "accept"}, {"record", record_json(parse_record(*copy, keys))}};
}

}  // namespace ctxconf::reader
