#include "conformance/testees/reader/answer_json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "conformance/testees/reader/text.h"

namespace ctxconf::testees {
namespace {

using Json = nlohmann::json;
using Kind = AnyValue::Kind;

constexpr std::size_t kUsualAttributes = 612;  // of a record of 640 bytes

Json double_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
}

Json value_json(const AnyValue& value) {
  switch (value.kind) {
    case Kind::kString:
      return {{"stringValue", value.text}};
    case Kind::kBool:
      return {{"boolValue", value.number != 0}};
    case Kind::kInt:
      return {{"intValue", std::to_string(value.number)}};
    case Kind::kDouble:
      return {{"doubleValue", double_json(value.real)}};
    case Kind::kBytes:
      return {{"bytesValue", base64(value.text)}};
    case Kind::kKvlist:
      return {{"kvlistValue", {{"values", json_of(value.pairs)}}}};
    case Kind::kArray: {
      Json values = Json::array();
      for (const AnyValue& v : value.values) values.push_back(value_json(v));
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
    case Kind::kEmpty:
    case Kind::kOther:
      break;
  }
  return Json::object();
}

// Whether this reader has a way to show it; makes it one that it shows.
bool is_shown(AnyValue& value) {
  const bool converts = is_good("converts-to-strings");
  if (value.kind == Kind::kString || (!converts && !is_good("strings-only"))) return true;
  if (!converts || (value.kind != Kind::kInt && value.kind != Kind::kBool)) return false;
  value.text = std::to_string(value.number);
  value.kind = Kind::kString;
  return true;
}

Json record_json(const Record& record) {
  Json out = {{"attributes", Json::object()}};
  if (record.trace_id) out["trace_id"] = *record.trace_id;
  if (record.span_id) out["span_id"] = *record.span_id;
  if (record.trace_id && !is_good("no-flags")) out["flags"] = record.flags;
  for (const auto& [name, value] : record.attributes) {
    out["attributes"][name] = is_utf8(value) ? Json(value) : Json{{"hex", hex(value)}};
  }
  return out;
}

Json context_json(const Message& message) {
  Json out = Json::object();
  const bool omits =
      is_good("resource-only") ||
      (message.has_resource && is_bad("pctx.reader.decodes-process-context:field-2"));
  Pairs attributes = omits ? Pairs() : unique(message.attributes);
  Pairs resource = unique(message.resource);
  if (message.resource_is_first && is_bad("pctx.reader.decodes-process-context:groups")) {
    std::ranges::move(std::exchange(attributes, {}), std::back_inserter(resource));
  }
  if (message.has_resource) out["resource"] = {{"attributes", json_of(resource)}};
  if (!omits) out["attributes"] = json_of(attributes);
  return out;
}

const char* word(Result result) {
  switch (result) {
    case Result::kAccept:
      return "accept";
    case Result::kReject:
      return "reject";
    case Result::kRetry:
      return "retry";
    case Result::kAbsent:
      break;
  }
  return "absent";
}

}  // namespace

Json json_of(const Pairs& pairs) {
  Json out = Json::array();
  for (const Pair& p : pairs) {
    AnyValue value = p.value;
    if (is_shown(value)) out.push_back({{"key", p.key}, {"value", value_json(value)}});
  }
  return out;
}

Json json_of(const Answer& answer) {
  Json out = {{"result", word(answer.result)}};
  if (answer.context) out["context"] = context_json(answer.context->message);
  if (answer.record) out["record"] = record_json(*answer.record);
  return out;
}

Json reader_traits() {
  Json out = {{"payload_bytes", payload_limit()}};
  if (is_good("resource-only")) out["fields"] = {"resource"};
  if (is_good("strings-only") || is_good("converts-to-strings")) out["kinds"] = {"string"};
  if (is_good("one-schema")) out["formats"] = {"tlsdesc_v1_dev"};
  if (is_good("first-draft")) out["formats"] = {"tlsdesc_v1_dev", "tls_v1", "H1"};
  if (is_good("no-flags")) out["flags"] = false;
  if (is_good("unsynchronised")) out["unsynchronised"] = true;
  if (is_good("small-records")) out["attribute_bytes"] = kUsualAttributes;
  if (is_good("defaults") || breaks("pctx.reader.default-detection")) out["defaults"] = true;
  if (is_good("second-source") || breaks("tctx.reader.authoritative")) out["second_source"] = true;
  return out;
}

}  // namespace ctxconf::testees
