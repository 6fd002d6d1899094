// Limits of untrusted JSON. Parsed values need up to sixty times the memory of their text, and code
// that walks through them may recurse.
#pragma once

#include <cstddef>
#include <string_view>

namespace ctxconf::conformance {

// Beyond any file of ours: with 16 bytes per value, a file of 256 MiB has this many values.
inline constexpr std::size_t kDeepestJson = 64;
inline constexpr std::size_t kMostJsonValues = std::size_t{1} << 24U;

// A line of the testee protocol that nests deeper is not parsed, because its readers recurse.
inline constexpr std::size_t kDeepestLine = 100;

// Whether lists and objects nest deeper than `depth`. To copy such a value recurses once per level.
inline bool nests_deeper(std::string_view text, std::size_t depth) {
  std::size_t open = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++open > depth) return true;
    } else if ((c == ']' || c == '}') && open > 0) {
      --open;
    }
  }
  return false;
}

}  // namespace ctxconf::conformance
