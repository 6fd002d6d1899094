// What children share that read debug information of files which may be anything.
#pragma once

#include <libelf.h>

#include <cstdint>
#include <optional>

namespace ctxconf::sys {

// Relative to what is used already: a sanitizer has reserved terabytes. No core dumps either.
void limit_memory(std::uint64_t more);

// From here on nothing that is read may open a file: DWARF names some of its own (split units,
// alternate debug files).
bool forbid_files();

// What has to be added to the file's addresses when its `offset` is mapped at `begin` as code.
std::optional<std::uint64_t> code_bias(Elf* elf, std::uint64_t begin, std::uint64_t offset);

}  // namespace ctxconf::sys
