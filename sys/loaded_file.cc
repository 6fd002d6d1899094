#include "sys/loaded_file.h"

#include <elf.h>
#include <unistd.h>

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

// Those to which glibc adds the load bias, elf_get_dynamic_info().
constexpr std::array<std::int64_t, 11> kAddresses = {DT_HASH,   DT_PLTGOT, DT_STRTAB,  DT_SYMTAB,
                                                     DT_RELA,   DT_REL,    DT_JMPREL,  DT_RELR,
                                                     DT_VERSYM, DT_VERDEF, DT_GNU_HASH};

template <class T>
std::optional<T> record_at(std::span<const std::byte> bytes, std::uint64_t at) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return std::nullopt;
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

Elf64_Ehdr* header_of(std::vector<std::byte>& bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return nullptr;
  auto* const header = reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  constexpr auto kData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  const bool ours = std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                    header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == kData;
  return ours ? header : nullptr;
}

void restore_dynamic(std::span<std::byte> bytes, const Elf64_Phdr& segment, std::uint64_t bias) {
  if (segment.p_offset > bytes.size()) return;
  const std::uint64_t size = std::min(segment.p_filesz, bytes.size() - segment.p_offset);
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= size; at += sizeof(Elf64_Dyn)) {
    std::byte* const place = bytes.data() + segment.p_offset + at;
    Elf64_Dyn entry;
    std::memcpy(&entry, place, sizeof entry);
    if (entry.d_tag == DT_NULL) return;
    const bool is_address = std::ranges::find(kAddresses, entry.d_tag) != kAddresses.end();
    if (!is_address || entry.d_un.d_ptr < bias) continue;
    entry.d_un.d_ptr -= bias;
    std::memcpy(place, &entry, sizeof entry);
  }
}

}  // namespace

Result<std::vector<std::byte>> loaded_file(const MemoryReader& memory,
                                           std::span<const MapEntry> mappings, std::size_t limit) {
  std::vector<std::byte> out;
  for (const MapEntry& m : mappings) {
    // The file may be loaded more than once.
    if (&m != mappings.data() && m.offset == 0) break;
    if (!m.readable) continue;
    const std::uint64_t size = m.range.size();
    if (m.offset > limit || size > limit - m.offset) {
      return fail("read ELF file", E2BIG,
                  "more is loaded than " + std::to_string(limit) + " bytes");
    }
    out.resize(std::max<std::uint64_t>(out.size(), m.offset + size));
    CTX_RETURN_IF_ERROR(memory.read_some(m.range.begin(), std::span(out).subspan(m.offset, size)));
    if (&m == mappings.data() && (m.offset != 0 || header_of(out) == nullptr)) break;
  }
  Elf64_Ehdr* const header = header_of(out);
  if (header == nullptr || mappings.empty() || mappings.front().offset != 0) {
    return fail("read ELF file", ENOEXEC, "its beginning is not loaded");
  }
  header->e_shoff = 0;
  header->e_shnum = 0;
  header->e_shstrndx = SHN_UNDEF;
  const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::uint64_t bias = 0;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const auto segment = record_at<Elf64_Phdr>(out, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    // The first PT_LOAD has the lowest address, and comes before PT_DYNAMIC or is found again.
    if (segment->p_type == PT_LOAD && segment->p_offset / page_size == 0) {
      bias = mappings.front().range.begin().raw() - segment->p_vaddr / page_size * page_size;
      break;
    }
  }
  for (unsigned i = 0; bias != 0 && i < header->e_phnum; ++i) {
    const auto segment = record_at<Elf64_Phdr>(out, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) break;
    if (segment->p_type == PT_DYNAMIC) restore_dynamic(out, *segment, bias);
  }
  return out;
}

}  // namespace ctxconf::sys
