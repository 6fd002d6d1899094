// An ELF file as far as a process has loaded it, for files that nobody can open any more: removed
// ones, memfds, those of another mount namespace.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sys/elf_budget.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::sys {

// Takes the mappings of one file, ascending, and returns what its PT_LOAD segments have of the
// file, at their offsets; zeros elsewhere and where nothing can be read. If the memory has several
// copies, the first one that is code as the file says counts. The addresses in the dynamic section
// are those of the file again (glibc adds the load bias to some); other relocated words stay as
// they are in memory. Section headers are not loaded, and the header says that there are none.
//
// Errors: ENOEXEC if no mapping is the beginning of a 64-bit ELF file of this byte order that is
// run; E2BIG if there are more than `limit` bytes, or the budget is used up; those of the memory.
Result<std::vector<std::byte>> loaded_file(const MemoryReader& memory,
                                           std::span<const MapEntry> mappings, std::size_t limit,
                                           ElfBudget& budget);

}  // namespace ctxconf::sys
