#include "conformance/testees/reader/variable.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "conformance/testees/reader/elf_module.h"

namespace ctxconf::testees {
namespace {

constexpr Choice kBadVariable[] = {
    {"tctx.reader.model-tlsdesc", "takes the argument of a descriptor for an offset"},
    {"tctx.reader.model-tlsdesc:pointer", "takes the argument of a descriptor for a pointer"},
    {"tctx.reader.model-tlsdesc:missing", "does not know descriptors"},
    {"tctx.reader.model-general-dynamic", "does not know module ids"},
    {"tctx.reader.model-general-dynamic:first", "takes each module for the first one"},
    {"tctx.reader.model-general-dynamic:entry", "takes 8 bytes for an entry of the vector"},
    {"tctx.reader.model-initial-exec", "does not know offsets from the thread pointer"},
    {"tctx.reader.model-initial-exec:above", "takes the offset for one above the thread pointer"},
    {"tctx.reader.model-local-exec", "requires a relocation"},
    {"tctx.reader.model-local-exec:alignment", "ignores the alignment of the block"},
    {"tctx.reader.all-modules", "looks at libraries that it knows by name, and the executable"},
    {"tctx.reader.all-modules:path", "looks at files that it can open by their path"},
    {"tctx.reader.all-modules:suffix", "looks at files with the ending .so, and the executable"},
    {"tctx.reader.only-tls-definitions", "takes the first symbol of that name"},
    {"tctx.reader.only-tls-definitions:undefined", "takes references for definitions"},
    {"tctx.reader.only-tls-definitions:object", "takes an ordinary object for the variable"},
    {"tctx.reader.several-definitions", "aborts at a second definition"},
    {"tctx.reader.unallocated-block", "takes the mark of a missing block for an address"},
    {"tctx.reader.unallocated-block:length", "does not look at the length of the vector"},
};

constexpr Choice kGoodVariable[] = {
    {"first-definition", "looks at the first definition only"},
};

constexpr std::string_view kName = "otel_thread_ctx_v1";

#if defined(__x86_64__)
constexpr std::uint64_t kDescriptorType = R_X86_64_TLSDESC;
constexpr std::uint64_t kModuleType = R_X86_64_DTPMOD64;
constexpr std::uint64_t kOffsetType = R_X86_64_TPOFF64;
#else
constexpr std::uint64_t kDescriptorType = R_AARCH64_TLSDESC;
constexpr std::uint64_t kModuleType = R_AARCH64_TLS_DTPMOD;
constexpr std::uint64_t kOffsetType = R_AARCH64_TLS_TPREL;
#endif

}  // namespace

const Choices kVariableChoices{kBadVariable, kGoodVariable};

namespace {

struct Definition {
  const Module* module = nullptr;
  std::uint64_t value = 0;
  bool is_real = true;  // false: what a broken reader takes for one
};

bool defines(const Elf64_Sym& symbol) {
  return ELF64_ST_TYPE(symbol.st_info) == STT_TLS && symbol.st_shndx != SHN_UNDEF;
}

bool is_taken_for_definition(const Elf64_Sym& symbol) {
  const bool is_tls = ELF64_ST_TYPE(symbol.st_info) == STT_TLS;
  if (is_bad("tctx.reader.only-tls-definitions:undefined")) return is_tls;
  if (is_bad("tctx.reader.only-tls-definitions:object")) return symbol.st_shndx != SHN_UNDEF;
  return defines(symbol) || is_bad("tctx.reader.only-tls-definitions");
}

// Whether this reader looks into the file.
bool is_searched(const Module& module) {
  std::string_view file = module.name;
  file = file.substr(file.rfind('/') + 1);
  if (is_bad("tctx.reader.all-modules")) {
    return module.is_executable || file.starts_with("slot_");
  }
  if (is_bad("tctx.reader.all-modules:suffix")) {
    return module.is_executable || file.ends_with(".so") || file.contains(".so.");
  }
  return !is_bad("tctx.reader.all-modules:path") || access(module.name.c_str(), R_OK) == 0;
}

std::vector<Definition> definitions_in(const std::vector<Module>& modules) {
  std::vector<Definition> out;
  for (const Module& m : modules) {
    if (!is_searched(m)) continue;
    for (const Elf64_Sym& symbol : m.symbols) {
      if (m.name_of(symbol) != kName || !is_taken_for_definition(symbol)) continue;
      out.push_back({&m, symbol.st_value, defines(symbol)});
    }
  }
  // The order of the modules is that of their addresses: here the worst one.
  std::vector<Definition> real;
  std::ranges::copy_if(out, std::back_inserter(real), &Definition::is_real);
  std::erase_if(out, &Definition::is_real);
  out.insert(out.end(), real.begin(), real.end());
  if (out.size() > 1 && is_bad("tctx.reader.several-definitions")) abort();
  const bool one = is_good("first-definition") || breaks("tctx.reader.only-tls-definitions");
  if (one && out.size() > 1) out.resize(1);
  return out;
}

// The distance from the thread pointer of any thread to the variable of the executable.
std::uint64_t local_exec_offset(const Elf64_Phdr& tls, std::uint64_t value) {
  const std::uint64_t mask = std::max<std::uint64_t>(tls.p_align, 1) - 1;
#if defined(__x86_64__)
  const bool ignores = is_bad("tctx.reader.model-local-exec:alignment");
  const std::uint64_t gap = ignores ? 0 : (0 - tls.p_vaddr - tls.p_memsz) & mask;
  return value - (tls.p_memsz + gap);
#else
  constexpr std::uint64_t kReserved = 16;  // of the thread's control block
  const bool ignores = is_bad("tctx.reader.model-local-exec:alignment");
  return value + kReserved + (ignores ? 0 : (tls.p_vaddr - kReserved) & mask);
#endif
}

void add_access(const Memory& memory, const Module& module, const Elf64_Rela& relocation,
                const Definition& definition, std::vector<Access>& out) {
  const auto type = ELF64_R_TYPE(relocation.r_info);
  const std::uint64_t got = module.bias + relocation.r_offset;
  const bool has_symbol = ELF64_R_SYM(relocation.r_info) != 0;
  const bool is_own = definition.module == &module;
  const bool named = module.name_of(relocation) == kName;
  // Without a symbol it is for the module itself, with the offset in its block.
  const bool by_offset =
      !has_symbol && is_own && relocation.r_addend == static_cast<Elf64_Sxword>(definition.value);
  if (type == kDescriptorType && (named || by_offset)) {
    if (is_bad("tctx.reader.model-tlsdesc:missing")) return;
    out.push_back({.how = Access::How::kDescriptor, .got = got});
  } else if (type == kOffsetType && (named || by_offset)) {
    if (is_bad("tctx.reader.model-initial-exec")) return;
    out.push_back({.how = Access::How::kOffset, .got = got});
  } else if (type == kModuleType) {
    if (is_bad("tctx.reader.model-general-dynamic")) return;
    const bool matches =
        has_symbol ? named : is_own && memory.value<std::uint64_t>(got + 8) == definition.value;
    if (matches) out.push_back({.how = Access::How::kModule, .got = got});
  }
}

bool is_static_argument(std::uint64_t argument) {
#if defined(__x86_64__)
  return static_cast<std::int64_t>(argument) < 0;
#else
  return argument < (std::uint64_t{1} << 24U);  // no program has so much in one block
#endif
}

struct ModuleOffset {
  std::uint64_t module = 0;
  std::uint64_t offset = 0;
};

// `is_relocated`: the numbers come from a pair of relocations, not from a descriptor.
SlotState through_vector(const Memory& memory, ModuleOffset where, std::uint64_t generation,
                         std::uint64_t thread_pointer, bool is_relocated, std::uint64_t& out) {
#if defined(__x86_64__)
  const std::uint64_t vector_at = thread_pointer + 8;
#else
  const std::uint64_t vector_at = thread_pointer;
#endif
  struct Entry {
    std::uint64_t value = 0;
    std::uint64_t to_free = 0;
  };
  const auto vector = memory.value<std::uint64_t>(vector_at);
  if (!vector) return SlotState::kNoBlock;
  const auto length = memory.value<Entry>(*vector - sizeof(Entry));
  const auto newest = memory.value<Entry>(*vector);
  if (!length || !newest) return SlotState::kNoBlock;
  if (is_relocated && is_bad("tctx.reader.model-general-dynamic:first")) where.module = 1;
  const bool is_beyond = where.module > length->value;
  if (is_beyond && !is_bad("tctx.reader.unallocated-block:length")) return SlotState::kNoBlock;
  const bool narrow = is_relocated && is_bad("tctx.reader.model-general-dynamic:entry");
  const std::uint64_t entry_at = *vector + where.module * (narrow ? 8 : sizeof(Entry));
  const auto block = memory.value<std::uint64_t>(entry_at);
  if (is_beyond || is_bad("tctx.reader.unallocated-block")) {
    out = block.value_or(0) + where.offset;
    return memory.value<std::uint64_t>(out) ? SlotState::kFound : SlotState::kFailed;
  }
  // An entry older than the module belongs to what had this number before.
  if (!block || *block + 1 <= 1 || newest->value < generation) return SlotState::kNoBlock;
  out = *block + where.offset;
  return SlotState::kFound;
}

SlotState through_descriptor(const Memory& memory, std::uint64_t got, std::uint64_t thread_pointer,
                             std::uint64_t& out) {
  struct Dynamic {
    ModuleOffset where;
    std::uint64_t generation = 0;
  };
  const auto argument = memory.value<std::uint64_t>(got + 8);
  if (!argument) return SlotState::kNoBlock;
  const bool always = is_bad("tctx.reader.model-tlsdesc");
  const bool never = is_bad("tctx.reader.model-tlsdesc:pointer");
  if (always || (is_static_argument(*argument) && !never)) {
    out = thread_pointer + *argument;
    return SlotState::kFound;
  }
  const auto dynamic = memory.value<Dynamic>(*argument);
  if (!dynamic) return SlotState::kNoBlock;
  return through_vector(memory, dynamic->where, dynamic->generation, thread_pointer,
                        /*is_relocated=*/false, out);
}

}  // namespace

std::vector<Access> find_variable(pid_t pid, const Memory& memory, const Mappings& mappings) {
  const auto modules = modules_with(kName, memory, mappings, program_headers_of(pid));
  std::vector<Access> out;
  for (const Definition& d : definitions_in(modules)) {
    if (!d.is_real) {
      out.push_back({.how = Access::How::kLocalExec, .offset = d.value});
      continue;
    }
    for (const Module& m : modules) {
      for (const Elf64_Rela& r : m.relocations) add_access(memory, m, r, d, out);
    }
    if (!d.module->is_executable || is_bad("tctx.reader.model-local-exec")) continue;
    out.push_back(
        {.how = Access::How::kLocalExec, .offset = local_exec_offset(d.module->tls, d.value)});
  }
  std::vector<Access> unique;
  for (const Access& a : out) {
    if (std::ranges::find(unique, a) == unique.end()) unique.push_back(a);
  }
  return unique;
}

SlotState slot_address(const Memory& memory, const Access& access, std::uint64_t thread_pointer,
                       std::uint64_t& out) {
  switch (access.how) {
    case Access::How::kLocalExec:
      out = thread_pointer + access.offset;
      return SlotState::kFound;
    case Access::How::kOffset: {
      const auto offset = memory.value<std::uint64_t>(access.got);
      if (!offset) return SlotState::kNoBlock;
      const bool above = is_bad("tctx.reader.model-initial-exec:above");
      out = above ? thread_pointer - *offset : thread_pointer + *offset;
      return SlotState::kFound;
    }
    case Access::How::kDescriptor:
      return through_descriptor(memory, access.got, thread_pointer, out);
    case Access::How::kModule: {
      const auto where = memory.value<ModuleOffset>(access.got);
      if (!where) return SlotState::kNoBlock;
      return through_vector(memory, *where, 0, thread_pointer, /*is_relocated=*/true, out);
    }
  }
  return SlotState::kNoBlock;
}

}  // namespace ctxconf::testees
