// JSON in one line of ASCII, for messages and protocols.
#pragma once

#include <cstddef>
#include <string>

namespace ctxconf::conformance {

// Without a newline. `Json` is nlohmann's; bytes that are not UTF-8 are replaced.
template <class Json>
std::string dumped(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

// At most `size` bytes of the text, and a mark if there are more.
inline std::string cut(std::string text, std::size_t size) {
  if (text.size() <= size) return text;
  text.resize(size);
  return text + "...";
}

}  // namespace ctxconf::conformance
