// The message ProcessContext, decoded by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kPayloadChoices;

struct Pair;

// AnyValue
struct AnyValue {
  // kOther: of a kind that this program does not know.
  enum class Kind { kEmpty, kString, kBool, kInt, kDouble, kArray, kKvlist, kBytes, kOther };
  Kind kind = Kind::kEmpty;
  std::string text;         // kString, kBytes
  std::int64_t number = 0;  // kBool, kInt
  double real = 0;          // kDouble
  std::vector<AnyValue> values;
  std::vector<Pair> pairs;
};

struct Pair {
  std::string key;
  AnyValue value;
};
using Pairs = std::vector<Pair>;

AnyValue text_value(std::string text);

struct Message {
  bool has_resource = false;
  bool resource_is_first = false;  // before field 2
  Pairs resource;
  Pairs attributes;
};

// Nothing: the bytes are not such a message, or not one that this reader takes.
std::optional<Message> decode(std::string_view payload);

// The one that counts of those with this key; null: there is none.
const AnyValue* find(const Pairs& pairs, std::string_view key);
// Each key once, with the value that counts.
Pairs unique(const Pairs& pairs);

}  // namespace ctxconf::testees
