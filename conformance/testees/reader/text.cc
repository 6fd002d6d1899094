#include "conformance/testees/reader/text.h"

#include <cstddef>

namespace ctxconf::testees {
namespace {

// 0: no character begins with this byte.
std::size_t size_of_character(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const auto lead = at(0);
    const std::size_t size = size_of_character(lead);
    if (size == 0 || size > bytes.size()) return false;
    for (std::size_t i = 1; i < size; ++i) {
      if (at(i) >> 6U != 2) return false;
    }
    // Too long for what it says, half of a pair of UTF-16, beyond the last character.
    const bool is_odd = (lead == 0xe0 && at(1) < 0xa0) || (lead == 0xed && at(1) > 0x9f) ||
                        (lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) > 0x8f);
    if (is_odd) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

std::string hex(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U;
    };
    const unsigned three = byte(0) << 16U | byte(1) << 8U | byte(2);
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kLetters[three >> (18 - 6 * k) & 63U];
    }
  }
  return out;
}

}  // namespace ctxconf::testees
