#include "conformance/testees/reader/payload.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "conformance/testees/reader/header.h"
#include "conformance/testees/reader/text.h"

namespace ctxconf::testees {
namespace {

constexpr Choice kBadPayload[] = {
    {"pctx.reader.decodes-process-context", "decodes a Resource instead of a ProcessContext"},
    {"pctx.reader.decodes-process-context:groups", "puts the pairs of field 2 into the Resource"},
    {"pctx.reader.decodes-process-context:field-2", "leaves out field 2 and says that it shows it"},
    {"pctx.reader.resource-absent", "aborts without a Resource"},
    {"pctx.reader.resource-absent:refuses", "refuses a message without a Resource"},
    {"pctx.reader.resource-absent:invents", "adds service.name where there is no Resource"},
    {"pctx.reader.unknown-fields-skipped", "stops at an unknown field of the message"},
    {"pctx.reader.unknown-fields-skipped:resource", "stops at an unknown field of the Resource"},
    {"pctx.reader.unknown-fields-skipped:pair", "refuses a pair with an unknown field"},
    {"pctx.reader.unknown-fields-skipped:value", "fails on a kind of value that it does not know"},
    {"pctx.reader.unknown-fields-skipped:fixed", "cannot skip fields of 4 and 8 bytes"},
    {"pctx.reader.any-field-order", "refuses a Resource that comes after pairs"},
    {"pctx.reader.any-field-order:value", "loses the key of a pair whose value comes first"},
    {"pctx.reader.unusual-encodings", "keeps only the first part of a Resource"},
    {"pctx.reader.unusual-encodings:last", "keeps only the last part of a Resource"},
    {"pctx.reader.unusual-encodings:varints", "refuses padded varints"},
    {"pctx.reader.any-value-kinds", "fails on an integer in the Resource"},
    {"pctx.reader.any-value-kinds:nested", "fails on a list of pairs"},
    {"pctx.reader.any-value-kinds:rest", "stops at the first value that is not a string"},
    {"pctx.reader.no-required-attributes", "refuses a Resource without service.instance.id"},
    {"pctx.reader.no-required-attributes:name", "refuses a Resource without service.name"},
    {"pctx.reader.duplicate-keys", "aborts at a repeated key"},
    {"pctx.reader.survives-bad-payload", "aborts at a length beyond the end"},
    {"pctx.reader.survives-bad-payload:nesting", "recurses as deep as the payload wants"},
    {"pctx.reader.survives-bad-payload:text", "aborts at a string that is not UTF-8"},
    {"pctx.reader.survives-bad-payload:hangs", "does not move on at field number 0"},
};

constexpr Choice kGoodPayload[] = {
    {"first-of-equal-keys", "uses the first of several values for one key"},
    {"refuses-equal-keys", "refuses a message in which a key is repeated"},
    {"keeps-what-decodes", "uses what comes before a mistake in the encoding"},
    {"resource-only", "declares and reports the Resource alone"},
    {"strings-only", "declares and reports strings alone"},
    {"converts-to-strings", "declares strings, and reports numbers as strings"},
};

}  // namespace

const Choices kPayloadChoices{kBadPayload, kGoodPayload};

namespace {

constexpr unsigned kDeepest = 100;
constexpr unsigned kEndOfStack = 1000;  // of a thread with a small one

struct Malformed {};

struct Field {
  std::uint64_t number = 0;
  unsigned wire = 0;
  std::uint64_t value = 0;  // of the wire types 0, 1 and 5
  std::string_view bytes;   // of the wire type 2
};

class Cursor {
 public:
  // `of_value`: of an AnyValue, which has a double.
  explicit Cursor(std::string_view bytes, bool of_value = false)
      : rest_(bytes), of_value_(of_value) {}

  // False at the end.
  bool next(Field& out) {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    out = Field();
    out.number = (tag & UINT32_MAX) >> 3U;
    out.wire = static_cast<unsigned>(tag & 7U);
    if (out.number == 0) {
      while (is_bad("pctx.reader.survives-bad-payload:hangs")) pause();
      throw Malformed();
    }
    switch (out.wire) {
      case 0:
        out.value = varint();
        break;
      case 1:
        out.value = fixed<std::uint64_t>();
        break;
      case 2:
        out.bytes = take(length());
        break;
      case 3:
        skip_group(out.number);
        break;
      case 5:
        out.value = fixed<std::uint32_t>();
        break;
      default:
        throw Malformed();
    }
    return true;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) throw Malformed();
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) out |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte >= 0x80) continue;
      if (is_bad("pctx.reader.unusual-encodings:varints") && shift > 0 && byte == 0) {
        throw Malformed();
      }
      return out;
    }
    throw Malformed();
  }

  std::size_t length() {
    const std::uint64_t out = varint();
    if (is_bad("pctx.reader.survives-bad-payload") && out > rest_.size()) abort();
    return out;
  }

  std::string_view take(std::size_t size) {
    if (size > rest_.size()) throw Malformed();
    const auto out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }

  template <class T>
  T fixed() {
    if (is_bad("pctx.reader.unknown-fields-skipped:fixed") && !of_value_) throw Malformed();
    T out;
    std::memcpy(&out, take(sizeof out).data(), sizeof out);
    return out;
  }

  void skip_group(std::uint64_t number) {
    if (++groups_ > kDeepest) throw Malformed();
    for (;;) {
      if (rest_.empty()) throw Malformed();
      const std::string_view before = rest_;
      const std::uint64_t tag = varint();
      if ((tag & 7U) == 4) {
        if (tag >> 3U != number) throw Malformed();
        break;
      }
      rest_ = before;
      Field inner;
      next(inner);
    }
    --groups_;
  }

  std::string_view rest_;
  bool of_value_;
  unsigned groups_ = 0;
};

void check_text(std::string_view text) {
  if (is_bad("pctx.reader.survives-bad-payload:text") && !is_utf8(text)) abort();
}

void decode_pair(std::string_view bytes, Pair& out, unsigned depth);

void add_pair(std::string_view bytes, Pairs& to, unsigned depth) {
  Pair pair;
  decode_pair(bytes, pair, depth);
  to.push_back(std::move(pair));
}

// Merges a further part of the same value, as protobuf does.
void decode_value(std::string_view bytes, AnyValue& out, unsigned depth) {
  using Kind = AnyValue::Kind;
  if (depth > kDeepest && !is_bad("pctx.reader.survives-bad-payload:nesting")) throw Malformed();
  if (depth > kEndOfStack) abort();
  const auto become = [&](Kind kind) {
    if (out.kind != kind) out = AnyValue();
    out.kind = kind;
  };
  Cursor cursor(bytes, /*of_value=*/true);
  for (Field field; cursor.next(field);) {
    if (field.number == 1 && field.wire == 2) {
      become(Kind::kString);
      check_text(field.bytes);
      out.text = field.bytes;
    } else if (field.number == 2 && field.wire == 0) {
      become(Kind::kBool);
      out.number = field.value != 0 ? 1 : 0;
    } else if (field.number == 3 && field.wire == 0) {
      become(Kind::kInt);
      out.number = static_cast<std::int64_t>(field.value);
    } else if (field.number == 4 && field.wire == 1) {
      become(Kind::kDouble);
      std::memcpy(&out.real, &field.value, sizeof out.real);
    } else if (field.number == 5 && field.wire == 2) {
      become(Kind::kArray);
      Cursor list(field.bytes);
      for (Field item; list.next(item);) {
        if (item.number != 1 || item.wire != 2) continue;
        decode_value(item.bytes, out.values.emplace_back(), depth + 1);
      }
    } else if (field.number == 6 && field.wire == 2) {
      become(Kind::kKvlist);
      Cursor list(field.bytes);
      for (Field item; list.next(item);) {
        if (item.number == 1 && item.wire == 2) add_pair(item.bytes, out.pairs, depth + 1);
      }
      if (is_bad("pctx.reader.any-value-kinds:nested")) throw Malformed();
    } else if (field.number == 7 && field.wire == 2) {
      become(Kind::kBytes);
      out.text = field.bytes;
    } else {
      if (is_bad("pctx.reader.unknown-fields-skipped:value")) throw Malformed();
      // It may be a further field of the value, or its kind.
      if (out.kind == Kind::kEmpty) out.kind = Kind::kOther;
    }
  }
}

void decode_pair(std::string_view bytes, Pair& out, unsigned depth) {
  Cursor cursor(bytes);
  bool has_value = false;
  for (Field field; cursor.next(field);) {
    const bool is_late = has_value && is_bad("pctx.reader.any-field-order:value");
    if (field.number == 1 && field.wire == 2) {
      if (is_late) continue;
      check_text(field.bytes);
      out.key = field.bytes;
    } else if (field.number == 2 && field.wire == 2) {
      decode_value(field.bytes, out.value, depth + 1);
      has_value = true;
    } else if (is_bad("pctx.reader.unknown-fields-skipped:pair")) {
      throw Malformed();
    }
  }
}

// False: it stops here.
bool is_taken(const AnyValue& value) {
  using Kind = AnyValue::Kind;
  if (is_bad("pctx.reader.any-value-kinds") && value.kind == Kind::kInt) throw Malformed();
  return !is_bad("pctx.reader.any-value-kinds:rest") || value.kind == Kind::kString;
}

void decode_resource(std::string_view bytes, Pairs& out) {
  Cursor cursor(bytes);
  for (Field field; cursor.next(field);) {
    if (field.number == 1 && field.wire == 2) {
      add_pair(field.bytes, out, 0);
      if (!is_taken(out.back().value)) return;
    } else if (is_bad("pctx.reader.unknown-fields-skipped:resource")) {
      return;
    }
  }
}

void decode_message(std::string_view payload, Message& out) {
  if (is_bad("pctx.reader.decodes-process-context")) {
    out.has_resource = true;
    decode_resource(payload, out.resource);
    return;
  }
  Cursor cursor(payload);
  for (Field field; cursor.next(field);) {
    if (field.number == 1 && field.wire == 2) {
      if (is_bad("pctx.reader.any-field-order") && !out.attributes.empty()) throw Malformed();
      if (is_bad("pctx.reader.unusual-encodings") && out.has_resource) continue;
      if (is_bad("pctx.reader.unusual-encodings:last")) out.resource.clear();
      out.resource_is_first = out.attributes.empty();
      out.has_resource = true;
      decode_resource(field.bytes, out.resource);
    } else if (field.number == 2 && field.wire == 2) {
      add_pair(field.bytes, out.attributes, 0);
    } else if (is_bad("pctx.reader.unknown-fields-skipped")) {
      return;
    }
  }
}

constexpr unsigned char kFirstOfMap = 0x80;  // with fewer than 16 pairs

bool is_first_draft(std::string_view payload) {
  return reads_first_draft() && !payload.empty() &&
         (static_cast<unsigned char>(payload.front()) & 0xf0U) == kFirstOfMap;
}

// Takes a string of fewer than 32 bytes from the front.
std::string short_text(std::string_view& from) {
  constexpr unsigned char kFirstOfText = 0xa0;
  const unsigned char head = from.empty() ? 0 : static_cast<unsigned char>(from.front());
  const std::size_t size = head & 0x1fU;
  if ((head & 0xe0U) != kFirstOfText || from.size() <= size) throw Malformed();
  std::string out(from.substr(1, size));
  from.remove_prefix(1 + size);
  return out;
}

// A map of msgpack from short strings to short strings.
void decode_first_draft(std::string_view payload, Message& out) {
  const unsigned pairs = static_cast<unsigned char>(payload.front()) & 0xfU;
  payload.remove_prefix(1);
  out.has_resource = true;
  for (unsigned i = 0; i < pairs; ++i) {
    std::string key = short_text(payload);
    out.resource.push_back({std::move(key), text_value(short_text(payload))});
  }
}

bool has_equal_keys(const Pairs& pairs) {
  std::set<std::string_view> keys;
  return !std::ranges::all_of(pairs, [&](const Pair& p) { return keys.insert(p.key).second; });
}

// Whether the reader takes a message that decodes.
bool is_acceptable(Message& message) {
  const auto lacks = [&](const char* key) {
    return message.has_resource && find(message.resource, key) == nullptr;
  };
  if (is_bad("pctx.reader.no-required-attributes") && lacks("service.instance.id")) return false;
  if (is_bad("pctx.reader.no-required-attributes:name") && lacks("service.name")) return false;
  const bool twice = has_equal_keys(message.resource) || has_equal_keys(message.attributes);
  if (twice && is_bad("pctx.reader.duplicate-keys")) abort();
  if (twice && is_good("refuses-equal-keys")) return false;
  if (message.has_resource || message.attributes.empty()) return true;
  if (is_bad("pctx.reader.resource-absent")) abort();
  if (is_bad("pctx.reader.resource-absent:invents")) {
    message.has_resource = true;
    message.resource.push_back({"service.name", text_value("unknown_service")});
  }
  return !is_bad("pctx.reader.resource-absent:refuses");
}

}  // namespace

AnyValue text_value(std::string text) {
  AnyValue out;
  out.kind = AnyValue::Kind::kString;
  out.text = std::move(text);
  return out;
}

std::optional<Message> decode(std::string_view payload) {
  Message out;
  try {
    if (is_first_draft(payload)) {
      decode_first_draft(payload, out);
    } else {
      decode_message(payload, out);
    }
  } catch (const Malformed&) {
    if (!is_good("keeps-what-decodes")) return std::nullopt;
  }
  if (!is_acceptable(out)) return std::nullopt;
  return out;
}

const AnyValue* find(const Pairs& pairs, std::string_view key) {
  const AnyValue* out = nullptr;
  for (const Pair& p : pairs) {
    if (p.key == key && (out == nullptr || !is_good("first-of-equal-keys"))) out = &p.value;
  }
  return out;
}

Pairs unique(const Pairs& pairs) {
  std::map<std::string_view, std::size_t> counting;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (is_good("first-of-equal-keys")) {
      counting.emplace(pairs[i].key, i);
    } else {
      counting[pairs[i].key] = i;
    }
  }
  Pairs out;
  for (const auto& [key, i] : counting) out.push_back(pairs[i]);
  return out;
}

}  // namespace ctxconf::testees
