// Makes text from a testee inert for the place where it is printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// The place of a text. For another format, add an enumerator here and its markup in escape.cc.
enum class Escape {
  kTerminal,      // one line of a terminal or a log
  kXmlText,       // between tags; newlines and tabs stay
  kXmlAttribute,  // between quotes
  kLabel,         // the value of a label in the text format of Prometheus, between quotes
};

inline constexpr std::size_t kTextLimit = 4096;

// Bytes that are not UTF-8, and characters that control, reorder, hide or break a line (C0, C1,
// bidi and other format characters, noncharacters), become `\xNN` for each byte; markup is quoted.
// At most `limit` bytes of `text` are used; "… (N bytes more)" then says so. A backslash of the
// testee is not doubled.
std::string escape(std::string_view text, Escape target, std::size_t limit = kTextLimit);
// Appends one escaped line for a terminal, with its newline.
void add_line(std::string& out, std::string_view text);

// The text as valid UTF-8 for a JSON writer, which does the rest of the quoting. Each byte that is
// not UTF-8 becomes `\xNN`, and a backslash that would then look like one becomes `\x5c`. Unless it
// was cut, bytes_of_json_text() gives `text` back.
std::string json_text(std::string_view text, std::size_t limit = kTextLimit);
std::string bytes_of_json_text(std::string_view json);

// JSON without the characters of markup: they become \\u003c and the like, which means the same.
std::string json_without_markup(std::string_view json);

// One word, or a command, that a POSIX shell with $'' reads as the same bytes.
std::string shell_word(std::string_view word);
std::string shell_command(std::span<const std::string> words);

// The number of code points; each byte that is not UTF-8 counts as one.
std::size_t display_width(std::string_view text);

}  // namespace ctxconf::conformance
