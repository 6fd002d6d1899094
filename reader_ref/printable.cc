#include "reader_ref/printable.h"

#include <array>
#include <cstdint>

namespace ctxconf::reader {
namespace {

std::uint32_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

struct Decoded {
  std::uint32_t code_point = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// RFC 3629, table of well-formed sequences: excludes overlong forms and surrogates.
Decoded decode(std::string_view text) {
  const std::uint32_t lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const std::uint32_t next = byte_at(text, i);
    if (next >> 6U != 2) return {};
    value = value << 6U | (next & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  if (value < smallest[bytes] || value > 0x10ffff || value >> 11U == 0x1b) return {};
  return {value, bytes};
}

// Unicode categories Cc, Cf, Zl, Zp as far as a terminal acts on them, and noncharacters.
bool is_inert(std::uint32_t c) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr std::array<Range, 14> kActing = {{{0x00, 0x1f},
                                              {0x7f, 0x9f},
                                              {0xad, 0xad},
                                              {0x61c, 0x61c},
                                              {0x180e, 0x180e},
                                              {0x200b, 0x200f},
                                              {0x2028, 0x202e},
                                              {0x2060, 0x206f},
                                              {0xfdd0, 0xfdef},
                                              {0xfeff, 0xfeff},
                                              {0xfff9, 0xfffb},
                                              {0x1bca0, 0x1bca3},
                                              {0x1d173, 0x1d17a},
                                              {0xe0000, 0xe0fff}}};
  for (const Range& r : kActing) {
    if (r.first <= c && c <= r.last) return false;
  }
  return (c & 0xfffeU) != 0xfffeU;
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out += "\\x";
    out += digits[byte_at(bytes, i) >> 4U];
    out += digits[byte_at(bytes, i) & 15U];
  }
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty() && limit > 0) {
    const Decoded d = decode(text);
    const std::size_t bytes = d.bytes == 0 ? 1 : d.bytes;
    if (bytes > limit) break;
    const std::string_view character = text.substr(0, bytes);
    if (d.bytes == 0 || !is_inert(d.code_point)) {
      append_escaped(out, character);
    } else {
      if (character == "\\") out += '\\';
      out += character;
    }
    text.remove_prefix(bytes);
    limit -= bytes;
  }
  if (!text.empty()) {
    const char* const unit = text.size() == 1 ? " byte" : " bytes";
    out += "… (" + std::to_string(text.size()) + unit + " more)";
  }
  return out;
}

std::size_t width(std::string_view printable) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < printable.size(); ++i) columns += byte_at(printable, i) >> 6U != 2;
  return columns;
}

}  // namespace ctxconf::reader
