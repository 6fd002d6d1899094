// Shared by the children that read debug information of untrusted files.
#pragma once

#include <libelf.h>

#include <cstdint>
#include <optional>

namespace ctxconf::sys {

// Relative to current use: a sanitizer reserves terabytes. Also disables core dumps.
void limit_memory(std::uint64_t more);

// From here on, nothing that is read may open a file: DWARF can name other files (split units,
// alternate debug files).
bool forbid_files();

// What to add to the file's addresses when its `offset` is mapped at `begin` as code.
std::optional<std::uint64_t> code_bias(Elf* elf, std::uint64_t begin, std::uint64_t offset);

}  // namespace ctxconf::sys
