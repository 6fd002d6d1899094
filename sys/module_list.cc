// modules_of: the ELF files that a process has mapped, and their addresses.
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "sys/c_library.h"
#include "sys/loaded_file.h"
#include "sys/process.h"
#include "sys/tls_variable.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kMostCached = 4096;
constexpr std::size_t kMostCachedRelocations = 1U << 20U;
constexpr std::size_t kMostModules = 8192;
constexpr std::size_t kMostNotes = 256;
constexpr std::size_t kMostSegments = 64;
constexpr std::size_t kMostBeginnings = 64;  // of one file; dlmopen allows 16 namespaces
constexpr std::uint64_t kMostPieces = 64;    // mappings per segment
constexpr std::size_t kMostThreads = 16;
constexpr std::size_t kMostLoadedDynamicEntries = 1024;
constexpr std::size_t kMostFromMemory = std::size_t{32} << 20U;  // bytes of one process

// The mappings of one file, ascending.
struct MappedFile {
  std::vector<MapEntry> entries;
  bool executable = false;
};

// Ordered by the lowest address, but files that are run come before files that are only data.
std::vector<MappedFile> group_by_file(std::string_view maps_text) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> known;  // device, inode
  std::vector<MappedFile> files;
  for_each_mapping(maps_text, [&](Result<MapEntry> entry) {
    if (!entry || entry->inode == 0) return true;
    const std::uint64_t device = std::uint64_t{entry->dev_major} << 32U | entry->dev_minor;
    const auto [location, is_new] = known.try_emplace({device, entry->inode}, files.size());
    if (is_new) files.emplace_back();
    MappedFile& file = files[location->second];
    file.executable |= entry->executable;
    file.entries.push_back(std::move(*entry));
    return true;
  });
  std::vector<MappedFile> ordered;
  for (const bool executable : {true, false}) {
    for (MappedFile& file : files) {
      if (file.executable == executable) ordered.push_back(std::move(file));
    }
  }
  return ordered;
}

// Whether one of the mappings, with the image at `bias`, is code or data as segment `s` needs it.
bool is_run_with(std::uint64_t bias, const ElfSegment& s, std::span<const MapEntry> mappings,
                 ElfBudget& budget) {
  const std::uint64_t begin = page_of(s.address) + bias;
  const std::uint64_t end = s.address + s.memory_size + bias;
  auto e = std::ranges::lower_bound(
      mappings, begin, {}, [](const MapEntry& entry) { return entry.range.begin().raw(); });
  for (std::uint64_t pieces = 0; e != mappings.end() && pieces < kMostPieces; ++e, ++pieces) {
    if (e->range.begin().raw() >= end || !budget.take_mappings(1)) return false;
    const bool in_place = e->range.begin().raw() - begin == e->offset - page_of(s.offset);
    const bool runs =
        (e->executable && (s.flags & PF_X) != 0) || (e->writable && (s.flags & PF_W) != 0);
    if (in_place && runs) return true;
  }
  return false;
}

// The bias at which the first of the mappings is the beginning of an image.
std::optional<std::uint64_t> load_bias(std::span<const MapEntry> mappings,
                                       const std::vector<ElfSegment>& loads, ElfBudget& budget) {
  const MapEntry& lowest = mappings.front();
  for (const ElfSegment& s : loads) {
    const std::uint64_t segment_page = page_of(s.offset);
    if (lowest.offset < segment_page || lowest.offset >= s.offset + s.file_size) continue;
    const std::uint64_t bias =
        lowest.range.begin().raw() - (lowest.offset - segment_page) - page_of(s.address);
    if (is_run_with(bias, s, mappings, budget) ||
        std::ranges::any_of(loads, [&](const ElfSegment& other) {
          return &other != &s && is_run_with(bias, other, mappings, budget);
        })) {
      return bias;
    }
  }
  return std::nullopt;
}

struct Opened {
  FileIdentity identity;
  std::shared_ptr<const ElfImage> image;  // null: not an ELF file
};

class ModuleFinder {
 public:
  ModuleFinder(pid_t pid, ElfCache& cache, const ElfLimits& limits)
      : cache_(cache), budget_(std::make_shared<ElfBudget>(limits)), memory_(pid) {
    proc_ = "/proc/" + std::to_string(pid);
    struct stat program{};
    if (stat_program(proc_, program)) return;
    // If the leader has ended, /proc/LEADER shows nothing of its process.
    const auto threads = thread_list(pid);
    for (std::size_t i = 0; threads && i < std::min(threads->size(), kMostThreads); ++i) {
      const std::string thread = "/proc/" + std::to_string((*threads)[i]);
      if (!stat_program(thread, program)) continue;
      proc_ = thread;
      return;
    }
  }

  void add(const MappedFile& file) {
    if (!budget_->take_file()) {
      ++left_out_;
      return;
    }
    const MapEntry& lowest = file.entries.front();
    auto opened = open(lowest);
    // A device, which is refused, gives EINVAL.
    if (!opened && opened.error().err != EINVAL && file.executable) {
      if (auto loaded = from_memory(file)) opened = std::move(loaded);
    }
    if (!opened) {
      note(lowest.name, to_string(opened.error()), file.executable);
      return;
    }
    if (!opened->image) {
      note(lowest.name, "not an ELF file", file.executable);
      return;
    }
    add_modules(file, *opened);
  }

  Modules take() && {
    replace_loader();
    found_.musl = uses_musl();
    if (budget_->exhausted() != nullptr) {
      found_.notes.push_back(std::to_string(left_out_) +
                             " files and the last part of the search were left out: " +
                             "the limit of " + budget_->exhausted() + " for one process");
    }
    found_.budget = std::move(budget_);
    std::sort(found_.modules.begin(), found_.modules.end(),
              [](const Module& a, const Module& b) { return a.start < b.start; });
    return std::move(found_);
  }

 private:
  bool stat_program(const std::string& proc, struct stat& program) {
    if (stat((proc + "/exe").c_str(), &program) != 0) return false;
    program_ = {program.st_dev, program.st_ino};
    return true;
  }

  bool is_program(const std::string& name) const {
    std::error_code error;
    return std::filesystem::read_symlink(proc_ + "/exe", error) == name;
  }

  void note(const std::string& name, const std::string& what, bool matters) {
    if (matters && found_.notes.size() < kMostNotes) found_.notes.push_back(name + ": " + what);
  }

  Result<Opened> open(const MapEntry& entry) {
    auto opened = open_path(proc_ + "/map_files/" + map_files_name(entry), entry.name);
    // Refused without privileges; missing when the mapping has changed since.
    if (opened || opened.error().err == EINVAL) return opened;
    if (!entry.name.starts_with('/')) return opened;
    opened = open_path(proc_ + "/root" + path_of(entry), entry.name, entry.inode);
    if (opened || entry.inode != program_.second || !is_program(entry.name)) return opened;
    // The program can be opened even if it was removed.
    if (auto program = open_path(proc_ + "/exe", entry.name, entry.inode)) return program;
    return opened;
  }

  // Used if the file cannot be opened, for whatever reason.
  Result<Opened> from_memory(const MappedFile& file) {
    struct Loaded {
      std::vector<std::byte> bytes;
      std::optional<ElfImage> image;
    };
    const auto loaded = std::make_shared<Loaded>();
    CTX_ASSIGN_OR_RETURN(bytes, loaded_file(memory_, file.entries, from_memory_left_, *budget_));
    loaded->bytes = std::move(bytes);
    from_memory_left_ -= loaded->bytes.size();
    CTX_ASSIGN_OR_RETURN(image,
                         ElfImage::from_memory(loaded->bytes, file.entries.front().name, budget_));
    loaded->image = std::move(image);
    return Opened{{}, std::shared_ptr<const ElfImage>(loaded, &*loaded->image)};
  }

  // `inode`: only a file with that number is the right one.
  Result<Opened> open_path(const std::string& path, const std::string& name,
                           std::optional<std::uint64_t> inode = {}) {
    CTX_ASSIGN_OR_RETURN(identity, file_identity(path));
    // The device cannot be compared: on btrfs and overlayfs stat gives another one than maps.
    if (inode && identity.inode != *inode) {
      return fail("open ELF file", ESTALE, "another file has this name now");
    }
    if (auto known = cache_.get(identity)) {
      if (*known == nullptr) return Opened{identity, nullptr};
      return Opened{identity,
                    std::make_shared<const ElfImage>((*known)->reached_by(path, budget_))};
    }
    auto opened = ElfImage::open(path, name, budget_, identity);
    if (!opened && opened.error().err != ENOEXEC) return std::unexpected(opened.error());
    Opened out{identity, nullptr};
    if (opened) {
      out.identity = opened->identity();
      out.image = std::make_shared<const ElfImage>(std::move(*opened));
    }
    cache_.put(out.identity, out.image);
    return out;
  }

  void add_modules(const MappedFile& file, const Opened& opened) {
    for (const auto& [first, bias] : loaded_at(*opened.image, file.entries, *budget_)) {
      if (found_.modules.size() >= kMostModules) return;
      const MapEntry& lowest = file.entries[first];
      Module module{lowest.name, lowest.range.begin(), bias, false, {}, opened.image};
      module.main_executable = !found_main_ && opened.identity.inode != 0 &&
                               program_ == std::pair(opened.identity.device, opened.identity.inode);
      found_main_ |= module.main_executable;
      found_.modules.push_back(std::move(module));
    }
  }

  // `ld-musl-x86_64.so.1 PROGRAM`: what the process executed is the loader, not the program.
  void replace_loader() {
    const auto main = std::ranges::find_if(found_.modules, &Module::main_executable);
    if (main == found_.modules.end() || main->image->is_executable()) return;
    const auto program = std::ranges::find_if(found_.modules, [](const Module& m) {
      return m.image->is_executable() && m.image->has_interpreter();
    });
    if (program == found_.modules.end()) return;
    main->main_executable = false;
    program->main_executable = true;
  }

  // A program that asks for glibc's loader may still get musl: on Alpine the one is a link to the
  // other. Then no file of glibc is mapped.
  bool uses_musl() const {
    const auto main = std::ranges::find_if(found_.modules, &Module::main_executable);
    const auto interpreter =
        main == found_.modules.end() ? std::string() : interpreter_of(*main->image);
    if (interpreter.contains("/ld-musl-")) return true;
    const auto tried = possible_c_libraries(found_.modules);
    const auto musl =
        std::ranges::count_if(tried, [](const Module* m) { return is_musl(*m->image); });
    return musl > 0 && (std::cmp_equal(musl, tried.size()) || !interpreter.contains("/ld-linux"));
  }

  ElfCache& cache_;
  std::shared_ptr<ElfBudget> budget_;
  std::size_t left_out_ = 0;
  std::string proc_;
  std::pair<std::uint64_t, std::uint64_t> program_;  // device, inode
  bool found_main_ = false;
  ProcessMemory memory_;
  std::size_t from_memory_left_ = kMostFromMemory;
  Modules found_;
};

const ElfSegment* dynamic_segment(const Module& module) {
  const auto& segments = module.image->segments();
  const auto found = std::find_if(segments.begin(), segments.end(),
                                  [](const ElfSegment& s) { return s.type == PT_DYNAMIC; });
  return found == segments.end() ? nullptr : &*found;
}

// The loader's r_debug, which debuggers find through DT_DEBUG of the executable; 0: none.
std::uint64_t debug_address(const Modules& modules, const MemoryReader& memory) {
  const auto main = std::find_if(modules.modules.begin(), modules.modules.end(),
                                 [](const Module& m) { return m.main_executable; });
  if (main == modules.modules.end() || !main->image->is_64()) return 0;
  const ElfSegment* segment = dynamic_segment(*main);
  if (segment == nullptr) return 0;
  std::vector<Elf64_Dyn> entries(
      std::min<std::uint64_t>(segment->memory_size / sizeof(Elf64_Dyn), kMostLoadedDynamicEntries));
  const auto read = memory.read_some(RemoteAddr(segment->address + main->load_bias),
                                     std::as_writable_bytes(std::span(entries)));
  entries.resize(read.value_or(0) / sizeof(Elf64_Dyn));
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_DEBUG) return entry.d_un.d_ptr;
  }
  return 0;
}

}  // namespace

std::vector<const Module*> possible_c_libraries(const std::vector<Module>& modules) {
  constexpr std::size_t kMost = 8;
  std::vector<const Module*> out;
  for (const Module& m : modules) {
    if (out.size() < kMost && may_be_c_library(m.path)) out.push_back(&m);
  }
  return out;
}

// Follows the list, using the part of each entry that <link.h> makes public.
void add_load_order(Modules& modules, const MemoryReader& memory) {
  const std::uint64_t debug = debug_address(modules, memory);
  if (debug == 0) return;
  std::map<std::uint64_t, Module*> by_dynamic;  // run-time address of the dynamic section
  for (Module& module : modules.modules) {
    const ElfSegment* segment = dynamic_segment(module);
    if (segment != nullptr) by_dynamic[segment->address + module.load_bias] = &module;
  }
  struct Entry {
    std::uint64_t address, name, dynamic, next, previous;
  };
  const auto head = memory.read(RemotePtr<std::array<std::uint64_t, 2>>{RemoteAddr(debug)});
  std::uint64_t next = head ? (*head)[1] : 0;
  for (std::size_t location = 0; next != 0 && location < kMostModules; ++location) {
    const auto entry = memory.read(RemotePtr<Entry>{RemoteAddr(next)});
    if (!entry) return;
    const auto module = by_dynamic.find(entry->dynamic);
    if (module != by_dynamic.end() && !module->second->load_order) {
      module->second->load_order = location;
    }
    next = entry->next;
  }
}

std::optional<std::shared_ptr<const ElfImage>> ElfCache::get(const Key& key) const {
  const auto found = images_.find(key);
  if (found == images_.end()) return std::nullopt;
  return found->second;
}

void ElfCache::put(const Key& key, std::shared_ptr<const ElfImage> image) {
  const auto kept = [](const std::shared_ptr<const ElfImage>& i) {
    return i == nullptr ? 0 : i->kept_relocations();
  };
  if (const auto known = images_.find(key); known != images_.end()) {
    relocations_ -= kept(known->second);
    images_.erase(known);
  }
  if (images_.size() >= kMostCached || relocations_ + kept(image) > kMostCachedRelocations) {
    images_.clear();
    relocations_ = 0;
  }
  relocations_ += kept(image);
  images_[key] = std::move(image);
}

std::vector<LoadedAt> loaded_at(const ElfImage& image, std::span<const MapEntry> mappings,
                                ElfBudget& budget) {
  std::vector<ElfSegment> loads;
  std::uint64_t highest = 0;
  for (const ElfSegment& segment : image.segments()) {
    if (segment.type != PT_LOAD || loads.size() >= kMostSegments) continue;
    loads.push_back(segment);
    highest = std::max(highest, segment.address + segment.memory_size);
  }
  std::vector<LoadedAt> out;
  std::size_t first = 0;
  for (std::size_t tried = 0; first < mappings.size() && tried < kMostBeginnings; ++tried) {
    const auto bias = load_bias(mappings.subspan(first), loads, budget);
    if (bias) out.push_back({first, *bias});
    ++first;
    if (!bias) continue;
    const std::uint64_t end = highest + *bias;
    while (first < mappings.size() && mappings[first].range.begin().raw() < end) ++first;
  }
  return out;
}

Result<Modules> modules_of(pid_t pid, ElfCache& cache, const ElfLimits& limits) {
  CTX_ASSIGN_OR_RETURN(text, read_maps_text(pid));
  return modules_of(pid, text, cache, limits);
}

Result<Modules> modules_of(pid_t pid, std::string_view maps, ElfCache& cache,
                           const ElfLimits& limits) {
  ModuleFinder finder(pid, cache, limits);
  for (const MappedFile& file : group_by_file(maps)) finder.add(file);
  Modules modules = std::move(finder).take();
  add_load_order(modules, ProcessMemory(pid));
  return modules;
}

}  // namespace ctxconf::sys
