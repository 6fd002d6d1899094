// An ELF file as far as a process has loaded it, for files that nobody can open any more: removed
// ones, memfds, those of another mount namespace.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::sys {

// Takes the mappings of one file, ascending, and returns its bytes up to the end of the last one at
// their offsets in the file; zeros where nothing is mapped or can be read. What the loader changes
// is changed back: the addresses in the dynamic section (glibc adds the load bias). Section headers
// are not loaded, and the header says that there are none. Relocated words stay.
//
// Errors: ENOEXEC if the first mapping is not the beginning of a 64-bit ELF file of this byte
// order; E2BIG if there are more than `limit` bytes; those of the memory.
Result<std::vector<std::byte>> loaded_file(const MemoryReader& memory,
                                           std::span<const MapEntry> mappings, std::size_t limit);

}  // namespace ctxconf::sys
