#include "sys/tls_variable.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

#include "sys/processor.h"

namespace ctxconf::sys {
namespace {

static_assert(std::endian::native == std::endian::little, "GOT words are read as they are");

constexpr std::size_t kMostDefinitions = 64;
constexpr std::size_t kMostAccesses =
    256;  // of one definition; and as many more from its own module
constexpr std::size_t kMostBorrowed = 4;
constexpr std::size_t kMostWays = 8;
constexpr std::uint64_t kMostSegmentBytes = 1ULL << 40U;
constexpr std::int64_t kFarthestStatic = 1LL << 40U;
constexpr std::uint64_t kMostModuleIds = 1U << 20U;
constexpr std::uint64_t kLowestPointer = 65536;  // vm.mmap_min_addr
constexpr std::uint64_t kUnallocated = UINT64_MAX;

using Words = std::array<std::uint64_t, 2>;

bool is_exported(const ElfSymbol& symbol) {
  const bool binding = symbol.binding == STB_GLOBAL || symbol.binding == STB_WEAK ||
                       symbol.binding == STB_GNU_UNIQUE;
  const bool visible = symbol.visibility == STV_DEFAULT || symbol.visibility == STV_PROTECTED;
  return symbol.defined() && symbol.type == STT_TLS && binding && visible;
}

class AccessFinder {
 public:
  AccessFinder(Modules& modules, std::string_view name)
      : modules_(modules),
        name_(name),
        budget_(modules.budget ? modules.budget : std::make_shared<ElfBudget>()),
        was_exhausted_(budget_->exhausted() != nullptr) {}

  Result<std::vector<TlsDefinition>> find() {
    for (std::size_t m = 0; m < modules_.modules.size(); ++m) find_definitions(m);
    if (definitions_.empty()) {
      note_what_was_cut();
      if (problem_) return std::unexpected(std::move(*problem_));
      return std::move(definitions_);
    }
    winner_ = first_definition();
    borrowed_.resize(definitions_.size());
    for (TlsDefinition& d : definitions_) add_local_exec(d);
    for (std::size_t m = 0; m < modules_.modules.size(); ++m) find_accesses(m);
    for (TlsDefinition& d : definitions_) sort_accesses(d);
    for (TlsDefinition& d : definitions_) add_rivals(d);
    note_what_was_cut();
    return std::move(definitions_);
  }

  TlsDefinition find_hidden(std::size_t m, const ElfSymbol& symbol) {
    definitions_.push_back({m, symbol, {}});
    borrowed_.resize(1);
    add_local_exec(definitions_.front());
    find_accesses(m);
    sort_accesses(definitions_.front());
    return std::move(definitions_.front());
  }

 private:
  const Module& module(std::size_t index) const { return modules_.modules[index]; }

  void note_what_was_cut() {
    const std::string name(name_);
    if (too_many_definitions_) {
      modules_.notes.push_back("only " + std::to_string(kMostDefinitions) + " definitions of " +
                               name + " are examined");
    }
    if (too_many_accesses_)
      modules_.notes.push_back("not every access to " + name + " was examined");
    if (budget_->exhausted() != nullptr && !was_exhausted_) {
      modules_.notes.push_back("the search for " + name + " was cut short: the limit of " +
                               budget_->exhausted() + " for one process");
    }
  }

  void find_definitions(std::size_t m) {
    if (!module(m).image->tls_segment()) return;
    // A file may be mapped many times.
    const auto [known, is_new] = symbols_.try_emplace(module(m).image.get());
    if (is_new) known->second = module(m).image->dynamic_symbols(name_);
    const auto& symbols = known->second;
    if (!symbols) {
      const Error& error = symbols.error();
      if (!problem_) problem_ = Error{error.op, error.err, module(m).path + ": " + error.detail};
      return;
    }
    for (const ElfSymbol& symbol : *symbols) {
      const bool is_known =
          std::any_of(definitions_.begin(), definitions_.end(), [&](const TlsDefinition& d) {
            return d.module == m &&
                   d.symbol.value == symbol.value;  // another version of the symbol
          });
      if (!is_exported(symbol) || is_known) continue;
      too_many_definitions_ = definitions_.size() >= kMostDefinitions;
      if (too_many_definitions_) return;
      definitions_.push_back({m, symbol, {}});
    }
  }

  void add_local_exec(TlsDefinition& d) const {
    if (!module(d.module).main_executable) return;
    TlsAccess access;
    access.model = TlsModel::kLocalExec;
    access.module = d.module;
    access.target = d.symbol.value;
    d.accesses.push_back(access);
  }

  void find_accesses(std::size_t m) {
    const auto [known, is_new] = relocations_.try_emplace(module(m).image.get());
    if (is_new) known->second = module(m).image->tls_relocations(name_);
    const auto& relocations = known->second;
    if (!relocations || !budget_->take_relocations(relocations->size())) return;
    std::map<std::uint64_t, const TlsRelocation*> offsets;  // DTPOFF64 by place
    for (const TlsRelocation& r : *relocations) {
      if (r.kind == TlsRelocationKind::kOffset) offsets[r.offset] = &r;
    }
    for (const TlsRelocation& r : *relocations) {
      const auto next = offsets.find(r.offset + 8);
      add_access(m, r, next == offsets.end() ? nullptr : next->second);
    }
  }

  // `next` is the DTPOFF64 directly after it, if there is one.
  void add_access(std::size_t m, const TlsRelocation& r, const TlsRelocation* next) {
    TlsAccess access;
    switch (r.kind) {
      case TlsRelocationKind::kTlsdesc:
        access.model = TlsModel::kTlsdesc;
        break;
      case TlsRelocationKind::kModule:
        access.model = TlsModel::kGeneralDynamic;
        break;
      case TlsRelocationKind::kThreadPointerOffset:
        access.model = TlsModel::kInitialExec;
        break;
      case TlsRelocationKind::kOffset:
        return;  // belongs to a DTPMOD64
    }
    access.module = m;
    access.got = RemoteAddr(r.offset + module(m).load_bias);
    access.named = r.symbol != 0;
    if (r.kind == TlsRelocationKind::kModule && next == nullptr) {
      access.offset_in_got = true;
      access.target = r.word_after;
    } else if (access.named) {
      return bind_by_name(access, r.addend);
    } else {
      const bool pair = r.kind == TlsRelocationKind::kModule;
      access.target = static_cast<std::uint64_t>(pair ? next->addend : r.addend);
    }
    bind_by_offset(access);
  }

  // No symbol, or an offset fixed at link time: it refers to the module's own segment.
  void bind_by_offset(TlsAccess access) {
    for (TlsDefinition& d : definitions_in(access.module)) {
      access.borrowed = d.symbol.value != access.target;
      std::size_t& borrowed = borrowed_[static_cast<std::size_t>(&d - definitions_.data())];
      if (access.borrowed && borrowed++ >= kMostBorrowed) continue;
      keep(d, access);
    }
  }

  void keep(TlsDefinition& d, const TlsAccess& access) {
    const bool own = access.module == d.module;
    if (d.accesses.size() < (own ? 2 * kMostAccesses : kMostAccesses)) {
      d.accesses.push_back(access);
    } else {
      too_many_accesses_ = true;
    }
  }

  bool binds_inside(const TlsDefinition& own) const {
    return module(own.module).image->is_symbolic() || own.symbol.visibility == STV_PROTECTED;
  }

  void bind_by_name(TlsAccess access, std::int64_t addend) {
    const auto bind = [&](TlsDefinition& d) {
      access.target = d.symbol.value + static_cast<std::uint64_t>(addend);
      keep(d, access);
    };
    const auto in_module = definitions_in(access.module);
    TlsDefinition* own = in_module.empty() ? nullptr : in_module.data();
    if (own != nullptr && binds_inside(*own)) return bind(*own);
    TlsDefinition& winner = definitions_[winner_];
    bind(winner);
    // A library loaded with RTLD_LOCAL is visible only to itself, but it sees the executable.
    if (own != nullptr && own != &winner && !module(winner.module).main_executable) bind(*own);
  }

  void add_rivals(TlsDefinition& d) const {
    const TlsDefinition& winner = definitions_[winner_];
    if (&d == &winner || binds_inside(d)) return;
    const auto other =
        std::find_if(winner.accesses.begin(), winner.accesses.end(),
                     [&](const TlsAccess& a) { return a.module != d.module && !a.borrowed; });
    if (other == winner.accesses.end()) return;
    for (TlsAccess& access : d.accesses) {
      if (access.named && !access.offset_in_got) access.rival = {other->model, other->got};
    }
  }

  static void sort_accesses(TlsDefinition& d) {
    const auto rank = [&](const TlsAccess& a) {  // local-exec has the GOT address 0
      return std::tuple(a.borrowed, a.module != d.module, a.module, a.got);
    };
    std::sort(d.accesses.begin(), d.accesses.end(),
              [&](const TlsAccess& a, const TlsAccess& b) { return rank(a) < rank(b); });
  }

  // They are ordered by module.
  std::span<TlsDefinition> definitions_in(std::size_t m) {
    const auto range = std::ranges::equal_range(definitions_, m, {}, &TlsDefinition::module);
    return {range.begin(), range.end()};
  }

  // The search order of the loader: the executable, then what was loaded first.
  std::size_t first_definition() const {
    const auto location = [&](const TlsDefinition& d) {
      const Module& m = module(d.module);
      return std::pair(!m.main_executable,
                       m.load_order.value_or(std::numeric_limits<std::size_t>::max()));
    };
    const auto first = std::min_element(
        definitions_.begin(), definitions_.end(),
        [&](const TlsDefinition& a, const TlsDefinition& b) { return location(a) < location(b); });
    return static_cast<std::size_t>(first - definitions_.begin());
  }

  Modules& modules_;
  std::string_view name_;
  std::shared_ptr<ElfBudget> budget_;
  bool was_exhausted_;  // already in the notes
  std::map<const ElfImage*, Result<std::vector<ElfSymbol>>> symbols_;
  std::map<const ElfImage*, Result<std::vector<TlsRelocation>>> relocations_;
  std::vector<TlsDefinition> definitions_;
  std::vector<std::size_t> borrowed_;  // for each definition
  bool too_many_definitions_ = false;
  bool too_many_accesses_ = false;
  std::size_t winner_ = 0;
  std::optional<Error> problem_;
};

// The target of a GOT entry, the same for every thread.
struct StaticLocation {
  std::uint64_t offset = 0;  // from the thread pointer, mod 2^64
  friend bool operator==(const StaticLocation&, const StaticLocation&) = default;
};
struct DynamicLocation {
  std::uint64_t module_id = 0;
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;  // 0: not known
  friend bool operator==(const DynamicLocation& a, const DynamicLocation& b) {
    return a.module_id == b.module_id && a.offset == b.offset;
  }
};
using Location = std::variant<StaticLocation, DynamicLocation>;

// How threads look on a machine with a given C library.
struct ThreadLayout {
  bool block_below = true;  // the executable's block ends at the thread pointer (variant II)
  std::int64_t dtv_at = 8;  // relative to the thread pointer
  bool musl_dtv = false;    // 8-byte entries; the first holds the count
};

Result<ThreadLayout> layout_of(const Modules& modules, const ElfImage& image) {
  // On x86-64, that of musl is at the same place.
  const auto glibc_vector_at =
      static_cast<std::int64_t>(processor_of_elf(image.machine()).vector_at);
  if (image.is_64() && image.little_endian() && image.machine() == EM_X86_64) {
    return ThreadLayout{true, glibc_vector_at, modules.musl};
  }
  if (image.is_64() && image.little_endian() && image.machine() == EM_AARCH64) {
    return ThreadLayout{false, modules.musl ? -8 : glibc_vector_at, modules.musl};
  }
  return fail("find TLS variable", ENOTSUP, "machine " + std::to_string(image.machine()));
}

std::unexpected<Error> untrue(const std::string& what) {
  return fail("find TLS variable", EINVAL, what);
}

// The static linker writes this offset into the code; the loader makes it true.
Result<Location> local_exec(const ElfImage& image, const ThreadLayout& layout,
                            std::uint64_t target) {
  const auto segment = image.tls_segment();
  if (!segment) return untrue("no TLS segment");
  const std::uint64_t size = segment->memory_size;
  const std::uint64_t alignment = std::max<std::uint64_t>(segment->alignment, 1);
  if (!std::has_single_bit(alignment) || alignment > kMostSegmentBytes ||
      size > kMostSegmentBytes || target > size) {
    return untrue("an impossible TLS segment");
  }
  // The block begins where the segment does within its alignment.
  if (layout.block_below) {
    const std::uint64_t below = size + ((-segment->address - size) & (alignment - 1));
    return StaticLocation{target - below};
  }
  constexpr std::uint64_t kControlBlock = 16;
  const std::uint64_t above =
      kControlBlock + ((segment->address - kControlBlock) & (alignment - 1));
  return StaticLocation{target + above};
}

Result<Location> static_location(std::uint64_t word) {
  const auto offset = static_cast<std::int64_t>(word);
  if (offset == 0) return untrue("a GOT word that is not relocated");
  if (offset < -kFarthestStatic || offset > kFarthestStatic) {
    return untrue("an impossible offset from the thread pointer");
  }
  return StaticLocation{word};
}

Result<Location> dynamic_location(const Words& index, std::uint64_t generation) {
  const auto [module_id, offset] = index;
  if (module_id == 0 || module_id > kMostModuleIds) {
    return untrue("module id " + std::to_string(module_id));
  }
  return DynamicLocation{module_id, offset, generation};
}

std::unexpected<Error> not_ours() {
  return fail("find TLS variable", ENOTSUP, "the GOT leads to the definition of another module");
}

Result<Words> read_words(const MemoryReader& memory, std::uint64_t at) {
  return memory.read(RemotePtr<Words>{RemoteAddr(at)});
}

Result<Location> descriptor_location(const ThreadLayout& layout, bool musl, std::uint64_t got,
                                     const MemoryReader& memory) {
  CTX_ASSIGN_OR_RETURN(descriptor, read_words(memory, got));
  const auto [resolver, argument] = descriptor;
  if (resolver == 0) return fail("find TLS variable", ENOTSUP, "a descriptor that is not resolved");
  const bool is_static =
      layout.block_below ? static_cast<std::int64_t>(argument) < 0 : argument < kLowestPointer;
  if (is_static) return static_location(argument);
  const auto index = read_words(memory, argument);
  if (!index && !layout.block_below) return static_location(argument);
  if (!index) return std::unexpected(index.error());
  if (musl) return dynamic_location(*index, 0);
  CTX_ASSIGN_OR_RETURN(generation,
                       memory.read(RemotePtr<std::uint64_t>{RemoteAddr(argument + 16)}));
  return dynamic_location(*index, generation);
}

Result<Location> got_location(TlsModel model, RemoteAddr got, const ThreadLayout& layout,
                              const MemoryReader& memory) {
  if (model == TlsModel::kTlsdesc)
    return descriptor_location(layout, layout.musl_dtv, got.raw(), memory);
  if (model == TlsModel::kInitialExec) {
    CTX_ASSIGN_OR_RETURN(word, memory.read(RemotePtr<std::uint64_t>{got}));
    return static_location(word);
  }
  CTX_ASSIGN_OR_RETURN(index, read_words(memory, got.raw()));
  return dynamic_location(index, 0);
}

Result<Location> location_of(const Modules& modules, const TlsAccess& access,
                             const ThreadLayout& layout, const MemoryReader& memory) {
  if (access.model == TlsModel::kLocalExec) {
    return local_exec(*modules.modules[access.module].image, layout, access.target);
  }
  CTX_ASSIGN_OR_RETURN(location, got_location(access.model, access.got, layout, memory));
  const auto* dynamic = std::get_if<DynamicLocation>(&location);
  if (dynamic != nullptr && dynamic->offset != access.target) {
    return untrue("a GOT entry of another variable");
  }
  return location;
}

// glibc: dtv[0] is the generation, dtv[-1] the length without these two entries.
Result<std::optional<RemoteAddr>> glibc_block(const DynamicLocation& location, std::uint64_t dtv,
                                              const MemoryReader& memory) {
  constexpr std::uint64_t kEntry = 16;
  std::array<std::uint64_t, 4> head{};  // length, -, generation, -
  Words block{};
  CTX_ASSIGN_OR_RETURN(
      copied, memory.read_two({RemoteAddr(dtv - kEntry), std::as_writable_bytes(std::span(head))},
                              {RemoteAddr(dtv + location.module_id * kEntry),
                               std::as_writable_bytes(std::span(block))}));
  const auto unreadable = [&] { return fail("find TLS variable", EFAULT, "a DTV"); };
  if (copied[0] < sizeof head) return unreadable();
  const std::uint64_t length = head[0];
  if (length == 0 || length > kMostModuleIds) {
    return untrue("a DTV of " + std::to_string(length) + " entries");
  }
  if (location.module_id > length) return std::nullopt;  // has not grown for this module yet
  // The entry belongs to an older module.
  if (head[2] < location.generation) return std::nullopt;
  if (copied[1] < sizeof block) return unreadable();
  if (block[0] == 0 || block[0] == kUnallocated) return std::nullopt;
  return RemoteAddr(block[0]);
}

Result<std::optional<RemoteAddr>> musl_block(const DynamicLocation& location, std::uint64_t dtv,
                                             const MemoryReader& memory) {
  constexpr std::uint64_t kEntry = 8;
  CTX_ASSIGN_OR_RETURN(length, memory.read(RemotePtr<std::uint64_t>{RemoteAddr(dtv)}));
  if (length > kMostModuleIds) return untrue("a DTV of " + std::to_string(length) + " entries");
  if (location.module_id > length) return std::nullopt;
  const RemoteAddr entry(dtv + location.module_id * kEntry);
  CTX_ASSIGN_OR_RETURN(block, memory.read(RemotePtr<std::uint64_t>{entry}));
  if (block == 0) return std::nullopt;
  return RemoteAddr(block);
}

Result<std::optional<RemoteAddr>> address_in(const Location& location, const ThreadLayout& layout,
                                             RemoteAddr tp, const MemoryReader& memory) {
  if (const auto* fixed = std::get_if<StaticLocation>(&location))
    return RemoteAddr(tp.raw() + fixed->offset);
  const auto& dynamic = std::get<DynamicLocation>(location);
  const RemoteAddr dtv_at(tp.raw() + static_cast<std::uint64_t>(layout.dtv_at));
  CTX_ASSIGN_OR_RETURN(dtv, memory.read(RemotePtr<std::uint64_t>{dtv_at}));
  if (dtv == 0) return std::nullopt;
  CTX_ASSIGN_OR_RETURN(block, layout.musl_dtv ? musl_block(dynamic, dtv, memory)
                                              : glibc_block(dynamic, dtv, memory));
  if (!block) return std::nullopt;
  return RemoteAddr(block->raw() + dynamic.offset);
}

struct Way {
  Location location;
  std::uint64_t distance = 0;  // from there to the variable
  std::optional<Location> rival;
  friend bool operator==(const Way&, const Way&) = default;
};

Result<Way> way_of(const Modules& modules, const TlsDefinition& definition, const TlsAccess& access,
                   const ThreadLayout& layout, const MemoryReader& memory) {
  CTX_ASSIGN_OR_RETURN(location, location_of(modules, access, layout, memory));
  Way way{location, definition.symbol.value - access.target, std::nullopt};
  if (!access.rival) return way;
  const auto other = got_location(access.rival->model, access.rival->got, layout, memory);
  if (!other) return way;
  if (*other == location) return not_ours();
  way.rival = *other;
  return way;
}

// A descriptor of a module in the static block holds an offset where General Dynamic has a module
// id, so the places alone do not tell whether the rival's place is the same.
Result<std::optional<RemoteAddr>> follow(const Way& way, const ThreadLayout& layout, RemoteAddr tp,
                                         const MemoryReader& memory) {
  CTX_ASSIGN_OR_RETURN(address, address_in(way.location, layout, tp, memory));
  if (!address) return std::nullopt;
  if (way.rival) {
    const auto other = address_in(*way.rival, layout, tp, memory);
    if (other && *other == address) return not_ours();
  }
  return RemoteAddr(address->raw() + way.distance);
}

}  // namespace

std::string_view to_string(TlsModel model) {
  switch (model) {
    case TlsModel::kTlsdesc:
      return "TLSDESC";
    case TlsModel::kGeneralDynamic:
      return "General Dynamic";
    case TlsModel::kInitialExec:
      return "initial-exec";
    case TlsModel::kLocalExec:
      return "local-exec";
  }
  return "?";
}

Result<std::vector<TlsDefinition>> find_tls_variable(Modules& modules, std::string_view name) {
  return AccessFinder(modules, name).find();
}

TlsDefinition find_hidden_tls_variable(Modules& modules, std::size_t m, const ElfSymbol& symbol) {
  return AccessFinder(modules, symbol.name).find_hidden(m, symbol);
}

struct TlsLocation::Ways {
  ThreadLayout layout;
  std::vector<Way> all;
};

Result<TlsLocation> tls_location(const Modules& modules, const TlsDefinition& definition,
                                 const MemoryReader& memory) {
  const Module& module = modules.modules[definition.module];
  CTX_ASSIGN_OR_RETURN(layout, layout_of(modules, *module.image));
  auto ways = std::make_shared<TlsLocation::Ways>();
  ways->layout = layout;
  std::optional<Error> problem;
  for (const TlsAccess& access : definition.accesses) {
    const auto way = way_of(modules, definition, access, layout, memory);
    if (!way) {
      if (!problem) problem = way.error();
      continue;
    }
    if (std::ranges::find(ways->all, *way) == ways->all.end()) ways->all.push_back(*way);
    if (ways->all.size() == kMostWays) break;
  }
  if (!ways->all.empty()) return TlsLocation(std::move(ways));
  if (problem) return std::unexpected(std::move(*problem));
  return fail("find TLS variable", ENOTSUP,
              module.path + " defines it, but no module has a relocation that leads there");
}

Result<std::optional<RemoteAddr>> tls_address(const Result<TlsLocation>& location, RemoteAddr tp,
                                              const MemoryReader& memory) {
  if (!location) return std::unexpected(location.error());
  if (tp.raw() == 0) return std::nullopt;
  std::optional<Error> problem;
  for (const Way& way : location->ways().all) {
    auto address = follow(way, location->ways().layout, tp, memory);
    if (address) return address;
    if (!problem) problem = std::move(address).error();
  }
  return std::unexpected(std::move(*problem));
}

Result<std::optional<RemoteAddr>> tls_address(const Modules& modules,
                                              const TlsDefinition& definition, RemoteAddr tp,
                                              const MemoryReader& memory) {
  CTX_ASSIGN_OR_RETURN(location, tls_location(modules, definition, memory));
  return tls_address(location, tp, memory);
}

}  // namespace ctxconf::sys
