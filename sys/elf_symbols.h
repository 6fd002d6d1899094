// The symbol tables of an ELF file, searched by name: .dynsym as the loader does it, and .symtab.
// System V ABI, "Symbol Table" and "Hash Table".
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sys/elf_image.h"
#include "sys/elf_view.h"
#include "sys/result.h"

namespace ctxconf::sys::elf {

// A symbol table with its strings.
struct Symbols {
  std::uint64_t offset = 0;  // of the first entry in the file
  std::uint64_t count = 0;   // at most; limited by the file size
  Table strings;
};

// .dynsym, if there is one.
Result<std::optional<Symbols>> find_dynamic_symbols(const View& view);
Result<Elf64_Sym> symbol_at(const View& view, const Symbols& symbols, std::uint64_t index);

// These do what ElfImage::dynamic_symbols and ElfImage::static_symbols do.
Result<std::vector<ElfSymbol>> dynamic_symbols_of(const View& view, std::string_view name);
Result<std::vector<ElfSymbol>> static_symbols_of(const View& view, std::string_view name);

}  // namespace ctxconf::sys::elf
