// Shared by the targets that read a text and write it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/check.h"

namespace ctxconf::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Reads `text`, writes the result, and reads that again; both results must be written alike.
// Returns the two results, or the same error twice if `text` is refused.
template <class Read, class Write>
auto check_read_again(std::string_view text, Read&& read, Write&& write) {
  auto first = read(text);
  if (!first) return std::pair(first, first);
  const std::string written = write(*first);
  auto second = read(written);
  FUZZ_CHECK(second.has_value());
  FUZZ_CHECK(write(*second) == written);
  return std::pair(std::move(first), std::move(second));
}

}  // namespace ctxconf::fuzz
