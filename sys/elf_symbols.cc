#include "sys/elf_symbols.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace ctxconf::sys::elf {
namespace {

constexpr std::uint64_t kMostHashSteps = 1U << 20U;
constexpr std::size_t kMostSymbolsOfOneName = 1024;
constexpr std::size_t kMostOccurrences = 65536;

ElfSymbol to_symbol(std::uint64_t index, const Elf64_Sym& s, std::string_view name) {
  return {static_cast<std::uint32_t>(index),
          std::string(name),
          s.st_value,
          s.st_size,
          static_cast<std::uint8_t>(ELF64_ST_TYPE(s.st_info)),
          static_cast<std::uint8_t>(ELF64_ST_BIND(s.st_info)),
          static_cast<std::uint8_t>(ELF64_ST_VISIBILITY(s.st_other)),
          s.st_shndx};
}

// Offsets in the strings where the name could begin, ascending: it may be the end of a longer name.
Result<std::vector<std::uint64_t>> occurrences(const View& view, const Table& strings,
                                               std::string_view name) {
  const std::string needle = std::string(name) + '\0';
  std::vector<std::uint64_t> found;
  bool too_many = false;
  CTX_RETURN_IF_ERROR(
      walk_bytes(view, strings, needle.size() - 1, [&](std::uint64_t at, std::string_view piece) {
        for (std::size_t i = 0; (i = piece.find(needle, i)) != piece.npos; ++i) {
          found.push_back(at + i);
        }
        too_many = found.size() > kMostOccurrences;
        return !too_many;
      }));
  if (too_many) return fail("parse ELF file", E2BIG, "the string table repeats a name");
  return found;
}

// All entries of the table with this name.
Result<std::vector<ElfSymbol>> scan_symbols(const View& view, const Symbols& symbols,
                                            std::string_view name) {
  std::vector<ElfSymbol> found;
  CTX_ASSIGN_OR_RETURN(locations, occurrences(view, symbols.strings, name));
  if (locations.empty()) return found;
  CTX_RETURN_IF_ERROR(walk_records<Elf64_Sym>(
      view.bytes, view.format(), symbols.offset, symbols.count,
      [&](std::uint64_t index, const Elf64_Sym& symbol) {
        if (index != 0 && std::binary_search(locations.begin(), locations.end(), symbol.st_name)) {
          found.push_back(to_symbol(index, symbol, name));
        }
        return found.size() < kMostSymbolsOfOneName;
      }));
  return found;
}

// The table does not state its length: DT_HASH does, or the next table in the file ends it.
Result<std::uint64_t> dynamic_symbol_count(const View& view, const Table& room) {
  const std::uint64_t size = record_size<Elf64_Sym>(view.format());
  if (const auto hash = dynamic_value(*view.parsed, DT_HASH)) {
    CTX_ASSIGN_OR_RETURN(table, loaded_table(view, *hash, "DT_HASH"));
    CTX_ASSIGN_OR_RETURN(chains, word_at(view, table.offset + 4));
    if (chains > room.size / size) return wrong("DT_HASH counts more symbols than the file has");
    return chains;
  }
  const std::uint64_t begin = *dynamic_value(*view.parsed, DT_SYMTAB);
  std::uint64_t end = begin + std::min(room.size, kMostTableBytes);
  for (const std::int64_t tag : {DT_STRTAB, DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERNEED, DT_RELA,
                                 DT_REL, DT_JMPREL, DT_INIT, DT_RELR}) {
    const auto address = dynamic_value(*view.parsed, tag);
    if (address && *address > begin) end = std::min(end, *address);
  }
  return (end - begin) / size;
}

std::uint32_t gnu_hash(std::string_view name) {
  std::uint32_t hash = 5381;
  for (const char c : name) hash = hash * 33 + static_cast<unsigned char>(c);
  return hash;
}

std::uint32_t sysv_hash(std::string_view name) {
  std::uint32_t hash = 0;
  for (const char c : name) {
    hash = (hash << 4U) + static_cast<unsigned char>(c);
    hash ^= (hash & 0xf0000000U) >> 24U;
    hash &= 0x0fffffffU;
  }
  return hash;
}

// Symbols of one name, in the order of a chain.
class Hits {
 public:
  Hits(const View& view, const Symbols& symbols, std::string_view name)
      : view_(view), symbols_(symbols), name_(name) {}
  Result<> add_if_named(std::uint64_t index) {
    CTX_ASSIGN_OR_RETURN(symbol, symbol_at(view_, symbols_, index));
    CTX_ASSIGN_OR_RETURN(same, string_is(view_, symbols_.strings, symbol.st_name, name_));
    if (same && found_.size() < kMostSymbolsOfOneName) {
      found_.push_back(to_symbol(index, symbol, name_));
    }
    return {};
  }
  std::vector<ElfSymbol> take() && { return std::move(found_); }

 private:
  const View& view_;
  const Symbols& symbols_;
  std::string_view name_;
  std::vector<ElfSymbol> found_;
};

Result<std::vector<ElfSymbol>> look_up_gnu(const View& view, const Symbols& symbols,
                                           std::uint64_t address, std::string_view name) {
  CTX_ASSIGN_OR_RETURN(table, loaded_table(view, address, "DT_GNU_HASH"));
  std::array<Elf64_Word, 4> header{};
  CTX_RETURN_IF_ERROR(read_records<Elf64_Word>(view.bytes, view.format(), table.offset, header));
  const auto [buckets, first_hashed, bloom_words, bloom_shift] = header;
  if (buckets == 0) return std::vector<ElfSymbol>();
  const std::uint64_t bloom_size = std::uint64_t{bloom_words} * (view.format().is_64 ? 8 : 4);
  const std::uint64_t bucket_table = table.offset + sizeof header + bloom_size;
  const std::uint64_t chains = bucket_table + std::uint64_t{buckets} * 4;
  const std::uint32_t hash = gnu_hash(name);
  CTX_ASSIGN_OR_RETURN(first, word_at(view, bucket_table + std::uint64_t{hash % buckets} * 4));
  Hits hits(view, symbols, name);
  if (first == 0) return std::move(hits).take();
  if (first < first_hashed) return wrong("DT_GNU_HASH contradicts itself");
  for (std::uint64_t index = first; index - first < kMostHashSteps; ++index) {
    CTX_ASSIGN_OR_RETURN(entry, word_at(view, chains + (index - first_hashed) * 4));
    if ((entry | 1U) == (hash | 1U)) CTX_RETURN_IF_ERROR(hits.add_if_named(index));
    if ((entry & 1U) != 0) return std::move(hits).take();
  }
  return wrong("a chain of DT_GNU_HASH does not end");
}

Result<std::vector<ElfSymbol>> look_up_sysv(const View& view, const Symbols& symbols,
                                            std::uint64_t address, std::string_view name) {
  CTX_ASSIGN_OR_RETURN(table, loaded_table(view, address, "DT_HASH"));
  std::array<Elf64_Word, 2> header{};
  CTX_RETURN_IF_ERROR(read_records<Elf64_Word>(view.bytes, view.format(), table.offset, header));
  const auto [buckets, chains] = header;
  Hits hits(view, symbols, name);
  if (buckets == 0) return std::move(hits).take();
  const std::uint64_t bucket_table = table.offset + sizeof header;
  const std::uint64_t chain_table = bucket_table + std::uint64_t{buckets} * 4;
  CTX_ASSIGN_OR_RETURN(index,
                       word_at(view, bucket_table + std::uint64_t{sysv_hash(name) % buckets} * 4));
  for (std::uint64_t steps = 0; index != STN_UNDEF; ++steps) {
    if (index >= chains || steps >= std::min<std::uint64_t>(chains, kMostHashSteps)) {
      return wrong("a chain of DT_HASH does not end");
    }
    CTX_RETURN_IF_ERROR(hits.add_if_named(index));
    CTX_ASSIGN_OR_RETURN(next, word_at(view, chain_table + std::uint64_t{index} * 4));
    index = next;
  }
  return std::move(hits).take();
}

Result<std::vector<ElfSymbol>> look_up(const View& view, const Symbols& symbols,
                                       std::string_view name) {
  if (const auto address = dynamic_value(*view.parsed, DT_GNU_HASH)) {
    return look_up_gnu(view, symbols, *address, name);
  }
  if (const auto address = dynamic_value(*view.parsed, DT_HASH)) {
    return look_up_sysv(view, symbols, *address, name);
  }
  return std::vector<ElfSymbol>();
}

}  // namespace

Result<std::optional<Symbols>> find_dynamic_symbols(const View& view) {
  const Parsed& parsed = *view.parsed;
  const auto table = dynamic_value(parsed, DT_SYMTAB);
  const auto strings = dynamic_value(parsed, DT_STRTAB);
  if (!table || !strings) return std::nullopt;
  const std::uint64_t size = record_size<Elf64_Sym>(parsed.format);
  if (dynamic_value(parsed, DT_SYMENT).value_or(size) != size) return wrong("DT_SYMENT is wrong");
  CTX_ASSIGN_OR_RETURN(room, loaded_table(view, *table, "DT_SYMTAB"));
  CTX_ASSIGN_OR_RETURN(
      names, sized_table(view, *strings, dynamic_value(parsed, DT_STRSZ).value_or(0), "DT_STRTAB"));
  CTX_ASSIGN_OR_RETURN(count, dynamic_symbol_count(view, room));
  return Symbols{room.offset, count, names};
}

Result<Elf64_Sym> symbol_at(const View& view, const Symbols& symbols, std::uint64_t index) {
  if (index >= symbols.count)
    return wrong("symbol " + std::to_string(index) + " is not in the table");
  Elf64_Sym symbol{};
  const std::uint64_t at = symbols.offset + index * record_size<Elf64_Sym>(view.format());
  CTX_RETURN_IF_ERROR(
      read_records<Elf64_Sym>(view.bytes, view.format(), at, std::span(&symbol, 1)));
  return symbol;
}

Result<std::vector<ElfSymbol>> dynamic_symbols_of(const View& view, std::string_view name) {
  CTX_ASSIGN_OR_RETURN(symbols, find_dynamic_symbols(view));
  if (!symbols || name.empty() || name.size() > kMostNameBytes) return std::vector<ElfSymbol>();
  CTX_ASSIGN_OR_RETURN(found, look_up(view, *symbols, name));
  if (!found.empty()) return std::move(found);
  return scan_symbols(view, *symbols, name);
}

Result<std::vector<ElfSymbol>> static_symbols_of(const View& view, std::string_view name) {
  CTX_ASSIGN_OR_RETURN(
      section, find_section(view, [](const Elf64_Shdr& s) { return s.sh_type == SHT_SYMTAB; }));
  if (!section || name.empty() || name.size() > kMostNameBytes) return std::vector<ElfSymbol>();
  if (section->sh_link >= view.parsed->section_count) return wrong(".symtab has no strings");
  CTX_ASSIGN_OR_RETURN(strings_section, section_at(view, section->sh_link));
  CTX_ASSIGN_OR_RETURN(table, section_table(view, *section, ".symtab"));
  CTX_ASSIGN_OR_RETURN(strings, section_table(view, strings_section, ".strtab"));
  if (!table || !strings) return std::vector<ElfSymbol>();
  return scan_symbols(
      view, {table->offset, table->size / record_size<Elf64_Sym>(view.format()), *strings}, name);
}

}  // namespace ctxconf::sys::elf
