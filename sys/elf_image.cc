#include "sys/elf_image.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sys/elf_bytes.h"

namespace ctxconf::sys {
namespace {

constexpr std::uint64_t kMostProgramHeaders = 1024;
constexpr std::uint64_t kMostDynamicEntries = 65536;
// Of one table; a sparse file has any size. The larger ones are strings of .symtab.
constexpr std::uint64_t kMostTableBytes = 64ULL << 20U;
constexpr std::uint64_t kMostSectionBytes = 1ULL << 30U;
constexpr std::uint64_t kMostSections = 1U << 20U;
constexpr std::uint64_t kMostHashSteps = 1U << 20U;
constexpr std::size_t kMostSymbolsOfOneName = 1024;
constexpr std::size_t kMostOccurrences = 65536;
constexpr std::size_t kMostRelocations = 65536;
constexpr std::uint64_t kMostNoteBytes = 64U << 10U;
constexpr std::size_t kMostNoteSegments = 16;
constexpr std::uint64_t kMostGoBytes = 1U << 20U;  // of one segment
constexpr std::size_t kMostGoSegments = 16;
constexpr std::size_t kMostNameBytes = 4096;
constexpr std::string_view kGoMagic = "\xff Go buildinf:";

// From an address on, up to the next one: the index of the segment that is mapped there.
struct Boundary {
  std::uint64_t address = 0;
  std::optional<std::size_t> segment;
};

struct Parsed {
  ElfFormat format;
  Elf64_Ehdr header{};
  std::uint64_t section_count = 0;
  std::uint64_t section_names = 0;  // index
  std::vector<ElfSegment> segments;
  std::vector<Boundary> loaded;                   // ascending
  std::map<std::int64_t, std::uint64_t> dynamic;  // of a repeated tag the last, as the loader
  // Nameless and named ones; without them the file has nothing to say about TLS.
  Result<std::vector<TlsRelocation>> relocations;
};

// One open file and what is known of it.
struct View {
  ElfBytes bytes;
  std::shared_ptr<const Parsed> parsed;

  ElfFormat format() const { return parsed->format; }
};

struct Table {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size = 0;    // bytes
};

std::unexpected<Error> wrong(std::string what) {
  return fail("parse ELF file", ENOEXEC, std::move(what));
}

const ElfSegment* last_segment(const Parsed& parsed, std::uint32_t type) {
  const auto found = std::find_if(parsed.segments.rbegin(), parsed.segments.rend(),
                                  [&](const ElfSegment& s) { return s.type == type; });
  return found == parsed.segments.rend() ? nullptr : &*found;
}

// Of overlapping segments the last one lies on top, as with the loader.
std::vector<Boundary> boundaries_of(const std::vector<ElfSegment>& segments) {
  std::vector<std::pair<std::uint64_t, std::size_t>> changes;  // a segment's begin and its end
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const ElfSegment& s = segments[i];
    if (s.type != PT_LOAD || s.memory_size == 0) continue;
    changes.emplace_back(s.address, i);
    changes.emplace_back(s.address + s.memory_size, i);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<Boundary> boundaries;
  std::set<std::size_t> here;
  for (const auto& [address, segment] : changes) {
    if (here.erase(segment) == 0) here.insert(segment);
    if (boundaries.empty() || boundaries.back().address != address)
      boundaries.push_back({address, {}});
    boundaries.back().segment = here.empty() ? std::nullopt : std::optional(*here.rbegin());
  }
  return boundaries;
}

const ElfSegment* loaded_at(const Parsed& parsed, std::uint64_t address) {
  const auto next = std::ranges::upper_bound(parsed.loaded, address, {}, &Boundary::address);
  if (next == parsed.loaded.begin() || !std::prev(next)->segment) return nullptr;
  return &parsed.segments[*std::prev(next)->segment];
}

std::size_t read_loaded(const ElfBytes& bytes, const Parsed& parsed, std::uint64_t address,
                        std::span<std::byte> out) {
  const ElfSegment* segment = loaded_at(parsed, address);
  if (segment == nullptr) return 0;
  const std::uint64_t skip = address - segment->address;
  out = out.first(std::min<std::uint64_t>(out.size(), segment->memory_size - skip));
  const auto from_file =
      skip < segment->file_size
          ? static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), segment->file_size - skip))
          : 0;
  if (from_file != 0 && !bytes.read(segment->offset + skip, out.first(from_file))) return 0;
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(from_file), out.end(), std::byte{0});
  return out.size();
}

// How many bytes the file has from a link-time address on, in its segment.
Result<Table> loaded_table(const View& view, std::uint64_t address, const char* name) {
  const ElfSegment* segment = loaded_at(*view.parsed, address);
  const std::uint64_t skip = segment == nullptr ? 0 : address - segment->address;
  if (segment == nullptr || skip >= segment->file_size) {
    return wrong(std::string(name) + " lies in no segment of the file");
  }
  const std::uint64_t offset = segment->offset + skip;
  if (!view.bytes.contains(offset, 1))
    return wrong(std::string(name) + " is behind the file's end");
  return Table{offset, std::min(segment->file_size - skip, view.bytes.size() - offset)};
}

Result<Table> sized_table(const View& view, std::uint64_t address, std::uint64_t size,
                          const char* name) {
  CTX_TRY(table, loaded_table(view, address, name));
  if (size > table.size) return wrong(std::string(name) + " is longer than the file has bytes");
  if (size > kMostTableBytes) return fail("parse ELF file", E2BIG, name);
  return Table{table.offset, size};
}

std::optional<std::uint64_t> dynamic_value(const Parsed& parsed, std::int64_t tag) {
  const auto found = parsed.dynamic.find(tag);
  if (found == parsed.dynamic.end()) return std::nullopt;
  return found->second;
}

Result<Elf64_Word> word_at(const View& view, std::uint64_t offset) {
  Elf64_Word word = 0;
  CTX_CHECK(read_records<Elf64_Word>(view.bytes, view.format(), offset, std::span(&word, 1)));
  return word;
}

Result<ElfFormat> format_of(const ElfBytes& bytes) {
  std::array<unsigned char, EI_NIDENT> ident{};
  if (!bytes.contains(0, sizeof ident)) return wrong("no ELF file: too short");
  CTX_CHECK(bytes.read(0, std::as_writable_bytes(std::span(ident))));
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return wrong("no ELF file");
  const unsigned word_size = ident[EI_CLASS];
  const unsigned order = ident[EI_DATA];
  if (word_size != ELFCLASS32 && word_size != ELFCLASS64) {
    return wrong("class " + std::to_string(word_size));
  }
  if (order != ELFDATA2LSB && order != ELFDATA2MSB) {
    return wrong("byte order " + std::to_string(order));
  }
  if (ident[EI_VERSION] != EV_CURRENT) return wrong("version " + std::to_string(ident[EI_VERSION]));
  return ElfFormat{word_size == ELFCLASS64, order == ELFDATA2LSB};
}

Result<Elf64_Shdr> section_at(const View& view, std::uint64_t index) {
  const std::uint64_t size = record_size<Elf64_Shdr>(view.format());
  // The count is below 2^32 wherever it is stored, so this product is no overflow.
  const std::uint64_t skip = index * size;
  const std::uint64_t table = view.parsed->header.e_shoff;
  if (table > view.bytes.size() || skip > view.bytes.size() - table) {
    return wrong("the section headers are behind the file's end");
  }
  Elf64_Shdr section{};
  CTX_CHECK(
      read_records<Elf64_Shdr>(view.bytes, view.format(), table + skip, std::span(&section, 1)));
  return section;
}

// More than 65279 sections or 65534 program headers are counted in the first section header.
Result<std::uint64_t> count_headers(const View& view, Parsed& parsed) {
  const Elf64_Ehdr& header = parsed.header;
  parsed.section_count = header.e_shoff == 0 ? 0 : header.e_shnum;
  parsed.section_names = header.e_shstrndx;
  std::uint64_t segments = header.e_phnum;
  if (header.e_shoff != 0 &&
      (header.e_shnum == 0 || header.e_shstrndx == SHN_XINDEX || header.e_phnum == PN_XNUM)) {
    const auto first = section_at(view, 0);
    if (first && header.e_shnum == 0) parsed.section_count = first->sh_size & UINT32_MAX;
    if (first && header.e_shstrndx == SHN_XINDEX) parsed.section_names = first->sh_link;
    if (!first && header.e_phnum == PN_XNUM) return std::unexpected(first.error());
    if (header.e_phnum == PN_XNUM) segments = first->sh_info;
  }
  return segments;
}

Result<> check_segment(const ElfSegment& segment) {
  if (segment.type != PT_LOAD && segment.type != PT_TLS && segment.type != PT_DYNAMIC) return {};
  if (segment.offset > UINT64_MAX - segment.file_size ||
      segment.address > UINT64_MAX - segment.memory_size) {
    return wrong("a segment wraps around");
  }
  if (segment.type != PT_DYNAMIC && segment.file_size > segment.memory_size) {
    return wrong("a segment is larger in the file than in memory");
  }
  return {};
}

Result<> parse_segments(const View& view, Parsed& parsed) {
  CTX_TRY(count, count_headers(view, parsed));
  if (count == 0) return {};
  if (count > kMostProgramHeaders) return wrong(std::to_string(count) + " program headers");
  if (parsed.header.e_phentsize != record_size<Elf64_Phdr>(parsed.format)) {
    return wrong("program headers of " + std::to_string(parsed.header.e_phentsize) + " bytes");
  }
  if (!view.bytes.contains(parsed.header.e_phoff, count * record_size<Elf64_Phdr>(parsed.format))) {
    return wrong("the program headers are behind the file's end");
  }
  Result<> good;
  CTX_CHECK(walk_records<Elf64_Phdr>(view.bytes, parsed.format, parsed.header.e_phoff, count,
                                     [&](std::uint64_t, const Elf64_Phdr& p) {
                                       const ElfSegment segment{p.p_type,  p.p_flags,  p.p_offset,
                                                                p.p_vaddr, p.p_filesz, p.p_memsz,
                                                                p.p_align};
                                       if (good = check_segment(segment); good)
                                         parsed.segments.push_back(segment);
                                       return good.has_value();
                                     }));
  parsed.loaded = boundaries_of(parsed.segments);
  return good;
}

Result<> parse_dynamic(const View& view, Parsed& parsed) {
  const ElfSegment* segment = last_segment(parsed, PT_DYNAMIC);
  if (segment == nullptr) return {};
  CTX_TRY(table, loaded_table(view, segment->address, "the dynamic section"));
  const std::uint64_t size = std::min(table.size, segment->memory_size);
  const std::uint64_t count =
      std::min(size / record_size<Elf64_Dyn>(parsed.format), kMostDynamicEntries);
  return walk_records<Elf64_Dyn>(view.bytes, parsed.format, table.offset, count,
                                 [&](std::uint64_t, const Elf64_Dyn& entry) {
                                   if (entry.d_tag == DT_NULL) return false;
                                   parsed.dynamic[entry.d_tag] = entry.d_un.d_val;
                                   return true;
                                 });
}

struct TlsTypes {
  std::uint16_t machine;
  std::uint32_t tlsdesc, module, offset, thread_pointer_offset;
};
constexpr std::array kTlsTypes = {
    TlsTypes{EM_X86_64, R_X86_64_TLSDESC, R_X86_64_DTPMOD64, R_X86_64_DTPOFF64, R_X86_64_TPOFF64},
    TlsTypes{EM_AARCH64, R_AARCH64_TLSDESC, R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_DTPREL,
             R_AARCH64_TLS_TPREL},
    TlsTypes{EM_386, R_386_TLS_DESC, R_386_TLS_DTPMOD32, R_386_TLS_DTPOFF32, R_386_TLS_TPOFF},
    TlsTypes{EM_ARM, R_ARM_TLS_DESC, R_ARM_TLS_DTPMOD32, R_ARM_TLS_DTPOFF32, R_ARM_TLS_TPOFF32},
};

std::optional<TlsRelocationKind> kind_of(const TlsTypes& types, std::uint32_t type) {
  if (type == types.tlsdesc) return TlsRelocationKind::kTlsdesc;
  if (type == types.module) return TlsRelocationKind::kModule;
  if (type == types.offset) return TlsRelocationKind::kOffset;
  if (type == types.thread_pointer_offset) return TlsRelocationKind::kThreadPointerOffset;
  return std::nullopt;
}

std::uint64_t to_word(ElfFormat format, std::span<const std::byte> raw) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const std::size_t shift = 8 * (format.little_endian ? i : raw.size() - 1 - i);
    value |= std::to_integer<std::uint64_t>(raw[i]) << shift;
  }
  return value;
}

// Two words; 0 for what is not there.
std::pair<std::uint64_t, std::uint64_t> got_words(const View& view, std::uint64_t address) {
  std::array<std::byte, 16> raw{};
  const std::size_t size = view.format().is_64 ? 8 : 4;
  const auto both = std::span(raw).first(2 * size);
  const std::size_t there = read_loaded(view.bytes, *view.parsed, address, both);
  std::fill(both.begin() + static_cast<std::ptrdiff_t>(there / size * size), both.end(),
            std::byte{0});
  return {to_word(view.format(), both.first(size)), to_word(view.format(), both.last(size))};
}

// What a REL table leaves in the GOT; of a descriptor's pair it is the argument.
std::int64_t implicit_addend(const View& view, const TlsRelocation& relocation) {
  const std::uint64_t word =
      relocation.kind == TlsRelocationKind::kTlsdesc ? relocation.word_after : relocation.word;
  return view.format().is_64 ? static_cast<std::int64_t>(word) : static_cast<std::int32_t>(word);
}

class RelocationReader {
 public:
  RelocationReader(const View& view, const TlsTypes& types) : view_(view), types_(types) {}

  Result<> add_rela(std::uint64_t address, std::uint64_t size) {
    return add<Elf64_Rela>(address, size,
                           [&](const Elf64_Rela& r) { keep(r.r_offset, r.r_info, r.r_addend); });
  }
  Result<> add_rel(std::uint64_t address, std::uint64_t size) {
    return add<Elf64_Rel>(address, size,
                          [&](const Elf64_Rel& r) { keep(r.r_offset, r.r_info, std::nullopt); });
  }
  std::vector<TlsRelocation> take() && { return std::move(found_); }

 private:
  template <class Record>
  Result<> add(std::uint64_t address, std::uint64_t size,
               const std::function<void(const Record&)>& visit) {
    if (size == 0) return {};
    CTX_TRY(table, sized_table(view_, address, size, "a relocation table"));
    return walk_records<Record>(view_.bytes, view_.format(), table.offset,
                                size / record_size<Record>(view_.format()),
                                [&](std::uint64_t, const Record& r) {
                                  visit(r);
                                  return found_.size() < kMostRelocations && !out_of_budget_;
                                });
  }

  void keep(std::uint64_t offset, std::uint64_t info, std::optional<std::int64_t> addend) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(info));
    const auto kind = kind_of(types_, type);
    if (!kind) return;
    ElfBudget* budget = view_.bytes.budget();
    out_of_budget_ = budget != nullptr && !budget->take_relocations(1);
    TlsRelocation relocation{*kind, type, offset, static_cast<std::uint32_t>(ELF64_R_SYM(info)),
                             0,     0,    0};
    std::tie(relocation.word, relocation.word_after) = got_words(view_, offset);
    relocation.addend = addend ? *addend : implicit_addend(view_, relocation);
    found_.push_back(relocation);
  }

  const View& view_;
  const TlsTypes& types_;
  std::vector<TlsRelocation> found_;
  bool out_of_budget_ = false;
};

Result<std::vector<TlsRelocation>> parse_relocations(const View& view) {
  const Parsed& parsed = *view.parsed;
  const auto types = std::find_if(kTlsTypes.begin(), kTlsTypes.end(), [&](const TlsTypes& t) {
    return t.machine == parsed.header.e_machine;
  });
  if (types == kTlsTypes.end()) return std::vector<TlsRelocation>();
  const auto value = [&](std::int64_t tag) { return dynamic_value(parsed, tag).value_or(0); };
  RelocationReader reader(view, *types);
  CTX_CHECK(reader.add_rela(value(DT_RELA), value(DT_RELASZ)));
  CTX_CHECK(reader.add_rel(value(DT_REL), value(DT_RELSZ)));
  // Some linkers count the PLT's part in the main table too.
  const bool rela = value(DT_PLTREL) == DT_RELA;
  const std::uint64_t main = value(rela ? DT_RELA : DT_REL);
  const std::uint64_t main_size = value(rela ? DT_RELASZ : DT_RELSZ);
  if (value(DT_JMPREL) >= main && value(DT_JMPREL) - main < main_size)
    return std::move(reader).take();
  CTX_CHECK(rela ? reader.add_rela(value(DT_JMPREL), value(DT_PLTRELSZ))
                 : reader.add_rel(value(DT_JMPREL), value(DT_PLTRELSZ)));
  return std::move(reader).take();
}

Result<std::shared_ptr<const Parsed>> parse(View& view) {
  auto parsed = std::make_shared<Parsed>();
  view.parsed = parsed;
  CTX_TRY(format, format_of(view.bytes));
  parsed->format = format;
  CTX_CHECK(read_records<Elf64_Ehdr>(view.bytes, format, 0, std::span(&parsed->header, 1)));
  CTX_CHECK(parse_segments(view, *parsed));
  if (auto dynamic = parse_dynamic(view, *parsed); dynamic) {
    parsed->relocations = parse_relocations(view);
  } else {
    parsed->dynamic.clear();
    parsed->relocations = std::unexpected(std::move(dynamic).error());
  }
  // Not half of it: others will use what was parsed.
  if (const ElfBudget* budget = view.bytes.budget(); budget != nullptr && budget->exhausted()) {
    return used_up(*budget);
  }
  return parsed;
}

// A symbol table with its strings.
struct Symbols {
  std::uint64_t offset = 0;  // of the first entry in the file
  std::uint64_t count = 0;   // at most; bounded by the file
  Table strings;
};

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

Result<Elf64_Sym> symbol_at(const View& view, const Symbols& symbols, std::uint64_t index) {
  if (index >= symbols.count)
    return wrong("symbol " + std::to_string(index) + " is not in the table");
  Elf64_Sym symbol{};
  const std::uint64_t at = symbols.offset + index * record_size<Elf64_Sym>(view.format());
  CTX_CHECK(read_records<Elf64_Sym>(view.bytes, view.format(), at, std::span(&symbol, 1)));
  return symbol;
}

// Does `name` with its terminator stand there?
Result<bool> string_is(const View& view, const Table& strings, std::uint64_t at,
                       std::string_view name) {
  if (at >= strings.size) return wrong("a name is not in the string table");
  if (name.size() >= strings.size - at) return false;
  std::string text(name.size() + 1, '\0');
  CTX_CHECK(view.bytes.read(strings.offset + at, std::as_writable_bytes(std::span(text))));
  return text.back() == '\0' && text.starts_with(name);
}

// Calls `visit` with each piece of a table and where it begins; pieces overlap by `overlap`.
Result<> walk_bytes(const View& view, const Table& table, std::size_t overlap,
                    const std::function<bool(std::uint64_t, std::string_view)>& visit) {
  constexpr std::size_t kPiece = 64U << 10U;
  std::string piece;
  for (std::uint64_t at = 0; at < table.size; at += kPiece) {
    piece.resize(std::min<std::uint64_t>(kPiece + overlap, table.size - at));
    CTX_CHECK(view.bytes.read(table.offset + at, std::as_writable_bytes(std::span(piece))));
    if (!visit(at, piece)) return {};
  }
  return {};
}

// Where in the strings the name could begin, ascending: it may be the end of a longer one.
Result<std::vector<std::uint64_t>> occurrences(const View& view, const Table& strings,
                                               std::string_view name) {
  const std::string needle = std::string(name) + '\0';
  std::vector<std::uint64_t> found;
  bool too_many = false;
  CTX_CHECK(
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

// All of the table's entries with this name.
Result<std::vector<ElfSymbol>> scan_symbols(const View& view, const Symbols& symbols,
                                            std::string_view name) {
  std::vector<ElfSymbol> found;
  CTX_TRY(places, occurrences(view, symbols.strings, name));
  if (places.empty()) return found;
  CTX_CHECK(walk_records<Elf64_Sym>(
      view.bytes, view.format(), symbols.offset, symbols.count,
      [&](std::uint64_t index, const Elf64_Sym& symbol) {
        if (index != 0 && std::binary_search(places.begin(), places.end(), symbol.st_name)) {
          found.push_back(to_symbol(index, symbol, name));
        }
        return found.size() < kMostSymbolsOfOneName;
      }));
  return found;
}

// The table says nowhere how long it is: DT_HASH does, or what comes next in the file ends it.
Result<std::uint64_t> dynamic_symbol_count(const View& view, const Table& room) {
  const std::uint64_t size = record_size<Elf64_Sym>(view.format());
  if (const auto hash = dynamic_value(*view.parsed, DT_HASH)) {
    CTX_TRY(table, loaded_table(view, *hash, "DT_HASH"));
    CTX_TRY(chains, word_at(view, table.offset + 4));
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

Result<std::optional<Symbols>> find_dynamic_symbols(const View& view) {
  const Parsed& parsed = *view.parsed;
  const auto table = dynamic_value(parsed, DT_SYMTAB);
  const auto strings = dynamic_value(parsed, DT_STRTAB);
  if (!table || !strings) return std::nullopt;
  const std::uint64_t size = record_size<Elf64_Sym>(parsed.format);
  if (dynamic_value(parsed, DT_SYMENT).value_or(size) != size) return wrong("DT_SYMENT is wrong");
  CTX_TRY(room, loaded_table(view, *table, "DT_SYMTAB"));
  CTX_TRY(names,
          sized_table(view, *strings, dynamic_value(parsed, DT_STRSZ).value_or(0), "DT_STRTAB"));
  CTX_TRY(count, dynamic_symbol_count(view, room));
  return Symbols{room.offset, count, names};
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

// Symbols of one name as they are met in a chain.
class Hits {
 public:
  Hits(const View& view, const Symbols& symbols, std::string_view name)
      : view_(view), symbols_(symbols), name_(name) {}
  Result<> add_if_named(std::uint64_t index) {
    CTX_TRY(symbol, symbol_at(view_, symbols_, index));
    CTX_TRY(same, string_is(view_, symbols_.strings, symbol.st_name, name_));
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
  CTX_TRY(table, loaded_table(view, address, "DT_GNU_HASH"));
  std::array<Elf64_Word, 4> header{};
  CTX_CHECK(read_records<Elf64_Word>(view.bytes, view.format(), table.offset, header));
  const auto [buckets, first_hashed, bloom_words, bloom_shift] = header;
  if (buckets == 0) return std::vector<ElfSymbol>();
  const std::uint64_t bloom_size = std::uint64_t{bloom_words} * (view.format().is_64 ? 8 : 4);
  const std::uint64_t bucket_table = table.offset + sizeof header + bloom_size;
  const std::uint64_t chains = bucket_table + std::uint64_t{buckets} * 4;
  const std::uint32_t hash = gnu_hash(name);
  CTX_TRY(first, word_at(view, bucket_table + std::uint64_t{hash % buckets} * 4));
  Hits hits(view, symbols, name);
  if (first == 0) return std::move(hits).take();
  if (first < first_hashed) return wrong("DT_GNU_HASH contradicts itself");
  for (std::uint64_t index = first; index - first < kMostHashSteps; ++index) {
    CTX_TRY(entry, word_at(view, chains + (index - first_hashed) * 4));
    if ((entry | 1U) == (hash | 1U)) CTX_CHECK(hits.add_if_named(index));
    if ((entry & 1U) != 0) return std::move(hits).take();
  }
  return wrong("a chain of DT_GNU_HASH has no end");
}

Result<std::vector<ElfSymbol>> look_up_sysv(const View& view, const Symbols& symbols,
                                            std::uint64_t address, std::string_view name) {
  CTX_TRY(table, loaded_table(view, address, "DT_HASH"));
  std::array<Elf64_Word, 2> header{};
  CTX_CHECK(read_records<Elf64_Word>(view.bytes, view.format(), table.offset, header));
  const auto [buckets, chains] = header;
  Hits hits(view, symbols, name);
  if (buckets == 0) return std::move(hits).take();
  const std::uint64_t bucket_table = table.offset + sizeof header;
  const std::uint64_t chain_table = bucket_table + std::uint64_t{buckets} * 4;
  CTX_TRY(index, word_at(view, bucket_table + std::uint64_t{sysv_hash(name) % buckets} * 4));
  for (std::uint64_t steps = 0; index != STN_UNDEF; ++steps) {
    if (index >= chains || steps >= std::min<std::uint64_t>(chains, kMostHashSteps)) {
      return wrong("a chain of DT_HASH has no end");
    }
    CTX_CHECK(hits.add_if_named(index));
    CTX_TRY(next, word_at(view, chain_table + std::uint64_t{index} * 4));
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

Result<std::vector<ElfSymbol>> dynamic_symbols_of(const View& view, std::string_view name) {
  CTX_TRY(symbols, find_dynamic_symbols(view));
  if (!symbols || name.empty() || name.size() > kMostNameBytes) return std::vector<ElfSymbol>();
  CTX_TRY(found, look_up(view, *symbols, name));
  if (!found.empty()) return std::move(found);
  return scan_symbols(view, *symbols, name);
}

Result<std::optional<Table>> section_table(const View& view, const Elf64_Shdr& section,
                                           const char* name) {
  if (section.sh_type == SHT_NOBITS) return std::nullopt;
  if (!view.bytes.contains(section.sh_offset, section.sh_size)) {
    return wrong(std::string(name) + " is behind the file's end");
  }
  if (section.sh_size > kMostSectionBytes) return fail("parse ELF file", E2BIG, name);
  return Table{section.sh_offset, section.sh_size};
}

Result<std::optional<Elf64_Shdr>> find_section(const View& view,
                                               const std::function<bool(const Elf64_Shdr&)>& is) {
  const Parsed& parsed = *view.parsed;
  std::optional<Elf64_Shdr> found;
  if (parsed.section_count == 0) return found;
  if (parsed.header.e_shentsize != record_size<Elf64_Shdr>(parsed.format)) {
    return wrong("section headers of " + std::to_string(parsed.header.e_shentsize) + " bytes");
  }
  if (!view.bytes.contains(parsed.header.e_shoff,
                           parsed.section_count * record_size<Elf64_Shdr>(parsed.format))) {
    return wrong("the section headers are behind the file's end");
  }
  CTX_CHECK(walk_records<Elf64_Shdr>(view.bytes, parsed.format, parsed.header.e_shoff,
                                     std::min(parsed.section_count, kMostSections),
                                     [&](std::uint64_t, const Elf64_Shdr& section) {
                                       if (is(section)) found = section;
                                       return !found;
                                     }));
  return found;
}

Result<std::vector<ElfSymbol>> static_symbols_of(const View& view, std::string_view name) {
  CTX_TRY(section, find_section(view, [](const Elf64_Shdr& s) { return s.sh_type == SHT_SYMTAB; }));
  if (!section || name.empty() || name.size() > kMostNameBytes) return std::vector<ElfSymbol>();
  if (section->sh_link >= view.parsed->section_count) return wrong(".symtab has no strings");
  CTX_TRY(strings_section, section_at(view, section->sh_link));
  CTX_TRY(table, section_table(view, *section, ".symtab"));
  CTX_TRY(strings, section_table(view, strings_section, ".strtab"));
  if (!table || !strings) return std::vector<ElfSymbol>();
  return scan_symbols(
      view, {table->offset, table->size / record_size<Elf64_Sym>(view.format()), *strings}, name);
}

// What a symbol makes of a relocation.
struct Meaning {
  enum { kOurs, kLocal, kOther } what = kOther;
  std::uint64_t value = 0;  // of a local one, to be added
};

Result<Meaning> meaning_of(const View& view, const Symbols& symbols, std::uint32_t index,
                           std::string_view name) {
  CTX_TRY(symbol, symbol_at(view, symbols, index));
  if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) {  // gold: .tdata, _TLS_MODULE_BASE_
    const bool tls = ELF64_ST_TYPE(symbol.st_info) == STT_TLS;
    return Meaning{Meaning::kLocal, tls ? symbol.st_value : 0};
  }
  CTX_TRY(same, string_is(view, symbols.strings, symbol.st_name, name));
  return Meaning{same ? Meaning::kOurs : Meaning::kOther, 0};
}

Result<std::vector<TlsRelocation>> relocations_of(const View& view, std::string_view name) {
  const auto& all = *view.parsed->relocations;
  CTX_TRY(symbols, find_dynamic_symbols(view));
  std::vector<TlsRelocation> found;
  std::unordered_map<std::uint32_t, Meaning> known;  // by symbol
  for (TlsRelocation relocation : all) {
    if (relocation.symbol != 0) {
      if (!symbols) continue;
      auto meaning = known.find(relocation.symbol);
      if (meaning == known.end()) {
        CTX_TRY(read, meaning_of(view, *symbols, relocation.symbol, name));
        meaning = known.emplace(relocation.symbol, read).first;
      }
      if (meaning->second.what == Meaning::kOther) continue;
      if (meaning->second.what == Meaning::kLocal) {
        relocation.symbol = 0;
        relocation.addend = static_cast<std::int64_t>(
            static_cast<std::uint64_t>(relocation.addend) + meaning->second.value);
      }
    }
    found.push_back(relocation);
  }
  return found;
}

Result<std::string> string_at(const View& view, const Table& strings, std::uint64_t at) {
  if (at >= strings.size) return wrong("a name is not in the string table");
  std::string text(std::min<std::uint64_t>(kMostNameBytes, strings.size - at), '\0');
  CTX_CHECK(view.bytes.read(strings.offset + at, std::as_writable_bytes(std::span(text))));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

Result<std::string> soname_of(const View& view) {
  const auto at = dynamic_value(*view.parsed, DT_SONAME);
  const auto strings = dynamic_value(*view.parsed, DT_STRTAB);
  if (!at || !strings) return std::string();
  CTX_TRY(names, sized_table(view, *strings, dynamic_value(*view.parsed, DT_STRSZ).value_or(0),
                             "DT_STRTAB"));
  return string_at(view, names, *at);
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4U];
    out += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

// Notes are {name size, description size, type} with both padded to 4 bytes, also in 64-bit
// files; only a segment aligned to 8 pads to that.
Result<std::string> build_id_in(const View& view, const ElfSegment& notes) {
  std::uint64_t at = notes.offset;
  const std::uint64_t padding = notes.alignment == 8 ? 8 : 4;
  const std::uint64_t size = std::min(notes.file_size, kMostNoteBytes);
  if (!view.bytes.contains(at, size)) return wrong("a note is behind the file's end");
  const std::uint64_t end = at + size;
  const auto padded = [&](std::uint64_t n) { return (n + padding - 1) / padding * padding; };
  while (end - at >= sizeof(Elf64_Nhdr)) {
    std::array<Elf64_Word, 3> header{};
    CTX_CHECK(read_records<Elf64_Word>(view.bytes, view.format(), at, header));
    const auto [name_size, id_size, type] = header;
    const std::uint64_t id_at = padded(sizeof header + name_size);
    const std::uint64_t next = id_at + padded(id_size);
    if (next > end - at) break;
    if (type == NT_GNU_BUILD_ID && name_size == sizeof ELF_NOTE_GNU && id_size <= 64) {
      std::string name(name_size, '\0');
      std::string id(id_size, '\0');
      CTX_CHECK(view.bytes.read(at + sizeof header, std::as_writable_bytes(std::span(name))));
      CTX_CHECK(view.bytes.read(at + id_at, std::as_writable_bytes(std::span(id))));
      if (name == std::string_view(ELF_NOTE_GNU, sizeof ELF_NOTE_GNU)) return to_hex(id);
    }
    at += next;
  }
  return std::string();
}

std::string build_id_of(const View& view) {
  std::size_t tried = 0;
  for (const ElfSegment& segment : view.parsed->segments) {
    if (segment.type != PT_NOTE || ++tried > kMostNoteSegments) continue;
    if (auto id = build_id_in(view, segment); id && !id->empty()) return *id;
  }
  return {};
}

Result<bool> has_go_section(const View& view) {
  if (view.parsed->section_names >= view.parsed->section_count) return false;
  CTX_TRY(names_section, section_at(view, view.parsed->section_names));
  CTX_TRY(names, section_table(view, names_section, ".shstrtab"));
  if (!names) return false;
  CTX_TRY(section, find_section(view, [&](const Elf64_Shdr& s) {
            return string_is(view, *names, s.sh_name, ".go.buildinfo").value_or(false);
          }));
  return section.has_value();
}

// Go aligns its build information to 16 bytes in the data segment.
Result<bool> has_go_magic(const View& view) {
  bool found = false;
  std::size_t tried = 0;
  for (const ElfSegment& segment : view.parsed->segments) {
    if (segment.type != PT_LOAD || (segment.flags & PF_W) == 0) continue;
    if (++tried > kMostGoSegments) break;
    const std::uint64_t size = std::min(segment.file_size, kMostGoBytes);
    if (!view.bytes.contains(segment.offset, size)) continue;
    CTX_CHECK(walk_bytes(view, {segment.offset, size}, kGoMagic.size() - 1,
                         [&](std::uint64_t at, std::string_view piece) {
                           std::size_t i = 0;
                           while (!found && (i = piece.find(kGoMagic, i)) != piece.npos) {
                             found = (segment.address + at + i++) % 16 == 0;
                           }
                           return !found;
                         }));
    if (found) break;
  }
  return found;
}

}  // namespace

struct ElfImage::State {
  std::string name;
  std::string path;  // empty: from memory
  std::span<const std::byte> memory;
  FileIdentity identity;
  std::shared_ptr<const Parsed> parsed;
  std::shared_ptr<ElfBudget> budget;

  Result<View> view() const {
    if (path.empty()) return on_budget(ElfBytes(memory));
    CTX_TRY(bytes, ElfBytes::open(path, identity));
    return on_budget(std::move(bytes));
  }
  View on_budget(ElfBytes bytes) const {
    bytes.set_budget(budget);
    return View{std::move(bytes), parsed};
  }
};

ElfImage::ElfImage(std::unique_ptr<State> state) : state_(std::move(state)) {}
ElfImage::ElfImage(ElfImage&&) noexcept = default;
ElfImage& ElfImage::operator=(ElfImage&&) noexcept = default;
ElfImage::~ElfImage() = default;

Result<ElfImage> ElfImage::open(const std::string& path, std::string name,
                                std::shared_ptr<ElfBudget> budget,
                                const std::optional<FileIdentity>& expected) {
  if (path.empty()) return fail("open ELF file", ENOENT, "no name");
  CTX_TRY(bytes, ElfBytes::open(path, expected));
  const FileIdentity identity = bytes.identity();
  bytes.set_budget(budget);
  View view{std::move(bytes), nullptr};
  CTX_TRY(parsed, parse(view));
  if (name.empty()) name = path;
  return ElfImage(std::make_unique<State>(
      State{std::move(name), path, {}, identity, parsed, std::move(budget)}));
}

Result<ElfImage> ElfImage::from_memory(std::span<const std::byte> memory, std::string name,
                                       std::shared_ptr<ElfBudget> budget) {
  ElfBytes bytes(memory);
  bytes.set_budget(budget);
  View view{std::move(bytes), nullptr};
  CTX_TRY(parsed, parse(view));
  return ElfImage(
      std::make_unique<State>(State{std::move(name), "", memory, {}, parsed, std::move(budget)}));
}

ElfImage ElfImage::reached_by(std::string path, std::shared_ptr<ElfBudget> budget) const {
  auto state = std::make_unique<State>(*state_);
  if (!state->path.empty()) state->path = std::move(path);
  state->budget = std::move(budget);
  return ElfImage(std::move(state));
}

const std::string& ElfImage::name() const { return state_->name; }
const FileIdentity& ElfImage::identity() const { return state_->identity; }
bool ElfImage::is_64() const { return state_->parsed->format.is_64; }
bool ElfImage::little_endian() const { return state_->parsed->format.little_endian; }
std::uint16_t ElfImage::machine() const { return state_->parsed->header.e_machine; }
std::uint16_t ElfImage::type() const { return state_->parsed->header.e_type; }

bool ElfImage::is_executable() const {
  const bool pie = (dynamic_value(*state_->parsed, DT_FLAGS_1).value_or(0) & DF_1_PIE) != 0;
  // A library may have an interpreter as well, so that it can be run: libc.so.6 prints its version.
  const bool runs = has_interpreter() && !dynamic_value(*state_->parsed, DT_SONAME);
  return type() == ET_EXEC || (type() == ET_DYN && (pie || runs));
}

bool ElfImage::has_dynamic_section() const {
  return last_segment(*state_->parsed, PT_DYNAMIC) != nullptr;
}

bool ElfImage::has_interpreter() const {
  return last_segment(*state_->parsed, PT_INTERP) != nullptr;
}

bool ElfImage::is_symbolic() const {
  return dynamic_value(*state_->parsed, DT_SYMBOLIC).has_value() ||
         (dynamic_value(*state_->parsed, DT_FLAGS).value_or(0) & DF_SYMBOLIC) != 0;
}

bool ElfImage::has_section_headers() const { return state_->parsed->section_count != 0; }

bool ElfImage::is_go() const {
  const auto view = state_->view();
  return view && (has_go_section(*view).value_or(false) || has_go_magic(*view).value_or(false));
}

std::string ElfImage::soname() const {
  const auto view = state_->view();
  return view ? soname_of(*view).value_or("") : "";
}

std::string ElfImage::build_id() const {
  const auto view = state_->view();
  return view ? build_id_of(*view) : "";
}

const std::vector<ElfSegment>& ElfImage::segments() const { return state_->parsed->segments; }

std::optional<ElfSegment> ElfImage::tls_segment() const {
  const ElfSegment* segment = last_segment(*state_->parsed, PT_TLS);
  if (segment == nullptr || segment->memory_size == 0) return std::nullopt;
  return *segment;
}

Result<std::vector<ElfSymbol>> ElfImage::dynamic_symbols(std::string_view name) const {
  if (!has_dynamic_section()) return std::vector<ElfSymbol>();
  if (state_->parsed->dynamic.empty() && !state_->parsed->relocations) {
    return std::unexpected(state_->parsed->relocations.error());
  }
  CTX_TRY(view, state_->view());
  return dynamic_symbols_of(view, name);
}

Result<std::vector<ElfSymbol>> ElfImage::static_symbols(std::string_view name) const {
  if (!has_section_headers()) return std::vector<ElfSymbol>();
  CTX_TRY(view, state_->view());
  return static_symbols_of(view, name);
}

Result<std::vector<TlsRelocation>> ElfImage::tls_relocations(std::string_view name) const {
  const auto& all = state_->parsed->relocations;
  const auto is_named = [](const TlsRelocation& r) { return r.symbol != 0; };
  ElfBudget* budget = state_->budget.get();
  if (all && budget != nullptr && !budget->take_relocations(all->size())) return used_up(*budget);
  if (!all || std::none_of(all->begin(), all->end(), is_named)) return all;
  CTX_TRY(view, state_->view());
  return relocations_of(view, name);
}

std::size_t ElfImage::kept_relocations() const {
  const auto& all = state_->parsed->relocations;
  return all ? all->size() : 0;
}

std::size_t ElfImage::read_at(std::uint64_t address, std::span<std::byte> out) const {
  const auto view = state_->view();
  return view ? read_loaded(view->bytes, *state_->parsed, address, out) : 0;
}

std::string_view to_string(TlsRelocationKind kind) {
  switch (kind) {
    case TlsRelocationKind::kTlsdesc:
      return "TLSDESC";
    case TlsRelocationKind::kModule:
      return "DTPMOD64";
    case TlsRelocationKind::kOffset:
      return "DTPOFF64";
    case TlsRelocationKind::kThreadPointerOffset:
      return "TPOFF64";
  }
  return "?";
}

}  // namespace ctxconf::sys
