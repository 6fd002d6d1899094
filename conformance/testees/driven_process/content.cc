#include "conformance/testees/driven_process/content.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cctype>
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
    {"pctx.payload.resource-matches-sdk:digits-as-integer", "publishes text of digits as integers"},
    {"pctx.payload.resource-matches-sdk:truth-as-boolean",
     "publishes the text \"true\" as a boolean"},
    {"pctx.payload.resource-matches-sdk:fraction-as-double",
     "publishes the text \"1.50\" as a double"},
    {"pctx.payload.resource-matches-sdk:one-line", "replaces line ends by spaces"},
    {"pctx.payload.resource-matches-sdk:decodes-percent", "takes values for percent-encoded"},
    {"pctx.payload.resource-matches-sdk:astral", "replaces characters beyond U+FFFF"},
    {"pctx.payload.resource-matches-sdk:key-case", "publishes keys in lower case"},
    {"pctx.payload.resource-matches-sdk:key-dashes", "replaces dashes in keys"},
    {"pctx.payload.resource-matches-sdk:key-cut", "cuts keys to 32 bytes"},
    {"pctx.payload.resource-matches-sdk:zero-integer",
     "publishes an empty value for the integer 0"},
    {"pctx.payload.resource-matches-sdk:flat-arrays", "flattens arrays in arrays"},
    {"pctx.payload.resource-matches-sdk:unique-elements",
     "keeps one of equal elements of an array"},
    {"pctx.payload.resource-matches-sdk:short-arrays", "keeps eight elements of an array"},
    {"pctx.payload.resource-matches-sdk:holes", "leaves out empty elements of an array"},
    {"pctx.payload.resource-matches-sdk:deep-pairs", "leaves out lists of pairs inside others"},
    {"pctx.payload.resource-matches-sdk:name-lost", "keeps the last hundred attributes"},
    {"pctx.payload.resource-matches-sdk:taken",
     "says that it takes service.name, and publishes its own"},
    {"pctx.payload.resource-matches-sdk:extra-integer-as-text",
     "publishes integers of the extra pairs as text"},
    {"pctx.payload.resource-matches-sdk:extra-value", "publishes other values in the extra pairs"},
    {"pctx.payload.extra-keys-in-attributes", "puts the extra pairs into the Resource"},
    {"pctx.payload.extra-keys-in-attributes:drops", "leaves out the extra pairs"},
    {"pctx.payload.extra-keys-in-attributes:after-drop",
     "leaves them out of a publication after a withdrawal"},
    {"pctx.update.visible:integer-as-text", "publishes integers as text in updates"},
    {"pctx.update.visible:kinds-lost", "leaves out values that are not text in updates"},
    {"pctx.update.visible:kinds-as-text",
     "publishes as text in updates what it leaves out of publications"},
    {"pctx.update.visible:long-lost", "leaves out long values in updates"},
    {"pctx.update.complete-state", "keeps attributes that an update left out"},
    {"pctx.update.complete-state:few-keys", "does so, and takes few keys"},
    {"pctx.update.complete-state:empty",
     "publishes empty text for attributes that an update left out"},
    {"pctx.update.complete-state:pairs-again",
     "publishes the extra pairs of an earlier publication in an update"},
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

bool has_only(const std::string& text, const char* characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string::npos;
}

std::string without_percent(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string digits = text[i] == '%' ? text.substr(i + 1, 2) : "";
    const bool is_escape = digits.size() == 2 && has_only(digits, "0123456789abcdefABCDEF");
    out += is_escape ? static_cast<char>(std::stoi(digits, nullptr, 16)) : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

// This SDK has strings of 16-bit units.
void replace_astral(std::string& text) {
  constexpr unsigned char kFourBytes = 0xf0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= kFourBytes) text.replace(i, 4, "?");
  }
}

// This SDK guesses the kind of a value that it finds as text.
void change_text(json& value) {
  auto& text = value["stringValue"].get_ref<std::string&>();
  if (is_bad("pctx.payload.resource-matches-sdk:nul")) text = text.substr(0, text.find('\0'));
  if (is_bad("pctx.payload.resource-matches-sdk:one-line")) {
    std::erase(text, '\r');
    std::ranges::replace(text, '\n', ' ');
  } else if (is_bad("pctx.payload.resource-matches-sdk:decodes-percent")) {
    text = without_percent(text);
  } else if (is_bad("pctx.payload.resource-matches-sdk:astral")) {
    replace_astral(text);
  } else if (is_bad("pctx.payload.resource-matches-sdk:trims")) {
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
  } else if (has_only(text, "0123456789") && text.size() < 10 &&
             is_bad("pctx.payload.resource-matches-sdk:digits-as-integer")) {
    value = {{"intValue", std::to_string(std::stoi(text))}};
  } else if (text == "true" && is_bad("pctx.payload.resource-matches-sdk:truth-as-boolean")) {
    value = {{"boolValue", true}};
  } else if (has_only(text, "0123456789.") && text.contains('.') &&
             is_bad("pctx.payload.resource-matches-sdk:fraction-as-double")) {
    value = {{"doubleValue", std::stod(text)}};
  }
}

void change_key(json& key) {
  auto& text = key.get_ref<std::string&>();
  if (is_bad("pctx.payload.resource-matches-sdk:key-case")) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  }
  if (is_bad("pctx.payload.resource-matches-sdk:key-dashes")) {
    std::ranges::replace(text, '-', '_');
  }
  if (is_bad("pctx.payload.resource-matches-sdk:key-cut")) text = text.substr(0, 32);
}

void change_array(json& values) {
  json kept = json::array();
  for (json& v : values) {
    if (is_bad("pctx.payload.resource-matches-sdk:unique-elements") &&
        std::ranges::find(kept, v) != kept.end()) {
      continue;
    }
    if (v.empty() && is_bad("pctx.payload.resource-matches-sdk:holes")) continue;
    if (is_bad("pctx.payload.resource-matches-sdk:short-arrays") && kept.size() >= 8) break;
    if (v.contains("arrayValue") && is_bad("pctx.payload.resource-matches-sdk:flat-arrays")) {
      for (json& inner : v["arrayValue"]["values"]) kept.push_back(std::move(inner));
    } else {
      kept.push_back(std::move(v));
    }
  }
  values = std::move(kept);
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
    json& values = value["arrayValue"]["values"];
    for (json& v : values) change_number(v, kName);
    change_array(values);
  } else if (value.contains("kvlistValue")) {
    json& pairs = value["kvlistValue"]["values"];
    for (json& a : pairs) change_number(a["value"], kName);
    if (is_bad("pctx.payload.resource-matches-sdk:deep-pairs")) {
      leave_out(pairs, [](const json& v) { return v.contains("kvlistValue"); });
    }
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
  } else if (value.contains("intValue") && (value["intValue"] == "0" || value["intValue"] == 0) &&
             is_bad("pctx.payload.resource-matches-sdk:zero-integer")) {
    value = json::object();
  } else if (value.contains("stringValue")) {
    change_text(value);
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

void add_missing(json& resource, const json& others) {
  for (const json& other : others) {
    const auto is_other = [&](const json& a) { return a["key"] == other["key"]; };
    if (std::ranges::none_of(resource, is_other)) resource.push_back(other);
  }
}

void leave_out(json& resource, bool (*is_left_out)(const json& value)) {
  json kept = json::array();
  for (json& a : resource) {
    if (!is_left_out(a["value"])) kept.push_back(std::move(a));
  }
  resource = std::move(kept);
}

bool is_not_text(const json& value) { return !value.contains("stringValue"); }

bool is_long(const json& value) {
  constexpr std::size_t kLong = 127;
  return !is_not_text(value) && value["stringValue"].get_ref<const std::string&>().size() > kLong;
}

void change_update(json& resource, json before) {
  if (is_bad("pctx.update.visible:kinds-lost")) leave_out(resource, is_not_text);
  if (is_bad("pctx.update.visible:long-lost")) leave_out(resource, is_long);
  for (json& a : resource) {
    json& value = a["value"];
    if (value.contains("intValue") && is_bad("pctx.update.visible:integer-as-text")) {
      make_text(value);
    }
    if (is_not_text(value) && is_bad("pctx.update.visible:kinds-as-text")) {
      value = {{"stringValue", value.dump()}};
    }
  }
  const bool empties = is_bad("pctx.update.complete-state:empty");
  for (json& a : before) {
    if (empties) a["value"] = {{"stringValue", ""}};
  }
  if (empties || is_bad("pctx.update.complete-state") ||
      is_bad("pctx.update.complete-state:few-keys")) {
    add_missing(resource, before);
  }
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
  const bool moves = is_bad("pctx.payload.resource-matches-sdk:field-2");
  if (moves && request.contains("resource")) content.attributes = json::array();
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
  for (json& a : content.resource) {
    change_key(a["key"]);
    change_kind(a["value"]);
  }
  if (is_bad("pctx.payload.resource-matches-sdk:name-lost") && content.resource.size() > 100) {
    content.resource.erase(content.resource.begin(), content.resource.end() - 100);
  }
  if (moves) content = in_field_2(std::move(content));
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
