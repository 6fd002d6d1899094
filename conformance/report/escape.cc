#include "conformance/report/escape.h"

#include <algorithm>
#include <array>
#include <utility>

#include "conformance/text/ascii.h"
#include "conformance/text/utf8.h"

namespace ctxconf::conformance {
namespace {

// Unicode controls, format characters and separators: they act on the text around them.
constexpr std::array<std::pair<char32_t, char32_t>, 24> kActive = {{
    {0x0000, 0x001f},   {0x007f, 0x009f},   {0x00ad, 0x00ad},   {0x0600, 0x0605},
    {0x061c, 0x061c},   {0x06dd, 0x06dd},   {0x070f, 0x070f},   {0x0890, 0x0891},
    {0x08e2, 0x08e2},   {0x115f, 0x1160},   {0x180e, 0x180e},   {0x200b, 0x200f},
    {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfdd0, 0xfdef},
    {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
    {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
}};

bool is_active(char32_t c) {
  if (c >= 0x20 && c < 0x7f) return false;
  if ((c & 0xfffe) == 0xfffe) return true;
  const auto* const after =
      std::ranges::upper_bound(kActive, c, {}, &std::pair<char32_t, char32_t>::first);
  return after != kActive.begin() && c <= std::prev(after)->second;
}

constexpr std::string_view kDigits = "0123456789abcdef";

void append_hex(std::string& out, std::string_view bytes, std::string_view backslash) {
  for (const char c : bytes) {
    const auto b = static_cast<std::uint8_t>(c);
    out += backslash;
    out += 'x';
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
}

// $'' of every shell reads this as one byte, whatever character follows.
void append_octal(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    const auto b = static_cast<std::uint8_t>(c);
    out += '\\';
    out += static_cast<char>('0' + (b >> 6));
    out += static_cast<char>('0' + ((b >> 3) & 7));
    out += static_cast<char>('0' + (b & 7));
  }
}

std::string_view markup_of_label(char32_t c) {
  if (c == '\\') return "\\\\";
  return c == '"' ? "\\\"" : std::string_view();
}

std::string_view markup(char32_t c, Escape target) {
  if (target == Escape::kTerminal) return {};
  if (target == Escape::kLabel) return markup_of_label(c);
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

bool is_kept(char32_t c, Escape target) {
  return target == Escape::kXmlText && (c == '\n' || c == '\t');
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte for which the `\xNN` at `at` stands, or -1.
int marked_byte(std::string_view text, std::size_t at) {
  if (text.size() - at < 4 || text[at] != '\\' || text[at + 1] != 'x') return -1;
  const int high = hex_digit(text[at + 2]);
  const int low = hex_digit(text[at + 3]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// How many characters at the start of `text` mean themselves in every output.
std::size_t plain_length(std::string_view text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* at = begin;
  while (at != end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '&' && *at != '\'' &&
         *at != '<' && *at != '>' && *at != '\\') {
    ++at;
  }
  return static_cast<std::size_t>(at - begin);
}

// Appends plain characters. Calls `append` for each other one, with the text that begins with it.
template <class F>
void append_characters(std::string& out, std::string_view text, F append) {
  while (!text.empty()) {
    const std::size_t plain = plain_length(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return;
    const CodePoint c = code_point_at(text, 0);
    append(c, text);
    text.remove_prefix(c.length);
  }
}

bool is_plain_in_shell(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./,:=@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string escape(std::string_view text, Escape target, std::size_t limit) {
  const std::string_view head = head_of(text, limit);
  std::string out;
  out.reserve(head.size());
  append_characters(out, head, [&](const CodePoint& c, std::string_view rest) {
    const std::string_view bytes = rest.substr(0, c.length);
    if (!c.valid || (is_active(c.value) && !is_kept(c.value, target))) {
      append_hex(out, bytes, target == Escape::kLabel ? "\\\\" : "\\");
    } else if (const auto quoted = markup(c.value, target); !quoted.empty()) {
      out += quoted;
    } else {
      out += bytes;
    }
  });
  return out + cut_mark(text.size() - head.size());
}

void add_line(std::string& out, std::string_view text) {
  out += escape(text, Escape::kTerminal) + "\n";
}

std::string json_text(std::string_view text, std::size_t limit) {
  const std::string_view head = head_of(text, limit);
  std::string out;
  out.reserve(head.size());
  append_characters(out, head, [&](const CodePoint& c, std::string_view rest) {
    const std::string_view bytes = rest.substr(0, c.length);
    if (!c.valid || marked_byte(rest, 0) >= 0) {
      append_hex(out, bytes, "\\");
    } else {
      out += bytes;
    }
  });
  return out + cut_mark(text.size() - head.size());
}

std::string bytes_of_json_text(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t at = 0; at < json.size();) {
    const int byte = marked_byte(json, at);
    out += byte < 0 ? json[at] : static_cast<char>(byte);
    at += byte < 0 ? 1 : 4;
  }
  return out;
}

std::string json_without_markup(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    // These characters occur only in strings.
    if (c == '<' || c == '>' || c == '&') {
      out += "\\u00";
      out += kDigits[static_cast<std::uint8_t>(c) >> 4];
      out += kDigits[static_cast<std::uint8_t>(c) & 15];
    } else {
      out += c;
    }
  }
  return out;
}

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain_in_shell)) return std::string(word);
  // The terminal escape changes every word that plain quotes cannot hold, and no other.
  if (escape(word, Escape::kTerminal, word.size()) == word) return single_quoted(word);
  std::string out = "$'";
  append_characters(out, word, [&](const CodePoint& c, std::string_view rest) {
    const std::string_view bytes = rest.substr(0, c.length);
    if (!c.valid || is_active(c.value)) {
      append_octal(out, bytes);
    } else {
      if (c.value == '\'' || c.value == '\\') out += '\\';
      out += bytes;
    }
  });
  return out + "'";
}

std::string shell_command(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += shell_word(word);
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length) ++width;
  return width;
}

}  // namespace ctxconf::conformance
