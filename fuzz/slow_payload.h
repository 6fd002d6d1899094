// A second parser of the payload, written from the field tables of the messages (OTEP 4719, OTLP
// common and resource) and the description of the wire format: a table of fields, and recursion
// over copied bytes. Nothing shared with conformance/ or protobuf. For oracles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ctxconf::fuzz {

struct SlowPair;

struct SlowValue {
  std::uint32_t which = 0;   // number of the AnyValue field that is set; 0: none
  std::string text;          // of fields 1 and 7
  std::uint64_t number = 0;  // of fields 2, 3, 8; the bits of field 4
  std::vector<SlowValue> items;
  std::vector<SlowPair> pairs;
};

struct SlowPair {
  std::uint64_t offset = 0;  // of its tag in the payload
  std::string key;
  bool key_is_index = false;
  bool has_value = false;
  SlowValue value;
};

enum class SlowVerdict {
  kGood,    // every field is complete and has its type
  kStrict,  // a decoder may accept it: a known field with another type, a number that is too large
  kBroken,  // no decoder accepts it
};

struct SlowPayload {
  SlowVerdict verdict = SlowVerdict::kGood;
  // The rest is only for kGood.
  std::vector<SlowPair> resource;    // of all occurrences of field 1
  std::vector<SlowPair> attributes;  // field 2
  bool utf8 = true;                  // all strings are UTF-8
  std::uint64_t indexes = 0;         // fields that point into a dictionary
  std::uint64_t top_level = 0;       // fields of the payload itself
  std::uint64_t unknown = 0;         // fields among these with other numbers
};
SlowPayload slow_payload(const std::string& bytes);

bool slow_utf8(const std::string& text);

}  // namespace ctxconf::fuzz
