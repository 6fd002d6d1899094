// Puts together the ELF file that a process has loaded, from its memory. Input: mapped_input.h; the
// file is what the mappings hold.
#include <elf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/mapped_input.h"
#include "sys/elf_budget.h"
#include "sys/loaded_file.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"

namespace {

using namespace ctxconf;
using fuzz::page_start;
using sys::MapEntry;
using sys::RemoteAddr;

constexpr std::size_t kLimit = std::size_t{1} << 14U;
constexpr std::uint64_t kHeaderBytes = 64;

// The memory, byte by byte.
class Bytes {
 public:
  explicit Bytes(const sys::MemoryReader& memory) : memory_(memory) {}
  std::optional<std::byte> at(std::uint64_t address) const {
    std::array<std::byte, 1> byte{};
    const auto read = memory_.read_some(RemoteAddr(address), byte);
    return read.value_or(0) == 1 ? std::optional(byte[0]) : std::nullopt;
  }
  std::optional<std::uint64_t> number(std::uint64_t address, unsigned width) const {
    std::uint64_t out = 0;
    for (unsigned i = 0; i < width; ++i) {
      const auto byte = at(address + i);
      if (!byte) return std::nullopt;
      out |= std::to_integer<std::uint64_t>(*byte) << (8 * i);
    }
    return out;
  }

 private:
  const sys::MemoryReader& memory_;
};

struct SlowSegment {
  std::uint64_t type = 0, flags = 0, offset = 0, address = 0, file_size = 0;
};
struct SlowFile {
  std::uint64_t start = 0;  // of its header in memory
  std::uint64_t bias = 0;
  std::vector<SlowSegment> segments;
};

bool runs(const SlowFile& file, std::span<const MapEntry> mappings) {
  return std::ranges::any_of(file.segments, [&](const SlowSegment& s) {
    const std::uint64_t place = file.bias + page_start(s.address);
    return s.type == PT_LOAD && (s.flags & PF_X) != 0 &&
           std::ranges::any_of(mappings, [&](const MapEntry& m) {
             return m.executable && place >= m.range.begin().raw() && place < m.range.end().raw() &&
                    m.offset <= page_start(s.offset);
           });
  });
}

// The tables of the System V ABI, 64 bits and little endian.
std::optional<SlowFile> slow_file(const Bytes& bytes, const MapEntry& m) {
  SlowFile out;
  out.start = m.range.begin().raw();
  constexpr std::string_view kIdent(
      "\x7f"
      "ELF\x02\x01",
      6);
  for (std::uint64_t i = 0; i < kHeaderBytes; ++i) {
    const auto byte = bytes.at(out.start + i);
    if (!byte) return std::nullopt;
    if (i < kIdent.size() && *byte != static_cast<std::byte>(kIdent[i])) return std::nullopt;
  }
  const std::uint64_t table = bytes.number(out.start + 32, 8).value_or(0);
  const std::uint64_t count = bytes.number(out.start + 56, 2).value_or(0);
  if (bytes.number(out.start + 54, 2) != 56 || count > 64 || table > m.range.size()) {
    return std::nullopt;
  }
  const SlowSegment* first = nullptr;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = out.start + table + 56 * i;
    const auto number = [&](std::uint64_t member, unsigned width) {
      return bytes.number(at + member, width);
    };
    for (std::uint64_t j = 0; j < 56; ++j) {
      if (!bytes.at(at + j)) return std::nullopt;
    }
    out.segments.push_back({number(0, 4).value_or(0), number(4, 4).value_or(0),
                            number(8, 8).value_or(0), number(16, 8).value_or(0),
                            number(32, 8).value_or(0)});
  }
  for (const SlowSegment& s : out.segments) {
    const bool begins = s.type == PT_LOAD && page_start(s.offset) == 0;
    if (first == nullptr && begins) first = &s;
  }
  if (first == nullptr) return std::nullopt;
  out.bias = out.start - page_start(first->address);
  return out;
}

std::optional<SlowFile> slow_search(const Bytes& bytes, std::span<const MapEntry> mappings) {
  for (const MapEntry& m : mappings) {
    if (m.offset != 0 || !m.readable) continue;
    auto file = slow_file(bytes, m);
    if (file && runs(*file, mappings)) return file;
  }
  return std::nullopt;
}

// Nothing: larger than the limit.
std::optional<std::uint64_t> slow_size(const SlowFile& file) {
  std::uint64_t size = kHeaderBytes;
  for (const SlowSegment& s : file.segments) {
    if (s.type != PT_LOAD) continue;
    if (s.offset > kLimit || s.file_size > kLimit || s.offset + s.file_size > kLimit) {
      return std::nullopt;
    }
    size = std::max(size, s.offset + s.file_size);
  }
  return size;
}

void check_contents(const SlowFile& file, const Bytes& bytes, std::span<const std::byte> got) {
  std::vector<std::byte> wanted(got.size());
  for (const SlowSegment& s : file.segments) {
    const std::uint64_t from = file.bias + s.address;
    for (std::uint64_t i = 0; s.type == PT_LOAD && i < s.file_size; ++i) {
      const auto byte = bytes.at(from + i);
      if (!byte || from + i < from) break;
      wanted[s.offset + i] = *byte;
    }
  }
  // The addresses in the dynamic section are the file's: DT_NULL ends it.
  constexpr std::array<std::uint64_t, 9> kAddresses = {
      DT_HASH, DT_PLTGOT, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_REL, DT_JMPREL, DT_VERSYM, DT_GNU_HASH};
  const auto dynamic = std::ranges::find(file.segments, PT_DYNAMIC, &SlowSegment::type);
  const bool is_moved = dynamic != file.segments.end() && file.bias != 0;
  const auto word = [&](std::uint64_t at) {
    std::uint64_t out = 0;
    for (unsigned i = 8; i-- > 0;) out = out << 8 | std::to_integer<std::uint64_t>(wanted[at + i]);
    return out;
  };
  for (std::uint64_t i = 0; is_moved && i < 1024 && 16 * i + 16 <= dynamic->file_size; ++i) {
    const std::uint64_t at = dynamic->offset + 16 * i;
    if (at < dynamic->offset || at > wanted.size() || wanted.size() - at < 16) break;
    if (word(at) == DT_NULL) break;
    const std::uint64_t value = word(at + 8);
    const bool is_address = std::ranges::find(kAddresses, word(at)) != kAddresses.end();
    for (unsigned j = 0; is_address && value >= file.bias && j < 8; ++j) {
      wanted[at + 8 + j] = static_cast<std::byte>((value - file.bias) >> (8 * j));
    }
  }
  // The header without what it says of sections.
  for (std::uint64_t i = 0; i < kHeaderBytes; ++i) {
    const bool of_sections = (i >= 40 && i < 48) || i >= 60;
    wanted[i] = of_sections ? std::byte{0} : *bytes.at(file.start + i);
  }
  FUZZ_CHECK(std::ranges::equal(got, wanted));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = fuzz::mapped_input(data, size);
  if (!input) return 0;
  const std::vector<MapEntry>& mappings = input->mappings;
  sys::SnapshotMemory memory;
  for (const MapEntry& entry : mappings) {
    if (!entry.readable || entry.offset >= input->file.size()) continue;
    const auto part = input->file.subspan(entry.offset);
    memory.put(entry.range.begin(),
               part.first(std::min<std::uint64_t>(part.size(), entry.range.size())));
  }
  sys::ElfBudget budget;
  const auto got = sys::loaded_file(memory, mappings, kLimit, budget);
  if (budget.exhausted() != nullptr) return 0;
  const Bytes slow(memory);
  const auto wanted = slow_search(slow, mappings);
  const auto wanted_size = wanted ? slow_size(*wanted) : std::nullopt;
  FUZZ_CHECK(got.has_value() == wanted_size.has_value());
  if (!got) {
    FUZZ_CHECK(got.error().err == (wanted ? E2BIG : ENOEXEC));
    return 0;
  }
  FUZZ_CHECK(got->size() == *wanted_size);
  check_contents(*wanted, slow, *got);
  return 0;
}
