#include "conformance/requirements/source_text.h"

// Both need <sys/types.h> before them.
#include <sys/types.h>
// clang-format off
#include <sha1.h>
#include <sha256.h>
// clang-format on

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <utility>

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kClosing = "\"')]*`_";
constexpr std::string_view kOpening = "\"'([*`_";

struct CodePoint {
  char32_t value = 0;
  std::size_t size = 0;  // in bytes; 0: not UTF-8
};

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < size) return {};
  char32_t value = lead & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    value = value << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < smallest[size] || value > 0x10ffff || surrogate) return {};
  return {value, size};
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point_at(text, at).size;
    if (size == 0) return false;
    at += size;
  }
  return true;
}

// All text from here on is UTF-8.

// White space in Unicode, and the four separators U+001C to U+001F.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// Letters, digits and '_'; beyond ASCII, roughly everything except punctuation, symbols and spaces.
bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  if (c < 0xc0) return c == 0xaa || c == 0xb5 || c == 0xba;
  return c != 0xd7 && c != 0xf7 && !is_space(c) && !(c >= 0x2000 && c < 0x2c00) &&
         !(c >= 0x3000 && c < 0x3040) && !(c >= 0xe000 && c < 0xf900) &&
         !(c >= 0xfe00 && c < 0xfe70) && c < 0x1f000;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_space(c.value)) break;
    at += c.size;
  }
  return at;
}

std::string_view strip(std::string_view text) {
  text.remove_prefix(leading_space(text));
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.size;
    if (!is_space(c.value)) end = at;
  }
  return text.substr(0, end);
}

std::string_view strip_of(std::string_view text, std::string_view marks) {
  const std::size_t begin = text.find_first_not_of(marks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(marks) - begin + 1);
}

std::string collapse(std::string_view text) {
  std::string out;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (is_space(c.value)) {
      space = !out.empty();
    } else {
      if (space) out += ' ';
      space = false;
      out += text.substr(at, c.size);
    }
    at += c.size;
  }
  return out;
}

bool is_word_before(std::string_view text) {
  if (text.empty()) return false;
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80) --at;
  return is_word(code_point_at(text, at).value);
}

// Abbreviations such as "e.g.", also with closing marks after them, do not end a sentence.
bool ends_with_abbreviation(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kClosing);
  if (last == text.npos || text[last] != '.') return false;
  text = text.substr(0, last);
  for (const std::string_view word : {"e.g", "i.e", "vs", "etc", "cf"}) {
    if (text.ends_with(word) && !is_word_before(text.substr(0, text.size() - word.size()))) {
      return true;
    }
  }
  return false;
}

struct Piece {
  int line;
  std::string_view text;
};

class Cutter {
 public:
  void line(int number, std::string_view text);
  void flush() {
    sentences(comment_);
    sentences(block_);
    comment_.clear();
    block_.clear();
  }
  bool in_fence() const { return fence_; }
  std::vector<SourceUnit> take() {
    flush();
    return std::move(units_);
  }

 private:
  void sentences(std::span<const Piece> pieces);
  void fenced_line(int number, std::string_view stripped);
  void table_row(int number, std::string_view stripped);

  std::vector<SourceUnit> units_;
  std::vector<Piece> block_;
  std::vector<Piece> comment_;
  bool fence_ = false;
};

// Cuts the pieces, which form one paragraph, into sentences.
void Cutter::sentences(std::span<const Piece> pieces) {
  std::string text;
  std::vector<int> line_of;  // of each byte
  for (const Piece& piece : pieces) {
    const std::string words = collapse(piece.text);
    if (words.empty()) continue;
    if (!text.empty()) text += ' ';
    text += words;
    line_of.resize(text.size(), piece.line);
  }
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    if (begin < end) {
      units_.push_back({text.substr(begin, end - begin), line_of[begin], line_of[end - 1]});
    }
  };
  // A sentence ends at one of .!? and its closing marks, if a space, opening marks and a capital
  // letter follow.
  for (std::size_t at = text.find_first_of(".!?"); at != text.npos;
       at = text.find_first_of(".!?", at + 1)) {
    const std::size_t end = std::min(text.find_first_not_of(kClosing, at + 1), text.size());
    if (end == text.size() || text[end] != ' ') continue;
    const std::size_t next = text.find_first_not_of(kOpening, end + 1);
    if (next == text.npos || text[next] < 'A' || text[next] > 'Z') continue;
    if (ends_with_abbreviation(std::string_view(text).substr(begin, end - begin))) continue;
    add(end);
    begin = end + 1;
  }
  add(text.size());
}

void Cutter::fenced_line(int number, std::string_view stripped) {
  if (stripped.starts_with("//")) {
    stripped.remove_prefix(std::min(stripped.find_first_not_of('/'), stripped.size()));
    if (strip(stripped).empty()) return flush();
    comment_.push_back({number, stripped});
    return;
  }
  flush();
  if (!stripped.empty()) units_.push_back({collapse(stripped), number, number});
}

void Cutter::table_row(int number, std::string_view stripped) {
  if (collapse(stripped).find_first_not_of(" :|-") == std::string::npos) return;
  std::string_view rest = strip_of(stripped, "|");
  std::string head;
  bool is_first = true;
  for (std::size_t bar = rest.find(" |"); bar != rest.npos; bar = rest.find(" |")) {
    if (!is_first) head += " | ";
    is_first = false;
    head += strip_of(collapse(rest.substr(0, bar)), "| ");
    rest.remove_prefix(bar + 2);
  }
  if (const auto cells = strip(head); !cells.empty()) {
    units_.push_back({std::string(cells), number, number});
  }
  const std::string cell = collapse(rest);
  const Piece last{number, strip_of(cell, "| ")};
  sentences({&last, 1});
}

// The length in bytes of the list marker at the start of a line, or 0.
std::size_t list_marker(std::string_view line) {
  const auto digits = [&](std::size_t at) {
    while (at < line.size() && is_digit(line[at])) ++at;
    return at;
  };
  const auto followed_by_space = [&](std::size_t at) {
    const std::size_t space = leading_space(line.substr(std::min(at, line.size())));
    return space == 0 ? 0 : at + space;
  };
  const std::size_t begin = leading_space(line);
  if (begin == line.size()) return 0;
  if (std::string_view("-*+").find(line[begin]) != std::string_view::npos) {
    return followed_by_space(begin + 1);
  }
  std::size_t at = digits(begin);
  if (at == begin || at == line.size() || line[at] != '.') return 0;
  ++at;
  if (const std::size_t end = digits(at); end > at) {  // 1.2 or 1.2.
    at = end < line.size() && line[end] == '.' ? end + 1 : end;
  }
  return followed_by_space(at);
}

std::string_view without_quotation_mark(std::string_view line) {
  std::size_t at = leading_space(line);
  if (at == line.size() || line[at] != '>') return line;
  ++at;
  if (at < line.size()) {
    const CodePoint c = code_point_at(line, at);
    if (is_space(c.value)) at += c.size;
  }
  return line.substr(at);
}

// The number of # at the start of a heading, else 0.
std::size_t heading_level(std::string_view line) {
  const std::size_t level = std::min(line.find_first_not_of('#'), line.size());
  return level >= 1 && level <= 6 && leading_space(line.substr(level)) > 0 ? level : 0;
}

void Cutter::line(int number, std::string_view text) {
  const std::string_view stripped = strip(text);
  if (stripped.starts_with("```")) {
    flush();
    fence_ = !fence_;
  } else if (fence_) {
    fenced_line(number, stripped);
  } else if (stripped.empty() || heading_level(stripped) > 0) {
    flush();
  } else if (stripped.starts_with('|')) {
    flush();
    table_row(number, stripped);
  } else if (const std::size_t marker = list_marker(text); marker > 0) {
    flush();
    block_.push_back({number, text.substr(marker)});
  } else {
    block_.push_back({number, without_quotation_mark(text)});
  }
}

// The slug that Markdown hosts use in links.
std::string slug_of(std::string_view heading) {
  std::string out;
  heading = strip(heading);
  for (std::size_t at = 0; at < heading.size();) {
    const CodePoint c = code_point_at(heading, at);
    if (c.value == ' ') {
      out += '-';
    } else if (c.value >= 'A' && c.value <= 'Z') {
      out += static_cast<char>(c.value - 'A' + 'a');
    } else if (c.value == '-' || is_word(c.value)) {
      out += heading.substr(at, c.size);
    }
    at += c.size;
  }
  return out;
}

std::string hex_of(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t b : bytes) {
    out += digits[b >> 4U];
    out += digits[b & 15U];
  }
  return out;
}

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

std::string blob_of(std::string_view bytes) {
  std::string head = "blob " + std::to_string(bytes.size());
  head += '\0';
  SHA1_CTX context;
  SHA1Init(&context);
  SHA1Update(&context, bytes_of(head), head.size());
  SHA1Update(&context, bytes_of(bytes), bytes.size());
  std::array<std::uint8_t, SHA1_DIGEST_LENGTH> digest{};
  SHA1Final(digest.data(), &context);
  return hex_of(digest);
}

}  // namespace

sys::Result<SourceText> SourceText::from(std::string_view bytes) {
  if (bytes.size() > kLongestSourceText) {
    return sys::fail("source text", EFBIG, "no OTEP is larger than 512 KiB");
  }
  if (!is_utf8(bytes)) return sys::fail("source text", 0, "it is not UTF-8");
  SourceText out;
  out.blob_ = blob_of(bytes);
  Cutter cutter;
  std::map<std::string, int> seen;
  int number = 0;
  std::string_view rest = bytes;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    if (!rest.empty()) rest.remove_prefix(rest.starts_with("\r\n") ? 2 : 1);
    ++number;
    if (const std::size_t level = heading_level(line); level > 0 && !cutter.in_fence()) {
      std::string slug = slug_of(line.substr(level));
      const int before = seen[slug]++;
      if (before > 0) slug += "-" + std::to_string(before);
      out.headings_.push_back({number, std::move(slug)});
    }
    cutter.line(number, line);
  }
  out.units_ = cutter.take();
  if (out.headings_.empty()) {
    return sys::fail("source text", 0, "it has no Markdown heading (a line that begins with #)");
  }
  return out;
}

std::string_view SourceText::section_at(int line) const {
  const auto after = std::ranges::upper_bound(headings_, line, {}, &SourceHeading::line);
  return after == headings_.begin() ? std::string_view() : std::string_view((after - 1)->slug);
}

bool SourceText::has_section(std::string_view slug) const {
  return std::ranges::find(headings_, slug, &SourceHeading::slug) != headings_.end();
}

std::array<std::size_t, 2> SourceText::units_of_section(std::string_view slug) const {
  const auto at = std::ranges::find(headings_, slug, &SourceHeading::slug);
  if (at == headings_.end()) return {0, 0};
  const auto index_of = [&](int line) {
    const auto unit = std::ranges::lower_bound(units_, line, {}, &SourceUnit::first);
    return static_cast<std::size_t>(unit - units_.begin());
  };
  const auto next = at + 1;
  return {index_of(at->line), next == headings_.end() ? units_.size() : index_of(next->line)};
}

std::span<const SourceUnit> SourceText::select(std::array<int, 2> lines,
                                               std::array<int, 2> sentences) const {
  const auto tail =
      std::span(std::ranges::lower_bound(units_, lines[0], {}, &SourceUnit::first), units_.end());
  if (sentences[0] < 1 || sentences[1] < sentences[0]) return {};
  const auto begin = static_cast<std::size_t>(sentences[0] - 1);
  const auto end = static_cast<std::size_t>(sentences[1]);
  if (end > tail.size()) return {};
  const auto chosen = tail.subspan(begin, end - begin);
  return chosen.back().last > lines[1] ? std::span<const SourceUnit>() : chosen;
}

SourceText::Location SourceText::location_of(std::size_t at, std::size_t count) const {
  const auto first =
      std::ranges::lower_bound(units_, units_[at].first, {}, &SourceUnit::first) - units_.begin();
  const int ordinal = static_cast<int>(at) - static_cast<int>(first) + 1;
  return {{units_[at].first, units_[at + count - 1].last},
          {ordinal, ordinal + static_cast<int>(count) - 1}};
}

std::string fingerprint_of(std::span<const SourceUnit> units) {
  SHA256_CTX context;
  SHA256_Init(&context);
  for (const SourceUnit& unit : units) {
    if (&unit != units.data()) SHA256_Update(&context, bytes_of(" "), 1);
    SHA256_Update(&context, bytes_of(unit.text), unit.text.size());
  }
  std::array<std::uint8_t, SHA256_DIGEST_LENGTH> digest{};
  SHA256_Final(digest.data(), &context);
  return hex_of(digest);
}

}  // namespace ctxconf::conformance
