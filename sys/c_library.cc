#include "sys/c_library.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ctxconf::sys {
namespace {

constexpr std::uint64_t kMostRead = std::uint64_t{8} << 20U;

// "2.36" at the beginning of `text`; empty: there is none, or it does not end.
std::string_view leading_version(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size() && (is_decimal(text[size]) || text[size] == '.')) ++size;
  if (size == text.size() || size > kLongestVersion) return {};
  auto version = text.substr(0, size);
  while (version.ends_with('.')) version.remove_suffix(1);
  return is_glibc_version(version) ? version : std::string_view();
}

// ld.so: "ld.so (Debian GLIBC 2.36-9) stable release version 2.36.", libc: "GNU C Library (...)
// stable release version 2.36, by Roland McGrath et al."
std::string glibc_in(std::string_view text) {
  constexpr std::string_view kBefore = " release version ";
  for (const std::string_view name : {"GNU C Library (", "ld.so ("}) {
    const auto at = text.find(name);
    if (at == text.npos) continue;
    const auto banner = text.substr(at, 256);
    const auto version_at = banner.find(kBefore);
    if (version_at == banner.npos) continue;
    const auto version = leading_version(banner.substr(version_at + kBefore.size()));
    return version.empty() ? "glibc" : "glibc " + std::string(version);
  }
  return {};
}

// The version is a string of its own, without any text next to it that must stay there.
std::string musl_in(std::string_view text) {
  if (!text.contains("musl libc (")) return {};
  std::string_view version;
  while (!text.empty()) {
    const auto end = text.find('\0');
    const auto string = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (!is_musl_version(string)) continue;
    if (!version.empty() && version != string) return "musl";
    version = string;
  }
  return version.empty() ? "musl" : "musl " + std::string(version);
}

bool defines(const ElfImage& image, std::string_view name) {
  const auto symbols = image.dynamic_symbols(name);
  return symbols && std::ranges::any_of(*symbols, &ElfSymbol::defined);
}

}  // namespace

std::string interpreter_of(const ElfImage& image) {
  for (const ElfSegment& segment : image.segments()) {
    if (segment.type != PT_INTERP) continue;
    std::string path(std::min<std::uint64_t>(segment.file_size, 4096), '\0');
    path.resize(image.read_at(segment.address, std::as_writable_bytes(std::span(path))));
    return path.substr(0, path.find('\0'));
  }
  return {};
}

Result<std::string> c_library_in(const ElfImage& image) {
  CTX_ASSIGN_OR_RETURN(texts, image.constant_segments(kMostRead));
  for (const std::string& text : texts) {
    for (auto* const in : {glibc_in, musl_in}) {
      if (auto library = in(text); !library.empty()) return library;
    }
  }
  return std::string();
}

bool is_musl(const ElfImage& image) {
  return !image.has_interpreter() && defines(image, "__libc_start_main") &&
         defines(image, "__tls_get_addr");
}

bool may_be_c_library(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  constexpr std::array<std::string_view, 6> kNames = {"ld-musl-", "libc.musl-", "libc.so",
                                                      "libc-2.",  "ld-linux",   "ld-2."};
  return std::ranges::any_of(kNames, [&](auto name) { return path.starts_with(name); });
}

}  // namespace ctxconf::sys
