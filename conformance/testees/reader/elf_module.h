// An ELF file as it is mapped in a process: symbols, relocations, thread-local storage.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"

namespace ctxconf::testees {

struct Module {
  std::uint64_t bias = 0;  // what is added to the addresses of the file
  bool is_executable = false;
  std::string name;
  Elf64_Phdr tls{};  // p_type is 0: it has none
  std::vector<Elf64_Sym> symbols;
  std::string strings;
  std::vector<Elf64_Rela> relocations;

  std::string_view name_of(const Elf64_Sym& symbol) const;
  // The name of the symbol of a relocation; empty: it has none.
  std::string_view name_of(const Elf64_Rela& relocation) const;
};

// Those that mention `text` among their strings.
std::vector<Module> modules_with(std::string_view text, const Memory& memory,
                                 const Mappings& mappings, std::uint64_t program_headers);

}  // namespace ctxconf::testees
