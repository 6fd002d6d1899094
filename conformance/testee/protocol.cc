#include "conformance/testee/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "conformance/evidence/reader_answers.h"
#include "conformance/testee/builtin_schema.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "reader.formats:";

constexpr std::array<std::pair<Definition, const char*>, 10> kDefinitions = {{
    {Definition::kRequest, "request"},
    {Definition::kReply, "reply"},
    {Definition::kEvent, "event"},
    {Definition::kHelloReply, "hello_reply"},
    {Definition::kSpawnReply, "spawn_reply"},
    {Definition::kForkReply, "fork_reply"},
    {Definition::kReapReply, "reap_reply"},
    {Definition::kTlsAddressReply, "tls_address_reply"},
    {Definition::kParallelReply, "parallel_reply"},
    {Definition::kReaderReply, "reader_reply"},
}};

const valijson::Schema& schema_of(Definition definition) {
  static const auto schemas = [] {
    std::map<Definition, std::unique_ptr<valijson::Schema>> out;
    const Json file = Json::parse(builtin_schema().front().text);
    for (const auto& [d, name] : kDefinitions) {
      const Json one = {{"$schema", file.at("$schema")},
                        {"definitions", file.at("definitions")},
                        {"$ref", std::string("#/definitions/") + name}};
      auto& schema = out[d] = std::make_unique<valijson::Schema>();
      valijson::SchemaParser parser;
      parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(one), *schema);
    }
    return out;
  }();
  return *schemas.at(definition);
}

}  // namespace

void LineBuffer::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    if (!too_long_ && rest_.size() + part.size() <= kLongestLine) {
      rest_ += part;
    } else {
      too_long_ = true;
      rest_.clear();
    }
    if (end == std::string_view::npos) return;
    lines_.push_back(std::exchange(rest_, {}));
    too_long_ = false;
    bytes.remove_prefix(end + 1);
  }
}

std::optional<std::string> LineBuffer::next() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

namespace {

// Replaces each list and object in the outermost one by null.
std::string without_depth(std::string_view text) {
  std::string out;
  std::size_t open = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool escaped = in_string && c == '\\' && i + 1 < text.size();
    if (c == '"') in_string = !in_string;
    if (!in_string && (c == '[' || c == '{') && ++open == 2) out += "null";
    if (open <= 1) out += text.substr(i, escaped ? 2 : 1);
    if (!in_string && (c == ']' || c == '}') && open > 0) --open;
    if (escaped) ++i;
  }
  return out;
}

}  // namespace

LineKind classify_line(const std::string& line, Json& out) {
  const bool too_deep = nests_deeper(line, kDeepestLine);
  out = Json::parse(too_deep ? without_depth(line) : line, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object()) return LineKind::kNoise;
  const auto depth = [&] { return fmt::format("the line nests more than {} deep", kDeepestLine); };
  if (out.contains("ev")) {
    if (too_deep) out["pid"] = depth();
    return LineKind::kEvent;
  }
  if (out.contains("id") && out["id"].is_number_integer() && out.contains("ok")) {
    if (too_deep) out["ok"] = depth();
    return LineKind::kReply;
  }
  return LineKind::kNoise;
}

Definition definition_of_reply(std::string_view op) {
  if (op == "hello") return Definition::kHelloReply;
  if (op == "thread.spawn") return Definition::kSpawnReply;
  if (op == "process.fork") return Definition::kForkReply;
  if (op == "process.reap") return Definition::kReapReply;
  if (op == "diag.tls_address") return Definition::kTlsAddressReply;
  if (op == "parallel") return Definition::kParallelReply;
  if (op == "reader.process" || op == "reader.thread" || op == "reader.record") {
    return Definition::kReaderReply;
  }
  return Definition::kReply;
}

std::optional<std::string> problem_of(const Json& line, Definition definition) {
  static thread_local valijson::Validator validator;  // keeps the regular expressions
  valijson::ValidationResults results;
  if (validator.validate(schema_of(definition), valijson::adapters::NlohmannJsonAdapter(line),
                         &results)) {
    return std::nullopt;
  }
  // The last error is about the innermost wrong member. One that only says that a part of the
  // schema does not hold is of no use next to that.
  const auto is_vague = [](const valijson::ValidationResults::Error& e) {
    return e.description.empty() || e.description.contains("child schema") ||
           e.description.contains("conditional schema");
  };
  valijson::ValidationResults::Error error;
  valijson::ValidationResults::Error next;
  while (results.popError(next)) {
    const bool as_deep = next.context.size() == error.context.size();
    const bool better = is_vague(error) || !is_vague(next);
    if (next.context.size() > error.context.size() || (as_deep && better)) error = next;
  }
  std::string where;
  for (const auto& part : error.context) {
    if (part != "<root>") where += part;
  }
  return (where.empty() ? "the object" : where) + ": " + error.description;
}

Need need_from(std::string_view text) {
  constexpr std::string_view kNot = "not ";
  if (!text.starts_with(kNot)) return {.capability = text};
  return {.capability = text.substr(kNot.size()), .must_be_absent = true};
}

bool is_declared(const nlohmann::json& capabilities, std::string_view capability) {
  if (const auto bar = capability.find('|'); bar != std::string_view::npos) {
    return is_declared(capabilities, capability.substr(0, bar)) ||
           is_declared(capabilities, capability.substr(bar + 1));
  }
  if (const Need need = need_from(capability); need.must_be_absent) {
    return !is_declared(capabilities, need.capability);
  }
  if (capability.starts_with(kFormat)) {
    return ReaderTraits(capabilities).reads(capability.substr(kFormat.size()));
  }
  const auto colon = capability.find(':');
  const std::string name(capability.substr(0, colon));
  if (!capabilities.is_object() || !capabilities.contains(name)) return false;
  if (colon == std::string_view::npos) return true;
  const auto& declared = capabilities[name];
  if (!declared.is_object() || !declared.contains("child")) return false;
  return std::ranges::any_of(declared["child"], [&](const nlohmann::json& child) {
    return child == capability.substr(colon + 1);
  });
}

void keep_settable_keys(const Json& capabilities, Json& members) {
  const Json publish =
      capabilities.is_object() ? capabilities.value("process.publish", Json()) : Json();
  if (!publish.is_object() || !members.is_object()) return;
  const auto is_in = [&](const char* list, const Json& key) {
    return publish.contains(list) && std::ranges::find(publish[list], key) != publish[list].end();
  };
  const auto cannot_be_set = [&](const Json& attribute) {
    const Json& key = attribute["key"];
    return is_in("own_keys", key) || (publish.contains("keys") && !is_in("keys", key));
  };
  if (members.contains("resource")) {
    Json kept = Json::array();
    for (Json& attribute : members["resource"]["attributes"]) {
      if (!cannot_be_set(attribute)) kept.push_back(std::move(attribute));
    }
    members["resource"]["attributes"] = std::move(kept);
  }
  for (const char* const nested : {"child", "update"}) {
    if (members.contains(nested)) keep_settable_keys(capabilities, members[nested]);
  }
  if (!members.contains("requests")) return;
  for (Json& request : members["requests"]) keep_settable_keys(capabilities, request);
}

std::string_view capability_of(std::string_view op) {
  if (op == "process.reap") return "process.fork";
  if (op == "process.exec_self") return "process.exec";
  if (op == "parallel") return "process.parallel";
  if (op.starts_with("sdk.")) return "process.second_sdk";
  if (op == "thread.spawn" || op == "thread.exit" || op == "thread.block") return "thread";
  if (op == "process.churn") return "churn";
  if (op == "hello" || op == "bye") return {};
  return op;
}

nlohmann::json text_attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

}  // namespace ctxconf::conformance
