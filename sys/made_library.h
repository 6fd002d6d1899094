// For tests: the bytes of an x86-64 library that no linker would produce.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace ctxconf::sys {

// Of a library for x86-64 whose program headers follow it.
inline Elf64_Ehdr header_with(std::size_t program_headers) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<Elf64_Half>(program_headers);
  return header;
}

struct MadeLibrary {
  std::string name = "ctx_test_slot";
  std::size_t definitions = 0;  // of that name; 0: the name is undefined
  // TLSDESC relocations without a symbol, spread over the offsets of the definitions. Without
  // definitions they name the undefined symbol.
  std::size_t relocations = 0;
  std::size_t loads = 1;             // the first holds everything, the others are elsewhere
  std::size_t relocation_bytes = 0;  // 0: the actual size

  std::vector<std::byte> bytes() const {
    const std::size_t symbols = 1 + (definitions == 0 ? 1 : definitions);
    const std::size_t headers = loads + 2;
    const std::size_t dynamic = sizeof(Elf64_Ehdr) + headers * sizeof(Elf64_Phdr);
    const std::size_t symbol_table = dynamic + 8 * sizeof(Elf64_Dyn);
    const std::size_t strings = symbol_table + symbols * sizeof(Elf64_Sym);
    const std::size_t relocation_table = (strings + name.size() + 2 + 7) / 8 * 8;
    const std::size_t size = relocation_table + relocations * sizeof(Elf64_Rela);
    const std::size_t whole = relocation_bytes == 0 ? size : relocation_table + relocation_bytes;
    std::vector<std::byte> out(size);
    const auto put = [&](std::size_t& at, const auto& record) {
      std::memcpy(out.data() + at, &record, sizeof record);
      at += sizeof record;
    };

    auto header = header_with(headers);
    header.e_shentsize = sizeof(Elf64_Shdr);
    std::size_t at = 0;
    put(at, header);
    put(at, Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0, 0, 0, whole, whole, 4096});
    for (std::size_t i = 1; i < loads; ++i) {
      put(at, Elf64_Phdr{PT_LOAD, PF_R, 0, (1ULL << 40U) + i * 4096, 0, 16, 16, 4096});
    }
    put(at, Elf64_Phdr{PT_DYNAMIC, PF_R, dynamic, dynamic, 0, symbol_table - dynamic,
                       symbol_table - dynamic, 8});
    const std::size_t block = definitions * 8;
    put(at, Elf64_Phdr{PT_TLS, PF_R, 0, 0, 0, 0, block, 8});
    put(at, Elf64_Dyn{DT_SYMTAB, {symbol_table}});
    put(at, Elf64_Dyn{DT_SYMENT, {sizeof(Elf64_Sym)}});
    put(at, Elf64_Dyn{DT_STRTAB, {strings}});
    put(at, Elf64_Dyn{DT_STRSZ, {name.size() + 2}});
    put(at, Elf64_Dyn{DT_RELA, {relocation_table}});
    put(at, Elf64_Dyn{DT_RELASZ, {whole - relocation_table}});
    put(at, Elf64_Dyn{DT_RELAENT, {sizeof(Elf64_Rela)}});
    at = symbol_table + sizeof(Elf64_Sym);
    constexpr unsigned char kInfo = ELF64_ST_INFO(STB_GLOBAL, STT_TLS);
    for (std::size_t i = 0; i + 1 < symbols; ++i) {
      const auto section = static_cast<Elf64_Half>(definitions == 0 ? SHN_UNDEF : 1);
      put(at, Elf64_Sym{1, kInfo, STV_DEFAULT, section, i * 8, 8});
    }
    std::memcpy(out.data() + strings + 1, name.data(), name.size());
    at = relocation_table;
    for (std::size_t i = 0; i < relocations; ++i) {
      const std::size_t symbol = definitions == 0 ? 1 : 0;
      const std::size_t addend = definitions == 0 ? 0 : i % definitions * 8;
      put(at, Elf64_Rela{(1ULL << 30U) + i * 16, ELF64_R_INFO(symbol, R_X86_64_TLSDESC),
                         static_cast<Elf64_Sxword>(addend)});
    }
    return out;
  }
};

}  // namespace ctxconf::sys
