// Text that came from a testee, made inert for the place where it is printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// Where a text goes; a further format is one more enumerator and its markup in escape.cc.
enum class Escape {
  kTerminal,      // one line of a terminal or a log
  kXmlText,       // between tags; newlines and tabs stay
  kXmlAttribute,  // between quotes
};

inline constexpr std::size_t kTextLimit = 4096;

// Bytes that are no UTF-8, and characters that control, reorder, hide or break a line (C0, C1,
// bidi and other format characters, noncharacters), become `\xNN`, byte by byte; what is
// markup there is quoted. At most `limit` bytes of `text` are used, "… (N bytes more)" says so.
// Nothing else is doubled: a backslash of the testee stays one.
std::string escape(std::string_view text, Escape target, std::size_t limit = kTextLimit);

// The same text as valid UTF-8 for a JSON writer, which quotes the rest itself: each byte that
// is no UTF-8 becomes `\xNN`, and a backslash that would then read like one becomes `\x5c`.
// Unless it was cut, bytes_of_json_text gives `text` back.
// A line of a terminal, and its end.
void add_line(std::string& out, std::string_view text);

std::string json_text(std::string_view text, std::size_t limit = kTextLimit);
std::string bytes_of_json_text(std::string_view json);

// One word, or a command, that a POSIX shell with $'' reads back as the same bytes.
std::string shell_word(std::string_view word);
std::string shell_command(std::span<const std::string> words);

// Code points, with everything that is no UTF-8 counted by the byte.
std::size_t display_width(std::string_view text);

}  // namespace ctxconf::conformance
