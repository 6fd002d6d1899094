#include "conformance/payload/payload.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <string_view>
#include <utility>

#include "conformance/payload/payload_walk.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::common::v1::KeyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;
using Pairs = google::protobuf::RepeatedPtrField<KeyValue>;

constexpr Crumb kRoot{};
constexpr std::size_t kShownBytes = 64;
constexpr std::size_t kShownRepeats = 4;
constexpr std::size_t kDescribedBytes = 256;

// --- values as text

void append_number(std::string& out, auto value) {
  std::array<char, 32> buffer;
  const auto r = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out.append(buffer.data(), r.ptr);
}

void append_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-Infinity" : "Infinity";
  } else {
    append_number(out, value);
  }
}

void append_hex(std::string& out, std::string_view bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      append_hex(out, {&c, 1});
    } else {
      out += c;
    }
  }
  out += '"';
}

// Stops soon after `limit` bytes, because the caller cuts the text there.
void append_json(std::string& out, const AnyValue& value, std::size_t limit) {
  if (out.size() > limit) return;
  switch (value.value_case()) {
    case AnyValue::VALUE_NOT_SET:
      out += "null";
      break;
    case AnyValue::kStringValue:
      append_json_string(out, value.string_value());
      break;
    case AnyValue::kBoolValue:
      out += value.bool_value() ? "true" : "false";
      break;
    case AnyValue::kIntValue:
      append_number(out, value.int_value());
      break;
    case AnyValue::kDoubleValue:
      if (std::isfinite(value.double_value())) {
        const std::size_t begin = out.size();
        append_double(out, value.double_value());
        // 3.0 is another value than the integer 3.
        if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
      } else {
        out += '"';
        append_double(out, value.double_value());
        out += '"';
      }
      break;
    case AnyValue::kBytesValue:
      out += '"';
      append_hex(out, value.bytes_value());
      out += '"';
      break;
    case AnyValue::kStringValueStrindex:
      out += "{\"string_value_strindex\":";
      append_number(out, value.string_value_strindex());
      out += '}';
      break;
    case AnyValue::kArrayValue: {
      char separator = '[';
      for (const auto& item : value.array_value().values()) {
        if (out.size() > limit) break;
        out += std::exchange(separator, ',');
        append_json(out, item, limit);
      }
      out += separator == '[' ? "[]" : "]";
      break;
    }
    case AnyValue::kKvlistValue: {
      char separator = '{';
      for (const auto& pair : value.kvlist_value().values()) {
        if (out.size() > limit) break;
        out += std::exchange(separator, ',');
        append_json_string(out, pair.key());
        out += ':';
        append_json(out, pair.value(), limit);
      }
      out += separator == '{' ? "{}" : "}";
      break;
    }
  }
}

std::string value_text(const AnyValue& value) {
  std::string out;
  switch (value.value_case()) {
    case AnyValue::VALUE_NOT_SET:
      break;
    case AnyValue::kStringValue:
      out = value.string_value();
      break;
    case AnyValue::kDoubleValue:
      append_double(out, value.double_value());
      break;
    case AnyValue::kBytesValue:
      append_hex(out, value.bytes_value());
      break;
    default:
      append_json(out, value, SIZE_MAX);
      break;
  }
  return out;
}

// Shows a value in a line of a report: values of different types look different, and long values
// are cut.
std::string shown_value(const AnyValue& value) {
  if (value.has_string_value()) return quoted(value.string_value(), kShownBytes);
  if (value.value_case() == AnyValue::VALUE_NOT_SET) return "no value";
  std::string json;
  append_json(json, value, kShownBytes);
  return printable(json, kShownBytes);
}

ValueKind kind_of(const AnyValue& value) {
  switch (value.value_case()) {
    case AnyValue::kStringValue:
      return ValueKind::kString;
    case AnyValue::kBoolValue:
      return ValueKind::kBool;
    case AnyValue::kIntValue:
      return ValueKind::kInt;
    case AnyValue::kDoubleValue:
      return ValueKind::kDouble;
    case AnyValue::kArrayValue:
      return ValueKind::kArray;
    case AnyValue::kKvlistValue:
      return ValueKind::kKvlist;
    case AnyValue::kBytesValue:
      return ValueKind::kBytes;
    default:
      return ValueKind::kNone;
  }
}

ThreadlocalEntry threadlocal_entry(const KeyValue& pair, bool in_resource, std::uint64_t offset) {
  ThreadlocalEntry out;
  out.key = pair.key();
  out.in_resource = in_resource;
  out.kind = kind_of(pair.value());
  out.text = value_text(pair.value());
  out.offset = offset;
  const auto& elements = pair.value().array_value().values();
  out.element_count = static_cast<std::uint64_t>(elements.size());
  for (const AnyValue& element : elements) {
    if (out.elements.size() >= kMaxPayloadListed) break;
    out.elements.push_back({kind_of(element), value_text(element)});
  }
  return out;
}

// --- what is in a ProcessContext

class Contents {
 public:
  Contents(PayloadWalk& walk, Payload& out) : walk_(walk), out_(out) {}

  void add(const ProcessContext& context, const std::vector<PairNode>& resource,
           const std::vector<PairNode>& attributes) {
    const Crumb top{nullptr, "resource", {}};
    list(context.resource().attributes(), resource, out_.resource);
    repeats(context.resource().attributes(), resource, {&top, "attributes", {}},
            out_.resource_key_repeats);
    nested(context.resource().attributes(), resource, {&top, "attributes", {}});
    list(context.attributes(), attributes, out_.attributes);
    repeats(context.attributes(), attributes, {nullptr, "attributes", {}},
            out_.attribute_key_repeats);
    nested(context.attributes(), attributes, {nullptr, "attributes", {}});
    in_both(resource, attributes);
    threadlocal(context.resource().attributes(), resource, true);
    threadlocal(context.attributes(), attributes, false);
    entities(context.resource(), sorted_keys(resource));
  }

 private:
  void threadlocal(const Pairs& pairs, const std::vector<PairNode>& nodes, bool in_resource) {
    for (std::size_t i = 0; i < nodes.size() && i < static_cast<std::size_t>(pairs.size()); ++i) {
      const KeyValue& pair = pairs[static_cast<int>(i)];
      if (!pair.key().starts_with("threadlocal.")) continue;
      if (out_.threadlocal.size() >= kMaxPayloadListed) return;
      out_.threadlocal.push_back(threadlocal_entry(pair, in_resource, nodes[i].offset));
    }
  }

  static void list(const Pairs& pairs, const std::vector<PairNode>& nodes,
                   std::vector<Attribute>& out) {
    out.reserve(nodes.size());
    for (std::size_t i = 0; i < nodes.size() && i < static_cast<std::size_t>(pairs.size()); ++i) {
      const KeyValue& pair = pairs[static_cast<int>(i)];
      out.push_back({pair.key(), value_text(pair.value()), nodes[i].offset, kind_of(pair.value())});
    }
  }

  // Compares keys as they are in the payload. A key that is only an index into a dictionary is
  // another fault.
  static std::vector<std::pair<std::string_view, std::size_t>> sorted_keys(
      const std::vector<PairNode>& nodes) {
    std::vector<std::pair<std::string_view, std::size_t>> keys;
    keys.reserve(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i].key_is_index || !nodes[i].key.empty()) keys.emplace_back(nodes[i].key, i);
    }
    std::ranges::sort(keys);
    return keys;
  }

  void repeats(const Pairs& pairs, const std::vector<PairNode>& nodes, const Crumb& list,
               std::vector<PayloadFault>& out) {
    const auto keys = sorted_keys(nodes);
    // Runs are sorted in payload order, but thread context keys come first, so that a limit does
    // not hide them.
    struct Run {
      bool other;
      std::size_t first_repeat, begin, end;  // `begin` and `end` are in `keys`
      auto operator<=>(const Run&) const = default;
    };
    std::vector<Run> runs;
    for (std::size_t begin = 0; begin < keys.size();) {
      const std::string_view key = keys[begin].first;
      std::size_t end = begin + 1;
      while (end < keys.size() && keys[end].first == key) ++end;
      if (end - begin > 1) {
        runs.push_back({!key.starts_with("threadlocal."), keys[begin + 1].second, begin, end});
      }
      begin = end;
    }
    std::ranges::sort(runs);
    for (const auto& [other, first_repeat, begin, end] : runs) {
      if (!walk_.room_in(out)) return;
      std::string what = "occurs ";
      what += end - begin == 2 ? "twice" : std::to_string(end - begin) + " times";
      for (std::size_t i = begin; i < end && i < begin + kShownRepeats; ++i) {
        const std::size_t index = keys[i].second;
        what += i == begin ? ": " : ", ";
        what += shown_value(pairs[static_cast<int>(index)].value());
        what += " at offset " + std::to_string(nodes[index].offset);
      }
      if (end - begin > kShownRepeats) what += ", ...";
      out.push_back({path_of({list.up, list.name, first_repeat}),
                     printable(keys[begin].first, kShownBytes), std::move(what),
                     nodes[first_repeat].offset});
    }
  }

  void nested(const Pairs& pairs, const std::vector<PairNode>& nodes, const Crumb& list) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Crumb pair{list.up, list.name, i};
      const Crumb value{&pair, "value", {}};
      descend(pairs[static_cast<int>(i)].value(), nodes[i].value, value);
    }
  }

  void descend(const AnyValue& value, const ValueNode& node, const Crumb& crumb) {
    if (value.has_kvlist_value()) {
      const Crumb list{&crumb, "kvlist", {}};
      const Pairs& pairs = value.kvlist_value().values();
      repeats(pairs, node.pairs, list, out_.nested_key_repeats);
      nested(pairs, node.pairs, list);
    } else if (value.has_array_value()) {
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        descend(value.array_value().values(static_cast<int>(i)), node.items[i],
                {&crumb, "array", i});
      }
    }
  }

  template <class Keys, class Sorted>
  void missing_keys(const Keys& keys, const Sorted& there, const Crumb& list) {
    for (int i = 0; i < keys.size(); ++i) {
      const auto at = std::ranges::lower_bound(there, std::string_view(keys[i]), {},
                                               [](const auto& k) { return k.first; });
      if (at != there.end() && at->first == keys[i]) continue;
      if (!walk_.room_in(out_.entity_key_misses)) return;
      out_.entity_key_misses.push_back({path_of({list.up, list.name, static_cast<std::size_t>(i)}),
                                        printable(keys[i], kShownBytes),
                                        "no attribute of the Resource has this key",
                                        {}});
    }
  }

  template <class Sorted>
  void entities(const opentelemetry::proto::resource::v1::Resource& resource, const Sorted& there) {
    const Crumb top{nullptr, "resource", {}};
    out_.entities = static_cast<std::size_t>(resource.entity_refs_size());
    for (int i = 0; i < resource.entity_refs_size(); ++i) {
      const auto& entity = resource.entity_refs(i);
      const Crumb at{&top, "entity_refs", static_cast<std::size_t>(i)};
      if (entity.type().empty() && walk_.room_in(out_.entities_without_type)) {
        out_.entities_without_type.push_back({path_of(at), {}, "its type is empty", {}});
      }
      if (entity.id_keys().empty() && walk_.room_in(out_.entities_without_id)) {
        out_.entities_without_id.push_back({path_of(at), {}, "it has no id_keys", {}});
      }
      missing_keys(entity.id_keys(), there, {&at, "id_keys", {}});
      missing_keys(entity.description_keys(), there, {&at, "description_keys", {}});
    }
  }

  void in_both(const std::vector<PairNode>& resource, const std::vector<PairNode>& attributes) {
    const auto ours = sorted_keys(resource);
    const auto theirs = sorted_keys(attributes);
    std::string_view last;
    for (const auto& [key, index] : ours) {
      if (out_.keys_in_both.size() >= kMaxPayloadListed) {
        walk_.too_many_faults = true;
        return;
      }
      if (&key != &ours.front().first && key == last) continue;
      last = key;
      const auto at =
          std::ranges::lower_bound(theirs, key, {}, [](const auto& k) { return k.first; });
      if (at != theirs.end() && at->first == key) {
        out_.keys_in_both.push_back(out_.resource[index].key);
      }
    }
  }

  PayloadWalk& walk_;
  Payload& out_;
};

// --- the walk over a ProcessContext

struct Scan {
  std::vector<PairNode> resource;
  std::vector<PairNode> attributes;
  WalkStop broken;  // where the top level ends
  WalkStop wrong;   // the first field with the wrong type for its number
  std::uint32_t wrong_number = 0;
  bool wrong_wire_type = false;
  std::size_t known = 0;   // fields 1 and 2 that fit, even if the end is missing
  std::size_t others = 0;  // fields with other numbers
};

void list_field(std::vector<TopLevelField>& list, const WireField& f, bool& too_many) {
  if (list.size() >= kMaxPayloadListed) {
    too_many = true;
    return;
  }
  list.push_back({f.offset, f.number, f.wire_type, f.value.at, f.value.end - f.value.at});
}

bool scan_known_field(PayloadWalk& walk, const WireField& f, Scan& scan) {
  if (f.number == 1) {
    // Further Resources merge into the first: their attributes follow its own.
    ResourceNode node;
    std::swap(node.attributes, scan.resource);
    const bool good = walk.resource(f.value, 1, {nullptr, "resource", {}}, node);
    std::swap(node.attributes, scan.resource);
    return good;
  }
  PairNode spare;
  const std::size_t index = scan.attributes.size();
  PairNode& one = walk.append(scan.attributes, spare);
  one.offset = f.offset;
  return walk.pair(f.value, 1, {nullptr, "attributes", index}, one);
}

Scan scan_process_context(PayloadWalk& walk, std::span<const std::byte> bytes, Payload& out) {
  Scan scan;
  bool too_many = false;
  Region top{0, kOpenEnd};
  WireField f;
  while (walk.more(top)) {
    if (!walk.next(top, 0, kRoot, f)) {
      scan.broken = walk.stop;
      const bool may_be_ours = f.number == 1 || f.number == 2;
      if (may_be_ours && f.wire_type == kDelimited && walk.stop.kind == StopKind::kRanOut) {
        ++scan.known;  // the length itself is cut
      }
      break;
    }
    const bool whole = f.value.end <= bytes.size();
    if (!whole) {
      const std::uint64_t missing = f.value.end - bytes.size();
      scan.broken = {StopKind::kRanOut, f.offset, 0,
                     "field " + std::to_string(f.number) + " should have " +
                         std::to_string(f.value.end - f.value.at) +
                         " bytes, but the payload ends " + std::to_string(missing) +
                         (missing == 1 ? " byte earlier" : " bytes earlier")};
    } else {
      list_field(out.top_level, f, too_many);
    }
    if (f.number > 2) {
      ++scan.others;
      if (whole) list_field(out.unknown, f, too_many);
    } else if (scan.wrong.kind == StopKind::kNone) {
      bool good = f.wire_type == kDelimited;
      if (good) {
        good = scan_known_field(walk, f, scan) || (!whole && walk.stop.kind == StopKind::kRanOut);
        if (!good) scan.wrong = walk.stop;
      } else {
        scan.wrong_wire_type = true;
        scan.wrong = {StopKind::kWrongType, f.offset, 0,
                      "field " + std::to_string(f.number) + " is " +
                          std::string(wire_type_name(f.wire_type)) + ", not length-delimited"};
      }
      if (good) {
        ++scan.known;
      } else {
        scan.wrong_number = f.number;
      }
    }
    if (!whole) break;
  }
  walk.too_many_faults |= too_many;
  return scan;
}

// --- other formats

bool good_keys(const std::vector<PairNode>& pairs) {
  return !pairs.empty() &&
         std::ranges::all_of(pairs, [](const PairNode& p) { return is_plain_text(p.key); });
}

// Ignores a character that the end of the payload cut in two.
std::string_view without_cut_character(std::string_view text) {
  const auto bad = first_bad_utf8(text);
  const bool cut = bad && bad->at + bad->count == text.size() && bad->count < 4;
  return cut ? text.substr(0, bad->at) : text;
}

// Whether the walk over the top level failed only because the size is wrong.
bool only_size_is_wrong(const WalkStop& stop) {
  return stop.kind == StopKind::kRanOut || (stop.kind == StopKind::kMalformed && stop.depth == 0);
}

bool is_bare_resource(std::span<const std::byte> bytes) {
  PayloadWalk walk(bytes);
  ResourceNode node;
  if (!walk.resource({0, kOpenEnd}, 0, kRoot, node)) {
    if (!only_size_is_wrong(walk.stop)) return false;
    if (!node.attributes.empty()) {
      auto& last = node.attributes.back().key;
      last = without_cut_character(last);
      // The bytes after the last whole pair show nothing.
      if (last.empty()) node.attributes.pop_back();
    }
  }
  return !node.has_unknown && good_keys(node.attributes);
}

bool is_string_map_entry(PayloadWalk& walk, Region entry, bool whole) {
  WireField f;
  bool key = false;
  while (walk.more(entry)) {
    if (!walk.next(entry, 1, kRoot, f)) return !whole && key && walk.stop.kind == StopKind::kRanOut;
    if (f.number > 2 || f.wire_type != kDelimited) return false;
    const auto text = walk.text(f.value);
    const bool cut = f.value.end - f.value.at != text.size();
    const bool plain = is_plain_text(cut ? without_cut_character(text) : text);
    if (f.number == 1 ? !plain : !plain && !text.empty()) return false;
    key |= f.number == 1;
  }
  return key;
}

bool is_string_map(std::span<const std::byte> bytes) {
  PayloadWalk walk(bytes);
  Region top{0, kOpenEnd};
  WireField f;
  bool seen = false;
  while (walk.more(top)) {
    if (!walk.next(top, 0, kRoot, f)) return seen && only_size_is_wrong(walk.stop);
    if (f.number > 8 || f.wire_type != kDelimited) return false;
    const auto text = walk.text(f.value);
    const bool whole = f.value.end - f.value.at == text.size();
    const bool fits = f.number == 1 ? is_string_map_entry(walk, f.value, whole)
                                    : is_plain_text(whole ? text : without_cut_character(text));
    if (!fits) return seen && !whole && text.empty();
    seen = true;
    if (!whole) break;
  }
  return seen;
}

bool is_msgpack_map(std::span<const std::byte> bytes) {
  if (abi::recognise_payload(bytes) != abi::PayloadFormat::kP1) return false;
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? std::to_integer<std::size_t>(bytes[i]) : 0;
  };
  std::size_t at = byte(0) == 0xde ? 3 : byte(0) == 0xdf ? 5 : 1;
  std::size_t length = 0;
  if (byte(at) == 0xd9) {
    length = byte(at + 1);
    at += 2;
  } else if (byte(at) == 0xda) {
    length = byte(at + 1) << 8U | byte(at + 2);
    at += 3;
  } else {
    length = byte(at) & 0x1fU;
    at += 1;
  }
  if (at > bytes.size() || length > bytes.size() - at) return false;
  return is_plain_text({reinterpret_cast<const char*>(bytes.data()) + at, length});
}

abi::PayloadFormat older_format(std::span<const std::byte> bytes) {
  using enum abi::PayloadFormat;
  if (is_bare_resource(bytes)) return kP3;
  if (is_string_map(bytes)) return kP2;
  if (is_msgpack_map(bytes)) return kP1;
  if (abi::recognise_payload(bytes) == kP0) return kP0;
  return kUnknown;
}

std::span<const std::byte> value_of(std::span<const std::byte> bytes, const TopLevelField& f) {
  return bytes.subspan(f.value_offset, f.value_size);
}

bool holds_resource(std::span<const std::byte> value) {
  PayloadWalk walk(value);
  ResourceNode node;
  return walk.resource({0, kOpenEnd}, 1, kRoot, node) && !node.has_unknown &&
         good_keys(node.attributes);
}

bool holds_pair(std::span<const std::byte> value, bool needs_value) {
  PayloadWalk walk(value);
  PairNode node;
  return walk.pair({0, kOpenEnd}, 1, kRoot, node) && is_plain_text(node.key) &&
         (node.has_value || !needs_value);
}

// Says where parts are in the wrong fields; empty if none is.
std::string misplacement(std::span<const std::byte> bytes, const Payload& payload,
                         const Scan& scan) {
  if (scan.wrong_wire_type) return scan.wrong.what;
  const bool any_wrong = scan.wrong_number != 0;
  for (const auto& f : payload.top_level) {
    if (f.wire_type != kDelimited) continue;
    const auto value = value_of(bytes, f);
    const char* holds = nullptr;
    if (f.number == 1) {
      if (any_wrong && holds_pair(value, true)) holds = "a KeyValue";
    } else if (f.number == 2) {
      // The Resource would even decode as a pair whose key is not text.
      if (holds_resource(value) && !holds_pair(value, false)) holds = "a Resource";
    } else if ((scan.wrong_number == 1 || scan.known == 0) && holds_resource(value)) {
      holds = "a Resource";
    } else if ((scan.wrong_number == 2 || (scan.known == 0 && !any_wrong)) &&
               holds_pair(value, true)) {
      holds = "a KeyValue";
    }
    if (holds != nullptr) {
      return "field " + std::to_string(f.number) + " at offset " + std::to_string(f.offset) +
             " holds " + holds;
    }
  }
  return {};
}

void set_problem(Payload& out, PayloadProblem problem, std::uint64_t offset,
                 std::string_view detail) {
  out.problem = problem;
  out.problem_offset = offset;
  out.detail = printable(detail, 512);
}

void decode(std::span<const std::byte> bytes, PayloadWalk& walk, const Scan& scan, Payload& out) {
  out.format = abi::PayloadFormat::kP4;
  out.bad_utf8 = std::move(walk.bad_utf8);
  out.dictionary_uses = std::move(walk.dictionary_uses);
  if (walk.too_many_items) return;

  // With a bad string, protobuf prints a message and refuses the whole payload.
  const std::string_view text =
      walk.clean.empty() ? walk.text({0, kOpenEnd}) : std::string_view(walk.clean);
  ProcessContext context;
  if (!context.ParseFromArray(text.data(), static_cast<int>(bytes.size()))) {
    out = {};
    set_problem(out, PayloadProblem::kNotTyped, 0, "protobuf does not decode it");
    return;
  }
  Contents(walk, out).add(context, scan.resource, scan.attributes);
}

}  // namespace

std::string_view to_string(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNone:
      return "no value";
    case ValueKind::kString:
      return "string";
    case ValueKind::kBool:
      return "boolean";
    case ValueKind::kInt:
      return "integer";
    case ValueKind::kDouble:
      return "floating-point number";
    case ValueKind::kArray:
      return "array";
    case ValueKind::kKvlist:
      return "key-value list";
    case ValueKind::kBytes:
      return "bytes";
  }
  return "no value";
}

Payload analyse_payload(std::span<const std::byte> bytes) {
  Payload out;
  if (bytes.size() > INT_MAX) {
    set_problem(out, PayloadProblem::kNotTyped, 0, "it is larger than any protobuf message");
    return out;
  }
  PayloadWalk walk(bytes);
  const Scan scan = scan_process_context(walk, bytes, out);
  const bool broken = scan.broken.kind != StopKind::kNone;
  const bool wrong = scan.wrong.kind != StopKind::kNone;
  const bool fits = !broken && !wrong;
  // Only fields that a ProcessContext does not have: legal, unless they look like another format.
  const bool foreign = fits && scan.known == 0 && scan.others > 0;

  if (!fits || foreign) {
    if (const auto format = older_format(bytes); format != abi::PayloadFormat::kUnknown) {
      out.format = format;
      set_problem(out, PayloadProblem::kOlderFormat, wrong ? scan.wrong.offset : scan.broken.offset,
                  std::string(abi::to_string(format)) + ": " + std::string(describe(format)));
      return out;
    }
  }
  const bool trailing_zero =
      broken && scan.broken.offset + 1 == bytes.size() && bytes.back() == std::byte{0};
  if (broken && !wrong && only_size_is_wrong(scan.broken) && (scan.known > 0 || trailing_zero)) {
    set_problem(out, PayloadProblem::kNotWalkable, scan.broken.offset, scan.broken.what);
    return out;
  }
  if (const std::string what = misplacement(bytes, out, scan); !what.empty()) {
    set_problem(out, PayloadProblem::kFieldsMisplaced, wrong ? scan.wrong.offset : 0, what);
    return out;
  }
  if (!fits) {
    const WalkStop& stop = wrong ? scan.wrong : scan.broken;
    set_problem(out, PayloadProblem::kNotTyped, stop.offset, stop.what);
    return out;
  }
  decode(bytes, walk, scan, out);
  if (walk.too_many_items) {
    out.incomplete = "more than " + std::to_string(kMaxPayloadItems) + " messages, not decoded";
  } else if (walk.too_many_faults) {
    out.incomplete = "a list ends after " + std::to_string(kMaxPayloadListed) + " entries";
  }
  return out;
}

std::optional<Attribute> attribute_of_json(const std::string& key, const std::string& any_value) {
  AnyValue value;
  if (!google::protobuf::util::JsonStringToMessage(any_value, &value).ok()) return std::nullopt;
  return Attribute{key, value_text(value), 0, kind_of(value)};
}

std::vector<std::string> describe(const Payload& payload) {
  std::vector<std::string> out;
  switch (payload.problem) {
    case PayloadProblem::kNone:
      out.emplace_back("a ProcessContext");
      break;
    case PayloadProblem::kNotWalkable:
      out.push_back("a ProcessContext, but its size is wrong: " + payload.detail);
      break;
    case PayloadProblem::kOlderFormat:
      out.push_back("not a ProcessContext, but an older format, " + payload.detail);
      break;
    case PayloadProblem::kFieldsMisplaced:
      out.push_back("not a ProcessContext; its parts are in the wrong fields: " + payload.detail);
      break;
    case PayloadProblem::kNotTyped:
      out.push_back("not a ProcessContext: " + payload.detail);
      break;
  }
  if (payload.problem != PayloadProblem::kNone) {
    out.back() += " (offset " + std::to_string(payload.problem_offset) + ")";
  }
  if (!payload.incomplete.empty()) out.push_back("incomplete: " + payload.incomplete);

  for (const auto& f : payload.top_level) {
    std::string line = "@" + std::to_string(f.offset) + " field " + std::to_string(f.number) +
                       ", " + std::string(wire_type_name(f.wire_type)) + ", " +
                       std::to_string(f.value_size) + " bytes";
    if (f.number > 2) line += ", unknown";
    out.push_back(std::move(line));
  }
  const auto add_attributes = [&](const char* list, const std::vector<Attribute>& attributes) {
    for (const auto& a : attributes) {
      out.push_back("@" + std::to_string(a.offset) + " " + list + " " +
                    printable(a.key, kDescribedBytes) + " = " + quoted(a.value, kDescribedBytes));
    }
  };
  add_attributes("resource", payload.resource);
  add_attributes("attribute", payload.attributes);

  const auto add_faults = [&](const char* title, const std::vector<PayloadFault>& faults) {
    for (const auto& f : faults) {
      std::string line = title;
      if (f.offset) line.insert(0, "@" + std::to_string(*f.offset) + " ");
      line += ": " + f.path;
      if (!f.key.empty()) line += " (" + f.key + ")";
      out.push_back(line + ": " + f.what);
    }
  };
  add_faults("repeated key", payload.resource_key_repeats);
  add_faults("repeated key", payload.attribute_key_repeats);
  add_faults("repeated key", payload.nested_key_repeats);
  for (const auto& key : payload.keys_in_both) {
    out.push_back("in the Resource and in field 2: " + printable(key, kDescribedBytes));
  }
  add_faults("bad string", payload.bad_utf8);
  add_faults("dictionary index", payload.dictionary_uses);
  add_faults("entity key", payload.entity_key_misses);
  add_faults("entity type", payload.entities_without_type);
  add_faults("entity id", payload.entities_without_id);
  return out;
}

}  // namespace ctxconf::conformance
