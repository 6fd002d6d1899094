// The walk over the wire format, used by payload.h. It checks types and strings and finds offsets;
// it decodes nothing. It must never include protobuf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/payload/payload_fault.h"

namespace ctxconf::conformance {

struct PairNode;

// Mirrors a decoded AnyValue: the lists have the same elements in the same order, even if a writer
// split them over several occurrences of a field.
struct ValueNode {
  std::uint32_t which = 0;       // number of the field that is set
  std::vector<PairNode> pairs;   // of a key-value list
  std::vector<ValueNode> items;  // of an array
};

struct PairNode {
  std::uint64_t offset = 0;   // of the pair's tag
  std::string_view key;       // as in the payload; may not be UTF-8
  bool key_is_index = false;  // key_strindex occurs
  bool has_value = false;
  ValueNode value;
};

struct ResourceNode {
  std::vector<PairNode> attributes;
  bool has_unknown = false;  // a field with another number than 1 to 3
};

// A step of a path, kept on the stack: "attributes[3]" below "resource".
struct Crumb {
  const Crumb* up = nullptr;
  std::string_view name;
  std::optional<std::size_t> index;
};
std::string path_of(const Crumb& crumb);

enum class StopKind {
  kNone,
  kMalformed,  // not wire format, or a length beyond the end of the enclosing message
  kRanOut,     // the payload ends too early; all lengths so far may be right
  kWrongType,  // a known field with another wire type than its own
  kTooDeep,
};

struct WalkStop {
  StopKind kind = StopKind::kNone;
  std::uint64_t offset = 0;
  int depth = 0;     // of the message
  std::string what;  // with the path
};

// The content of a message. `end` is computed from the length and may lie beyond the payload.
struct Region {
  std::uint64_t at = 0;
  std::uint64_t end = 0;
};
inline constexpr std::uint64_t kOpenEnd = UINT64_MAX;  // of the payload itself

struct WireField {
  std::uint64_t offset = 0;
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  Region value;
  std::uint64_t varint = 0;
};

inline constexpr std::uint32_t kVarint = 0;
inline constexpr std::uint32_t kFixed64 = 1;
inline constexpr std::uint32_t kDelimited = 2;
inline constexpr std::uint32_t kGroup = 3;
inline constexpr std::uint32_t kGroupEnd = 4;
inline constexpr std::uint32_t kFixed32 = 5;
std::string_view wire_type_name(std::uint32_t wire_type);

// The walking functions return false at the first mistake, which `stop` describes. `depth` counts
// messages; the payload itself is 0.
class PayloadWalk {
 public:
  explicit PayloadWalk(std::span<const std::byte> payload);

  bool more(const Region& message) const;
  // Reads the next field; `message` then starts after it.
  bool next(Region& message, int depth, const Crumb& crumb, WireField& field);

  bool resource(Region message, int depth, const Crumb& crumb, ResourceNode& node);
  bool pair(Region message, int depth, const Crumb& crumb, PairNode& node);

  // Adds a node to `list`, or returns `spare` if there are too many in total.
  template <class Node>
  Node& append(std::vector<Node>& list, Node& spare) {
    if (items_ >= kMaxPayloadItems) {
      too_many_items = true;
      return spare;
    }
    ++items_;
    return list.emplace_back();
  }

  // Whether `list` may still grow; remembers if it may not.
  bool room_in(const std::vector<PayloadFault>& list);
  std::string_view text(const Region& value) const;

  WalkStop stop;
  std::vector<PayloadFault> bad_utf8;
  std::vector<PayloadFault> dictionary_uses;
  bool too_many_items = false;
  bool too_many_faults = false;
  std::string clean;  // the payload with '?' for each byte that is not UTF-8; empty: all are

 private:
  bool fail(StopKind kind, std::uint64_t offset, int depth, const Crumb& crumb, std::string what);
  bool varint(Region& message, int depth, const Crumb& crumb, unsigned max_bytes,
              std::uint64_t max_value, std::uint64_t& value);
  bool skip(Region& message, int depth, const Crumb& crumb, std::uint64_t count);
  bool value_of(Region& message, int depth, const Crumb& crumb, WireField& field);
  bool skip_group(Region& message, int depth, const Crumb& crumb, std::uint32_t number);
  bool expect(const WireField& field, std::uint32_t wire_type, int depth, const Crumb& crumb);
  void note_index(const WireField& field, const Crumb& crumb);
  bool enter(int depth, std::uint64_t offset, const Crumb& crumb);
  bool string(const WireField& field, int depth, const Crumb& crumb);
  bool complete(const WireField& field, int depth, const Crumb& crumb);
  bool any_value(Region message, int depth, const Crumb& crumb, ValueNode& node);
  // A message whose field 1 is repeated; `walk` gets each.
  template <class Node, class Walk>
  bool list(Region message, int depth, const Crumb& crumb, std::string_view name,
            std::vector<Node>& nodes, Walk walk);
  bool array(Region message, int depth, const Crumb& crumb, ValueNode& node);
  bool pair_list(Region message, int depth, const Crumb& crumb, ValueNode& node);
  bool entity_ref(Region message, int depth, const Crumb& crumb);

  std::span<const std::byte> payload_;
  std::size_t items_ = 0;
};

// The first bytes that are not UTF-8. Surrogates and overlong forms are not.
struct BadBytes {
  std::size_t at = 0;
  std::size_t count = 0;
};
std::optional<BadBytes> first_bad_utf8(std::string_view text, std::size_t from = 0);

// Whether the text is not empty, UTF-8 and free of control characters.
bool is_plain_text(std::string_view text);

// Safe for terminals: valid UTF-8, with control characters and bad bytes escaped, cut after about
// `limit` bytes.
std::string printable(std::string_view text, std::size_t limit = 64);
// The same in quotes; if it is cut, with the length.
std::string quoted(std::string_view text, std::size_t limit = 64);

}  // namespace ctxconf::conformance
