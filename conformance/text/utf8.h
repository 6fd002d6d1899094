// Characters of text that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

struct CodePoint {
  char32_t value = 0;
  std::size_t length = 1;
  bool valid = false;  // false: one byte that is not UTF-8
};

inline std::uint8_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<std::uint8_t>(text[at]);
}

inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const std::uint8_t first = byte_at(text, at);
  if (first < 0x80) return {first, 1, true};
  std::size_t length = 0;
  char32_t value = 0;
  char32_t smallest = 0;
  if ((first & 0xe0) == 0xc0) {
    length = 2, value = first & 0x1fU, smallest = 0x80;
  } else if ((first & 0xf0) == 0xe0) {
    length = 3, value = first & 0x0fU, smallest = 0x800;
  } else if ((first & 0xf8) == 0xf0) {
    length = 4, value = first & 0x07U, smallest = 0x10000;
  } else {
    return {first, 1, false};
  }
  if (text.size() - at < length) return {first, 1, false};
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint8_t next = byte_at(text, at + i);
    if ((next & 0xc0) != 0x80) return {first, 1, false};
    value = (value << 6) | (next & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < smallest || value > 0x10ffff || surrogate) return {first, 1, false};
  return {value, length, true};
}

// The longest start of `text` within `limit` that does not end inside a character.
inline std::string_view head_of(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  for (std::size_t back = 1; back <= 3 && back <= limit; ++back) {
    const CodePoint c = code_point_at(text, limit - back);
    if (c.valid && c.length > back) return text.substr(0, limit - back);
  }
  return text.substr(0, limit);
}

inline std::string cut_mark(std::size_t left_out) {
  if (left_out == 0) return {};
  return "… (" + std::to_string(left_out) + (left_out == 1 ? " byte more)" : " bytes more)");
}

inline std::string shortened(std::string_view text, std::size_t limit) {
  const std::string_view head = head_of(text, limit);
  return std::string(head) + cut_mark(text.size() - head.size());
}

}  // namespace ctxconf::conformance
