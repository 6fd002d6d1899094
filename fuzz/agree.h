// What the targets share whose subject reads a text and writes it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/check.h"

namespace ctxconf::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// What `read` makes of `text` and, where it accepts that, of what `write` makes of this: as far as
// `write` tells they are the same.
template <class Read, class Write>
auto check_read_again(std::string_view text, Read&& read, Write&& write) {
  auto first = read(text);
  if (!first) {
    auto same = first;
    return std::pair(std::move(first), std::move(same));
  }
  const std::string written = write(*first);
  auto second = read(written);
  FUZZ_CHECK(second.has_value());
  FUZZ_CHECK(write(*second) == written);
  return std::pair(std::move(first), std::move(second));
}

}  // namespace ctxconf::fuzz
