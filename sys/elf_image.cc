#include "sys/elf_image.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sys/elf_bytes.h"
#include "sys/elf_symbols.h"
#include "sys/elf_view.h"

namespace ctxconf::sys {
namespace elf {
namespace {

constexpr std::size_t kMostRelocations = 65536;
constexpr std::uint64_t kMostNoteBytes = 64U << 10U;
constexpr std::size_t kMostNoteSegments = 16;
constexpr std::uint64_t kMostGoBytes = 1U << 20U;  // of one segment
constexpr std::size_t kMostGoSegments = 16;
constexpr std::string_view kGoMagic = "\xff Go buildinf:";

struct TlsTypes {
  std::uint16_t machine;
  std::uint32_t tlsdesc, module, offset, thread_pointer_offset;
};
constexpr std::array kTlsTypes = {
    TlsTypes{EM_X86_64, R_X86_64_TLSDESC, R_X86_64_DTPMOD64, R_X86_64_DTPOFF64, R_X86_64_TPOFF64},
    TlsTypes{EM_AARCH64, R_AARCH64_TLSDESC, R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_DTPREL,
             R_AARCH64_TLS_TPREL},
    TlsTypes{EM_386, R_386_TLS_DESC, R_386_TLS_DTPMOD32, R_386_TLS_DTPOFF32, R_386_TLS_TPOFF},
    TlsTypes{EM_ARM, R_ARM_TLS_DESC, R_ARM_TLS_DTPMOD32, R_ARM_TLS_DTPOFF32, R_ARM_TLS_TPOFF32},
};

std::optional<TlsRelocationKind> kind_of(const TlsTypes& types, std::uint32_t type) {
  if (type == types.tlsdesc) return TlsRelocationKind::kTlsdesc;
  if (type == types.module) return TlsRelocationKind::kModule;
  if (type == types.offset) return TlsRelocationKind::kOffset;
  if (type == types.thread_pointer_offset) return TlsRelocationKind::kThreadPointerOffset;
  return std::nullopt;
}

std::uint64_t to_word(ElfFormat format, std::span<const std::byte> raw) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const std::size_t shift = 8 * (format.little_endian ? i : raw.size() - 1 - i);
    value |= std::to_integer<std::uint64_t>(raw[i]) << shift;
  }
  return value;
}

// Two words; 0 where the file has none.
std::pair<std::uint64_t, std::uint64_t> got_words(const View& view, std::uint64_t address) {
  std::array<std::byte, 16> raw{};
  const std::size_t size = view.format().is_64 ? 8 : 4;
  const auto both = std::span(raw).first(2 * size);
  const std::size_t there = read_loaded(view.bytes, *view.parsed, address, both);
  std::fill(both.begin() + static_cast<std::ptrdiff_t>(there / size * size), both.end(),
            std::byte{0});
  return {to_word(view.format(), both.first(size)), to_word(view.format(), both.last(size))};
}

// The initial GOT words of a REL table; for a descriptor's pair this is the argument.
std::int64_t implicit_addend(const View& view, const TlsRelocation& relocation) {
  const std::uint64_t word =
      relocation.kind == TlsRelocationKind::kTlsdesc ? relocation.word_after : relocation.word;
  return view.format().is_64 ? static_cast<std::int64_t>(word) : static_cast<std::int32_t>(word);
}

class RelocationReader {
 public:
  RelocationReader(const View& view, const TlsTypes& types) : view_(view), types_(types) {}

  Result<> add_rela(std::uint64_t address, std::uint64_t size) {
    return add<Elf64_Rela>(address, size,
                           [&](const Elf64_Rela& r) { keep(r.r_offset, r.r_info, r.r_addend); });
  }
  Result<> add_rel(std::uint64_t address, std::uint64_t size) {
    return add<Elf64_Rel>(address, size,
                          [&](const Elf64_Rel& r) { keep(r.r_offset, r.r_info, std::nullopt); });
  }
  std::vector<TlsRelocation> take() && { return std::move(found_); }

 private:
  template <class Record>
  Result<> add(std::uint64_t address, std::uint64_t size,
               const std::function<void(const Record&)>& visit) {
    if (size == 0) return {};
    CTX_ASSIGN_OR_RETURN(table, sized_table(view_, address, size, "a relocation table"));
    return walk_records<Record>(view_.bytes, view_.format(), table.offset,
                                size / record_size<Record>(view_.format()),
                                [&](std::uint64_t, const Record& r) {
                                  visit(r);
                                  return found_.size() < kMostRelocations && !out_of_budget_;
                                });
  }

  void keep(std::uint64_t offset, std::uint64_t info, std::optional<std::int64_t> addend) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(info));
    const auto kind = kind_of(types_, type);
    if (!kind) return;
    ElfBudget* budget = view_.bytes.budget();
    out_of_budget_ = budget != nullptr && !budget->take_relocations(1);
    TlsRelocation relocation{*kind, type, offset, static_cast<std::uint32_t>(ELF64_R_SYM(info)),
                             0,     0,    0};
    std::tie(relocation.word, relocation.word_after) = got_words(view_, offset);
    relocation.addend = addend ? *addend : implicit_addend(view_, relocation);
    found_.push_back(relocation);
  }

  const View& view_;
  const TlsTypes& types_;
  std::vector<TlsRelocation> found_;
  bool out_of_budget_ = false;
};

Result<std::vector<TlsRelocation>> parse_relocations(const View& view) {
  const Parsed& parsed = *view.parsed;
  const auto types = std::find_if(kTlsTypes.begin(), kTlsTypes.end(), [&](const TlsTypes& t) {
    return t.machine == parsed.header.e_machine;
  });
  if (types == kTlsTypes.end()) return std::vector<TlsRelocation>();
  const auto value = [&](std::int64_t tag) { return dynamic_value(parsed, tag).value_or(0); };
  RelocationReader reader(view, *types);
  CTX_RETURN_IF_ERROR(reader.add_rela(value(DT_RELA), value(DT_RELASZ)));
  CTX_RETURN_IF_ERROR(reader.add_rel(value(DT_REL), value(DT_RELSZ)));
  // Some linkers count the PLT's part in the main table too.
  const bool rela = value(DT_PLTREL) == DT_RELA;
  const std::uint64_t main = value(rela ? DT_RELA : DT_REL);
  const std::uint64_t main_size = value(rela ? DT_RELASZ : DT_RELSZ);
  if (value(DT_JMPREL) >= main && value(DT_JMPREL) - main < main_size)
    return std::move(reader).take();
  CTX_RETURN_IF_ERROR(rela ? reader.add_rela(value(DT_JMPREL), value(DT_PLTRELSZ))
                           : reader.add_rel(value(DT_JMPREL), value(DT_PLTRELSZ)));
  return std::move(reader).take();
}

Result<std::shared_ptr<const Parsed>> parse(View& view) {
  auto parsed = std::make_shared<Parsed>();
  view.parsed = parsed;
  CTX_RETURN_IF_ERROR(parse_headers(view, *parsed));
  if (auto dynamic = parse_dynamic(view, *parsed); dynamic) {
    parsed->relocations = parse_relocations(view);
  } else {
    parsed->dynamic.clear();
    parsed->relocations = std::unexpected(std::move(dynamic).error());
  }
  // All or nothing: others will use what was parsed.
  if (const ElfBudget* budget = view.bytes.budget(); budget != nullptr && budget->exhausted()) {
    return used_up(*budget);
  }
  return parsed;
}

// What a symbol means to a relocation.
struct Meaning {
  enum { kOurs, kLocal, kOther } what = kOther;
  std::uint64_t value = 0;  // of a local symbol, to be added
};

Result<Meaning> meaning_of(const View& view, const Symbols& symbols, std::uint32_t index,
                           std::string_view name) {
  CTX_ASSIGN_OR_RETURN(symbol, symbol_at(view, symbols, index));
  if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) {  // gold: .tdata, _TLS_MODULE_BASE_
    const bool tls = ELF64_ST_TYPE(symbol.st_info) == STT_TLS;
    return Meaning{Meaning::kLocal, tls ? symbol.st_value : 0};
  }
  CTX_ASSIGN_OR_RETURN(same, string_is(view, symbols.strings, symbol.st_name, name));
  return Meaning{same ? Meaning::kOurs : Meaning::kOther, 0};
}

Result<std::vector<TlsRelocation>> relocations_of(const View& view, std::string_view name) {
  const auto& all = *view.parsed->relocations;
  CTX_ASSIGN_OR_RETURN(symbols, find_dynamic_symbols(view));
  std::vector<TlsRelocation> found;
  std::unordered_map<std::uint32_t, Meaning> known;  // by symbol
  for (TlsRelocation relocation : all) {
    if (relocation.symbol != 0) {
      if (!symbols) continue;
      auto meaning = known.find(relocation.symbol);
      if (meaning == known.end()) {
        CTX_ASSIGN_OR_RETURN(read, meaning_of(view, *symbols, relocation.symbol, name));
        meaning = known.emplace(relocation.symbol, read).first;
      }
      if (meaning->second.what == Meaning::kOther) continue;
      if (meaning->second.what == Meaning::kLocal) {
        relocation.symbol = 0;
        relocation.addend = static_cast<std::int64_t>(
            static_cast<std::uint64_t>(relocation.addend) + meaning->second.value);
      }
    }
    found.push_back(relocation);
  }
  return found;
}

Result<std::string> soname_of(const View& view) {
  const auto at = dynamic_value(*view.parsed, DT_SONAME);
  const auto strings = dynamic_value(*view.parsed, DT_STRTAB);
  if (!at || !strings) return std::string();
  CTX_ASSIGN_OR_RETURN(
      names,
      sized_table(view, *strings, dynamic_value(*view.parsed, DT_STRSZ).value_or(0), "DT_STRTAB"));
  return string_at(view, names, *at);
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4U];
    out += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

// Notes are {name size, description size, type}; name and description are padded to 4 bytes, also
// in 64-bit files. Only a segment aligned to 8 pads to 8.
Result<std::string> build_id_in(const View& view, const ElfSegment& notes) {
  std::uint64_t at = notes.offset;
  const std::uint64_t padding = notes.alignment == 8 ? 8 : 4;
  const std::uint64_t size = std::min(notes.file_size, kMostNoteBytes);
  if (!view.bytes.contains(at, size)) return wrong("a note is beyond the end of the file");
  const std::uint64_t end = at + size;
  const auto padded = [&](std::uint64_t n) { return (n + padding - 1) / padding * padding; };
  while (end - at >= sizeof(Elf64_Nhdr)) {
    std::array<Elf64_Word, 3> header{};
    CTX_RETURN_IF_ERROR(read_records<Elf64_Word>(view.bytes, view.format(), at, header));
    const auto [name_size, id_size, type] = header;
    const std::uint64_t id_at = padded(sizeof header + name_size);
    const std::uint64_t next = id_at + padded(id_size);
    if (next > end - at) break;
    if (type == NT_GNU_BUILD_ID && name_size == sizeof ELF_NOTE_GNU && id_size <= 64) {
      std::string name(name_size, '\0');
      std::string id(id_size, '\0');
      CTX_RETURN_IF_ERROR(
          view.bytes.read(at + sizeof header, std::as_writable_bytes(std::span(name))));
      CTX_RETURN_IF_ERROR(view.bytes.read(at + id_at, std::as_writable_bytes(std::span(id))));
      if (name == std::string_view(ELF_NOTE_GNU, sizeof ELF_NOTE_GNU)) return to_hex(id);
    }
    at += next;
  }
  return std::string();
}

std::string build_id_of(const View& view) {
  std::size_t tried = 0;
  for (const ElfSegment& segment : view.parsed->segments) {
    if (segment.type != PT_NOTE || ++tried > kMostNoteSegments) continue;
    if (auto id = build_id_in(view, segment); id && !id->empty()) return *id;
  }
  return {};
}

Result<bool> has_go_section(const View& view) {
  if (view.parsed->section_names >= view.parsed->section_count) return false;
  CTX_ASSIGN_OR_RETURN(names_section, section_at(view, view.parsed->section_names));
  CTX_ASSIGN_OR_RETURN(names, section_table(view, names_section, ".shstrtab"));
  if (!names) return false;
  CTX_ASSIGN_OR_RETURN(section, find_section(view, [&](const Elf64_Shdr& s) {
                         return string_is(view, *names, s.sh_name, ".go.buildinfo").value_or(false);
                       }));
  return section.has_value();
}

// Go aligns its build information to 16 bytes in the data segment.
Result<bool> has_go_magic(const View& view) {
  bool found = false;
  std::size_t tried = 0;
  for (const ElfSegment& segment : view.parsed->segments) {
    if (segment.type != PT_LOAD || (segment.flags & PF_W) == 0) continue;
    if (++tried > kMostGoSegments) break;
    const std::uint64_t size = std::min(segment.file_size, kMostGoBytes);
    if (!view.bytes.contains(segment.offset, size)) continue;
    CTX_RETURN_IF_ERROR(walk_bytes(view, {segment.offset, size}, kGoMagic.size() - 1,
                                   [&](std::uint64_t at, std::string_view piece) {
                                     std::size_t i = 0;
                                     while (!found && (i = piece.find(kGoMagic, i)) != piece.npos) {
                                       found = (segment.address + at + i++) % 16 == 0;
                                     }
                                     return !found;
                                   }));
    if (found) break;
  }
  return found;
}

}  // namespace
}  // namespace elf

struct ElfImage::State {
  std::string name;
  std::string path;  // empty: from memory
  std::span<const std::byte> memory;
  FileIdentity identity;
  std::shared_ptr<const elf::Parsed> parsed;
  std::shared_ptr<ElfBudget> budget;

  Result<elf::View> view() const {
    if (path.empty()) return on_budget(ElfBytes(memory));
    CTX_ASSIGN_OR_RETURN(bytes, ElfBytes::open(path, identity));
    return on_budget(std::move(bytes));
  }
  elf::View on_budget(ElfBytes bytes) const {
    bytes.set_budget(budget);
    return elf::View{std::move(bytes), parsed};
  }
};

ElfImage::ElfImage(std::unique_ptr<State> state) : state_(std::move(state)) {}
ElfImage::ElfImage(ElfImage&&) noexcept = default;
ElfImage& ElfImage::operator=(ElfImage&&) noexcept = default;
ElfImage::~ElfImage() = default;

Result<ElfImage> ElfImage::open(const std::string& path, std::string name,
                                std::shared_ptr<ElfBudget> budget,
                                const std::optional<FileIdentity>& expected) {
  if (path.empty()) return fail("open ELF file", ENOENT, "no name");
  CTX_ASSIGN_OR_RETURN(bytes, ElfBytes::open(path, expected));
  const FileIdentity identity = bytes.identity();
  bytes.set_budget(budget);
  elf::View view{std::move(bytes), nullptr};
  CTX_ASSIGN_OR_RETURN(parsed, elf::parse(view));
  if (name.empty()) name = path;
  return ElfImage(std::make_unique<State>(
      State{std::move(name), path, {}, identity, parsed, std::move(budget)}));
}

Result<ElfImage> ElfImage::from_memory(std::span<const std::byte> memory, std::string name,
                                       std::shared_ptr<ElfBudget> budget) {
  ElfBytes bytes(memory);
  bytes.set_budget(budget);
  elf::View view{std::move(bytes), nullptr};
  CTX_ASSIGN_OR_RETURN(parsed, elf::parse(view));
  return ElfImage(
      std::make_unique<State>(State{std::move(name), "", memory, {}, parsed, std::move(budget)}));
}

ElfImage ElfImage::reached_by(std::string path, std::shared_ptr<ElfBudget> budget) const {
  auto state = std::make_unique<State>(*state_);
  if (!state->path.empty()) state->path = std::move(path);
  state->budget = std::move(budget);
  return ElfImage(std::move(state));
}

const std::string& ElfImage::name() const { return state_->name; }
const FileIdentity& ElfImage::identity() const { return state_->identity; }
bool ElfImage::is_64() const { return state_->parsed->format.is_64; }
bool ElfImage::little_endian() const { return state_->parsed->format.little_endian; }
std::uint16_t ElfImage::machine() const { return state_->parsed->header.e_machine; }
std::uint16_t ElfImage::type() const { return state_->parsed->header.e_type; }

bool ElfImage::is_executable() const {
  const bool pie = (elf::dynamic_value(*state_->parsed, DT_FLAGS_1).value_or(0) & DF_1_PIE) != 0;
  // A library may have an interpreter as well, so that it can be run: libc.so.6 prints its version.
  const bool runs = has_interpreter() && !elf::dynamic_value(*state_->parsed, DT_SONAME);
  return type() == ET_EXEC || (type() == ET_DYN && (pie || runs));
}

bool ElfImage::has_dynamic_section() const {
  return elf::last_segment(*state_->parsed, PT_DYNAMIC) != nullptr;
}

bool ElfImage::has_interpreter() const {
  return elf::last_segment(*state_->parsed, PT_INTERP) != nullptr;
}

bool ElfImage::is_symbolic() const {
  return elf::dynamic_value(*state_->parsed, DT_SYMBOLIC).has_value() ||
         (elf::dynamic_value(*state_->parsed, DT_FLAGS).value_or(0) & DF_SYMBOLIC) != 0;
}

bool ElfImage::has_section_headers() const { return state_->parsed->section_count != 0; }

bool ElfImage::is_go() const {
  const auto view = state_->view();
  return view &&
         (elf::has_go_section(*view).value_or(false) || elf::has_go_magic(*view).value_or(false));
}

std::string ElfImage::soname() const {
  const auto view = state_->view();
  return view ? elf::soname_of(*view).value_or("") : "";
}

std::string ElfImage::build_id() const {
  const auto view = state_->view();
  return view ? elf::build_id_of(*view) : "";
}

const std::vector<ElfSegment>& ElfImage::segments() const { return state_->parsed->segments; }

std::optional<ElfSegment> ElfImage::tls_segment() const {
  const ElfSegment* segment = elf::last_segment(*state_->parsed, PT_TLS);
  if (segment == nullptr || segment->memory_size == 0) return std::nullopt;
  return *segment;
}

Result<std::vector<ElfSymbol>> ElfImage::dynamic_symbols(std::string_view name) const {
  if (!has_dynamic_section()) return std::vector<ElfSymbol>();
  if (state_->parsed->dynamic.empty() && !state_->parsed->relocations) {
    return std::unexpected(state_->parsed->relocations.error());
  }
  CTX_ASSIGN_OR_RETURN(view, state_->view());
  return elf::dynamic_symbols_of(view, name);
}

Result<std::vector<ElfSymbol>> ElfImage::static_symbols(std::string_view name) const {
  if (!has_section_headers()) return std::vector<ElfSymbol>();
  CTX_ASSIGN_OR_RETURN(view, state_->view());
  return elf::static_symbols_of(view, name);
}

Result<std::vector<TlsRelocation>> ElfImage::tls_relocations(std::string_view name) const {
  const auto& all = state_->parsed->relocations;
  const auto is_named = [](const TlsRelocation& r) { return r.symbol != 0; };
  ElfBudget* budget = state_->budget.get();
  if (all && budget != nullptr && !budget->take_relocations(all->size())) return used_up(*budget);
  if (!all || std::none_of(all->begin(), all->end(), is_named)) return all;
  CTX_ASSIGN_OR_RETURN(view, state_->view());
  return elf::relocations_of(view, name);
}

std::size_t ElfImage::kept_relocations() const {
  const auto& all = state_->parsed->relocations;
  return all ? all->size() : 0;
}

std::size_t ElfImage::read_at(std::uint64_t address, std::span<std::byte> out) const {
  const auto view = state_->view();
  return view ? elf::read_loaded(view->bytes, *state_->parsed, address, out) : 0;
}

Result<std::vector<std::string>> ElfImage::constant_segments(std::uint64_t most) const {
  constexpr std::size_t kMostSegments = 16;
  CTX_ASSIGN_OR_RETURN(view, state_->view());
  std::vector<std::string> out;
  std::size_t tried = 0;
  for (const ElfSegment& segment : segments()) {
    if (segment.type != PT_LOAD || (segment.flags & PF_W) != 0) continue;
    if (most == 0 || tried++ >= kMostSegments) break;
    if (!view.bytes.contains(segment.offset, segment.file_size)) continue;
    std::string text(std::min(segment.file_size, most), '\0');
    most -= text.size();
    CTX_RETURN_IF_ERROR(view.bytes.read(segment.offset, std::as_writable_bytes(std::span(text))));
    out.push_back(std::move(text));
  }
  return out;
}

std::string_view to_string(TlsRelocationKind kind) {
  switch (kind) {
    case TlsRelocationKind::kTlsdesc:
      return "TLSDESC";
    case TlsRelocationKind::kModule:
      return "DTPMOD64";
    case TlsRelocationKind::kOffset:
      return "DTPOFF64";
    case TlsRelocationKind::kThreadPointerOffset:
      return "TPOFF64";
  }
  return "?";
}

}  // namespace ctxconf::sys
