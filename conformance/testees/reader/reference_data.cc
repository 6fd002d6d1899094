#include "conformance/testees/reader/reference_data.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace ctxconf::testees {
namespace {

constexpr Choice kBadReference[] = {
    {"tctx.reader.defers-without-keys", "samples the variable without a schema version"},
    {"tctx.reader.schema-other-mechanism", "reads the variable for go_pprof_labels_v1 as well"},
    {"tctx.reader.schema-unknown", "takes any schema version that begins with tls"},
    {"tctx.reader.schema-unknown:empty", "takes an empty schema version"},
    {"tctx.reader.schema-unknown:kind", "takes a schema version that is not a string"},
    {"tctx.reader.schema-both-values", "knows tlsdesc_v1_dev only"},
    {"tctx.reader.index-by-position", "leaves unusable elements out of the key map"},
    {"tctx.reader.index-by-position:number", "leaves numbers out of the key map"},
    {"tctx.reader.index-by-position:repeated", "leaves repeated names out of the key map"},
    {"tctx.reader.key-map-missing", "reads no records without a key map"},
    {"tctx.reader.key-map-over-256", "writes beyond a table of 256 names"},
};

constexpr Choice kGoodReference[] = {
    {"refuses-odd-maps", "uses no name of a key map in which an element is not a string"},
    {"refuses-large-maps", "uses no name of a key map of more than 256 elements"},
    {"one-schema", "declares and knows tlsdesc_v1_dev only"},
};

constexpr std::string_view kSchemaKey = "threadlocal.schema_version";
constexpr std::string_view kMapKey = "threadlocal.attribute_key_map";
constexpr std::array<std::string_view, 2> kSchemas = {"tlsdesc_v1_dev", "tls_v1"};
constexpr std::string_view kGoSchema = "go_pprof_labels_v1";
constexpr std::size_t kMostNames = 256;

}  // namespace

const Choices kReferenceChoices{kBadReference, kGoodReference};

namespace {

using Kind = AnyValue::Kind;

bool is_schema(const AnyValue* value) {
  if (value == nullptr) return is_bad("tctx.reader.defers-without-keys");
  if (value->kind != Kind::kString) return is_bad("tctx.reader.schema-unknown:kind");
  const std::string_view text = value->text;
  const bool one = is_bad("tctx.reader.schema-both-values") || is_good("one-schema");
  if (one) return text == kSchemas[0];
  if (is_bad("tctx.reader.schema-unknown") && text.starts_with("tls")) return true;
  if (is_bad("tctx.reader.schema-unknown:empty") && text.empty()) return true;
  if (is_bad("tctx.reader.schema-other-mechanism") && text == kGoSchema) return true;
  return std::ranges::find(kSchemas, text) != kSchemas.end();
}

bool is_left_out(const AnyValue& element, const KeyMap& before) {
  const bool is_text = element.kind == Kind::kString;
  if (is_bad("tctx.reader.index-by-position")) return !is_text || element.text.empty();
  if (is_bad("tctx.reader.index-by-position:number")) return !is_text;
  return is_bad("tctx.reader.index-by-position:repeated") && is_text &&
         std::ranges::find(before, element.text) != before.end();
}

KeyMap names_of(const std::vector<AnyValue>& elements) {
  const auto is_text = [](const AnyValue& e) { return e.kind == Kind::kString; };
  if (is_good("refuses-odd-maps") && !std::ranges::all_of(elements, is_text)) return {};
  if (elements.size() > kMostNames) {
    if (is_bad("tctx.reader.key-map-over-256")) abort();  // as a stack protector does
    if (is_good("refuses-large-maps")) return {};
  }
  KeyMap out;
  for (const AnyValue& e : elements) {
    if (is_left_out(e, out)) continue;
    out.emplace_back();
    if (is_text(e) && !e.text.empty()) out.back() = e.text;
  }
  return out;
}

}  // namespace

ReferenceData reference_data_of(const Message& message) {
  ReferenceData out;
  const AnyValue* const map = find(message.attributes, kMapKey);
  const bool has_map = map != nullptr && map->kind == Kind::kArray;
  out.reads_variable = is_schema(find(message.attributes, kSchemaKey)) &&
                       (has_map || !is_bad("tctx.reader.key-map-missing"));
  if (has_map) out.names = names_of(map->values);
  return out;
}

}  // namespace ctxconf::testees
