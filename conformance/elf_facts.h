// From an ELF file to the facts that the rules about the slot variable judge.
#pragma once

#include <string>

#include "conformance/timeline.h"
#include "sys/elf_image.h"

namespace ctxconf::conformance {

// `path` as it is to be printed. A table that contradicts itself becomes `problem`.
ModuleFacts module_facts(const sys::ElfImage& image, std::string path, bool executable);

}  // namespace ctxconf::conformance
