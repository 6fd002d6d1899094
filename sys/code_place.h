// Which function and source line a place in an ELF file belongs to: by its .symtab or .dynsym and
// its DWARF line table, or those of a separate debug file of this host.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_image.h"
#include "sys/fd.h"
#include "sys/map_table.h"
#include "sys/result.h"

namespace ctxconf::sys {

// A regular file that is held open, so that it can be read when whoever mapped it is gone.
class HeldFile {
 public:
  // What a process has mapped there, under whatever name. ESTALE: another file has its name now;
  // EINVAL: no regular file, which is not opened.
  static Result<HeldFile> of_mapping(pid_t tid, const MapEntry& entry);
  static Result<HeldFile> open(const std::string& path);

  int fd() const { return fd_.get(); }
  const FileIdentity& identity() const { return identity_; }

 private:
  HeldFile() = default;
  Fd fd_;
  FileIdentity identity_;
};

struct CodeLocation {
  // Of the function whose bytes they are; C++ and older Rust names in their readable form.
  std::string symbol;
  std::uint64_t symbol_offset = 0;
  // The innermost line that is in no system header, if the debug information knows one; else the
  // innermost.
  std::string source_file;
  std::uint32_t source_line = 0;
  friend bool operator==(const CodeLocation&, const CodeLocation&) = default;
};

// Code of a standard library, which does what its caller wants: memcpy, std::atomic, sync/atomic,
// core::ptr. `module` is the path of its file.
bool is_library_code(const CodeLocation& place, std::string_view module);

struct CodeLocations {
  std::vector<CodeLocation> found;  // as many as were asked for; empty texts where nothing is known
  std::string problem;              // why there may be more than was found; empty: there is not
};

struct CodeLookUpLimits {
  std::chrono::milliseconds time{5000};
  std::uint64_t memory = std::uint64_t{1} << 30U;  // address space: the files and what they unpack
};

// Places are offsets in the file. libdw bounds nothing that a file may ask of it, so it works in a
// process of its own: what that found before it crashed or was ended stays. `path` is what the
// file is called where it is used; a separate debug file is looked for beside it and in
// /usr/lib/debug, and must have the same build-id.
CodeLocations locate_code(const HeldFile& file, const std::string& path,
                          std::span<const std::uint64_t> offsets,
                          const CodeLookUpLimits& limits = {});

}  // namespace ctxconf::sys
