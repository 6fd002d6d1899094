#include "fuzz/slow_payload.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ctxconf::fuzz {
namespace {

constexpr int kDeepest = 100;  // messages and groups within the payload

enum class Type { kNone, kVarint, kFixed64, kString, kBytes, kMessage };
enum class Message { kContext, kResource, kPair, kValue, kArray, kList, kEntity };

struct Row {
  Message of;
  std::uint32_t number;
  Type type;
  Message content;  // of kMessage
};
constexpr std::array<Row, 22> kFields = {{
    {Message::kContext, 1, Type::kMessage, Message::kResource},
    {Message::kContext, 2, Type::kMessage, Message::kPair},
    {Message::kResource, 1, Type::kMessage, Message::kPair},
    {Message::kResource, 2, Type::kVarint, {}},
    {Message::kResource, 3, Type::kMessage, Message::kEntity},
    {Message::kEntity, 1, Type::kString, {}},
    {Message::kEntity, 2, Type::kString, {}},
    {Message::kEntity, 3, Type::kString, {}},
    {Message::kEntity, 4, Type::kString, {}},
    {Message::kPair, 1, Type::kString, {}},
    {Message::kPair, 2, Type::kMessage, Message::kValue},
    {Message::kPair, 3, Type::kVarint, {}},
    {Message::kValue, 1, Type::kString, {}},
    {Message::kValue, 2, Type::kVarint, {}},
    {Message::kValue, 3, Type::kVarint, {}},
    {Message::kValue, 4, Type::kFixed64, {}},
    {Message::kValue, 5, Type::kMessage, Message::kArray},
    {Message::kValue, 6, Type::kMessage, Message::kList},
    {Message::kValue, 7, Type::kBytes, {}},
    {Message::kValue, 8, Type::kVarint, {}},
    {Message::kArray, 1, Type::kMessage, Message::kValue},
    {Message::kList, 1, Type::kMessage, Message::kPair},
}};

Row row_of(Message of, std::uint32_t number) {
  for (const Row& row : kFields) {
    if (row.of == of && row.number == number) return row;
  }
  return {of, number, Type::kNone, {}};
}

std::uint32_t wire_type_of(Type type) {
  if (type == Type::kVarint) return 0;
  return type == Type::kFixed64 ? 1 : 2;
}

struct Field {
  std::uint64_t offset = 0;
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  std::uint64_t varint = 0;
  std::string content;  // of wire types 1, 2 and 5
  std::uint64_t content_at = 0;
};

class Parser {
 public:
  SlowPayload out;

  // One after the other; false if there is no further whole field.
  bool next(const std::string& bytes, std::uint64_t base, std::size_t& at, int depth, Field& f) {
    if (at >= bytes.size() || out.verdict == SlowVerdict::kBroken) return false;
    f = {};
    f.offset = base + at;
    std::uint64_t tag = 0;
    if (!varint(bytes, at, 5, tag)) return broken();
    if (tag > UINT32_MAX) strict();
    f.number = static_cast<std::uint32_t>(tag) >> 3U;
    f.wire_type = static_cast<std::uint32_t>(tag & 7U);
    if (f.number == 0) return broken();
    return content(bytes, base, at, depth, f);
  }

  void strict() {
    if (out.verdict == SlowVerdict::kGood) out.verdict = SlowVerdict::kStrict;
  }
  bool broken() {
    out.verdict = SlowVerdict::kBroken;
    return false;
  }

  bool enter(int depth) { return depth <= kDeepest || broken(); }

  // The row of the field, or kNone for fields to skip.
  Row row(Message of, const Field& f) {
    Row r = row_of(of, f.number);
    if (r.type == Type::kNone) return r;
    if (wire_type_of(r.type) != f.wire_type) {
      strict();
      r.type = Type::kNone;
    } else if (r.type == Type::kString) {
      out.utf8 = out.utf8 && slow_utf8(f.content);
    }
    return r;
  }

  void context(const std::string& bytes) {
    std::size_t at = 0;
    for (Field f; next(bytes, 0, at, 0, f);) {
      ++out.top_level;
      const Row r = row(Message::kContext, f);
      if (f.number > 2) ++out.unknown;
      if (r.type == Type::kNone) continue;
      if (f.number == 1) {
        resource(f, 1);
      } else {
        pair(f, 1, out.attributes.emplace_back());
      }
    }
  }

 private:
  static bool varint(const std::string& bytes, std::size_t& at, int most, std::uint64_t& value) {
    value = 0;
    for (int i = 0; i < most && at < bytes.size(); ++i) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      if (i < 9 || (byte & 0x7f) < 2) value += static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool content(const std::string& bytes, std::uint64_t base, std::size_t& at, int depth, Field& f) {
    std::uint64_t size = 0;
    switch (f.wire_type) {
      case 0: {
        const std::size_t begin = at;
        if (!varint(bytes, at, 10, f.varint)) return broken();
        if (at - begin == 10 && static_cast<unsigned char>(bytes[at - 1]) > 1) strict();
        return true;
      }
      case 1:
        size = 8;
        break;
      case 2:
        if (!varint(bytes, at, 5, size)) return broken();
        if (size > INT32_MAX - 16) return broken();
        break;
      case 3:
        return group(bytes, base, at, depth + 1, f.number);
      case 5:
        size = 4;
        break;
      default:
        return broken();
    }
    if (size > bytes.size() - at) return broken();
    f.content_at = base + at;
    f.content = bytes.substr(at, size);
    at += size;
    return true;
  }

  bool group(const std::string& bytes, std::uint64_t base, std::size_t& at, int depth,
             std::uint32_t number) {
    if (!enter(depth)) return false;
    for (;;) {
      std::size_t after = at;
      std::uint64_t tag = 0;
      if (at >= bytes.size() || !varint(bytes, after, 5, tag)) return broken();
      if (tag <= UINT32_MAX && (tag & 7U) == 4) {
        at = after;
        return tag >> 3U == number || broken();
      }
      Field f;
      if (!next(bytes, base, at, depth, f)) return broken();
    }
  }

  void resource(const Field& message, int depth) {
    if (!enter(depth)) return;
    std::size_t at = 0;
    for (Field f; next(message.content, message.content_at, at, depth, f);) {
      const Row r = row(Message::kResource, f);
      if (r.type != Type::kMessage) continue;
      if (f.number == 1) {
        pair(f, depth + 1, out.resource.emplace_back());
      } else {
        entity(f, depth + 1);
      }
    }
  }

  void entity(const Field& message, int depth) {
    if (!enter(depth)) return;
    std::size_t at = 0;
    for (Field f; next(message.content, message.content_at, at, depth, f);) {
      row(Message::kEntity, f);
    }
  }

  void pair(const Field& message, int depth, SlowPair& p) {
    p.offset = message.offset;
    if (!enter(depth)) return;
    std::size_t at = 0;
    for (Field f; next(message.content, message.content_at, at, depth, f);) {
      const Row r = row(Message::kPair, f);
      if (r.type == Type::kNone) continue;
      if (f.number == 1) p.key = f.content;
      if (f.number == 2) {
        p.has_value = true;
        value(f, depth + 1, p.value);
      }
      if (f.number == 3) {
        p.key_is_index = true;
        ++out.indexes;
      }
    }
  }

  // A second message for the same field is merged: a list grows, anything else is replaced.
  void value(const Field& message, int depth, SlowValue& v) {
    if (!enter(depth)) return;
    std::size_t at = 0;
    for (Field f; next(message.content, message.content_at, at, depth, f);) {
      const Row r = row(Message::kValue, f);
      if (r.type == Type::kNone) continue;
      if (f.number != v.which) v = {f.number, {}, 0, {}, {}};
      v.text = r.type == Type::kMessage ? "" : f.content;
      v.number = f.varint;
      if (f.number == 8) ++out.indexes;
      if (r.type == Type::kMessage) list(f, depth + 1, v);
    }
  }

  void list(const Field& message, int depth, SlowValue& v) {
    if (!enter(depth)) return;
    const bool array = message.number == 5;
    std::size_t at = 0;
    for (Field f; next(message.content, message.content_at, at, depth, f);) {
      const Row r = row(array ? Message::kArray : Message::kList, f);
      if (r.type == Type::kNone) continue;
      if (array) {
        value(f, depth + 1, v.items.emplace_back());
      } else {
        pair(f, depth + 1, v.pairs.emplace_back());
      }
    }
  }
};

}  // namespace

SlowPayload slow_payload(const std::string& bytes) {
  Parser parser;
  parser.context(bytes);
  return std::move(parser.out);
}

bool slow_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    const int more = lead < 0x80 ? 0 : lead < 0xc0 ? -1 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (more < 0 || lead > 0xf7) return false;
    std::uint32_t point = more == 0 ? lead : lead & (0x3fU >> more);
    for (int i = 0; i < more; ++i) {
      if (at >= text.size()) return false;
      const auto byte = static_cast<unsigned char>(text[at++]);
      if (byte >> 6U != 2) return false;
      point = point * 64 + (byte & 0x3fU);
    }
    constexpr std::array<std::uint32_t, 4> least = {0, 0x80, 0x800, 0x10000};
    if (point < least[static_cast<std::size_t>(more)] || point > 0x10ffff) return false;
    if (point >= 0xd800 && point <= 0xdfff) return false;
  }
  return true;
}

}  // namespace ctxconf::fuzz
