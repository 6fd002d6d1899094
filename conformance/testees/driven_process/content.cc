#include "conformance/testees/driven_process/content.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::testees {

using opentelemetry::proto::processcontext::v1development::ProcessContext;

namespace {

constexpr Choice kBadContent[] = {
    {"pctx.payload.resource-matches-sdk", "cuts values to what a length of two bytes can count"},
    {"pctx.payload.resource-matches-sdk:16-bits", "keeps 16 bits of the length of a value"},
    {"pctx.payload.resource-matches-sdk:integer-as-text", "publishes integers as text"},
    {"pctx.payload.resource-matches-sdk:double-as-integer", "publishes 0 for each double"},
    {"pctx.payload.resource-matches-sdk:whole-double", "publishes the double 3.0 as the integer 3"},
    {"pctx.payload.resource-matches-sdk:zero", "publishes 0.0 for -0.0"},
    {"pctx.payload.resource-matches-sdk:inner-double",
     "does the same inside arrays and lists of pairs"},
    {"pctx.payload.resource-matches-sdk:one-pair", "keeps one pair of a list of pairs"},
    {"pctx.payload.resource-matches-sdk:trims", "removes outer spaces"},
    {"pctx.payload.resource-matches-sdk:nul", "ends a string at its first NUL"},
    {"pctx.payload.resource-matches-sdk:none-as-text", "publishes empty text for an empty value"},
    {"pctx.payload.resource-matches-sdk:bytes-as-text", "publishes bytes as text"},
    {"pctx.payload.resource-matches-sdk:field-2", "puts the Resource into field 2"},
    {"pctx.payload.resource-matches-sdk:taken",
     "says that it takes service.name, and publishes its own"},
    {"pctx.payload.resource-matches-sdk:extra-integer-as-text",
     "publishes integers of the extra pairs as text"},
    {"pctx.payload.resource-matches-sdk:extra-value", "publishes other values in the extra pairs"},
    {"pctx.payload.extra-keys-in-attributes", "puts the extra pairs into the Resource"},
    {"pctx.payload.extra-keys-in-attributes:drops", "leaves out the extra pairs"},
    {"pctx.update.visible:integer-as-text", "publishes integers as text in updates"},
    {"pctx.update.complete-state", "keeps attributes that an update left out"},
    {"pctx.update.complete-state:few-keys", "does so, and takes few keys"},
};

constexpr Choice kGoodContent[] = {
    {"limits", "has limits for attributes, and adds its own attribute"},
    {"no-extra-pairs", "refuses extra pairs"},
    {"leaves-out-extra-pairs", "leaves out the extra pairs, and says so"},
    {"pairs-in-another-order", "publishes attributes, and lists of pairs, in another order"},
    {"few-keys", "takes two keys, which it declares"},
    {"says-what-it-takes", "says in each reply which keys it takes"},
    {"no-keys", "takes no key"},
};

}  // namespace

const Choices kContentChoices{kBadContent, kGoodContent};

json text(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

std::string encode(Content content) {
  if (is_bad("pctx.payload.extra-keys-in-attributes")) {
    for (const json& a : std::exchange(content.attributes, json::array())) {
      content.resource.push_back(a);
    }
  }
  const json whole = {{"resource", {{"attributes", content.resource}}},
                      {"attributes", content.attributes}};
  ProcessContext message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(whole.dump(), &message, options).ok()) {
    throw std::invalid_argument("no attributes");
  }
  return message.SerializeAsString();
}

bool has_few_keys() { return is_good("few-keys") || is_bad("pctx.update.complete-state:few-keys"); }

namespace {

bool takes(const json& attribute) {
  if (is_good("no-keys")) return false;
  const auto& key = attribute.at("key").get_ref<const std::string&>();
  return key == "service.name" || key == "service.version";
}

bool takes_few() {
  return has_few_keys() || is_good("says-what-it-takes") || is_good("no-keys") ||
         is_bad("pctx.payload.resource-matches-sdk:taken");
}

// The configuration has two members; the SDK makes the other attributes itself.
void keep_own_keys(json& resource) {
  json kept = {text("service.instance.id", "b4f1c8d2-own"), text("host.name", "of-the-sdk")};
  for (const json& a : resource) {
    if (takes(a)) kept.push_back(a);
  }
  if (kept.size() == 2) kept.push_back(text("service.name", "unknown_service"));
  if (is_bad("pctx.payload.resource-matches-sdk:taken")) {
    kept.back() = text("service.name", "unknown_service");
  }
  resource = std::move(kept);
}

void change_text(std::string& text) {
  if (is_bad("pctx.payload.resource-matches-sdk:nul")) text = text.substr(0, text.find('\0'));
  if (!is_bad("pctx.payload.resource-matches-sdk:trims")) return;
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
}

// The SDK's language has one type of numbers.
void change_number(json& value, const char* name) {
  if (!value.contains("doubleValue") || !value["doubleValue"].is_number()) return;
  const auto number = value["doubleValue"].get<double>();
  if (number == 0 && is_bad("pctx.payload.resource-matches-sdk:zero")) value["doubleValue"] = 0.0;
  if (number != 0 && number == std::trunc(number) && is_bad(name)) {
    value = {{"intValue", std::to_string(static_cast<long long>(number))}};
  }
}

void change_inner(json& value) {
  constexpr const char* kName = "pctx.payload.resource-matches-sdk:inner-double";
  if (value.contains("arrayValue")) {
    for (json& v : value["arrayValue"]["values"]) change_number(v, kName);
  } else if (value.contains("kvlistValue")) {
    json& pairs = value["kvlistValue"]["values"];
    for (json& a : pairs) change_number(a["value"], kName);
    if (is_bad("pctx.payload.resource-matches-sdk:one-pair"))
      pairs.erase(pairs.begin() + 1, pairs.end());
  }
}

// This SDK keeps pairs in a table without an order.
void reverse_pairs(json& value) {
  if (value.contains("kvlistValue")) {
    json& pairs = value["kvlistValue"]["values"];
    std::ranges::reverse(pairs);
    for (json& a : pairs) reverse_pairs(a["value"]);
  } else if (value.contains("arrayValue")) {
    for (json& v : value["arrayValue"]["values"]) reverse_pairs(v);
  }
}

// This SDK has attributes of fewer kinds.
void change_kind(json& value) {
  if (value.contains("intValue") && is_bad("pctx.payload.resource-matches-sdk:integer-as-text")) {
    make_text(value);
  } else if (value.contains("doubleValue") &&
             is_bad("pctx.payload.resource-matches-sdk:double-as-integer")) {
    value = {{"intValue", "0"}};
  } else if (value.contains("bytesValue") &&
             is_bad("pctx.payload.resource-matches-sdk:bytes-as-text")) {
    value = {{"stringValue", value["bytesValue"].get<std::string>()}};
  } else if (value.is_object() && value.empty() &&
             is_bad("pctx.payload.resource-matches-sdk:none-as-text")) {
    value = {{"stringValue", ""}};
  } else if (value.contains("stringValue")) {
    change_text(value["stringValue"].get_ref<std::string&>());
  } else {
    change_number(value, "pctx.payload.resource-matches-sdk:whole-double");
    change_inner(value);
  }
}

}  // namespace

void make_text(json& value) {
  const json& n = value["intValue"];
  value = {{"stringValue", n.is_string() ? n.get<std::string>() : n.dump()}};
}

Content in_field_2(Content content) {
  for (json& a : std::exchange(content.resource, json::array())) content.attributes.push_back(a);
  return content;
}

void change_extra_pairs(json& pairs) {
  if (is_bad("pctx.payload.extra-keys-in-attributes:drops")) pairs = json::array();
  for (json& a : pairs) {
    json& value = a["value"];
    if (value.contains("intValue") &&
        is_bad("pctx.payload.resource-matches-sdk:extra-integer-as-text")) {
      make_text(value);
    } else if (value.contains("stringValue") &&
               is_bad("pctx.payload.resource-matches-sdk:extra-value")) {
      value = {{"stringValue", "another"}};
    }
  }
}

Reply with_taken(const json& request, Reply reply) {
  const bool says =
      is_good("says-what-it-takes") || is_bad("pctx.payload.resource-matches-sdk:taken");
  const bool no_pairs = is_good("leaves-out-extra-pairs");
  if ((!says && !no_pairs) || !reply) return reply;
  json answer = {{"left_out", json::array()}};
  if (says) answer["taken"] = json::array();
  const json resource = request.value("resource", json::object());
  for (const json& a : resource.value("attributes", json::array())) {
    if (says) answer[takes(a) ? "taken" : "left_out"].push_back(a.at("key"));
  }
  for (const json& a : request.value("attributes", json::array())) {
    answer[no_pairs ? "left_out" : "taken"].push_back(a.at("key"));
  }
  return answer;
}

Content given(Content content, const json& request) {
  if (request.contains("resource")) content.resource = request["resource"].at("attributes");
  if (request.contains("attributes")) content.attributes = request["attributes"];
  if (is_good("leaves-out-extra-pairs")) content.attributes = json::array();
  const bool has_16_bits = is_bad("pctx.payload.resource-matches-sdk:16-bits");
  if (is_bad("pctx.payload.resource-matches-sdk") || has_16_bits) {
    constexpr std::size_t kTwoByteLength = 16383;
    for (json& a : content.resource) {
      if (!a["value"].contains("stringValue")) continue;
      auto value = a["value"]["stringValue"].get<std::string>();
      value.resize(has_16_bits ? value.size() & 0xffffU : std::min(value.size(), kTwoByteLength));
      a["value"]["stringValue"] = value;
    }
  }
  if (takes_few()) keep_own_keys(content.resource);
  for (json& a : content.resource) change_kind(a["value"]);
  if (is_bad("pctx.payload.resource-matches-sdk:field-2")) content = in_field_2(std::move(content));
  if (is_good("limits")) {
    constexpr std::size_t kMost = 128;
    constexpr std::size_t kLongest = 16383;
    json kept = json::array();
    for (const json& a : content.resource) {
      const json& value = a.at("value");
      if (!value.contains("stringValue") || kept.size() >= kMost) continue;
      const auto& text = value["stringValue"].get_ref<const std::string&>();
      if (text.size() <= kLongest && !text.contains('\0')) kept.push_back(a);
    }
    const json own = text("telemetry.sdk.name", "ctxconf");
    if (std::ranges::find(kept, own) == kept.end()) kept.push_back(own);
    content.resource = std::move(kept);
  }
  if (is_good("pairs-in-another-order")) {
    for (json* list : {&content.resource, &content.attributes}) {
      std::ranges::reverse(*list);
      for (json& a : *list) reverse_pairs(a["value"]);
    }
  }
  return content;
}

}  // namespace ctxconf::testees
