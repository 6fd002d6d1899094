// The bytes of one ELF file and the records in them. Reads with pread and never maps, because a
// mapped file that somebody truncates causes SIGBUS. Offsets and sizes are in bytes of the file. A
// range outside the file is an error with ENOEXEC.
#pragma once

#include <libelf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/elf_image.h"
#include "sys/fd.h"
#include "sys/result.h"

namespace ctxconf::sys {

std::unexpected<Error> used_up(const ElfBudget& budget);

// A file for the duration of one question, or bytes in memory. Owns its descriptor.
class ElfBytes {
 public:
  // Opens only regular files (EINVAL) and only the `expected` one (ESTALE); others are not opened.
  static Result<ElfBytes> open(const std::string& path,
                               const std::optional<FileIdentity>& expected = {});
  explicit ElfBytes(std::span<const std::byte> memory) : memory_(memory), size_(memory.size()) {}
  // Nothing: no limit on what may be read.
  void set_budget(std::shared_ptr<ElfBudget> budget) { budget_ = std::move(budget); }
  ElfBudget* budget() const { return budget_.get(); }

  std::uint64_t size() const { return size_; }
  const FileIdentity& identity() const { return identity_; }
  bool contains(std::uint64_t offset, std::uint64_t size) const {
    return offset <= size_ && size <= size_ - offset;
  }
  // E2BIG: the budget is used up.
  Result<> read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  ElfBytes() = default;
  Fd fd_;
  std::span<const std::byte> memory_;
  std::uint64_t size_ = 0;
  FileIdentity identity_;
  std::shared_ptr<ElfBudget> budget_;
};

// The format of the records of a file. They are read as the 64-bit structures of this machine.
struct ElfFormat {
  bool is_64 = true;
  bool little_endian = true;
};

// The 32-bit counterpart of a 64-bit record, and libelf's name for both.
template <class Wide>
struct ElfRecord;
template <>
struct ElfRecord<Elf64_Ehdr> {
  using Narrow = Elf32_Ehdr;
  static constexpr Elf_Type kType = ELF_T_EHDR;
};
template <>
struct ElfRecord<Elf64_Phdr> {
  using Narrow = Elf32_Phdr;
  static constexpr Elf_Type kType = ELF_T_PHDR;
};
template <>
struct ElfRecord<Elf64_Shdr> {
  using Narrow = Elf32_Shdr;
  static constexpr Elf_Type kType = ELF_T_SHDR;
};
template <>
struct ElfRecord<Elf64_Dyn> {
  using Narrow = Elf32_Dyn;
  static constexpr Elf_Type kType = ELF_T_DYN;
};
template <>
struct ElfRecord<Elf64_Sym> {
  using Narrow = Elf32_Sym;
  static constexpr Elf_Type kType = ELF_T_SYM;
};
template <>
struct ElfRecord<Elf64_Rel> {
  using Narrow = Elf32_Rel;
  static constexpr Elf_Type kType = ELF_T_REL;
};
template <>
struct ElfRecord<Elf64_Rela> {
  using Narrow = Elf32_Rela;
  static constexpr Elf_Type kType = ELF_T_RELA;
};
template <>
struct ElfRecord<Elf64_Word> {  // 4 bytes in both
  using Narrow = Elf32_Word;
  static constexpr Elf_Type kType = ELF_T_WORD;
};

template <class Wide>
std::uint64_t record_size(ElfFormat format) {
  return format.is_64 ? sizeof(Wide) : sizeof(typename ElfRecord<Wide>::Narrow);
}

template <class Wide>
Result<> read_records(const ElfBytes& bytes, ElfFormat format, std::uint64_t offset,
                      std::span<Wide> out);

// Reads `count` records in pieces until `visit` returns false.
template <class Wide>
Result<> walk_records(const ElfBytes& bytes, ElfFormat format, std::uint64_t offset,
                      std::uint64_t count,
                      const std::function<bool(std::uint64_t index, const Wide&)>& visit) {
  constexpr std::uint64_t kPiece = 1024;
  std::vector<Wide> piece(std::min(count, kPiece));
  for (std::uint64_t done = 0; done < count; done += piece.size()) {
    piece.resize(std::min(count - done, kPiece));
    const std::uint64_t at = offset + done * record_size<Wide>(format);
    if (auto read = read_records<Wide>(bytes, format, at, piece); !read) return read;
    for (std::uint64_t i = 0; i < piece.size(); ++i) {
      if (!visit(done + i, piece[i])) return {};
    }
  }
  return {};
}

}  // namespace ctxconf::sys
