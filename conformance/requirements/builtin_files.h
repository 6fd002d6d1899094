// The files of the catalogue as of the build. cmake/embed_text.cmake generates the definition.
#pragma once

#include <span>
#include <string_view>

namespace ctxconf::conformance {

struct BuiltinFile {
  std::string_view name;  // "4719-2026-04-07.json"
  std::string_view text;
};
std::span<const BuiltinFile> builtin_files();

}  // namespace ctxconf::conformance
