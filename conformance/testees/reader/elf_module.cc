#include "conformance/testees/reader/elf_module.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

namespace ctxconf::testees {
namespace {

constexpr std::size_t kMostHeaders = 64;
constexpr std::size_t kMostDynamic = 512;
constexpr std::size_t kMostSymbols = 200'000;
constexpr std::size_t kMostStrings = std::size_t{16} << 20U;
constexpr std::size_t kMostRelocations = 1'000'000;

template <class T>
std::vector<T> copy_list(const Memory& memory, std::uint64_t at, std::size_t count) {
  std::vector<T> out(count);
  if (!memory.copy(at, out.data(), count * sizeof(T))) out.clear();
  return out;
}

std::vector<Elf64_Phdr> headers_at(const Memory& memory, std::uint64_t base) {
  const auto file = memory.value<Elf64_Ehdr>(base);
  const bool usable = file && std::memcmp(file->e_ident, ELFMAG, SELFMAG) == 0 &&
                      file->e_ident[EI_CLASS] == ELFCLASS64 &&
                      (file->e_type == ET_EXEC || file->e_type == ET_DYN) &&
                      file->e_phentsize == sizeof(Elf64_Phdr);
  if (!usable) return {};
  return copy_list<Elf64_Phdr>(memory, base + file->e_phoff,
                               std::min<std::size_t>(file->e_phnum, kMostHeaders));
}

class Loader {
 public:
  Loader(const Memory& memory, std::uint64_t base) : memory_(memory), base_(base) {}

  // False: it is not a file with dynamic symbols.
  bool load(Module& out, std::string_view text, std::uint64_t program_headers) {
    const auto headers = headers_at(memory_, base_);
    const auto first = std::ranges::find(headers, Elf64_Word{PT_LOAD}, &Elf64_Phdr::p_type);
    if (first == headers.end()) return false;
    out.bias = base_ - (first->p_vaddr - first->p_offset);
    bias_ = out.bias;
    for (const Elf64_Phdr& h : headers) {
      if (h.p_type == PT_TLS) out.tls = h;
      if (h.p_type == PT_DYNAMIC) read_dynamic(out.bias + h.p_vaddr, h.p_memsz);
      if (h.p_type == PT_LOAD && program_headers != 0) {
        const std::uint64_t begin = out.bias + h.p_vaddr;
        out.is_executable |= program_headers >= begin && program_headers < begin + h.p_memsz;
      }
    }
    if (!tags_.contains(DT_SYMTAB) || !tags_.contains(DT_STRTAB)) return false;
    out.strings.resize(std::min<std::size_t>(tags_[DT_STRSZ], kMostStrings));
    if (!memory_.copy(address(DT_STRTAB), out.strings.data(), out.strings.size())) return false;
    if (!out.strings.contains(text)) return false;
    out.symbols = copy_list<Elf64_Sym>(memory_, address(DT_SYMTAB), symbol_count());
    add_relocations(out, DT_RELA, DT_RELASZ);
    add_relocations(out, DT_JMPREL, DT_PLTRELSZ);
    return true;
  }

 private:
  void read_dynamic(std::uint64_t at, std::uint64_t size) {
    const auto count = std::min<std::size_t>(size / sizeof(Elf64_Dyn), kMostDynamic);
    for (const Elf64_Dyn& d : copy_list<Elf64_Dyn>(memory_, at, count)) {
      if (d.d_tag == DT_NULL) break;
      tags_[d.d_tag] = d.d_un.d_val;
    }
  }

  // glibc replaces the addresses in this table by those in memory, others do not.
  std::uint64_t address(Elf64_Sxword tag) {
    const std::uint64_t value = tags_[tag];
    return value < base_ ? value + bias_ : value;
  }

  std::size_t symbol_count() {
    std::size_t count = 0;
    if (tags_.contains(DT_HASH)) {
      count = memory_.value<Elf64_Word>(address(DT_HASH) + sizeof(Elf64_Word)).value_or(0);
    } else if (tags_.contains(DT_GNU_HASH)) {
      count = count_of_gnu_hash(address(DT_GNU_HASH));
    }
    return std::min(count, kMostSymbols);
  }

  // The last symbol is at the end of the chain that begins last.
  std::size_t count_of_gnu_hash(std::uint64_t at) const {
    struct Start {
      Elf64_Word buckets, first, bloom_words, bloom_shift;
    };
    const auto start = memory_.value<Start>(at);
    if (!start || start->buckets > kMostSymbols || start->bloom_words > kMostSymbols) return 0;
    const std::uint64_t buckets_at = at + sizeof(Start) + start->bloom_words * sizeof(Elf64_Xword);
    const auto buckets = copy_list<Elf64_Word>(memory_, buckets_at, start->buckets);
    const auto last = std::ranges::max_element(buckets);
    if (last == buckets.end() || *last < start->first) return start->first;
    const std::uint64_t chains_at = buckets_at + start->buckets * sizeof(Elf64_Word);
    for (std::size_t i = *last; i < kMostSymbols; ++i) {
      const auto hash =
          memory_.value<Elf64_Word>(chains_at + (i - start->first) * sizeof(Elf64_Word));
      if (!hash || (*hash & 1U) != 0) return i + 1;
    }
    return kMostSymbols;
  }

  void add_relocations(Module& out, Elf64_Sxword table, Elf64_Sxword size) {
    if (!tags_.contains(table) || tags_[size] > kMostRelocations * sizeof(Elf64_Rela)) return;
    const auto more =
        copy_list<Elf64_Rela>(memory_, address(table), tags_[size] / sizeof(Elf64_Rela));
    out.relocations.insert(out.relocations.end(), more.begin(), more.end());
  }

  const Memory& memory_;
  std::uint64_t base_;
  std::uint64_t bias_ = 0;
  std::map<Elf64_Sxword, std::uint64_t> tags_;
};

}  // namespace

std::string_view Module::name_of(const Elf64_Sym& symbol) const {
  if (symbol.st_name >= strings.size()) return {};
  return std::string_view(strings).substr(symbol.st_name,
                                          strings.find('\0', symbol.st_name) - symbol.st_name);
}

std::string_view Module::name_of(const Elf64_Rela& relocation) const {
  const auto index = ELF64_R_SYM(relocation.r_info);
  return index == 0 || index >= symbols.size() ? std::string_view() : name_of(symbols[index]);
}

std::vector<Module> modules_with(std::string_view text, const Memory& memory,
                                 const Mappings& mappings, std::uint64_t program_headers) {
  std::vector<Module> out;
  for (const Mapping& m : mappings) {
    if (m.offset != 0 || m.inode == 0 || !m.readable) continue;
    Module module;
    module.name = m.name;
    if (Loader(memory, m.begin).load(module, text, program_headers)) {
      out.push_back(std::move(module));
    }
  }
  return out;
}

}  // namespace ctxconf::testees
