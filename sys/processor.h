// Facts about the processor that an ELF file or a recording names; ctxconf may run on another one.
#pragma once

#include <cstdint>
#include <string_view>

namespace ctxconf::sys {

struct Processor {
  std::uint16_t machine = 0;  // EM_* of <elf.h>
  std::string_view name;      // to print
  const char* uname = "";     // what `uname -m` prints; empty: no recordings are made there
  // Another processor sees its stores in the order of the program, even without a barrier.
  bool keeps_store_order = false;
  // Rules may judge its TLS relocations.
  bool knows_tls_relocations = false;
  // ctxconf has a disassembler for it (conformance/elf/elf_facts.cc): 64-bit code shows whether
  // such a relocation is for local dynamic.
  bool shows_local_dynamic = false;
  // glibc: how far after the thread pointer the address of the dynamic thread vector is.
  std::uint64_t vector_at = 0;
  const char* tlsdesc_option = "";  // the option of compilers for TLSDESC; empty: not known
};

// For an unknown processor: an entry without a name, whose facts are all false.
const Processor& processor_of_elf(std::uint16_t machine);
const Processor& processor_of_uname(std::string_view name);

}  // namespace ctxconf::sys
