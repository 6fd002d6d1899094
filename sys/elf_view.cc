#include "sys/elf_view.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

namespace ctxconf::sys::elf {
namespace {

constexpr std::uint64_t kMostProgramHeaders = 1024;
constexpr std::uint64_t kMostDynamicEntries = 65536;
constexpr std::uint64_t kMostSectionBytes = 1ULL << 30U;  // a .symtab can have long strings
constexpr std::uint64_t kMostSections = 1U << 20U;

// If segments overlap, the last one wins, as in the loader.
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

Result<ElfFormat> format_of(const ElfBytes& bytes) {
  std::array<unsigned char, EI_NIDENT> ident{};
  if (!bytes.contains(0, sizeof ident)) return wrong("not an ELF file: too short");
  CTX_RETURN_IF_ERROR(bytes.read(0, std::as_writable_bytes(std::span(ident))));
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0) return wrong("not an ELF file");
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

// With more than 65279 sections or 65534 program headers, the first section header has the count.
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
  CTX_ASSIGN_OR_RETURN(count, count_headers(view, parsed));
  if (count == 0) return {};
  if (count > kMostProgramHeaders) return wrong(std::to_string(count) + " program headers");
  if (parsed.header.e_phentsize != record_size<Elf64_Phdr>(parsed.format)) {
    return wrong("program headers of " + std::to_string(parsed.header.e_phentsize) + " bytes");
  }
  if (!view.bytes.contains(parsed.header.e_phoff, count * record_size<Elf64_Phdr>(parsed.format))) {
    return wrong("the program headers are beyond the end of the file");
  }
  Result<> good;
  CTX_RETURN_IF_ERROR(walk_records<Elf64_Phdr>(view.bytes, parsed.format, parsed.header.e_phoff,
                                               count, [&](std::uint64_t, const Elf64_Phdr& p) {
                                                 const ElfSegment segment{
                                                     p.p_type,   p.p_flags, p.p_offset, p.p_vaddr,
                                                     p.p_filesz, p.p_memsz, p.p_align};
                                                 if (good = check_segment(segment); good)
                                                   parsed.segments.push_back(segment);
                                                 return good.has_value();
                                               }));
  parsed.loaded = boundaries_of(parsed.segments);
  return good;
}

}  // namespace

std::unexpected<Error> wrong(std::string what) {
  return fail("parse ELF file", ENOEXEC, std::move(what));
}

Result<> parse_headers(const View& view, Parsed& parsed) {
  CTX_ASSIGN_OR_RETURN(format, format_of(view.bytes));
  parsed.format = format;
  CTX_RETURN_IF_ERROR(
      read_records<Elf64_Ehdr>(view.bytes, format, 0, std::span(&parsed.header, 1)));
  return parse_segments(view, parsed);
}

Result<> parse_dynamic(const View& view, Parsed& parsed) {
  const ElfSegment* segment = last_segment(parsed, PT_DYNAMIC);
  if (segment == nullptr) return {};
  CTX_ASSIGN_OR_RETURN(table, loaded_table(view, segment->address, "the dynamic section"));
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

const ElfSegment* last_segment(const Parsed& parsed, std::uint32_t type) {
  const auto found = std::find_if(parsed.segments.rbegin(), parsed.segments.rend(),
                                  [&](const ElfSegment& s) { return s.type == type; });
  return found == parsed.segments.rend() ? nullptr : &*found;
}

std::optional<std::uint64_t> dynamic_value(const Parsed& parsed, std::int64_t tag) {
  const auto found = parsed.dynamic.find(tag);
  if (found == parsed.dynamic.end()) return std::nullopt;
  return found->second;
}

namespace {

// The bytes from there on that belong to one segment.
std::size_t read_part(const ElfBytes& bytes, const Parsed& parsed, std::uint64_t address,
                      std::span<std::byte> out) {
  const auto next = std::ranges::upper_bound(parsed.loaded, address, {}, &Boundary::address);
  if (next == parsed.loaded.begin() || !std::prev(next)->segment) return 0;
  const ElfSegment& segment = parsed.segments[*std::prev(next)->segment];
  const std::uint64_t skip = address - segment.address;
  std::uint64_t most = segment.memory_size - skip;
  if (next != parsed.loaded.end()) most = std::min(most, next->address - address);
  out = out.first(std::min<std::uint64_t>(out.size(), most));
  const auto from_file =
      skip < segment.file_size
          ? static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), segment.file_size - skip))
          : 0;
  if (from_file != 0 && !bytes.read(segment.offset + skip, out.first(from_file))) return 0;
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(from_file), out.end(), std::byte{0});
  return out.size();
}

}  // namespace

std::size_t read_loaded(const ElfBytes& bytes, const Parsed& parsed, std::uint64_t address,
                        std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size() && address + done >= address) {
    const std::size_t part = read_part(bytes, parsed, address + done, out.subspan(done));
    if (part == 0) break;
    done += part;
  }
  return done;
}

Result<Table> loaded_table(const View& view, std::uint64_t address, const char* name) {
  const ElfSegment* segment = loaded_at(*view.parsed, address);
  const std::uint64_t skip = segment == nullptr ? 0 : address - segment->address;
  if (segment == nullptr || skip >= segment->file_size) {
    return wrong(std::string(name) + " is not in a segment of the file");
  }
  const std::uint64_t offset = segment->offset + skip;
  if (!view.bytes.contains(offset, 1))
    return wrong(std::string(name) + " is beyond the end of the file");
  return Table{offset, std::min(segment->file_size - skip, view.bytes.size() - offset)};
}

Result<Table> sized_table(const View& view, std::uint64_t address, std::uint64_t size,
                          const char* name) {
  CTX_ASSIGN_OR_RETURN(table, loaded_table(view, address, name));
  if (size > table.size) return wrong(std::string(name) + " is longer than the file");
  if (size > kMostTableBytes) return fail("parse ELF file", E2BIG, name);
  return Table{table.offset, size};
}

Result<Elf64_Shdr> section_at(const View& view, std::uint64_t index) {
  const std::uint64_t size = record_size<Elf64_Shdr>(view.format());
  // The count is below 2^32 wherever it is stored, so this product cannot overflow.
  const std::uint64_t skip = index * size;
  const std::uint64_t table = view.parsed->header.e_shoff;
  if (table > view.bytes.size() || skip > view.bytes.size() - table) {
    return wrong("the section headers are beyond the end of the file");
  }
  Elf64_Shdr section{};
  CTX_RETURN_IF_ERROR(
      read_records<Elf64_Shdr>(view.bytes, view.format(), table + skip, std::span(&section, 1)));
  return section;
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
    return wrong("the section headers are beyond the end of the file");
  }
  CTX_RETURN_IF_ERROR(walk_records<Elf64_Shdr>(view.bytes, parsed.format, parsed.header.e_shoff,
                                               std::min(parsed.section_count, kMostSections),
                                               [&](std::uint64_t, const Elf64_Shdr& section) {
                                                 if (is(section)) found = section;
                                                 return !found;
                                               }));
  return found;
}

Result<std::optional<Table>> section_table(const View& view, const Elf64_Shdr& section,
                                           const char* name) {
  if (section.sh_type == SHT_NOBITS) return std::nullopt;
  if (!view.bytes.contains(section.sh_offset, section.sh_size)) {
    return wrong(std::string(name) + " is beyond the end of the file");
  }
  if (section.sh_size > kMostSectionBytes) return fail("parse ELF file", E2BIG, name);
  return Table{section.sh_offset, section.sh_size};
}

Result<Elf64_Word> word_at(const View& view, std::uint64_t offset) {
  Elf64_Word word = 0;
  CTX_RETURN_IF_ERROR(
      read_records<Elf64_Word>(view.bytes, view.format(), offset, std::span(&word, 1)));
  return word;
}

Result<bool> string_is(const View& view, const Table& strings, std::uint64_t at,
                       std::string_view name) {
  if (at >= strings.size) return wrong("a name is not in the string table");
  if (name.size() >= strings.size - at) return false;
  std::string text(name.size() + 1, '\0');
  CTX_RETURN_IF_ERROR(
      view.bytes.read(strings.offset + at, std::as_writable_bytes(std::span(text))));
  return text.back() == '\0' && text.starts_with(name);
}

Result<std::string> string_at(const View& view, const Table& strings, std::uint64_t at) {
  if (at >= strings.size) return wrong("a name is not in the string table");
  std::string text(std::min<std::uint64_t>(kMostNameBytes, strings.size - at), '\0');
  CTX_RETURN_IF_ERROR(
      view.bytes.read(strings.offset + at, std::as_writable_bytes(std::span(text))));
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

Result<> walk_bytes(const View& view, const Table& table, std::size_t overlap,
                    const std::function<bool(std::uint64_t, std::string_view)>& visit) {
  constexpr std::size_t kPiece = 64U << 10U;
  std::string piece;
  for (std::uint64_t at = 0; at < table.size; at += kPiece) {
    piece.resize(std::min<std::uint64_t>(kPiece + overlap, table.size - at));
    CTX_RETURN_IF_ERROR(
        view.bytes.read(table.offset + at, std::as_writable_bytes(std::span(piece))));
    if (!visit(at, piece)) return {};
  }
  return {};
}

}  // namespace ctxconf::sys::elf
