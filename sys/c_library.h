// Which C library a program runs with, from its interpreter and from the text in the library.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "sys/elf_image.h"

namespace ctxconf::sys {

// PT_INTERP: "/lib/ld-musl-x86_64.so.1". Empty: none. Hostile text.
std::string interpreter_of(const ElfImage& image);

// The C library in the file, or whose loader the file is: "glibc 2.36", "musl 1.2.3"; without the
// version if the file does not say it clearly. Empty: neither of the two. Reads up to 8 MiB.
std::string c_library_in(const ElfImage& image);

inline constexpr std::string_view kNoInterpreter = "static";  // whatever is linked to the program

// Whether a text is what c_library_in may say, or kNoInterpreter.
constexpr bool is_c_library(std::string_view text) {
  constexpr std::size_t kLongestVersion = 32;
  if (text == kNoInterpreter || text == "glibc" || text == "musl") return true;
  const std::size_t name = text.starts_with("glibc ") ? 6 : text.starts_with("musl ") ? 5 : 0;
  if (name == 0) return false;
  const auto version = text.substr(name);
  if (version.empty() || version.size() > kLongestVersion) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (const char c : version) {
    if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '.' && c != '-') return false;
  }
  return is_digit(version.front());
}

// musl's loader and C library are one file.
bool is_musl(const ElfImage& image);

// Whether a file of this name may be a C library or its loader.
bool may_be_c_library(std::string_view path);

}  // namespace ctxconf::sys
