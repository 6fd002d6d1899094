// Which C library a program runs with, from its interpreter and from the text in the library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "sys/elf_image.h"
#include "sys/result.h"

namespace ctxconf::sys {

// PT_INTERP: "/lib/ld-musl-x86_64.so.1". Empty: none. Hostile text.
std::string interpreter_of(const ElfImage& image);

// The C library in the file, or whose loader the file is: "glibc 2.36", "musl 1.2.3"; without the
// version if the file does not say it clearly. Empty: neither of the two. Reads up to 8 MiB. Fails
// if the file cannot be read.
Result<std::string> c_library_in(const ElfImage& image);

inline constexpr std::string_view kNoInterpreter = "static";  // whatever is linked to the program

constexpr bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// "2.36", "1.2.3": at least `numbers` of them, which the rest of `text` follows.
constexpr std::optional<std::string_view> after_numbers(std::string_view text, int numbers) {
  int seen = 0;
  while (!text.empty() && is_decimal(text.front())) {
    while (!text.empty() && is_decimal(text.front())) text.remove_prefix(1);
    ++seen;
    if (text.size() < 2 || text[0] != '.' || !is_decimal(text[1])) break;
    text.remove_prefix(1);
  }
  if (seen < numbers) return std::nullopt;
  return text;
}

inline constexpr std::size_t kLongestVersion = 32;

// "2.36", "2.40.9000"
constexpr bool is_glibc_version(std::string_view text) {
  return text.size() <= kLongestVersion && after_numbers(text, 2) == std::string_view();
}

// "1.2.3", and what distributions and git add: "1.2.4_git20230717", "1.2.3-git-12-g0123abc".
constexpr bool is_musl_version(std::string_view text) {
  const auto rest = after_numbers(text, 3);
  // "127.0.0.1" is not a version.
  return text.size() <= kLongestVersion && rest && !after_numbers(text, 4) &&
         !rest->starts_with('.') &&
         rest->find_first_not_of(
             "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
             "._+-") == rest->npos;
}

// Whether a text is what c_library_in may say, or kNoInterpreter.
constexpr bool is_c_library(std::string_view text) {
  if (text == kNoInterpreter || text == "glibc" || text == "musl") return true;
  if (text.starts_with("glibc ")) return is_glibc_version(text.substr(6));
  return text.starts_with("musl ") && is_musl_version(text.substr(5));
}

// musl's loader and C library are one file.
bool is_musl(const ElfImage& image);

// Whether a file of this name may be a C library or its loader.
bool may_be_c_library(std::string_view path);

}  // namespace ctxconf::sys
