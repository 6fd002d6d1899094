// For tests: the bytes of records and headers that are written as strings.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ctxconf::fuzz {

inline std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace ctxconf::fuzz
