// Text of another process on a terminal or in JSON: it may not move the cursor, hide, reorder or
// break a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxconf::reader {

// One line: bytes that are no UTF-8, control characters and invisible formatting become `\xNN`
// byte by byte, a backslash is doubled. What is over `limit` bytes is counted, not shown.
inline constexpr std::size_t kShownBytes = 1024;
std::string printable(std::string_view text, std::size_t limit = kShownBytes);

// Columns on a terminal, as far as one a character goes.
std::size_t width(std::string_view printable);

}  // namespace ctxconf::reader
