// How the code reaches the slot variable, from the definitions and relocations in ELF files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/tls_variable.h"

namespace ctxconf::conformance {

// Whether a .dynsym entry is a thread-local definition to which other modules can bind.
bool is_slot_definition(const sys::ElfSymbol& symbol);

// The first such entry of a module, or null.
const sys::ElfSymbol* slot_definition(const ModuleFacts& module);

// A thread-local definition of that name that only .symtab has, so that no reader finds it. Null if
// .dynsym defines the name, or nothing does.
const sys::ElfSymbol* hidden_definition(const ModuleFacts& module);

struct SlotAccess {
  sys::TlsModel model = sys::TlsModel::kTlsdesc;
  const ModuleFacts* module = nullptr;             // the module with the relocation
  const sys::TlsRelocation* relocation = nullptr;  // null for local-exec, which needs none
};

// The ways to reach the definition in `definer`, from any module of `all`: relocations that name
// the variable, nameless relocations of the definer with its offset, and for an executable its own
// layout. Each half of a General Dynamic pair counts.
std::vector<SlotAccess> accesses_of(const ModuleFacts& definer,
                                    std::span<const ModuleFacts* const> all);

// Whether a relocation may yield the module's whole block, to which local dynamic code adds the
// offset of `symbol`. It has no name and no offset. At offset zero it may also be the variable's
// own.
bool may_be_local_dynamic(const sys::TlsRelocation& relocation, const sys::ElfSymbol& symbol);

// Whether rules may judge the relocations of this machine.
bool knows_relocations(const ModuleFacts& module);

// Whether ctxconf can read the code of this module: ModuleFacts::local_dynamic_code.
bool reads_code_of(const ModuleFacts& module);

// Lines to print, without the module's name.
// ".dynsym #7: value 0x8, size 8, TLS GLOBAL DEFAULT, section 16"
std::string describe(const sys::ElfSymbol& symbol, const char* table);
// "TLSDESC (36) at 0x4010, symbol #7, addend 0: TLSDESC"
std::string describe(const SlotAccess& access);
std::string describe(const sys::TlsRelocation& relocation);
// "shared library, x86-64, 64 bit"
std::string describe(const ModuleFacts& module);

}  // namespace ctxconf::conformance
