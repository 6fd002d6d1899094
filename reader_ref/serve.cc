#include "reader_ref/serve.h"

#include <unistd.h>

#include <cmath>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "reader_ref/process_reader.h"
#include "reader_ref/report.h"
#include "reader_ref/thread_context.h"
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
  Json out = Json::array();
  for (const KeyValue& pair : pairs) {
    if (find_attribute(pairs, pair.key()) != &pair) continue;
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

Json refused(const std::string& kind, const std::string& message) {
  return {{"ok", false}, {"error", {{"kind", kind}, {"message", message}}}};
}

class Server {
 public:
  Json answer(const Json& request) {
    const std::string op = request.value("op", std::string());
    if (op == "hello") return hello();
    if (op == "reader.process") return process(request);
    if (op == "reader.thread") return thread(request);
    if (op == "reader.record") return record(request);
    if (op == "reader.forget") {
      readers_.erase(request.value("pid", 0));
      return {{"ok", true}};
    }
    if (op == "bye") return {{"ok", true}};
    return refused("unsupported", "no operation " + op);
  }

 private:
  static Json hello() {
    return {{"ok", true},
            {"v", 1},
            {"pid", getpid()},
            {"adapter", {{"name", "reader_ref"}, {"version", "0.1.0"}}},
            {"sdk", {{"name", "reader_ref"}, {"version", "0.1.0"}, {"language", "cpp"}}},
            {"caps",
             {{"reader", {{"payload_bytes", kPayloadLimit}}},
              {"reader.process", Json::object()},
              {"reader.thread", Json::object()},
              {"reader.record", Json::object()},
              {"reader.forget", Json::object()}}}};
  }

  ProcessReader& reader_of(pid_t pid, bool threads) {
    auto& known = readers_[pid];
    auto& reader = threads ? known.second : known.first;
    if (!reader) {
      ReaderOptions options;
      options.threads = threads;
      reader = std::make_unique<ProcessReader>(pid, options, files_);
    }
    return *reader;
  }

  Json process(const Json& request) {
    const auto report = reader_of(request.value("pid", 0), false).read();
    if (!report) return {{"ok", true}, {"result", "absent"}};
    if (!report->context) {
      const char* const none = report->notes.empty() ? "absent" : "reject";
      return {{"ok", true}, {"result", report->busy ? "retry" : none}};
    }
    const auto& message = report->context->message;
    Json context = {{"attributes", pairs_json(message.attributes())}};
    if (message.has_resource()) {
      context["resource"] = {{"attributes", pairs_json(message.resource().attributes())}};
    }
    return {{"ok", true}, {"result", "accept"}, {"context", std::move(context)}};
  }

  Json thread(const Json& request) {
    const auto report = reader_of(request.value("pid", 0), true).read();
    if (report) {
      for (const ThreadReport& t : report->threads) {
        if (t.tid != request.value("tid", 0) || !t.context) continue;
        return {{"ok", true}, {"result", "accept"}, {"record", record_json(*t.context)}};
      }
    }
    return {{"ok", true}, {"result", report && report->busy ? "retry" : "absent"}};
  }

  // A record in memory that ends with its last byte.
  static Json record(const Json& request) {
    const auto hex = request.value("hex", std::string());
    constexpr sys::RemoteAddr kRecord(0x10000);
    constexpr sys::RemoteAddr kSlot(0x100);
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    const std::uint64_t pointer = kRecord.raw();
    sys::SnapshotMemory memory;
    memory.put(kSlot, std::as_bytes(std::span(&pointer, 1)));
    memory.put(kRecord, bytes);
    const auto copy = copy_record(memory, kSlot, Attributes::kRead);
    if (!copy || copy->state != RecordState::kValid) return {{"ok", true}, {"result", "absent"}};
    KeyMap keys;
    for (const Json& name : request.value("key_map", Json::array())) {
      keys.push_back(name.is_string() ? name.get<std::string>() : std::string());
    }
    return {{"ok", true}, {"result", "accept"}, {"record", record_json(parse_record(*copy, keys))}};
  }

  sys::ElfCache files_;
  std::map<pid_t, std::pair<std::unique_ptr<ProcessReader>, std::unique_ptr<ProcessReader>>>
      readers_;
};

}  // namespace

bool serve(std::istream& in, std::ostream& out) {
  Server server;
  for (std::string line; std::getline(in, line);) {
    const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object() || !request.contains("id")) continue;
    Json reply = server.answer(request);
    reply["id"] = request["id"];
    out << reply.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << '\n'
        << std::flush;
    if (!out) return false;
    if (request.value("op", std::string()) == "bye") break;
  }
  return true;
}

}  // namespace ctxconf::reader
