#include "sys/elf_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ctxconf::sys {
namespace {

FileIdentity identity_of(const struct stat& file) {
  return {file.st_dev, file.st_ino, static_cast<std::uint64_t>(file.st_size),
          file.st_mtim.tv_sec * 1'000'000'000 + file.st_mtim.tv_nsec};
}

Elf64_Ehdr widen(const Elf32_Ehdr& h) {
  Elf64_Ehdr wide{};
  std::copy(std::begin(h.e_ident), std::end(h.e_ident), std::begin(wide.e_ident));
  wide.e_type = h.e_type;
  wide.e_machine = h.e_machine;
  wide.e_version = h.e_version;
  wide.e_phoff = h.e_phoff;
  wide.e_shoff = h.e_shoff;
  wide.e_phentsize = h.e_phentsize;
  wide.e_phnum = h.e_phnum;
  wide.e_shentsize = h.e_shentsize;
  wide.e_shnum = h.e_shnum;
  wide.e_shstrndx = h.e_shstrndx;
  return wide;
}

Elf64_Phdr widen(const Elf32_Phdr& p) {
  return {p.p_type, p.p_flags, p.p_offset, p.p_vaddr, p.p_paddr, p.p_filesz, p.p_memsz, p.p_align};
}

Elf64_Shdr widen(const Elf32_Shdr& s) {
  return {s.sh_name, s.sh_type, s.sh_flags, s.sh_addr,      s.sh_offset,
          s.sh_size, s.sh_link, s.sh_info,  s.sh_addralign, s.sh_entsize};
}

Elf64_Dyn widen(const Elf32_Dyn& d) { return {d.d_tag, {d.d_un.d_val}}; }

Elf64_Sym widen(const Elf32_Sym& s) {
  return {s.st_name, s.st_info, s.st_other, s.st_shndx, s.st_value, s.st_size};
}

Elf64_Xword widen_info(Elf32_Word info) {
  return ELF64_R_INFO(static_cast<Elf64_Xword>(ELF32_R_SYM(info)), ELF32_R_TYPE(info));
}

Elf64_Rel widen(const Elf32_Rel& r) { return {r.r_offset, widen_info(r.r_info)}; }

Elf64_Rela widen(const Elf32_Rela& r) { return {r.r_offset, widen_info(r.r_info), r.r_addend}; }

Elf64_Word widen(Elf32_Word word) { return word; }

// Translates the records in place.
bool translate(std::span<std::byte> records, Elf_Type type, ElfFormat format) {
  static const unsigned version = elf_version(EV_CURRENT);
  Elf_Data data{};
  data.d_buf = records.data();
  data.d_type = type;
  data.d_version = version == EV_NONE ? EV_NONE : EV_CURRENT;
  data.d_size = records.size();
  const unsigned encoding = format.little_endian ? ELFDATA2LSB : ELFDATA2MSB;
  return (format.is_64 ? elf64_xlatetom(&data, &data, encoding)
                       : elf32_xlatetom(&data, &data, encoding)) != nullptr;
}

// Opens the file that was looked at; its path may lead to another one by now. Without /proc it has
// to be opened by its path.
Result<Fd> open_found(const Fd& found, const struct stat& file, const std::string& path) {
  // O_NONBLOCK: somebody may hold a lease on the file.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  Fd fd(::open(("/proc/self/fd/" + std::to_string(found.get())).c_str(), kFlags));
  if (fd.is_open()) return fd;
  if (errno == ENOENT) fd = Fd(::open(path.c_str(), kFlags));
  if (!fd.is_open()) return fail("open ELF file", errno, path);
  struct stat opened{};
  if (fstat(fd.get(), &opened) != 0) return fail("fstat", errno, path);
  const bool same = opened.st_dev == file.st_dev && opened.st_ino == file.st_ino;
  if (!same) return fail("open ELF file", ESTALE, path);
  return fd;
}

}  // namespace

std::unexpected<Error> used_up(const ElfBudget& budget) {
  return fail("read ELF file", E2BIG,
              std::string("the limit of ") + budget.exhausted() + " for one process");
}

Result<FileIdentity> file_identity(const std::string& path) {
  struct stat file{};
  if (stat(path.c_str(), &file) != 0) return fail("stat", errno, path);
  if (!S_ISREG(file.st_mode)) return fail("open ELF file", EINVAL, path + ": not a regular file");
  return identity_of(file);
}

Result<ElfBytes> ElfBytes::open(const std::string& path,
                                const std::optional<FileIdentity>& expected) {
  // Opening some devices has side effects, so look before opening.
  const Fd found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found.is_open()) return fail("open ELF file", errno, path);
  struct stat file{};
  if (fstat(found.get(), &file) != 0) return fail("fstat", errno, path);
  if (!S_ISREG(file.st_mode)) return fail("open ELF file", EINVAL, path + ": not a regular file");
  if (expected && *expected != identity_of(file)) return fail("open ELF file", ESTALE, path);
  ElfBytes bytes;
  CTX_ASSIGN_OR_RETURN(fd, open_found(found, file, path));
  bytes.fd_ = std::move(fd);
  bytes.identity_ = identity_of(file);
  bytes.size_ = bytes.identity_.size;
  return bytes;
}

Result<> ElfBytes::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (!contains(offset, out.size())) {
    return fail("read ELF file", ENOEXEC,
                std::to_string(out.size()) + " bytes at offset " + std::to_string(offset) +
                    " of a file of " + std::to_string(size_));
  }
  if (budget_ != nullptr && !budget_->take_bytes(out.size())) return used_up(*budget_);
  if (!fd_.is_open()) {
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  while (!out.empty()) {
    const ssize_t n = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail("read ELF file", errno, "offset " + std::to_string(offset));
    if (n == 0) return fail("read ELF file", ESTALE, "it became shorter while it was read");
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

template <class Wide>
Result<> read_records(const ElfBytes& bytes, ElfFormat format, std::uint64_t offset,
                      std::span<Wide> out) {
  using Narrow = typename ElfRecord<Wide>::Narrow;
  constexpr Elf_Type kType = ElfRecord<Wide>::kType;
  if (format.is_64) {
    CTX_RETURN_IF_ERROR(bytes.read(offset, std::as_writable_bytes(out)));
    if (translate(std::as_writable_bytes(out), kType, format)) return {};
  } else {
    std::vector<Narrow> narrow(out.size());
    CTX_RETURN_IF_ERROR(bytes.read(offset, std::as_writable_bytes(std::span(narrow))));
    if (translate(std::as_writable_bytes(std::span(narrow)), kType, format)) {
      std::transform(narrow.begin(), narrow.end(), out.begin(),
                     [](const Narrow& record) { return widen(record); });
      return {};
    }
  }
  return fail("read ELF file", ENOEXEC, elf_errmsg(-1));
}

template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Ehdr>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Phdr>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Shdr>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Dyn>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Sym>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Rel>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Rela>);
template Result<> read_records(const ElfBytes&, ElfFormat, std::uint64_t, std::span<Elf64_Word>);

}  // namespace ctxconf::sys
