// From an ELF file to the facts that the rules about the slot variable judge.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/timeline.h"
#include "sys/elf_image.h"

namespace ctxconf::conformance {

// `path` as it is to be printed. A table that contradicts itself becomes `problem`.
ModuleFacts module_facts(const sys::ElfImage& image, std::string path, bool executable);

// x86-64 code that gets a module's TLS block through one of these nameless DTPMOD64 or TLSDESC,
// with
// __tls_get_addr by the sequence that only local dynamic has, and then reads, writes or returns
// what lies `offset` bytes into it; a line an instruction: "0x1148: lea rax, [rax + 8]". Looks at
// the first 64 MiB of code, and at 32 instructions after each of at most 4096 such calls;
// returns the lines of at most 2 places.
std::vector<std::string> local_dynamic_code(const sys::ElfImage& image,
                                            std::span<const sys::TlsRelocation> relocations,
                                            std::uint64_t offset);

}  // namespace ctxconf::conformance
