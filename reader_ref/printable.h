// Text of another process on a terminal or in JSON: it must not move the cursor, or hide, reorder
// or break a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxconf::reader {

// One line: bytes that are not UTF-8, control characters and invisible formatting become `\xNN`
// byte by byte; a backslash is doubled. Bytes after `limit` are counted, not shown.
inline constexpr std::size_t kShownBytes = 1024;
std::string printable(std::string_view text, std::size_t limit = kShownBytes);

// Columns on a terminal, assuming one per character.
std::size_t width(std::string_view printable);

}  // namespace ctxconf::reader
