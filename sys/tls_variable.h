// Finds a thread-local variable of another process, from the process's mappings, its ELF files and
// the relocated GOT words in its memory. Supports glibc and musl on x86-64 (TLSDESC, General
// Dynamic, initial-exec, local-exec). Of the libc internals it needs only the DTV, whose layout the
// TLSDESC resolvers and __tls_get_addr share with debuggers. "ELF Handling For Thread-Local
// Storage" (Drepper), "Thread-Local Storage Descriptors".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/elf_image.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

// One ELF file as a process has mapped it.
struct Module {
  std::string path;              // as in maps; hostile, the file may be deleted or replaced
  RemoteAddr start;              // of its lowest mapping
  std::uint64_t load_bias = 0;   // run-time address = link-time address + load_bias (mod 2^64)
  bool main_executable = false;  // the program, also if the process executed its loader
  // Position in the dynamic loader's list (r_debug); nothing if the loader does not know the file.
  std::optional<std::size_t> load_order;
  std::shared_ptr<const ElfImage> image;
};

// Parsed files by (device, inode, size, mtime), shared by the processes that map them. Keeps at
// most 4096 files and a million relocations.
class ElfCache {
 public:
  using Key = FileIdentity;
  // Nothing: not stored yet. Null: stored as a file that is not an ELF file.
  std::optional<std::shared_ptr<const ElfImage>> get(const Key& key) const;
  void put(const Key& key, std::shared_ptr<const ElfImage> image);
  std::size_t size() const { return images_.size(); }

 private:
  std::map<Key, std::shared_ptr<const ElfImage>> images_;
  std::size_t relocations_ = 0;  // of all files
};

// The ELF files that `pid` has mapped to be run (not only to be read), by address; at most 8192.
// Opens them through /proc/PID/map_files, which gives the right file even if it was deleted or
// replaced, or through /proc/PID/root if that is refused; the program through /proc/PID/exe as
// well. Otherwise reads what is loaded from the memory of the process. Notes files for which both
// fail, executable mappings of files that are not ELF files, and limits that were reached. The
// images share the limits, and answer until they are reached.
struct Modules {
  std::vector<Module> modules;
  std::vector<std::string> notes;     // "/usr/lib/libx.so: stat: Permission denied"; hostile text
  bool musl = false;                  // the C library is musl, whose DTV has another layout
  std::shared_ptr<ElfBudget> budget;  // null: no limits
};
// The first 8 of the modules whose file names may be those of a C library or its loader, by
// address.
std::vector<const Module*> possible_c_libraries(const std::vector<Module>& modules);

// Where the loader has put a mapped file: the mapping at which an image begins.
struct LoadedAt {
  std::size_t first = 0;   // index into the mappings
  std::uint64_t bias = 0;  // see Module::load_bias
  friend bool operator==(const LoadedAt&, const LoadedAt&) = default;
};
// Takes the mappings of one file, ascending. An image begins where the file has a part of a PT_LOAD
// segment and some mapping of it is code or data as the file requires; a file that was mapped only
// to be read has none. Pure.
std::vector<LoadedAt> loaded_at(const ElfImage& image, std::span<const MapEntry> mappings,
                                ElfBudget& budget);

Result<Modules> modules_of(pid_t pid, ElfCache& cache, const ElfLimits& limits = {});
// The same, from the text of /proc/PID/maps.
Result<Modules> modules_of(pid_t pid, std::string_view maps, ElfCache& cache,
                           const ElfLimits& limits = {});
// A part of modules_of: Module::load_order, from the memory of the process.
void add_load_order(Modules& modules, const MemoryReader& memory);

enum class TlsModel { kTlsdesc, kGeneralDynamic, kInitialExec, kLocalExec };
std::string_view to_string(TlsModel model);  // "TLSDESC", "General Dynamic", ...

// One access to the variable: a relocation of any module, or the executable's own layout.
struct TlsAccess {
  TlsModel model = TlsModel::kTlsdesc;
  std::size_t module =
      0;  // the module of the relocation (index into Modules); for local-exec the defining module
  RemoteAddr got;              // run-time address of the GOT entry; 0 for local-exec
  bool named = true;           // false: the relocation has no symbol and was matched by its offset
  bool offset_in_got = false;  // DTPMOD64 without a DTPOFF64 next to it
  // The relocation refers to another place in the defining module's block, as in Local Dynamic
  // code. It is not an access to the variable, but it shows where the block is.
  bool borrowed = false;
  std::uint64_t target =
      0;  // the offset in the defining module's segment to which the GOT entry refers
  // Another module defines the name too and may win; only the GOT can tell. If this entry, of that
  // module, refers to the same place, the access is to the other variable.
  struct Rival {
    TlsModel model = TlsModel::kTlsdesc;
    RemoteAddr got;
  };
  std::optional<Rival> rival;
};

struct TlsDefinition {
  std::size_t module = 0;  // index into Modules
  ElfSymbol symbol;
  std::vector<TlsAccess> accesses;  // those that bind to this definition; its own module's first
};

// The definitions of `name` (STT_TLS, defined, global/weak/unique, default/protected) and how each
// is accessed, in the order of modules; at most 64. Skips a module whose tables cannot be read, and
// returns an error only if nothing was found and there was such a module. Call this directly after
// modules_of, whose limits it shares; it adds what it left out to the notes.
Result<std::vector<TlsDefinition>> find_tls_variable(Modules& modules, std::string_view name);

// How module `m` itself accesses a variable that is only in its .symtab; no other module can.
TlsDefinition find_hidden_tls_variable(Modules& modules, std::size_t m, const ElfSymbol& symbol);

// What the GOT says about a definition, the same for all threads: at most 8 different accesses.
// Cheap to copy.
class TlsLocation {
 public:
  struct Ways;
  explicit TlsLocation(std::shared_ptr<const Ways> ways) : ways_(std::move(ways)) {}
  const Ways& ways() const { return *ways_; }

 private:
  std::shared_ptr<const Ways> ways_;
};
// Call this while no thread is stopped for it, and again when the loader may have been active.
// Errors: EFAULT for missing memory; EINVAL for impossible words; ENOTSUP if no access can be
// followed from outside, or for another machine.
Result<TlsLocation> tls_location(const Modules& modules, const TlsDefinition& definition,
                                 const MemoryReader& memory);

// The address of the variable for the thread with thread pointer `tp` (x86-64: fs_base; aarch64:
// tpidr_el0), through the first access that can be followed; reads a few words. Nothing: the thread
// has no block for it yet, so it still has the initial value; also if the thread pointer is 0.
// Errors: EFAULT, EINVAL (impossible DTV length), ENOTSUP as above, or the error of tls_place.
Result<std::optional<RemoteAddr>> tls_address(const Result<TlsLocation>& location, RemoteAddr tp,
                                              const MemoryReader& memory);
// Both in one call.
Result<std::optional<RemoteAddr>> tls_address(const Modules& modules,
                                              const TlsDefinition& definition, RemoteAddr tp,
                                              const MemoryReader& memory);

}  // namespace ctxconf::sys
