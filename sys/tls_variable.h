// Where a thread-local variable of another process is, from the process's mappings, the
// ELF files behind them and the relocated GOT words in its memory. glibc and musl on x86-64
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
  std::string path;             // as maps prints it; hostile, may be deleted or replaced
  RemoteAddr start;             // of its lowest mapping
  std::uint64_t load_bias = 0;  // run-time address = link-time address + load_bias (mod 2^64)
  bool main_executable = false;
  // Place in the dynamic loader's list (r_debug); nothing where it does not know the file.
  std::optional<std::size_t> load_order;
  std::shared_ptr<const ElfImage> image;
};

// Parsed files by (device, inode, size, mtime), shared by the processes that map them.
// Keeps at most 4096 files and a million relocations.
class ElfCache {
 public:
  using Key = FileIdentity;
  // Nothing: not put yet. Null: put as what is no ELF file.
  std::optional<std::shared_ptr<const ElfImage>> get(const Key& key) const;
  void put(const Key& key, std::shared_ptr<const ElfImage> image);
  std::size_t size() const { return images_.size(); }

 private:
  std::map<Key, std::shared_ptr<const ElfImage>> images_;
  std::size_t relocations_ = 0;  // of them all
};

// The ELF files that `pid` has mapped to be run (not only to be read), by address; opened
// through /proc/PID/map_files (a file that was deleted or replaced is still the right one) and,
// where that is refused, through /proc/PID/root. What cannot be opened is left out and noted;
// so is what is no ELF file where the mapping is executable. At most 8192. So is that the limits
// were reached; the images share them and answer until then.
struct Modules {
  std::vector<Module> modules;
  std::vector<std::string> notes;  // "/usr/lib/libx.so: stat: Permission denied"; hostile text
  bool musl = false;               // the program's interpreter is musl's, whose DTV looks different
  std::shared_ptr<ElfBudget> budget;  // null: without limits
};
Result<Modules> modules_of(pid_t pid, ElfCache& cache, const ElfLimits& limits = {});
// Part of that: Module::load_order, from the memory of the process.
void add_load_order(Modules& modules, const MemoryReader& memory);

enum class TlsModel { kTlsdesc, kGeneralDynamic, kInitialExec, kLocalExec };
std::string_view to_string(TlsModel model);  // "TLSDESC", "General Dynamic", ...

// One way to reach the variable: a relocation of any module, or the executable's own layout.
struct TlsAccess {
  TlsModel model = TlsModel::kTlsdesc;
  std::size_t module = 0;  // of the relocation (index into Modules); the definer's for local-exec
  RemoteAddr got;          // run-time address of the GOT entry; 0 for local-exec
  bool named = true;       // false: the relocation has no symbol, matched by its offset
  bool offset_in_got = false;  // DTPMOD64 without a DTPOFF64 beside it
  // The relocation is about another place in the definer's block, as Local Dynamic code has it;
  // nobody's access to the variable, but it tells where the block is.
  bool borrowed = false;
  std::uint64_t target = 0;  // offset in the definer's segment that the GOT entry stands for
  // Another module defines the name too and may win, which only the GOT can tell: when this
  // entry, of that module, stands for the same place, the access is to the other variable.
  struct Rival {
    TlsModel model = TlsModel::kTlsdesc;
    RemoteAddr got;
  };
  std::optional<Rival> rival;
};

struct TlsDefinition {
  std::size_t module = 0;  // index into Modules
  ElfSymbol symbol;
  std::vector<TlsAccess> accesses;  // those that bind to this definition, its own module's first
};

// The definitions of `name` (STT_TLS, defined, global/weak/unique, default/protected) and how
// each is reached, in the order of modules; at most 64. A module whose tables cannot be read has
// no part in it; an error only when nothing is found and there was such a module. To be asked
// right after modules_of, whose limits it shares; what was left out is added to the notes.
Result<std::vector<TlsDefinition>> find_tls_variable(Modules& modules, std::string_view name);

// How module `m` itself reaches a variable that only its .symtab knows: no other module can.
TlsDefinition find_hidden_tls_variable(Modules& modules, std::size_t m, const ElfSymbol& symbol);

// What the GOT says of a definition, which is the same for all threads: at most 8 ways that
// differ. Small to copy.
class TlsPlace {
 public:
  struct Ways;
  explicit TlsPlace(std::shared_ptr<const Ways> ways) : ways_(std::move(ways)) {}
  const Ways& ways() const { return *ways_; }

 private:
  std::shared_ptr<const Ways> ways_;
};
// To be asked while no thread is stopped for it, and again when the loader may have been at work.
// Errors: EFAULT for memory that is not there, EINVAL for words that cannot be true, ENOTSUP where
// no access can be followed from outside, or the machine is another.
Result<TlsPlace> tls_place(const Modules& modules, const TlsDefinition& definition,
                           const MemoryReader& memory);

// The address of the variable for the thread whose thread pointer is `tp` (x86-64: fs_base;
// aarch64: tpidr_el0), by the first way that can be followed; a few words are read. Nothing: the
// thread has no block for it yet, so its value is the initial one; also for a thread pointer of
// 0. Errors: EFAULT, EINVAL (a DTV length that lies), ENOTSUP as above, or what tls_place said.
Result<std::optional<RemoteAddr>> tls_address(const Result<TlsPlace>& place, RemoteAddr tp,
                                              const MemoryReader& memory);
// Both at once.
Result<std::optional<RemoteAddr>> tls_address(const Modules& modules,
                                              const TlsDefinition& definition, RemoteAddr tp,
                                              const MemoryReader& memory);

}  // namespace ctxconf::sys
