// One open ELF file as ElfImage sees it: where its headers say that tables are, and how much of
// them the file has. Errors: ENOEXEC with the reason, and E2BIG. Addresses are link-time; offsets
// are in the file. System V ABI, "Object Files" and "Program Loading".
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_bytes.h"
#include "sys/elf_image.h"
#include "sys/result.h"

namespace ctxconf::sys::elf {

// Limit for one table; a sparse file has any size.
inline constexpr std::uint64_t kMostTableBytes = 64ULL << 20U;
inline constexpr std::size_t kMostNameBytes = 4096;

// `segment` is the index of the segment that is mapped from `address` up to the next boundary.
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
  std::vector<Boundary> loaded;  // ascending
  std::map<std::int64_t, std::uint64_t>
      dynamic;  // a repeated tag: the last one counts, as in the loader
  // Some have a symbol, others do not; without relocations the file has no information about TLS.
  Result<std::vector<TlsRelocation>> relocations;
};

// One open file and what is known about it.
struct View {
  ElfBytes bytes;
  std::shared_ptr<const Parsed> parsed;

  ElfFormat format() const { return parsed->format; }
};

struct Table {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size = 0;    // bytes
};

std::unexpected<Error> wrong(std::string what);

// Fills `parsed`, which belongs to the view, up to the segments.
Result<> parse_headers(const View& view, Parsed& parsed);
// Then reads the dynamic section.
Result<> parse_dynamic(const View& view, Parsed& parsed);

const ElfSegment* last_segment(const Parsed& parsed, std::uint32_t type);
std::optional<std::uint64_t> dynamic_value(const Parsed& parsed, std::int64_t tag);

// See ElfImage::read_at.
std::size_t read_loaded(const ElfBytes& bytes, const Parsed& parsed, std::uint64_t address,
                        std::span<std::byte> out);
// How many bytes the file has from a link-time address to the end of its segment. `name` is for
// errors.
Result<Table> loaded_table(const View& view, std::uint64_t address, const char* name);
// The same if the size is known.
Result<Table> sized_table(const View& view, std::uint64_t address, std::uint64_t size,
                          const char* name);

Result<Elf64_Shdr> section_at(const View& view, std::uint64_t index);
Result<std::optional<Elf64_Shdr>> find_section(const View& view,
                                               const std::function<bool(const Elf64_Shdr&)>& is);
// Nothing if the section has no bytes in the file.
Result<std::optional<Table>> section_table(const View& view, const Elf64_Shdr& section,
                                           const char* name);

Result<Elf64_Word> word_at(const View& view, std::uint64_t offset);
// Whether `name` with its terminator is there.
Result<bool> string_is(const View& view, const Table& strings, std::uint64_t at,
                       std::string_view name);
// Reads at most kMostNameBytes of it.
Result<std::string> string_at(const View& view, const Table& strings, std::uint64_t at);
// Calls `visit` with each piece of a table and its offset; pieces overlap by `overlap`.
Result<> walk_bytes(const View& view, const Table& table, std::size_t overlap,
                    const std::function<bool(std::uint64_t, std::string_view)>& visit);

}  // namespace ctxconf::sys::elf
