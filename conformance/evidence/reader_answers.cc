#include "conformance/evidence/reader_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/text/json_limits.h"
#include "conformance/text/json_line.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 32;                 // of nested values
constexpr std::size_t kShown = 160;          // bytes of an answer in a line
constexpr std::size_t kShownAttributes = 6;  // of one list

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kKinds = {{
    {"stringValue", "string"},
    {"boolValue", "bool"},
    {"intValue", "int"},
    {"doubleValue", "double"},
    {"arrayValue", "array"},
    {"kvlistValue", "kvlist"},
    {"bytesValue", "bytes"},
}};

const Json& member(const Json& object, const char* name) {
  static const Json kNone;
  return object.is_object() && object.contains(name) ? object[name] : kNone;
}

// OTLP/JSON has several texts for one number.
Json canonical_number(const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "NaN" || text == "Infinity" || text == "-Infinity") return text;
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    // "inf" and "nan" are not numbers here: NaN would differ from itself.
    const bool is_number = !text.empty() && *end == '\0' && std::isfinite(number);
    return is_number ? Json(number) : Json(text);
  }
  return value.is_number() ? Json(value.get<double>()) : value;
}

Json canonical(const Json& value, int depth = 0);

Json canonical_list(const Json& list, int depth, bool sorted) {
  Json out = Json::array();
  for (const Json& one : member(list, "values")) {
    if (!sorted) {
      out.push_back(canonical(one, depth + 1));
      continue;
    }
    out.push_back(
        {{"key", member(one, "key")}, {"value", canonical(member(one, "value"), depth + 1)}});
  }
  if (sorted) std::sort(out.begin(), out.end());
  return out;
}

// A value in one form, to be compared.
Json canonical(const Json& value, int depth) {
  if (!value.is_object() || depth > kDeepest) return value;
  for (const auto& [name, item] : value.items()) {
    if (name == "intValue") return {{name, item.is_number() ? Json(dumped(item)) : item}};
    if (name == "doubleValue") return {{name, canonical_number(item)}};
    if (name == "arrayValue") return {{name, canonical_list(item, depth, false)}};
    if (name == "kvlistValue") return {{name, canonical_list(item, depth, true)}};
    if (name == "stringValue" || name == "boolValue" || name == "bytesValue") return {{name, item}};
  }
  return Json::object();
}

// The attributes of a context; a key that is there twice with two values is nowhere right.
struct AttributeList {
  std::map<std::string, Json> values;
  std::string twice;
};

AttributeList attributes_in(const Json& list) {
  AttributeList out;
  if (!list.is_array()) return out;
  for (const Json& pair : list) {
    const Json& key = member(pair, "key");
    if (!key.is_string()) continue;
    const Json& value = member(pair, "value");
    const auto [at, is_new] = out.values.emplace(key.get<std::string>(), value);
    if (!is_new && canonical(at->second) != canonical(value)) out.twice = at->first;
  }
  return out;
}

std::string compare_attributes(const char* what, const Json& wanted, const AttributeList& got,
                               bool exactly, const ReaderTraits& traits) {
  if (!got.twice.empty()) return fmt::format("{} has {} twice", what, cut(got.twice, 80));
  for (const auto& [key, value] : wanted.items()) {
    if (!traits.shows_kind(kind_of_value(value))) continue;
    const auto at = got.values.find(key);
    if (at == got.values.end()) return fmt::format("{} lacks {}", what, key);
    if (canonical(at->second) != canonical(value)) {
      return fmt::format("{} has {} = {}, expected {}", what, key, cut(dumped(at->second), 80),
                         cut(dumped(value), 80));
    }
  }
  if (!exactly) return {};
  for (const auto& [key, value] : got.values) {
    if (!wanted.contains(key))
      return fmt::format("{} has {}, which is not there", what, cut(key, 80));
  }
  return {};
}

std::string compare_context(const Json& wanted, const Json& reply, const ReaderTraits& traits) {
  struct Part {
    const char* name;
    const char* at_least;
    const char* what;
    const Json& list;
    bool shown;
  };
  const Json& context = member(reply, "context");
  const std::array parts = {
      Part{"resource", "resource_has", "the Resource",
           member(member(context, "resource"), "attributes"), traits.shows_resource()},
      Part{"attributes", "attributes_has", "field 2", member(context, "attributes"),
           traits.shows_attributes()}};
  for (const Part& p : parts) {
    for (const char* name : {p.name, p.at_least}) {
      if (!wanted.contains(name) || !p.shown) continue;
      auto wrong =
          compare_attributes(p.what, wanted[name], attributes_in(p.list), name == p.name, traits);
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

bool is_zero_id(const Json& id) {
  if (id.is_null()) return true;
  if (!id.is_string()) return false;
  return id.get_ref<const std::string&>().find_first_not_of('0') == std::string::npos;
}

std::string compare_names(const Json& wanted, const Json& got, bool exactly) {
  for (const auto& [name, value] : wanted.items()) {
    const Json& at = member(got, name.c_str());
    if (at.is_null()) return fmt::format("attribute {} is missing", name);
    if (at != value) {
      return fmt::format("attribute {} is {}, expected {}", name, cut(dumped(at), 80),
                         cut(dumped(value), 80));
    }
  }
  if (!exactly || !got.is_object()) return {};
  for (const auto& [name, value] : got.items()) {
    if (!wanted.contains(name)) {
      return fmt::format("attribute {} = {} is not in the record", cut(name, 80),
                         cut(dumped(value), 80));
    }
  }
  return {};
}

std::string compare_record(const Json& wanted, const Json& reply, const ReaderTraits& traits) {
  const Json& record = member(reply, "record");
  for (const char* id : {"trace_id", "span_id"}) {
    if (!wanted.contains(id)) continue;
    const Json& got = member(record, id);
    const bool same = is_zero_id(wanted[id]) ? is_zero_id(got) : got == wanted[id];
    if (!same)
      return fmt::format("{} is {}, expected {}", id, cut(dumped(got), 80), dumped(wanted[id]));
  }
  // Ids of zeros are a link as well: an answer without one has none.
  const bool links = !member(record, "trace_id").is_null() || !member(record, "span_id").is_null();
  if (wanted.contains("link") && wanted["link"] == false && links) {
    return fmt::format("it names trace {} and span {}", cut(dumped(member(record, "trace_id")), 80),
                       cut(dumped(member(record, "span_id")), 80));
  }
  // Without a trace they mean nothing.
  const bool has_flags = wanted.contains("flags") && !is_zero_id(member(wanted, "trace_id")) &&
                         !is_zero_id(member(wanted, "span_id"));
  if (has_flags && traits.shows_flags() && member(record, "flags") != wanted["flags"]) {
    return fmt::format("flags are {}, expected {}", cut(dumped(member(record, "flags")), 40),
                       dumped(wanted["flags"]));
  }
  const Json& names = member(record, "attributes");
  if (wanted.contains("names")) {
    if (auto wrong = compare_names(wanted["names"], names, true); !wrong.empty()) return wrong;
  }
  if (wanted.contains("names_has")) {
    if (auto wrong = compare_names(wanted["names_has"], names, false); !wrong.empty()) return wrong;
  }
  for (const auto& [name, values] : member(wanted, "names_any").items()) {
    const Json& at = member(names, name.c_str());
    if (at.is_null() || std::ranges::find(values, at) != values.end()) continue;
    return fmt::format("attribute {} is {}", name, cut(dumped(at), 80));
  }
  return {};
}

std::string list_shown(const Json& list) {
  std::string out;
  std::size_t shown = 0;
  for (const auto& [key, value] : attributes_in(list).values) {
    if (shown++ == kShownAttributes) return out + ", ...";
    const Json& text = member(value, "stringValue");
    out +=
        fmt::format("{}{}={}", shown > 1 ? ", " : "", key, dumped(text.is_null() ? value : text));
  }
  return out;
}

}  // namespace

ReaderTraits::ReaderTraits(const Json& capabilities) {
  const Json& traits = member(capabilities, "reader");
  traits_ = std::make_shared<const Json>(traits.is_object() ? traits : Json::object());
}

bool ReaderTraits::shows(const char* list, std::string_view word) const {
  const Json& words = member(*traits_, list);
  return !words.is_array() || std::ranges::find(words, Json(word)) != words.end();
}

bool ReaderTraits::shows_flags() const { return member(*traits_, "flags") != false; }

bool ReaderTraits::reads(std::string_view format) const {
  return member(*traits_, "formats").is_array() ? shows("formats", format)
                                                : abi::is_thread_schema(format);
}

bool ReaderTraits::says(std::string_view name) const {
  return member(*traits_, std::string(name).c_str()) == true;
}

std::uint64_t ReaderTraits::number(std::string_view name, std::uint64_t otherwise) const {
  const Json& value = member(*traits_, std::string(name).c_str());
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : otherwise;
}

std::string_view kind_of_value(const Json& value) {
  if (!value.is_object()) return "";
  for (const auto& [name, kind] : kKinds) {
    if (value.contains(name)) return kind;
  }
  return value.empty() ? "empty" : "";
}

std::string difference(const AllowedAnswer& allowed, const Json& reply,
                       const ReaderTraits& traits) {
  const Json& result = member(reply, "result");
  if (member(reply, "ok") == false && allowed.result == kRefusedAnswer) return {};
  if (member(reply, "ok") == false) {
    const Json& message = member(member(reply, "error"), "message");
    return fmt::format("it refused to answer: {}", cut(dumped(message), kShown));
  }
  if (result != allowed.result) {
    return fmt::format("it says {}, expected {}", cut(dumped(result), 40), allowed.result);
  }
  if (allowed.content.empty()) return {};
  const Json wanted = value_of_kept_line(allowed.content);
  if (!wanted.is_object()) return "the recording has no answer to compare it with";
  if (wanted.contains("defaults") && member(reply, "defaults").empty()) {
    return "it reports nothing else about the process";
  }
  auto wrong = compare_context(wanted, reply, traits);
  return wrong.empty() ? compare_record(wanted, reply, traits) : wrong;
}

std::string problem_with(const AnswerClaim& claim, const Json& reply, const ReaderTraits& traits) {
  const std::string whole = dumped(reply);
  for (const std::string& text : claim.never) {
    if (whole.find(text) != std::string::npos) return fmt::format("it has \"{}\"", text);
  }
  std::string first;
  for (const AllowedAnswer& a : claim.allowed) {
    auto wrong = difference(a, reply, traits);
    if (wrong.empty()) return {};
    if (first.empty() || member(reply, "result") == Json(a.result)) first = std::move(wrong);
  }
  return first;
}

std::string shown_answer(const Json& reply) {
  const Json& result = member(reply, "result");
  std::string out = result.is_string() ? result.get<std::string>() : dumped(reply);
  const Json& context = member(reply, "context");
  if (const auto pairs = list_shown(member(member(context, "resource"), "attributes"));
      !pairs.empty()) {
    out += ", Resource " + pairs;
  }
  if (const auto pairs = list_shown(member(context, "attributes")); !pairs.empty()) {
    out += ", field 2 " + pairs;
  }
  const Json& record = member(reply, "record");
  if (record.is_object()) out += ", " + dumped(record);
  return cut(std::move(out), kShown * 2);
}

}  // namespace ctxconf::conformance
