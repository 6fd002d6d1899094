#include "golden/values.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "opentelemetry/proto/resource/v1/resource.pb.h"

namespace ctxconf::golden {
namespace {

using KeyValue = opentelemetry::proto::common::v1::KeyValue;
using Resource = opentelemetry::proto::resource::v1::Resource;

constexpr std::size_t kLongestVarint = 10;

void note(std::string& error, const std::string& where, const std::string& what) {
  if (error.empty()) error = where + ": " + what;
}

double double_from(const Json& json, const std::string& where, std::string& error) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  note(error, where, R"(must be a number, "NaN", "Infinity" or "-Infinity")");
  return 0;
}

Json double_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Fills an AnyValue or a pair in the caller's memory, so that the recursion stays simple.
void read_value(const Json& json, const std::string& where, std::string& error, AnyValue& out);

void read_pair(const Json& json, const std::string& where, std::string& error, KeyValue& out) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_string()) {
    return note(error, where, "must be a pair [KEY, VALUE]");
  }
  out.set_key(json[0].get<std::string>());
  if (!json[1].is_null()) read_value(json[1], where + "[1]", error, *out.mutable_value());
}

bool is_list(const Json& json, const std::string& where, std::string& error) {
  if (!json.is_array()) note(error, where, "must be a list");
  return json.is_array();
}

template <class Pairs>
void read_pairs(const Json& json, const std::string& where, std::string& error, Pairs& out) {
  if (!is_list(json, where, error)) return;
  for (std::size_t i = 0; i < json.size(); ++i) {
    read_pair(json[i], fmt::format("{}[{}]", where, i), error, *out.Add());
  }
}

void read_scalar(const std::string& kind, const Json& json, const std::string& where,
                 std::string& error, AnyValue& out) {
  if (kind == "string" && json.is_string()) {
    out.set_string_value(json.get<std::string>());
  } else if (kind == "bool" && json.is_boolean()) {
    out.set_bool_value(json.get<bool>());
  } else if (kind == "int" && json.is_number_integer() &&
             (!json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX)) {
    out.set_int_value(json.get<std::int64_t>());
  } else if (kind == "double") {
    out.set_double_value(double_from(json, where, error));
  } else if (kind == "bytes" && json.is_string() && bytes_of_hex(json.get<std::string>())) {
    out.set_bytes_value(*bytes_of_hex(json.get<std::string>()));
  } else {
    note(error, where,
         "is not a value: {\"string\": TEXT}, {\"bool\": ...}, {\"int\": ...}, {\"double\": ...}, "
         "{\"bytes\": HEX}, {\"array\": [...]}, {\"kvlist\": [...]} or {}");
  }
}

void read_value(const Json& json, const std::string& where, std::string& error, AnyValue& out) {
  if (!json.is_object() || json.size() > 1) {
    return note(error, where, "must be an object with one member, or {}");
  }
  if (json.empty()) return;
  const auto member = json.items().begin();
  const std::string& kind = member.key();
  const Json& value = member.value();
  const std::string inside = where + "." + kind;
  if (kind == "array") {
    out.mutable_array_value();
    if (!is_list(value, inside, error)) return;
    for (std::size_t i = 0; i < value.size(); ++i) {
      read_value(value[i], fmt::format("{}[{}]", inside, i), error,
                 *out.mutable_array_value()->add_values());
    }
  } else if (kind == "kvlist") {
    read_pairs(value, inside, error, *out.mutable_kvlist_value()->mutable_values());
  } else {
    read_scalar(kind, value, inside, error, out);
  }
}

Json value_json(const AnyValue& value);

template <class Pairs>
Json pairs_json(const Pairs& pairs) {
  Json out = Json::array();
  for (const KeyValue& p : pairs) out.push_back(Json::array({p.key(), value_json(p.value())}));
  return out;
}

Json value_json(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return {{"string", value.string_value()}};
    case AnyValue::kBoolValue:
      return {{"bool", value.bool_value()}};
    case AnyValue::kIntValue:
      return {{"int", value.int_value()}};
    case AnyValue::kDoubleValue:
      return {{"double", double_json(value.double_value())}};
    case AnyValue::kBytesValue:
      return {{"bytes", hex_of(value.bytes_value())}};
    case AnyValue::kArrayValue: {
      Json list = Json::array();
      for (const auto& v : value.array_value().values()) list.push_back(value_json(v));
      return {{"array", std::move(list)}};
    }
    case AnyValue::kKvlistValue:
      return {{"kvlist", pairs_json(value.kvlist_value().values())}};
    case AnyValue::kStringValueStrindex:  // an index into a table that does not exist
    case AnyValue::VALUE_NOT_SET:
      return Json::object();
  }
  return Json::object();
}

// --- single fields

void put_varint(Bytes& out, std::uint64_t value, std::size_t bytes) {
  std::size_t written = 1;
  while (value >= 0x80 || written < bytes) {
    out += static_cast<char>((value & 0x7fU) | 0x80U);
    value >>= 7U;
    ++written;
  }
  out += static_cast<char>(value);
}

Bytes encode_fields(const Json& fields, const std::string& where, std::string& error, int depth);

// The kinds of fields and their wire types.
struct FieldKind {
  const char* name;
  std::uint32_t wire_type;
};
constexpr FieldKind kFieldKinds[] = {{"varint", 0},  {"fixed64", 1}, {"text", 2},   {"bytes", 2},
                                     {"message", 2}, {"group", 3},   {"fixed32", 5}};

void put_field(Bytes& out, Members field, int depth) {
  const FieldKind* kind = nullptr;
  int kinds = 0;
  for (const auto& k : kFieldKinds) {
    if (!field.has(k.name)) continue;
    kind = &k;
    ++kinds;
  }
  const auto number = field.number("field", (1U << 29U) - 1);
  const auto width = [&](const char* name) {
    return static_cast<std::size_t>(field.number(name, kLongestVarint, 1));
  };
  if (kinds != 1) {
    return field.wrong("field",
                       "needs one of varint, fixed64, fixed32, text, bytes, message, group");
  }
  const std::string name = kind->name;
  put_varint(out, (number << 3U) | kind->wire_type, width("tag_bytes"));
  if (name == "varint") {
    const auto value = field.number("varint", UINT64_MAX);
    put_varint(out, value, width("varint_bytes"));
  } else if (name == "fixed64" || name == "fixed32") {
    const Bytes bytes = field.hex(kind->name);
    if (bytes.size() != (name == "fixed64" ? 8U : 4U)) {
      field.wrong(kind->name, "has the wrong number of bytes");
    }
    out += bytes;
  } else if (name == "group") {
    out += encode_fields(*field.list("group"), field.where() + "group", field.error(), depth + 1);
    put_varint(out, (number << 3U) | 4U, 1);
  } else {
    const Bytes content = name == "text" ? field.text("text")
                          : name == "bytes"
                              ? field.hex("bytes")
                              : encode_fields(*field.list("message"), field.where() + "message",
                                              field.error(), depth + 1);
    put_varint(out, field.number("length", UINT64_MAX, content.size()), width("length_bytes"));
    out += content;
  }
  field.finish();
}

Bytes encode_fields(const Json& fields, const std::string& where, std::string& error, int depth) {
  constexpr int kDeepest = 64;  // the depth that parse_json allows
  Bytes out;
  if (depth > kDeepest) return out;
  for (std::size_t i = 0; i < fields.size() && error.empty(); ++i) {
    put_field(out, Members(fields[i], fmt::format("{}[{}].", where, i), error), depth);
  }
  return out;
}

Attributes attributes_from(Members& expect, const char* name) {
  Attributes out;
  const Json* object = expect.need(name);
  if (object == nullptr || !object->is_object()) {
    expect.wrong(name, "must be an object of keys and values");
    return out;
  }
  for (const auto& [key, value] : object->items()) {
    const std::string where = expect.where() + name + "." + key;
    out[key] = value_text(value_from(value, where, expect.error()));
  }
  return out;
}

Attributes attributes_of(const google::protobuf::RepeatedPtrField<KeyValue>& pairs,
                         Repeats repeats) {
  Attributes out;
  for (const KeyValue& p : pairs) {
    const bool is_new = !out.contains(p.key());
    if (is_new || repeats == Repeats::kLast) out[p.key()] = value_text(p.value());
  }
  return out;
}

}  // namespace

AnyValue value_from(const Json& json, const std::string& where, std::string& error) {
  AnyValue out;
  read_value(json, where, error, out);
  return out;
}

std::string value_text(const AnyValue& value) {
  return value_json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

ProcessContent content_of(const ProcessContextMessage& message, Repeats repeats) {
  return {attributes_of(message.resource().attributes(), repeats),
          attributes_of(message.attributes(), repeats)};
}

Bytes encode_payload(Members payload) {
  Bytes out;
  if (payload.has("hex")) {
    out = payload.hex("hex");
  } else if (payload.has("wire")) {
    out = encode_fields(*payload.list("wire"), payload.where() + "wire", payload.error(), 1);
  } else {
    ProcessContextMessage message;
    if (const Json* pairs = payload.take("resource")) {
      read_pairs(*pairs, payload.where() + "resource", payload.error(),
                 *message.mutable_resource()->mutable_attributes());
    }
    if (const Json* pairs = payload.take("attributes")) {
      read_pairs(*pairs, payload.where() + "attributes", payload.error(),
                 *message.mutable_attributes());
    }
    if (payload.ok() && !message.SerializeToString(&out)) {
      payload.wrong("payload", "protobuf cannot encode it");
    }
  }
  payload.finish();
  return out;
}

ProcessContent process_content_from(Members expect) {
  ProcessContent out;
  out.resource = attributes_from(expect, "resource");
  out.attributes = attributes_from(expect, "attributes");
  expect.finish();
  return out;
}

OrderedJson to_json_value(const ProcessContent& content) {
  const auto object = [](const Attributes& attributes) {
    OrderedJson out = OrderedJson::object();
    for (const auto& [key, value] : attributes) out[key] = OrderedJson::parse(value);
    return out;
  };
  return {{"resource", object(content.resource)}, {"attributes", object(content.attributes)}};
}

}  // namespace ctxconf::golden
