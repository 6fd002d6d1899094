// Reads from an ELF file the facts that rules about the slot variable judge.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/elf_image.h"

namespace ctxconf::conformance {

// `path` is only for messages. If a table contradicts itself, `problem` says so.
ModuleFacts module_facts(const sys::ElfImage& image, std::string path, bool executable);

// x86-64 code that gets a module's TLS block through one of these nameless DTPMOD64 or TLSDESC
// relocations, with __tls_get_addr by the sequence that only local dynamic has, and then reads,
// writes or returns the bytes at `offset` in it. One line per instruction: "0x1148: lea rax, [rax +
// 8]". Looks at the first 64 MiB of code, and at 32 instructions after each of at most 4096 such
// calls. Returns the lines of at most 2 locations.
std::vector<std::string> local_dynamic_code(const sys::ElfImage& image,
                                            std::span<const sys::TlsRelocation> relocations,
                                            std::uint64_t offset);

}  // namespace ctxconf::conformance
