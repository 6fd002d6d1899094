// Finds the function and source line of an instruction in an ELF file: by its .symtab or .dynsym
// and its DWARF line table, or those of a separate debug file on this host.
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

// A regular file that stays open, so that it can be read after the process that mapped it is gone.
class HeldFile {
 public:
  // Opens the file that a process has mapped there, under whatever name. ESTALE: another file has
  // its name now. EINVAL: not a regular file; it is not opened.
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
  // The function that contains the bytes; C++ and older Rust names are demangled.
  std::string symbol;
  std::uint64_t symbol_offset = 0;
  // The innermost line outside system headers if the debug information has one; otherwise the
  // innermost line.
  std::string source_file;
  std::uint32_t source_line = 0;
  friend bool operator==(const CodeLocation&, const CodeLocation&) = default;
};

// Whether this is code of a standard library, which does what its caller wants: memcpy,
// std::atomic, sync/atomic, core::ptr. `module` is the path of its file.
bool is_library_code(const CodeLocation& location, std::string_view module);

struct CodeLocations {
  std::vector<CodeLocation>
      found;            // one for each offset asked for; empty texts where nothing is known
  std::string problem;  // why something may be missing; empty: nothing is
};

struct CodeLookUpLimits {
  std::chrono::milliseconds time{5000};
  std::uint64_t memory = std::uint64_t{1}
                         << 30U;  // address space: the files and what is unpacked from them
};

// `offsets` are positions in the file. libdw does not bound what a file may make it do, so it runs
// in a process of its own; what it found before it crashed or was killed is kept. `path` is the
// name of the file where it is used; a separate debug file is searched next to it and in
// /usr/lib/debug, and must have the same build-id.
CodeLocations locate_code(const HeldFile& file, const std::string& path,
                          std::span<const std::uint64_t> offsets,
                          const CodeLookUpLimits& limits = {});

}  // namespace ctxconf::sys
