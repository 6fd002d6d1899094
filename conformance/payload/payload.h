// Decodes a payload: the protobuf walk with offsets, and the ways in which it is not a
// ProcessContext. Pure and bounded. Generated classes decode the values; our own walk only finds
// offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_layouts.h"
#include "conformance/payload/payload_fault.h"

namespace ctxconf::conformance {

struct TopLevelField {
  std::uint64_t offset = 0;  // of the tag
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  std::uint64_t value_offset = 0;  // of the value (after a length)
  std::uint64_t value_size = 0;
};

enum class ValueKind { kNone, kString, kBool, kInt, kDouble, kArray, kKvlist, kBytes };
std::string_view to_string(ValueKind kind);  // "string", "integer", "key-value list", ...

// A value as `--expect-resource KEY=VALUE` and reports show it: strings as they are, numbers and
// booleans as text, bytes as hex, lists as JSON. It is always valid UTF-8: a bad byte (see
// `bad_utf8`) becomes '?'. Control characters stay.
struct Attribute {
  std::string key;
  std::string value;
  std::uint64_t offset = 0;  // of the pair's tag in the payload
  ValueKind kind = ValueKind::kNone;
};

// An attribute whose key begins with "threadlocal." (OTEP 4947), in either list.
struct ThreadlocalEntry {
  struct Element {
    ValueKind kind = ValueKind::kNone;
    std::string text;
  };
  std::string key;
  bool in_resource = false;  // false: in field 2, where readers look
  ValueKind kind = ValueKind::kNone;
  std::string text;               // as Attribute::value
  std::vector<Element> elements;  // of an array, in order; at most kMaxPayloadListed
  std::uint64_t element_count = 0;
  std::uint64_t offset = 0;  // of the pair's tag in the payload
};

enum class PayloadProblem {
  kNone,             // a ProcessContext
  kNotWalkable,      // the top level breaks after fields that fit: wrong size
  kOlderFormat,      // `format` says which
  kFieldsMisplaced,  // walks, but field 1 or 2 has a wrong message, and another field would fit
  kNotTyped,         // a nested message has a wrong wire type or does not decode
};

struct Payload {
  PayloadProblem problem = PayloadProblem::kNone;
  std::string detail;                // one line on the problem, printable
  std::uint64_t problem_offset = 0;  // where the walk or the decoding stopped
  abi::PayloadFormat format = abi::PayloadFormat::kUnknown;

  std::vector<TopLevelField> top_level;  // as far as the walk got
  std::vector<TopLevelField> unknown;    // fields with other numbers (legal, info)

  // Filled only for kNone.
  std::vector<Attribute> resource;            // all occurrences of field 1 merged, in order
  std::vector<Attribute> attributes;          // field 2
  std::vector<ThreadlocalEntry> threadlocal;  // of both lists, in order
  std::vector<PayloadFault> resource_key_repeats;
  std::vector<PayloadFault> attribute_key_repeats;  // repeats of threadlocal.* first
  std::vector<PayloadFault> nested_key_repeats;
  std::vector<std::string> keys_in_both;      // Resource and field 2 (info)
  std::vector<PayloadFault> bad_utf8;         // keys and string values, strict
  std::vector<PayloadFault> dictionary_uses;  // KeyValue field 3, AnyValue field 8

  // Resource.entity_refs: keys that are not attributes of the Resource, references without a type,
  // and references without id_keys.
  std::vector<PayloadFault> entity_key_misses;
  std::vector<PayloadFault> entities_without_type;
  std::vector<PayloadFault> entities_without_id;
  std::size_t entities = 0;

  // Which of our limits cut a list short; empty if none did.
  std::string incomplete;
};

Payload analyse_payload(std::span<const std::byte> bytes);

// A pair whose value is an AnyValue in OTLP/JSON, {"intValue":"42"}; nothing if it is not one.
std::optional<Attribute> attribute_of_json(const std::string& key, const std::string& any_value);

// Several lines with the fields and their offsets, for `decode` and failure reports.
std::vector<std::string> describe(const Payload& payload);

}  // namespace ctxconf::conformance
