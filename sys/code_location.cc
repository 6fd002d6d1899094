#include "sys/code_location.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "sys/access_watchdog.h"
#include "sys/c_library.h"
#include "sys/child.h"
#include "sys/code_child.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kLongestSymbol = 1024;
constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kMostHeaders = 4096;
constexpr std::size_t kDeepestScope = 64;

// What the child reports about one offset; the texts follow.
struct LocationAnswer {
  std::uint64_t index = 0;
  std::uint64_t symbol_offset = 0;
  std::uint32_t source_line = 0;
  std::uint32_t symbol_size = 0;
  std::uint32_t source_size = 0;
  std::uint32_t reserved = 0;
};
constexpr std::size_t kLongestAnswer = sizeof(LocationAnswer) + kLongestSymbol + kLongestPath;

void answer(int fd, std::size_t index, const CodeLocation& location) {
  const auto symbol = std::string_view(location.symbol).substr(0, kLongestSymbol);
  const auto source = std::string_view(location.source_file).substr(0, kLongestPath);
  LocationAnswer a{index,
                   location.symbol_offset,
                   location.source_line,
                   static_cast<std::uint32_t>(symbol.size()),
                   static_cast<std::uint32_t>(source.size()),
                   0};
  std::string bytes(reinterpret_cast<const char*>(&a), sizeof a);
  bytes += symbol;
  bytes += source;
  (void)write_all(fd, bytes);
}

// Later answers about an offset replace earlier ones; a truncated answer is dropped.
void read_answers(std::string_view bytes, std::vector<CodeLocation>& found) {
  while (bytes.size() >= sizeof(LocationAnswer)) {
    LocationAnswer a;
    std::memcpy(&a, bytes.data(), sizeof a);
    bytes.remove_prefix(sizeof a);
    if (a.index >= found.size() || a.symbol_size > kLongestSymbol || a.source_size > kLongestPath ||
        bytes.size() < std::size_t{a.symbol_size} + a.source_size) {
      return;
    }
    found[a.index] = {std::string(bytes.substr(0, a.symbol_size)), a.symbol_offset,
                      std::string(bytes.substr(a.symbol_size, a.source_size)), a.source_line};
    bytes.remove_prefix(std::size_t{a.symbol_size} + a.source_size);
  }
}

// Everything below runs in the child.

std::string build_id_of(Elf* elf) {
  const void* id = nullptr;
  const ssize_t size = dwelf_elf_gnu_build_id(elf, &id);
  return size <= 0 || size > 64 ? std::string()
                                : std::string(static_cast<const char*>(id), std::size_t(size));
}

bool has_build_id(int fd, const std::string& wanted) {
  Elf* elf = elf_begin(fd, ELF_C_READ_MMAP, nullptr);
  if (elf == nullptr) return false;
  const bool same = build_id_of(elf) == wanted;
  elf_end(elf);
  return same;
}

// dwfl_standard_find_debuginfo would open any path that a .gnu_debuglink gives, even a device, and
// would ask servers.
int find_debug_file(Dwfl_Module* module, void** /*userdata*/, const char* /*name*/,
                    Dwarf_Addr /*base*/, const char* file_name, const char* debug_link,
                    GElf_Word /*crc*/, char** found) {
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  const std::string id = elf == nullptr ? std::string() : build_id_of(elf);
  if (id.empty()) return -1;
  std::string digits;
  for (const char c : id) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    digits += {kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  std::vector<std::string> candidates = {"/usr/lib/debug/.build-id/" + digits.substr(0, 2) + "/" +
                                         digits.substr(2) + ".debug"};
  const std::string_view link = debug_link == nullptr ? "" : debug_link;
  const std::string_view path = file_name == nullptr ? "" : file_name;
  if (!link.empty() && link.find('/') == link.npos && path.starts_with('/')) {
    const std::string folder(path.substr(0, path.rfind('/') + 1));
    for (const auto& in : {folder, folder + ".debug/", "/usr/lib/debug" + folder}) {
      candidates.push_back(in + std::string(link));
    }
  }
  for (const auto& candidate : candidates) {
    const auto file = HeldFile::open(candidate);
    if (!file || !has_build_id(file->fd(), id)) continue;
    *found = strdup(candidate.c_str());
    return dup(file->fd());
  }
  return -1;
}

std::optional<GElf_Addr> address_of(Elf* elf, std::uint64_t offset) {
  std::size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return std::nullopt;
  for (std::size_t i = 0; i < std::min(count, kMostHeaders); ++i) {
    GElf_Phdr segment;
    if (gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr) return std::nullopt;
    if (segment.p_type != PT_LOAD || offset < segment.p_offset) continue;
    if (offset - segment.p_offset < segment.p_filesz) {
      return segment.p_vaddr + (offset - segment.p_offset);
    }
  }
  return std::nullopt;
}

void add_symbol(Dwfl_Module* module, GElf_Addr address, CodeLocation& location) {
  GElf_Off offset = 0;
  GElf_Sym symbol{};
  const char* name =
      dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  // The nearest symbol before the address may not be its function.
  if (name == nullptr || offset >= symbol.st_size) return;
  location.symbol = name;
  location.symbol_offset = offset;
}

// g++ writes names relative to the folder where it was started, and libdw leaves them as they are.
// It joins those of clang to the folder, with their "..". With -ffile-prefix-map and the like, the
// folder may be relative too.
std::string absolute_name(Dwarf_Die* unit, const char* file) {
  Dwarf_Attribute attribute;
  const char* folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
  if (folder == nullptr) folder = "";
  if (strnlen(folder, kLongestPath) + strnlen(file, kLongestPath) >= kLongestPath) return file;
  return (std::filesystem::path(folder) / file).lexically_normal().string();
}

void add_line(Dwarf_Die* unit, const char* file, int line, CodeLocation& location) {
  if (file == nullptr || line <= 0) return;
  location.source_file = absolute_name(unit, file);
  location.source_line = static_cast<std::uint32_t>(line);
}

struct Unit {
  Dwarf_Die die{};
  Dwarf_Addr size = 0;  // size of the range around the address; 0: there is none
};

// libdw finds units by .debug_aranges, which clang and Go do not write. In a program of several
// compilers it covers only some units, and libdw takes the last of them for all that follows.
// Instead this looks at the ranges of all units, once for all addresses, which are sorted. If
// ranges overlap, the smallest wins: code that a linker dropped has a range from address 0.
std::vector<Unit> units_of(Dwarf* dwarf, std::span<const Dwarf_Addr> addresses) {
  std::vector<Unit> out(addresses.size());
  Dwarf_CU* unit = nullptr;
  Dwarf_Die die;
  while (dwarf_get_units(dwarf, unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
    Dwarf_Addr base = 0;
    Dwarf_Addr begin = 0;
    Dwarf_Addr end = 0;
    std::ptrdiff_t next = 0;
    while ((next = dwarf_ranges(&die, next, &base, &begin, &end)) > 0) {
      if (end <= begin) continue;
      for (auto it = std::ranges::lower_bound(addresses, begin); it != addresses.end() && *it < end;
           ++it) {
        Unit& u = out[static_cast<std::size_t>(it - addresses.begin())];
        if (u.size == 0 || end - begin < u.size) u = {die, end - begin};
      }
    }
  }
  return out;
}

void add_source(Dwarf_Die* unit, Dwarf_Addr address, CodeLocation& location) {
  Dwarf_Line* line = dwarf_getsrc_die(unit, address);
  int number = 0;
  if (line == nullptr || dwarf_lineno(line, &number) != 0) return;
  add_line(unit, dwarf_linesrc(line, nullptr, nullptr), number, location);
}

// Code in the standard library of a language: if it was inlined, it did what its caller wanted.
bool is_library_source(std::string_view path) {
  static constexpr std::array<std::string_view, 5> kFolders = {
      "/usr/include/", "/usr/lib/gcc/", "/usr/lib/clang/", "/usr/lib/llvm", "/rustc/"};
  static constexpr std::array<std::string_view, 6> kParts = {
      "/include/c++/",        "/lib/rustlib/src/rust/library/",
      "/go/src/sync/atomic/", "/go/src/internal/runtime/",
      "/go/src/runtime/",     "/lib/clang/"};
  return std::ranges::any_of(kFolders, [&](auto folder) { return path.starts_with(folder); }) ||
         std::ranges::any_of(kParts, [&](auto part) { return path.find(part) != path.npos; });
}

// The function at the address and the calls inlined there, the outermost first. dwarf_getscopes
// does not look into namespaces, where Rust defines its functions.
bool find_scopes(Dwarf_Die* parent, Dwarf_Addr address, std::size_t depth,
                 std::vector<Dwarf_Die>& scopes) {
  Dwarf_Die die;
  if (depth > kDeepestScope || dwarf_child(parent, &die) != 0) return false;
  do {
    switch (dwarf_tag(&die)) {
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
      case DW_TAG_union_type:
      case DW_TAG_enumeration_type:
        if (find_scopes(&die, address, depth + 1, scopes)) return true;
        break;
      case DW_TAG_subprogram:
      case DW_TAG_inlined_subroutine:
      case DW_TAG_lexical_block:
        if (dwarf_haspc(&die, address) != 1) break;
        scopes.push_back(die);
        (void)find_scopes(&die, address, depth + 1, scopes);
        return true;
      default:
        break;
    }
  } while (dwarf_siblingof(&die, &die) == 0);
  return false;
}

// Takes the innermost call from elsewhere, if there is one.
void take_caller(Dwarf_Die* unit, Dwarf_Addr address, CodeLocation& location) {
  std::vector<Dwarf_Die> scopes;
  Dwarf_Files* files = nullptr;
  if (!find_scopes(unit, address, 0, scopes)) return;
  if (dwarf_getsrcfiles(unit, &files, nullptr) != 0) return;
  for (Dwarf_Die& scope : std::views::reverse(scopes)) {
    if (dwarf_tag(&scope) != DW_TAG_inlined_subroutine) continue;
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    Dwarf_Word line = 0;
    if (dwarf_formudata(dwarf_attr(&scope, DW_AT_call_file, &attribute), &file) != 0) continue;
    if (dwarf_formudata(dwarf_attr(&scope, DW_AT_call_line, &attribute), &line) != 0) continue;
    const char* path = dwarf_filesrc(files, file, nullptr, nullptr);
    if (path == nullptr || is_library_source(path) || line > INT_MAX) continue;
    add_line(unit, path, static_cast<int>(line), location);
    return;
  }
}

void make_readable(CodeLocation& location) {
  // A name without this prefix is not a C++ name; demangling would read it as a type: "i" as int.
  if (!location.symbol.starts_with("_Z") || location.symbol.size() > kLongestSymbol) return;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      ::abi::__cxa_demangle(location.symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (readable && std::strlen(readable.get()) <= kLongestSymbol) location.symbol = readable.get();
}

void look_up(int fd, const std::string& path, std::span<const std::uint64_t> offsets, int out) {
  static constexpr Dwfl_Callbacks kCallbacks{.find_elf = nullptr,
                                             .find_debuginfo = find_debug_file,
                                             .section_address = dwfl_offline_section_address,
                                             .debuginfo_path = nullptr};
  Dwfl* session = dwfl_begin(&kCallbacks);
  if (session == nullptr) return;
  dwfl_report_begin(session);
  Dwfl_Module* module = dwfl_report_offline(session, path.c_str(), path.c_str(), dup(fd));
  dwfl_report_end(session, nullptr, nullptr);
  if (module == nullptr) return;
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  if (elf == nullptr) return;
  // Opens the separate debug file, if there is one.
  Dwarf_Addr ignored = 0;
  dwfl_module_getdwarf(module, &ignored);
  dwfl_module_getsymtab(module);
  if (!forbid_files()) return;

  std::vector<CodeLocation> locations(offsets.size());
  std::vector<std::optional<GElf_Addr>> addresses;
  addresses.reserve(offsets.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    addresses.push_back(address_of(elf, offsets[i]));
    if (!addresses[i]) continue;
    add_symbol(module, *addresses[i] + bias, locations[i]);
    answer(out, i, locations[i]);
  }
  Dwarf_Addr dwarf_bias = 0;
  if (Dwarf* dwarf = dwfl_module_getdwarf(module, &dwarf_bias)) {
    std::vector<Dwarf_Addr> sorted;
    for (const auto& address : addresses) {
      if (address) sorted.push_back(*address + bias - dwarf_bias);
    }
    std::ranges::sort(sorted);
    auto units = units_of(dwarf, sorted);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (!addresses[i]) continue;
      const Dwarf_Addr address = *addresses[i] + bias - dwarf_bias;
      const auto at = std::ranges::lower_bound(sorted, address) - sorted.begin();
      Unit& unit = units[static_cast<std::size_t>(at)];
      if (unit.size == 0) continue;
      add_source(&unit.die, address, locations[i]);
      answer(out, i, locations[i]);
      if (!is_library_source(locations[i].source_file)) continue;
      take_caller(&unit.die, address, locations[i]);
      answer(out, i, locations[i]);
    }
  }
  for (std::size_t i = 0; i < locations.size(); ++i) {
    make_readable(locations[i]);
    answer(out, i, locations[i]);
  }
}

}  // namespace

void limit_memory(std::uint64_t more) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t now = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const rlimit space{now + more, now + more};
  setrlimit(RLIMIT_AS, &space);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

bool forbid_files() {
  const rlimit none{0, 0};
  return setrlimit(RLIMIT_NOFILE, &none) == 0;
}

std::optional<std::uint64_t> code_bias(Elf* elf, std::uint64_t begin, std::uint64_t offset) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return std::nullopt;
  for (std::size_t i = 0; i < std::min(count, kMostHeaders); ++i) {
    GElf_Phdr segment;
    if (gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr) return std::nullopt;
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    if (offset < segment.p_offset / page * page || offset >= segment.p_offset + segment.p_filesz) {
      continue;
    }
    return begin - offset - (segment.p_vaddr - segment.p_offset);
  }
  return std::nullopt;
}

bool is_library_code(const CodeLocation& location, std::string_view module) {
  const auto starts = [](std::string_view text, auto prefixes) {
    return std::ranges::any_of(prefixes, [&](auto p) { return text.starts_with(p); });
  };
  // Go names them by package, Rust and C++ by crate and namespace.
  static constexpr std::array<std::string_view, 16> kFunctions = {"runtime.",
                                                                  "sync/atomic.",
                                                                  "internal/runtime/",
                                                                  "internal/bytealg.",
                                                                  "core::",
                                                                  "<core::",
                                                                  "alloc::",
                                                                  "<alloc::",
                                                                  "std::",
                                                                  "compiler_builtins::",
                                                                  "memcpy",
                                                                  "memmove",
                                                                  "memset",
                                                                  "__mem",
                                                                  "__atomic_",
                                                                  "void std::"};
  static constexpr std::array<std::string_view, 5> kModules = {
      "libstdc++.so", "libatomic.so", "libgcc_s.so", "libc++.so", "libpthread"};
  return is_library_source(location.source_file) || starts(location.symbol, kFunctions) ||
         may_be_c_library(module) || starts(module.substr(module.rfind('/') + 1), kModules);
}

Result<HeldFile> HeldFile::open(const std::string& path) {
  // Opening some devices has side effects, so look before opening.
  const Fd looked_at(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!looked_at.is_open()) return fail("open file", errno, path);
  const std::string same = "/proc/self/fd/" + std::to_string(looked_at.get());
  CTX_ASSIGN_OR_RETURN(identity, file_identity(same));
  HeldFile file;
  file.identity_ = identity;
  // O_NONBLOCK: somebody may hold a lease on the file.
  file.fd_ = Fd(::open(same.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.fd_.is_open()) return fail("open file", errno, path);
  return file;
}

Result<HeldFile> HeldFile::of_mapping(pid_t tid, const MapEntry& entry) {
  const ProcessAccess access(tid);
  const std::string proc = "/proc/" + std::to_string(tid);
  auto file = open(proc + "/map_files/" + map_files_name(entry));
  // Refused without privileges; missing when the mapping has changed since.
  if (file || file.error().err == EINVAL || !entry.name.starts_with('/')) return file;
  file = open(proc + "/root" + path_of(entry));
  // The device cannot be compared: on btrfs and overlayfs stat gives another one than maps.
  if (file && file->identity().inode != entry.inode) return fail("open file", ESTALE, entry.name);
  return file;
}

CodeLocations locate_code(const HeldFile& file, const std::string& path,
                          std::span<const std::uint64_t> offsets, const CodeLookUpLimits& limits) {
  CodeLocations out;
  out.found.resize(offsets.size());
  if (offsets.empty()) return out;
  const auto work = [&](int output) {
    limit_memory(limits.memory);
    look_up(file.fd(), path, offsets, output);
  };
  const auto ran = run_forked(work, limits.time, 4 * offsets.size() * kLongestAnswer);
  if (!ran) {
    out.problem = to_string(ran.error());
    return out;
  }
  read_answers(ran->output, out.found);
  if (ran->timed_out) {
    out.problem =
        "reading its symbols took more than " + std::to_string(limits.time.count()) + " ms";
  } else if (ran->killed_by) {
    out.problem = "reading its symbols crashed (signal " + std::to_string(*ran->killed_by) + ")";
  } else if (ran->exit_code != 0) {
    out.problem =
        "reading its symbols took more than " + std::to_string(limits.memory >> 20U) + " MiB";
  }
  return out;
}

}  // namespace ctxconf::sys
