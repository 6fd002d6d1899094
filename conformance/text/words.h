// The words that files have for the values of an enum: one table serves both directions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace ctxconf::conformance {

template <class T>
using Word = std::pair<T, std::string_view>;

// Empty: the table does not have the value.
template <class T, std::size_t kCount>
constexpr std::string_view word_of(const std::array<Word<T>, kCount>& words, T value) {
  for (const auto& [one, word] : words) {
    if (one == value) return word;
  }
  return "";
}

template <class T, std::size_t kCount>
constexpr std::optional<T> value_of(const std::array<Word<T>, kCount>& words,
                                    std::string_view text) {
  for (const auto& [value, word] : words) {
    if (word == text) return value;
  }
  return std::nullopt;
}

}  // namespace ctxconf::conformance
