#include "conformance/elf/tls_access.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>

#include "sys/processor.h"

namespace ctxconf::conformance {
namespace {

using sys::ElfSymbol;
using sys::TlsModel;
using sys::TlsRelocation;
using sys::TlsRelocationKind;

TlsModel model_of(TlsRelocationKind kind) {
  switch (kind) {
    case TlsRelocationKind::kTlsdesc:
      return TlsModel::kTlsdesc;
    case TlsRelocationKind::kModule:
    case TlsRelocationKind::kOffset:
      return TlsModel::kGeneralDynamic;
    case TlsRelocationKind::kThreadPointerOffset:
      return TlsModel::kInitialExec;
  }
  return TlsModel::kGeneralDynamic;
}

// A relocation without a symbol belongs to the variable whose offset it carries, in its addend or,
// for a module id, in the next word.
bool carries_offset(const ModuleFacts& m, const TlsRelocation& r, std::uint64_t offset) {
  if (r.kind != TlsRelocationKind::kModule) return static_cast<std::uint64_t>(r.addend) == offset;
  // Local dynamic also has a zero there; then the code decides.
  return r.word_after == offset && (offset != 0 || m.local_dynamic_code.empty());
}

std::string type_name(std::uint8_t type) {
  switch (type) {
    case STT_NOTYPE:
      return "NOTYPE";
    case STT_OBJECT:
      return "OBJECT";
    case STT_FUNC:
      return "FUNC";
    case STT_COMMON:
      return "COMMON";
    case STT_TLS:
      return "TLS";
    case STT_GNU_IFUNC:
      return "IFUNC";
    default:
      return fmt::format("type {}", type);
  }
}

std::string binding_name(std::uint8_t binding) {
  switch (binding) {
    case STB_LOCAL:
      return "LOCAL";
    case STB_GLOBAL:
      return "GLOBAL";
    case STB_WEAK:
      return "WEAK";
    case STB_GNU_UNIQUE:
      return "UNIQUE";
    default:
      return fmt::format("binding {}", binding);
  }
}

std::string visibility_name(std::uint8_t visibility) {
  switch (visibility) {
    case STV_DEFAULT:
      return "DEFAULT";
    case STV_INTERNAL:
      return "INTERNAL";
    case STV_HIDDEN:
      return "HIDDEN";
    case STV_PROTECTED:
      return "PROTECTED";
    default:
      return fmt::format("visibility {}", visibility);
  }
}

std::string machine_name(std::uint16_t machine) {
  const std::string_view name = sys::processor_of_elf(machine).name;
  return name.empty() ? fmt::format("machine {}", machine) : std::string(name);
}

}  // namespace

bool is_slot_definition(const ElfSymbol& s) {
  const bool binds =
      s.binding == STB_GLOBAL || s.binding == STB_WEAK || s.binding == STB_GNU_UNIQUE;
  const bool visible = s.visibility == STV_DEFAULT || s.visibility == STV_PROTECTED;
  return s.defined() && s.type == STT_TLS && binds && visible;
}

const ElfSymbol* slot_definition(const ModuleFacts& module) {
  const auto it = std::ranges::find_if(module.dynamic_symbols, is_slot_definition);
  return it == module.dynamic_symbols.end() ? nullptr : &*it;
}

const ElfSymbol* hidden_definition(const ModuleFacts& module) {
  if (std::ranges::any_of(module.dynamic_symbols, &ElfSymbol::defined)) return nullptr;
  const auto it = std::ranges::find_if(
      module.static_symbols, [](const ElfSymbol& s) { return s.defined() && s.type == STT_TLS; });
  return it == module.static_symbols.end() ? nullptr : &*it;
}

std::vector<SlotAccess> accesses_of(const ModuleFacts& definer,
                                    std::span<const ModuleFacts* const> all) {
  std::vector<SlotAccess> out;
  const ElfSymbol* symbol = slot_definition(definer);
  if (symbol == nullptr) return out;
  if (definer.executable) out.push_back({TlsModel::kLocalExec, &definer, nullptr});
  for (const ModuleFacts* m : all) {
    for (const TlsRelocation& r : m->relocations) {
      const bool named = r.symbol != 0;
      if (named || (m == &definer && carries_offset(*m, r, symbol->value))) {
        out.push_back({model_of(r.kind), m, &r});
      }
    }
  }
  // A module id followed by a zero may belong to another variable; it counts only if nothing else
  // does.
  const auto doubtful = [&](const SlotAccess& a) {
    return a.relocation != nullptr && a.relocation->symbol == 0 && symbol->value == 0 &&
           a.relocation->kind == TlsRelocationKind::kModule;
  };
  if (!std::ranges::all_of(out, doubtful)) std::erase_if(out, doubtful);
  return out;
}

bool may_be_local_dynamic(const TlsRelocation& r, const ElfSymbol& symbol) {
  if (r.symbol != 0) return false;
  if (r.kind == TlsRelocationKind::kModule) return r.word_after == 0;
  // With a zero addend it leads to offset zero, in any code.
  return r.kind == TlsRelocationKind::kTlsdesc && r.addend == 0 && symbol.value != 0;
}

bool knows_relocations(const ModuleFacts& module) {
  return sys::processor_of_elf(module.machine).knows_tls_relocations;
}

bool reads_code_of(const ModuleFacts& module) {
  return module.elf64 && sys::processor_of_elf(module.machine).shows_local_dynamic;
}

std::string describe(const ElfSymbol& s, const char* table) {
  std::string section = fmt::format("section {}", s.section);
  if (s.section == SHN_UNDEF) section = "undefined";
  if (s.section == SHN_ABS) section = "absolute";
  return fmt::format("{} #{}: value {:#x}, size {}, {} {} {}, {}", table, s.index, s.value, s.size,
                     type_name(s.type), binding_name(s.binding), visibility_name(s.visibility),
                     section);
}

std::string describe(const TlsRelocation& r) {
  std::string out = fmt::format("{} ({}) at {:#x}, ", sys::to_string(r.kind), r.type, r.offset);
  out += r.symbol == 0 ? "no symbol" : fmt::format("symbol #{}", r.symbol);
  out += fmt::format(", addend {}", r.addend);
  if (r.kind == TlsRelocationKind::kModule) {
    out += fmt::format(", next word {:#x}", r.word_after);
  }
  return out;
}

std::string describe(const SlotAccess& access) {
  const std::string model(sys::to_string(access.model));
  if (access.relocation == nullptr) return "no relocation is needed: " + model;
  return describe(*access.relocation) + ": " + model;
}

std::string describe(const ModuleFacts& m) {
  std::string kind = "shared library";
  if (m.executable) {
    kind = !m.has_dynamic_section ? "static executable without a dynamic section"
           : m.has_interpreter    ? "executable"
           : m.type == ET_DYN     ? "static-pie executable"
                                  : "static executable with a dynamic section";
  }
  return fmt::format("{}, {}, {} bit{}", kind, machine_name(m.machine), m.elf64 ? 64 : 32,
                     m.little_endian ? "" : ", big-endian");
}

}  // namespace ctxconf::conformance
