// Where a thread-local variable of another process is, from the process's mappings, the
// ELF files behind them and the relocated GOT words in its memory. glibc on x86-64
// (TLSDESC, General Dynamic, initial-exec, local-exec); knows no libc internals but the
// DTV, whose layout the TLSDESC resolvers and __tls_get_addr share with debuggers.
// "ELF Handling For Thread-Local Storage" (Drepper), "Thread-Local Storage Descriptors".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_image.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

// One ELF file as a process has mapped it.
struct Module {
  std::string path;             // as maps prints it; hostile, may be deleted or replaced
  RemoteAddr start;             // of its lowest mapping
  std::uint64_t load_bias = 0;  // run-time address = link-time address + load_bias (mod 2^64)
  bool main_executable = false;
  std::shared_ptr<const ElfImage> image;
};

// Parsed files by (device, inode, size, mtime), shared by the processes that map them.
// Keeps at most 4096 files.
class ElfCache {
 public:
  struct Key {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // Null with a note when it is no ELF file that can be read.
  std::shared_ptr<const ElfImage> get(const Key& key) const;
  void put(const Key& key, std::shared_ptr<const ElfImage> image);
  std::size_t size() const { return images_.size(); }

 private:
  std::map<Key, std::shared_ptr<const ElfImage>> images_;
};

// The ELF files that `pid` has mapped, by address; opened through /proc/PID/map_files (a file
// that was deleted or replaced is still the right one) and, where that is refused, through
// /proc/PID/root. What cannot be opened or is no ELF file is left out and noted. At most 8192.
struct Modules {
  std::vector<Module> modules;
  std::vector<std::string> notes;  // "/usr/lib/libx.so: Permission denied"; hostile text
};
Result<Modules> modules_of(pid_t pid, ElfCache& cache);

enum class TlsModel { kTlsdesc, kGeneralDynamic, kInitialExec, kLocalExec };
std::string_view to_string(TlsModel model);  // "TLSDESC", "General Dynamic", ...

// One way to reach the variable: a relocation of any module, or the executable's own layout.
struct TlsAccess {
  TlsModel model = TlsModel::kTlsdesc;
  std::size_t module = 0;  // of the relocation (index into Modules); the definer's for local-exec
  RemoteAddr got;          // run-time address of the GOT entry; 0 for local-exec
  bool named = true;       // false: the relocation has no symbol, matched by its offset
  bool offset_in_got = false;  // DTPMOD64 without a DTPOFF64 beside it
};

struct TlsDefinition {
  std::size_t module = 0;  // index into Modules
  ElfSymbol symbol;
  std::vector<TlsAccess> accesses;  // those that bind to this definition
};

// The definitions of `name` (STT_TLS, defined, global/weak/unique, default/protected) and how
// each is reached, in the order of modules. Pure but for the memory that it does not read.
Result<std::vector<TlsDefinition>> find_tls_variable(const Modules& modules, std::string_view name);

// The address of the variable for the thread whose thread pointer is `tp` (x86-64: fs_base;
// aarch64: tpidr_el0), by the first access that can be followed. Nothing: the thread has no
// block for it yet, so its value is the initial one. Errors: EFAULT for memory that is not
// there, EINVAL for words that cannot be true (a DTV length that lies, a misfit module id),
// ENOTSUP where no access can be followed from outside, or the machine is another.
Result<std::optional<RemoteAddr>> tls_address(const Modules& modules,
                                              const TlsDefinition& definition, RemoteAddr tp,
                                              const MemoryReader& memory);

}  // namespace ctxconf::sys
