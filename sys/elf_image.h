// What a reader of another process, or a static audit, asks about one ELF file. Reads it with
// libelf; the file may be anything: truncated, huge, foreign, self-contradicting. Symbols and
// relocations come from the dynamic section, as the loader sees them, so a file without section
// headers has them too. System V ABI, "Dynamic Linking".
//
// No descriptor stays open: a question that needs the file opens it again. A file that has changed
// since is an error (ESTALE), or gives no answer where there is no Result.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_budget.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct ElfSymbol {
  std::uint32_t index = 0;
  std::string name;
  std::uint64_t value = 0;  // STT_TLS: offset in the TLS segment
  std::uint64_t size = 0;
  std::uint8_t type = 0;        // STT_*
  std::uint8_t binding = 0;     // STB_*
  std::uint8_t visibility = 0;  // STV_*
  std::uint16_t section = 0;    // SHN_UNDEF: not defined here

  bool defined() const { return section != 0; }
  friend bool operator==(const ElfSymbol&, const ElfSymbol&) = default;
};

// A dynamic relocation for TLS. x86-64: DTPMOD64 16, DTPOFF64 17, TPOFF64 18, TLSDESC 36; aarch64:
// 1028 to 1031.
enum class TlsRelocationKind { kTlsdesc, kModule, kOffset, kThreadPointerOffset };
struct TlsRelocation {
  TlsRelocationKind kind = TlsRelocationKind::kTlsdesc;
  std::uint32_t type = 0;        // the machine's own number
  std::uint64_t offset = 0;      // link-time address of the GOT entry
  std::uint32_t symbol = 0;      // index into .dynsym; 0: no symbol
  std::int64_t addend = 0;       // for REL tables: from the GOT word
  std::uint64_t word = 0;        // the 8 bytes (4 in a 32-bit file) at `offset` in the file...
  std::uint64_t word_after = 0;  // ... and the 8 after them: an offset that is already there
  friend bool operator==(const TlsRelocation&, const TlsRelocation&) = default;
};

struct ElfSegment {
  std::uint32_t type = 0;   // PT_*
  std::uint32_t flags = 0;  // PF_*
  std::uint64_t offset = 0;
  std::uint64_t address = 0;  // p_vaddr
  std::uint64_t file_size = 0;
  std::uint64_t memory_size = 0;
  std::uint64_t alignment = 0;
  friend bool operator==(const ElfSegment&, const ElfSegment&) = default;
};

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};
// The errno of stat; EINVAL if it is not a regular file.
Result<FileIdentity> file_identity(const std::string& path);

class ElfImage {
 public:
  // Opens `path` read-only. A device, fifo or directory is refused (EINVAL); it never waits for
  // one. Errors: open's errno; ENOEXEC, with the reason, for a file that is not an ELF file or has
  // impossible headers; ESTALE if it is not the `expected` file. `name` is used in messages. When a
  // budget is used up, this and all questions fail (E2BIG).
  static Result<ElfImage> open(const std::string& path, std::string name = {},
                               std::shared_ptr<ElfBudget> budget = {},
                               const std::optional<FileIdentity>& expected = {});
  // The same from bytes, which must outlive the image.
  static Result<ElfImage> from_memory(std::span<const std::byte> bytes, std::string name,
                                      std::shared_ptr<ElfBudget> budget = {});

  // The same file without parsing it again, with another path and another budget from now on.
  ElfImage reached_by(std::string path, std::shared_ptr<ElfBudget> budget = {}) const;

  ElfImage(ElfImage&&) noexcept;
  ElfImage& operator=(ElfImage&&) noexcept;
  ~ElfImage();

  const std::string& name() const;
  const FileIdentity& identity() const;  // zeros for an image from memory
  bool is_64() const;
  bool little_endian() const;
  std::uint16_t machine() const;  // EM_*
  std::uint16_t type() const;     // ET_EXEC, ET_DYN, ET_REL, ET_CORE
  // ET_EXEC, or an ET_DYN with DF_1_PIE, or with PT_INTERP and without a DT_SONAME.
  bool is_executable() const;
  bool has_dynamic_section() const;  // PT_DYNAMIC
  bool has_interpreter() const;      // PT_INTERP
  bool is_symbolic() const;          // DT_SYMBOLIC or DF_SYMBOLIC: names bind inside the file first
  bool has_section_headers() const;
  bool is_go() const;  // contains Go build information (.go.buildinfo or its magic in data)
  std::string soname() const;
  std::string build_id() const;  // hex; empty: none

  const std::vector<ElfSegment>& segments() const;
  std::optional<ElfSegment> tls_segment() const;  // PT_TLS

  // The entries of .dynsym with this name, found through DT_GNU_HASH or DT_HASH. Versions are
  // ignored. A name that is in no hash table is found by scanning the table. Includes undefined
  // entries. An error when the tables contradict themselves.
  Result<std::vector<ElfSymbol>> dynamic_symbols(std::string_view name) const;
  // The same from .symtab, which strip removes; empty if there is none.
  Result<std::vector<ElfSymbol>> static_symbols(std::string_view name) const;

  // Dynamic relocations for TLS: those whose symbol is `name`, and those without a symbol. A local
  // symbol counts as none; its value is then part of the addend. At most 65536 are kept.
  Result<std::vector<TlsRelocation>> tls_relocations(std::string_view name) const;
  // How many relocations, for all names, are kept in memory.
  std::size_t kept_relocations() const;

  // Up to `out.size()` bytes of what would be mapped at a link-time address, from the file; zeros
  // after the end of a segment's file part. Fewer at the end of the segment.
  std::size_t read_at(std::uint64_t address, std::span<std::byte> out) const;

  // What the file has for each of the first 16 PT_LOAD segments that are not writable, but for
  // those that are beyond its end. At most `most` bytes together.
  Result<std::vector<std::string>> constant_segments(std::uint64_t most) const;

 private:
  struct State;
  explicit ElfImage(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// "TLSDESC", "DTPMOD64", "DTPOFF64", "TPOFF64"
std::string_view to_string(TlsRelocationKind kind);

}  // namespace ctxconf::sys
