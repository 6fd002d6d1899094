#include "conformance/payload/payload_walk.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace ctxconf::conformance {
namespace {

// protobuf decodes no longer tags and lengths than these, and no larger lengths.
constexpr unsigned kMaxTagBytes = 5;
constexpr unsigned kMaxLengthBytes = 5;
constexpr unsigned kMaxVarintBytes = 10;
constexpr std::uint64_t kMaxLength = INT32_MAX - 16;

constexpr char kHex[] = "0123456789abcdef";

void append_hex(std::string& out, unsigned char byte) {
  out += kHex[byte >> 4U];
  out += kHex[byte & 15U];
}

// The length of the well-formed character at `at`, or 0 and the number of bytes of the malformed
// one.
struct Utf8Step {
  std::size_t good = 0;
  std::size_t bad = 0;
};

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, 0};
  std::size_t length = 0;
  unsigned char low = 0x80;  // bounds of the second byte
  unsigned char high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;   // overlong
    if (lead == 0xed) high = 0x9f;  // surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;  // beyond U+10FFFF
  } else {
    return {0, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) return {0, i};
    low = 0x80;
    high = 0xbf;
  }
  return {length, 0};
}

// Controls of ASCII and of the C1 set, which terminals also obey.
bool is_control(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7f;
  return character.size() == 2 && lead == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

struct Escaped {
  std::string text;
  bool cut = false;
};

Escaped escape(std::string_view text, std::size_t limit, bool quotes) {
  Escaped out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const std::string_view piece = text.substr(at, std::max(step.good, step.bad));
    std::string shown;
    if (step.good == 0 || is_control(piece)) {
      for (const char c : piece) {
        if (c == '\n') {
          shown += "\\n";
        } else if (c == '\t') {
          shown += "\\t";
        } else {
          shown += "\\x";
          append_hex(shown, static_cast<unsigned char>(c));
        }
      }
    } else if (quotes && (piece == "\"" || piece == "\\")) {
      shown = '\\';
      shown += piece;
    } else {
      shown = piece;
    }
    if (out.text.size() + shown.size() > limit) {
      out.cut = true;
      return out;
    }
    out.text += shown;
    at += piece.size();
  }
  return out;
}

std::string field_name(const WireField& field) { return "field " + std::to_string(field.number); }

}  // namespace

std::optional<BadBytes> first_bad_utf8(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.good == 0) return BadBytes{at, step.bad};
    at += step.good;
  }
  return std::nullopt;
}

bool is_plain_text(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.good == 0 || is_control(text.substr(at, step.good))) return false;
    at += step.good;
  }
  return !text.empty();
}

std::string printable(std::string_view text, std::size_t limit) {
  Escaped e = escape(text, limit, false);
  if (e.cut) e.text += "...";
  return std::move(e.text);
}

std::string quoted(std::string_view text, std::size_t limit) {
  const Escaped e = escape(text, limit, true);
  std::string out = '"' + e.text + (e.cut ? "...\"" : "\"");
  if (e.cut) out += " (" + std::to_string(text.size()) + " bytes)";
  return out;
}

std::string path_of(const Crumb& crumb) {
  std::vector<const Crumb*> steps;
  for (const Crumb* c = &crumb; c != nullptr; c = c->up) steps.push_back(c);
  std::string out;
  for (auto it = steps.rbegin(); it != steps.rend(); ++it) {
    if ((*it)->name.empty()) continue;
    if (!out.empty()) out += '.';
    out += (*it)->name;
    if ((*it)->index) out += '[' + std::to_string(*(*it)->index) + ']';
  }
  return out;
}

std::string_view wire_type_name(std::uint32_t wire_type) {
  static constexpr std::array<std::string_view, 6> names = {
      "varint", "64-bit", "length-delimited", "group", "group end", "32-bit"};
  return wire_type < names.size() ? names[wire_type] : "undefined";
}

PayloadWalk::PayloadWalk(std::span<const std::byte> payload) : payload_(payload) {}

bool PayloadWalk::fail(StopKind kind, std::uint64_t offset, int depth, const Crumb& crumb,
                       std::string what) {
  const std::string path = path_of(crumb);
  stop = {kind, offset, depth, path.empty() ? std::move(what) : path + ": " + what};
  return false;
}

bool PayloadWalk::room_in(const std::vector<PayloadFault>& list) {
  if (list.size() < kMaxPayloadListed) return true;
  too_many_faults = true;
  return false;
}

void PayloadWalk::note_index(const WireField& field, const Crumb& crumb) {
  if (!room_in(dictionary_uses)) return;
  dictionary_uses.push_back(
      {path_of(crumb), {}, "index " + std::to_string(field.varint), field.offset});
}

std::string_view PayloadWalk::text(const Region& value) const {
  const auto end = std::min<std::uint64_t>(value.end, payload_.size());
  const auto bytes = payload_.subspan(value.at, end - value.at);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool PayloadWalk::more(const Region& message) const {
  return message.at < (message.end == kOpenEnd ? payload_.size() : message.end);
}

bool PayloadWalk::skip(Region& message, int depth, const Crumb& crumb, std::uint64_t count) {
  if (count > message.end - message.at) {
    return fail(StopKind::kMalformed, message.at, depth, crumb, "the message ends within a field");
  }
  // An earlier length may have led beyond the payload.
  if (message.at > payload_.size() || count > payload_.size() - message.at) {
    return fail(StopKind::kRanOut, message.at, depth, crumb, "the payload ends within a field");
  }
  message.at += count;
  return true;
}

bool PayloadWalk::varint(Region& message, int depth, const Crumb& crumb, unsigned max_bytes,
                         std::uint64_t max_value, std::uint64_t& value) {
  const std::uint64_t begin = message.at;
  value = 0;
  for (unsigned i = 0; i < max_bytes; ++i) {
    const std::uint64_t at = message.at;
    if (!skip(message, depth, crumb, 1)) return false;
    const auto byte = std::to_integer<std::uint64_t>(payload_[at]);
    const std::uint64_t part = byte & 0x7fU;
    const bool lost = i == 9 && part > 1;
    value |= part << (7 * i);
    if (byte >= 0x80) continue;
    if (lost || value > max_value) break;
    return true;
  }
  return fail(StopKind::kMalformed, begin, depth, crumb,
              "a varint is too long or too large for its place");
}

bool PayloadWalk::next(Region& message, int depth, const Crumb& crumb, WireField& field) {
  field = {};
  field.offset = message.at;
  std::uint64_t tag = 0;
  if (!varint(message, depth, crumb, kMaxTagBytes, UINT32_MAX, tag)) return false;
  field.number = static_cast<std::uint32_t>(tag >> 3U);
  field.wire_type = static_cast<std::uint32_t>(tag & 7U);
  if (field.number == 0) {
    return fail(StopKind::kMalformed, field.offset, depth, crumb, "a field with number 0");
  }
  if (field.wire_type == kGroupEnd || field.wire_type > kFixed32) {
    return fail(StopKind::kMalformed, field.offset, depth, crumb,
                field_name(field) + " has wire type " + std::to_string(field.wire_type));
  }
  if (value_of(message, depth, crumb, field)) return true;
  if (stop.depth == depth &&
      (stop.kind == StopKind::kRanOut || stop.kind == StopKind::kMalformed)) {
    // The payload ends within this field, so report the field at its tag.
    stop.offset = field.offset;
    stop.what +=
        " (" + field_name(field) + ", " + std::string(wire_type_name(field.wire_type)) + ")";
  }
  return false;
}

bool PayloadWalk::value_of(Region& message, int depth, const Crumb& crumb, WireField& field) {
  field.value.at = message.at;
  switch (field.wire_type) {
    case kVarint:
      if (!varint(message, depth, crumb, kMaxVarintBytes, UINT64_MAX, field.varint)) return false;
      break;
    case kFixed64:
      if (!skip(message, depth, crumb, 8)) return false;
      break;
    case kFixed32:
      if (!skip(message, depth, crumb, 4)) return false;
      break;
    case kGroup:
      if (!skip_group(message, depth, crumb, field.number)) return false;
      break;
    default: {
      std::uint64_t length = 0;
      if (!varint(message, depth, crumb, kMaxLengthBytes, kMaxLength, length)) return false;
      field.value.at = message.at;
      if (length > message.end - message.at) {
        return fail(StopKind::kMalformed, field.offset, depth, crumb,
                    "a length of " + std::to_string(length) + " goes beyond its message");
      }
      message.at += length;  // may be beyond the payload; a walk into it notices
      break;
    }
  }
  field.value.end = message.at;
  return true;
}

bool PayloadWalk::skip_group(Region& message, int depth, const Crumb& crumb, std::uint32_t number) {
  std::array<std::uint32_t, kMaxPayloadDepth> open{};
  std::size_t count = 0;
  const auto room = static_cast<std::size_t>(std::max(kMaxPayloadDepth - depth, 0));
  const std::uint64_t begin = message.at;
  for (bool entering = true;;) {
    if (entering) {
      if (count >= room) {
        return fail(StopKind::kTooDeep, begin, depth, crumb, "groups nest too deeply");
      }
      open[count++] = number;
    }
    const std::uint64_t at = message.at;
    std::uint64_t tag = 0;
    if (!varint(message, depth, crumb, kMaxTagBytes, UINT32_MAX, tag)) return false;
    WireField field;
    field.number = number = static_cast<std::uint32_t>(tag >> 3U);
    field.wire_type = static_cast<std::uint32_t>(tag & 7U);
    entering = field.wire_type == kGroup;
    if (number == 0 || field.wire_type > kFixed32) {
      return fail(StopKind::kMalformed, at, depth, crumb, "a bad tag in a group");
    }
    if (entering) continue;
    if (field.wire_type == kGroupEnd) {
      if (open[--count] != number) {
        return fail(StopKind::kMalformed, at, depth, crumb, "a group has the end of another one");
      }
      if (count == 0) return true;
      continue;
    }
    if (!value_of(message, depth, crumb, field)) return false;
    if (message.at > payload_.size()) {
      return fail(StopKind::kRanOut, at, depth, crumb, "the payload ends within a group");
    }
  }
}

bool PayloadWalk::expect(const WireField& field, std::uint32_t wire_type, int depth,
                         const Crumb& crumb) {
  if (field.wire_type == wire_type) return true;
  return fail(StopKind::kWrongType, field.offset, depth, crumb,
              std::string(wire_type_name(field.wire_type)) + " where " +
                  std::string(wire_type_name(wire_type)) + " belongs");
}

bool PayloadWalk::enter(int depth, std::uint64_t offset, const Crumb& crumb) {
  if (depth <= kMaxPayloadDepth) return true;
  return fail(StopKind::kTooDeep, offset, depth, Crumb{nullptr, crumb.name, crumb.index},
              "messages nest deeper than " + std::to_string(kMaxPayloadDepth));
}

bool PayloadWalk::complete(const WireField& field, int depth, const Crumb& crumb) {
  if (field.value.end <= payload_.size()) return true;
  return fail(StopKind::kRanOut, field.offset, depth, crumb, "the payload ends within a field");
}

bool PayloadWalk::string(const WireField& field, int depth, const Crumb& crumb) {
  if (!expect(field, kDelimited, depth, crumb) || !complete(field, depth, crumb)) return false;
  const std::string_view s = text(field.value);
  auto bad = first_bad_utf8(s);
  if (!bad) return true;

  if (room_in(bad_utf8)) {
    std::string what =
        "not UTF-8 at byte " + std::to_string(bad->at) + " of " + std::to_string(s.size()) + ":";
    for (const char c : s.substr(bad->at, bad->count)) {
      what += ' ';
      append_hex(what, static_cast<unsigned char>(c));
    }
    bad_utf8.push_back({path_of(crumb), {}, std::move(what), field.value.at + bad->at});
  }

  if (clean.empty()) clean = text({0, kOpenEnd});
  for (; bad; bad = first_bad_utf8(s, bad->at + bad->count)) {
    std::fill_n(clean.begin() + static_cast<std::ptrdiff_t>(field.value.at + bad->at), bad->count,
                '?');
  }
  return true;
}

bool PayloadWalk::resource(Region message, int depth, const Crumb& crumb, ResourceNode& node) {
  if (!enter(depth, message.at, crumb)) return false;
  std::size_t entities = 0;
  WireField f;
  while (more(message)) {
    if (!next(message, depth, crumb, f)) return false;
    if (f.number == 1) {
      const Crumb c{&crumb, "attributes", node.attributes.size()};
      if (!expect(f, kDelimited, depth, c)) return false;
      PairNode spare;
      PairNode& one = append(node.attributes, spare);
      one.offset = f.offset;
      if (!pair(f.value, depth + 1, c, one)) return false;
    } else if (f.number == 2) {
      if (!expect(f, kVarint, depth, {&crumb, "dropped_attributes_count", {}})) return false;
    } else if (f.number == 3) {
      const Crumb c{&crumb, "entity_refs", entities++};
      if (!expect(f, kDelimited, depth, c) || !entity_ref(f.value, depth + 1, c)) return false;
    } else {
      node.has_unknown = true;
      if (!complete(f, depth, crumb)) return false;
    }
  }
  return true;
}

bool PayloadWalk::entity_ref(Region message, int depth, const Crumb& crumb) {
  if (!enter(depth, message.at, crumb)) return false;
  static constexpr std::array<std::string_view, 5> names = {"", "schema_url", "type", "id_keys",
                                                            "description_keys"};
  WireField f;
  while (more(message)) {
    if (!next(message, depth, crumb, f)) return false;
    if (f.number < names.size()) {
      if (!string(f, depth, {&crumb, names[f.number], {}})) return false;
    } else if (!complete(f, depth, crumb)) {
      return false;
    }
  }
  return true;
}

bool PayloadWalk::pair(Region message, int depth, const Crumb& crumb, PairNode& node) {
  if (!enter(depth, message.at, crumb)) return false;
  const std::size_t first_utf8 = bad_utf8.size();
  const std::size_t first_index = dictionary_uses.size();
  WireField f;
  while (more(message)) {
    if (!next(message, depth, crumb, f)) return false;
    if (f.number == 1) {
      if (f.wire_type == kDelimited) node.key = text(f.value);  // also what is left of it
      if (!string(f, depth, {&crumb, "key", {}})) return false;
    } else if (f.number == 2) {
      const Crumb c{&crumb, "value", {}};
      node.has_value = true;
      if (!expect(f, kDelimited, depth, c) || !any_value(f.value, depth + 1, c, node.value)) {
        return false;
      }
    } else if (f.number == 3) {
      const Crumb c{&crumb, "key_strindex", {}};
      if (!expect(f, kVarint, depth, c)) return false;
      node.key_is_index = true;
      note_index(f, c);
    } else if (!complete(f, depth, crumb)) {
      return false;
    }
  }
  // The key may come last. Faults of nested pairs already have their keys.
  for (std::size_t i = first_utf8; i < bad_utf8.size(); ++i) {
    if (bad_utf8[i].key.empty()) bad_utf8[i].key = printable(node.key);
  }
  for (std::size_t i = first_index; i < dictionary_uses.size(); ++i) {
    if (dictionary_uses[i].key.empty()) dictionary_uses[i].key = printable(node.key);
  }
  return true;
}

bool PayloadWalk::any_value(Region message, int depth, const Crumb& crumb, ValueNode& node) {
  if (!enter(depth, message.at, crumb)) return false;
  WireField f;
  while (more(message)) {
    if (!next(message, depth, crumb, f)) return false;
    if (f.number >= 1 && f.number <= 8 && f.number != node.which) {
      // A oneof: another member replaces the value; the same list is continued.
      node.pairs.clear();
      node.items.clear();
      node.which = f.number;
    }
    bool good = true;
    switch (f.number) {
      case 1:
        good = string(f, depth, crumb);
        break;
      case 2:
      case 3:
        good = expect(f, kVarint, depth, crumb);
        break;
      case 4:
        good = expect(f, kFixed64, depth, crumb);
        break;
      case 5:
        good = expect(f, kDelimited, depth, crumb) && array(f.value, depth + 1, crumb, node);
        break;
      case 6:
        good = expect(f, kDelimited, depth, crumb) && pair_list(f.value, depth + 1, crumb, node);
        break;
      case 7:
        good = expect(f, kDelimited, depth, crumb) && complete(f, depth, crumb);
        break;
      case 8:
        good = expect(f, kVarint, depth, crumb);
        if (good) note_index(f, {&crumb, "string_value_strindex", {}});
        break;
      default:
        good = complete(f, depth, crumb);
        break;
    }
    if (!good) return false;
  }
  return true;
}

template <class Node, class Walk>
bool PayloadWalk::list(Region message, int depth, const Crumb& crumb, std::string_view name,
                       std::vector<Node>& nodes, Walk walk) {
  if (!enter(depth, message.at, crumb)) return false;
  WireField f;
  while (more(message)) {
    if (!next(message, depth, crumb, f)) return false;
    if (f.number != 1) {
      if (!complete(f, depth, crumb)) return false;
      continue;
    }
    const Crumb c{&crumb, name, nodes.size()};
    if (!expect(f, kDelimited, depth, c)) return false;
    Node spare;
    if (!walk(f, c, append(nodes, spare))) return false;
  }
  return true;
}

bool PayloadWalk::array(Region message, int depth, const Crumb& crumb, ValueNode& node) {
  return list(message, depth, crumb, "array", node.items,
              [&](const WireField& f, const Crumb& c, ValueNode& item) {
                return any_value(f.value, depth + 1, c, item);
              });
}

bool PayloadWalk::pair_list(Region message, int depth, const Crumb& crumb, ValueNode& node) {
  return list(message, depth, crumb, "kvlist", node.pairs,
              [&](const WireField& f, const Crumb& c, PairNode& one) {
                one.offset = f.offset;
                return pair(f.value, depth + 1, c, one);
              });
}

}  // namespace ctxconf::conformance
