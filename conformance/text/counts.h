// Counts of things, in singular and plural.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// "1 image", "2 images"
inline std::string counted(std::size_t n, std::string_view what,
                           std::string_view plural_end = "s") {
  std::string out = std::to_string(n) + " ";
  out += what;
  if (n != 1) out += plural_end;
  return out;
}

// "… and 1 more image", "… and 2 more images"
inline std::string and_more(std::size_t n, std::string_view what) {
  return "… and " + counted(n, "more " + std::string(what));
}

}  // namespace ctxconf::conformance
