#include "sys/loaded_file.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace ctxconf::sys {
namespace {

constexpr std::size_t kMostProgramHeaders = 64;
constexpr std::size_t kMostDynamicEntries = 1024;

// Those to which glibc adds the load bias.
constexpr std::array<std::int64_t, 9> kAddresses = {
    DT_HASH, DT_PLTGOT, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_REL, DT_JMPREL, DT_VERSYM, DT_GNU_HASH};

// The beginning of a file in memory.
struct LoadedHeader {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::uint64_t bias = 0;
};

bool is_ours(const Elf64_Ehdr& header) {
  constexpr auto kData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == kData &&
         header.e_phentsize == sizeof(Elf64_Phdr) && header.e_phnum <= kMostProgramHeaders;
}

// Whether a segment with code is where the bias says.
bool is_run(const LoadedHeader& file, std::span<const MapEntry> mappings) {
  return std::ranges::any_of(file.segments, [&](const Elf64_Phdr& s) {
    if (s.p_type != PT_LOAD || (s.p_flags & PF_X) == 0) return false;
    const RemoteAddr begin(file.bias + page_of(s.p_vaddr));
    return std::ranges::any_of(mappings, [&](const MapEntry& m) {
      return m.executable && m.range.contains(begin) && m.offset <= page_of(s.p_offset);
    });
  });
}

std::optional<LoadedHeader> loaded_at(const MemoryReader& memory, const MapEntry& mapping,
                                      ElfBudget& budget) {
  LoadedHeader out;
  const std::uint64_t begin = mapping.range.begin().raw();
  if (!budget.take_bytes(sizeof out.header)) return std::nullopt;
  const auto header = std::as_writable_bytes(std::span(&out.header, 1));
  if (!memory.read_exact(mapping.range.begin(), header) || !is_ours(out.header)) {
    return std::nullopt;
  }
  out.segments.resize(out.header.e_phnum);
  const auto table = std::as_writable_bytes(std::span(out.segments));
  if (out.header.e_phoff > mapping.range.size() || !budget.take_bytes(table.size()) ||
      !memory.read_exact(RemoteAddr(begin + out.header.e_phoff), table)) {
    return std::nullopt;
  }
  const auto first = std::ranges::find_if(out.segments, [](const Elf64_Phdr& s) {
    return s.p_type == PT_LOAD && page_of(s.p_offset) == 0;
  });
  if (first == out.segments.end()) return std::nullopt;
  out.bias = begin - page_of(first->p_vaddr);
  return out;
}

void restore_dynamic(std::span<std::byte> bytes, const Elf64_Phdr& segment, std::uint64_t bias) {
  if (segment.p_offset > bytes.size()) return;
  const std::uint64_t size = std::min(segment.p_filesz, bytes.size() - segment.p_offset);
  const std::uint64_t count = std::min(size / sizeof(Elf64_Dyn), kMostDynamicEntries);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::byte* const place = bytes.data() + segment.p_offset + i * sizeof(Elf64_Dyn);
    Elf64_Dyn entry;
    std::memcpy(&entry, place, sizeof entry);
    if (entry.d_tag == DT_NULL) return;
    const bool is_address = std::ranges::find(kAddresses, entry.d_tag) != kAddresses.end();
    if (!is_address || entry.d_un.d_ptr < bias) continue;
    entry.d_un.d_ptr -= bias;
    std::memcpy(place, &entry, sizeof entry);
  }
}

// The end of what the segments have of the file; nothing: more than `limit`.
std::optional<std::uint64_t> file_end(const LoadedHeader& file, std::uint64_t limit) {
  std::uint64_t end = sizeof file.header;
  for (const Elf64_Phdr& s : file.segments) {
    if (s.p_type != PT_LOAD) continue;
    if (s.p_offset > limit || s.p_filesz > limit - s.p_offset) return std::nullopt;
    end = std::max(end, s.p_offset + s.p_filesz);
  }
  return end <= limit ? std::optional(end) : std::nullopt;
}

}  // namespace

Result<std::vector<std::byte>> loaded_file(const MemoryReader& memory,
                                           std::span<const MapEntry> mappings, std::size_t limit,
                                           ElfBudget& budget) {
  std::optional<LoadedHeader> file;
  for (const MapEntry& m : mappings) {
    if (m.offset != 0 || !m.readable) continue;
    file = loaded_at(memory, m, budget);
    if (file && is_run(*file, mappings)) break;
    file.reset();
  }
  if (!file) return fail("read ELF file", ENOEXEC, "it is not loaded to be run");
  const auto end = file_end(*file, limit);
  if (!end) {
    return fail("read ELF file", E2BIG, "more is loaded than " + std::to_string(limit) + " bytes");
  }
  std::vector<std::byte> out(*end);
  for (const Elf64_Phdr& s : file->segments) {
    if (s.p_type != PT_LOAD) continue;
    if (!budget.take_bytes(s.p_filesz)) return fail("read ELF file", E2BIG, "");
    CTX_RETURN_IF_ERROR(memory.read_some(RemoteAddr(file->bias + s.p_vaddr),
                                         std::span(out).subspan(s.p_offset, s.p_filesz)));
  }
  const auto dynamic =
      std::ranges::find(file->segments, Elf64_Word{PT_DYNAMIC}, &Elf64_Phdr::p_type);
  if (dynamic != file->segments.end() && file->bias != 0) {
    restore_dynamic(out, *dynamic, file->bias);
  }
  file->header.e_shoff = 0;
  file->header.e_shnum = 0;
  file->header.e_shstrndx = SHN_UNDEF;
  std::memcpy(out.data(), &file->header, sizeof file->header);
  return out;
}

}  // namespace ctxconf::sys
