// The variable in its ELF files: exported, thread-local, a pointer, reached in a way that
// readers can follow. Each mistake is judged by one rule, the others then cannot see.
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/elf/tls_access.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/rule.h"
#include "sys/processor.h"

namespace ctxconf::conformance {
namespace {

using sys::ElfSymbol;
using sys::TlsModel;
using sys::TlsRelocation;
using sys::TlsRelocationKind;

constexpr std::size_t kMostRelocations = 16;  // printed

constexpr const char* kExport = "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1";
constexpr const char* kKeep = "-Wl,-u,otel_thread_ctx_v1";

Finding from_file(Finding f) {
  f.level = "static";
  return f;
}
Finding kept(std::string saw = {}) { return from_file(passed(std::move(saw))); }
Finding broken(std::string saw, std::string signature, std::string mend) {
  Finding f = from_file(failed(std::move(saw), std::move(signature)));
  f.remedy = std::move(mend);
  return f;
}
Finding info_with_remedy(std::string saw, std::string signature, std::string mend) {
  Finding f = from_file(info(std::move(saw), std::move(signature)));
  f.remedy = std::move(mend);
  return f;
}
Finding unseen(std::string why, std::string remedy) {
  return from_file(unobservable(std::move(why), std::move(remedy)));
}
Finding elsewhere(std::string_view requirement) {
  return unseen(fmt::format("{} reports this mistake", requirement),
                fmt::format("fix {}", requirement));
}

std::string line(const ModuleFacts& m, const std::string& text) { return m.path + ": " + text; }
std::string dynsym_line(const ModuleFacts& m, const ElfSymbol& s) {
  return line(m, describe(s, ".dynsym"));
}

// The finding if nothing of the variable can be seen.
Finding absent(const ImageEvidence& e) {
  if (e.schema == abi::kGoSchemaVersion) {
    return not_applicable(NaReason::kCapability,
                          "Go's labels, which the process announces, need no such variable");
  }
  if (!e.uses_threads || e.timeline->mode == Mode::kElf) {
    return not_applicable(NaReason::kCapability, "no thread-local variable otel_thread_ctx_v1");
  }
  return unseen("no module has the thread-local variable otel_thread_ctx_v1 in a symbol table",
                fmt::format("a module that is not stripped; where a static library holds the "
                            "variable, link with {} {}",
                            kKeep, kExport));
}

const ModuleFacts* find(const ImageEvidence& e, bool (*predicate)(const ModuleFacts&)) {
  const auto it = std::ranges::find_if(e.image->modules, predicate);
  return it == e.image->modules.end() ? nullptr : &*it;
}

const ModuleFacts* program(const ImageEvidence& e) {
  return find(e, [](const ModuleFacts& m) { return m.executable; });
}
bool has_hidden_definition(const ModuleFacts& m) { return hidden_definition(m) != nullptr; }
bool has_dynamic_definition(const ModuleFacts& m) {
  return std::ranges::any_of(m.dynamic_symbols, &ElfSymbol::defined);
}

// A thread's variable of this module that was not null; null: none was seen.
const ThreadSample* use_of(const ImageEvidence& e, const ModuleFacts& m) {
  const auto is_use = [&](const ThreadSample& t) {
    return t.value != 0 && t.module < e.image->modules.size() && &e.image->modules[t.module] == &m;
  };
  for (const auto* samples : {&e.image->threads, &e.image->exits, &e.image->hidden_slots}) {
    const auto it = std::ranges::find_if(*samples, is_use);
    if (it != samples->end()) return &*it;
  }
  return nullptr;
}
std::string use_line(const ModuleFacts& m, const ThreadSample& t) {
  return line(m, fmt::format("thread {}: slot at {:#x} holds {:#x}", t.tid, t.slot, t.value));
}

bool uses_any(const ImageEvidence& e, const std::vector<const ModuleFacts*>& modules) {
  return std::ranges::any_of(modules, [&](const auto* m) { return use_of(e, *m) != nullptr; });
}

// The process says that it has this thread context.
bool announces_threads(const ImageEvidence& e) {
  if (e.schema) return abi::is_thread_schema(*e.schema);
  return std::ranges::any_of(e.contexts, [](const auto& list) {
    return std::ranges::any_of(list, [](const Context& c) {
      return c.candidate->named && c.usable() && c.payload != nullptr &&
             !c.payload->threadlocal.empty();
    });
  });
}

// Is a module to be judged by how it has the variable? A file always is: what will become of it
// is not known.
bool claims_threads(const ImageEvidence& e) {
  if (e.timeline->mode == Mode::kElf || announces_threads(e)) return true;
  if (e.session != nullptr && e.session->can("thread.attach")) return true;
  return std::ranges::any_of(e.image->modules,
                             [&](const ModuleFacts& m) { return use_of(e, m) != nullptr; });
}
Finding not_claimed(const ModuleFacts& m) {
  return from_file(not_applicable(
      NaReason::kCapability,
      fmt::format("{} has the variable's name, and the process neither announces thread context "
                  "nor was seen to use the variable",
                  m.path)));
}

bool defined_in_another_file(const ImageEvidence& e);
std::vector<const ModuleFacts*> all_modules(const ImageEvidence& e);

// The definitions that were seen in use in a process; all of them if none was.
std::vector<const ModuleFacts*> judged_definers(const ImageEvidence& e) {
  std::vector<const ModuleFacts*> used;
  std::ranges::copy_if(e.definers, std::back_inserter(used),
                       [&](const ModuleFacts* m) { return use_of(e, *m) != nullptr; });
  return used.empty() ? e.definers : used;
}

Finding unknown_use(const ModuleFacts& m) {
  return unseen(fmt::format("{} has a hidden copy of the variable, another module an exported one; "
                            "which of them is used was not seen",
                            m.path),
                "`ctxconf attach` while a thread has a context");
}

// A definition that no reader finds: does it take anything from them?
enum class Hidden { kHarms, kUnused, kUnknown };
Hidden effect_of_hidden(const ImageEvidence& e, const ModuleFacts& m, const ElfSymbol& s) {
  if (use_of(e, m) != nullptr) return Hidden::kHarms;
  if (e.timeline->mode != Mode::kElf) {
    if (e.definers.empty()) return Hidden::kHarms;
    return uses_any(e, e.definers) ? Hidden::kUnused : Hidden::kUnknown;
  }
  if (!defined_in_another_file(e)) return Hidden::kHarms;
  // Code of an executable reaches its own variable without a relocation.
  if (m.executable || !knows_relocations(m)) return Hidden::kUnknown;
  const bool reached = std::ranges::any_of(m.relocations, [&](const TlsRelocation& r) {
    const auto offset = static_cast<std::uint64_t>(r.addend);
    return r.symbol == 0 &&
           (r.kind == TlsRelocationKind::kModule ? r.word_after : offset) == s.value;
  });
  if (reached) return Hidden::kHarms;
  // Local dynamic: the code adds the offset, and may reach any variable of the module.
  const bool by_base = std::ranges::any_of(m.relocations, [](const TlsRelocation& r) {
    return r.symbol == 0 &&
           (r.kind == TlsRelocationKind::kModule ? r.word_after == 0 : r.addend == 0);
  });
  return by_base ? Hidden::kUnknown : Hidden::kUnused;
}

// Says which rule reports that there is no definition that readers can use.
Finding without_definer(const ImageEvidence& e) {
  if (find(e, has_dynamic_definition) != nullptr) {
    return unseen("no usable definition in .dynsym",
                  "fix tctx.tls.symbol-type or tctx.tls.symbol-defined");
  }
  const ModuleFacts* hidden = find(e, has_hidden_definition);
  if (hidden != nullptr) {
    if (!hidden->executable) return elsewhere("tctx.tls.dynsym-exported");
    return elsewhere(hidden->has_dynamic_section ? "tctx.tls.static-link-exported"
                                                 : "tctx.tls.fully-static");
  }
  const bool named = std::ranges::any_of(
      e.image->modules, [](const ModuleFacts& m) { return !m.dynamic_symbols.empty(); });
  if (named && defined_in_another_file(e)) {
    return not_applicable(NaReason::kCapability, "another file defines the variable");
  }
  if (named) return unseen("no module seen here defines the variable", "the module that does");
  return absent(e);
}

// All modules that may hold a relocation: with files, those that were named together.
std::vector<const ModuleFacts*> all_modules(const ImageEvidence& e) {
  std::vector<const ModuleFacts*> out;
  const auto add = [&out](const Image& image) {
    for (const ModuleFacts& m : image.modules) out.push_back(&m);
  };
  add(*e.image);
  if (e.timeline->mode != Mode::kElf) return out;
  for (const Process& p : e.timeline->processes) {
    for (const Image& image : p.images) {
      if (&image != e.image) add(image);
    }
  }
  return out;
}

// Files that are judged together are modules of one program.
bool defined_in_another_file(const ImageEvidence& e) {
  return e.timeline->mode == Mode::kElf && std::ranges::any_of(all_modules(e), [](const auto* m) {
           return slot_definition(*m) != nullptr;
         });
}

Finding dynsym_exported(const ImageEvidence& e) {
  for (const ModuleFacts& m : e.image->modules) {
    const ElfSymbol* s = hidden_definition(m);
    if (m.executable || s == nullptr) continue;
    if (!claims_threads(e)) return not_claimed(m);
    const Hidden effect = effect_of_hidden(e, m, *s);
    if (effect == Hidden::kUnused) continue;
    if (effect == Hidden::kUnknown) return unknown_use(m);
    Finding f =
        broken(fmt::format("{} defines the variable in .symtab only, which strip removes", m.path),
               "not in .dynsym",
               "give the definition default visibility, __attribute__((visibility(\"default\"))), "
               "and keep "
               "it out of `local:` in version scripts and of --exclude-libs; an object of a static "
               "library is compiled that way too");
    f.evidence = {line(m, describe(m)), line(m, describe(*s, ".symtab"))};
    if (const ThreadSample* use = use_of(e, m)) f.evidence.push_back(use_line(m, *use));
    return f;
  }
  if (find(e, has_dynamic_definition) != nullptr) return kept();
  return without_definer(e);
}

Finding static_link_exported(const ImageEvidence& e) {
  const ModuleFacts* m = program(e);
  if (m == nullptr) return not_applicable(NaReason::kCapability, "not an executable");
  const ElfSymbol* s = hidden_definition(*m);
  if (s == nullptr) {
    // Its own definition is there, or that of a shared library.
    if (has_dynamic_definition(*m) || !e.definers.empty()) return kept();
    if (!m->dynamic_symbols.empty() && defined_in_another_file(e)) return kept();
    return without_definer(e);
  }
  if (!claims_threads(e)) return not_claimed(*m);
  const Hidden effect = effect_of_hidden(e, *m, *s);
  if (effect == Hidden::kUnused) {
    return kept("a copy in the executable is hidden, and was not used while it was observed");
  }
  if (effect == Hidden::kUnknown) {
    return unknown_use(*m);
  }
  if (!m->has_dynamic_section) return elsewhere("tctx.tls.fully-static");
  const bool local = s->binding == STB_LOCAL;
  Finding f =
      broken(fmt::format("{} defines the variable and does not export it", m->path),
             "not exported by the executable",
             local ? fmt::format("give the definition default visibility, "
                                 "__attribute__((visibility(\"default\"))), and link with {}",
                                 kExport)
                   : fmt::format("link with {}", kExport));
  f.evidence = {line(*m, describe(*m)), line(*m, describe(*s, ".symtab"))};
  if (const ThreadSample* use = use_of(e, *m)) f.evidence.push_back(use_line(*m, *use));
  return f;
}

Finding fully_static(const ImageEvidence& e) {
  const ModuleFacts* m = program(e);
  if (m == nullptr) return not_applicable(NaReason::kCapability, "not an executable");
  if (m->has_dynamic_section) return kept();
  const ElfSymbol* s = hidden_definition(*m);
  if (s == nullptr && (!e.schema || !abi::is_thread_schema(*e.schema))) return absent(e);
  if (!claims_threads(e)) return not_claimed(*m);
  Finding f =
      broken(fmt::format("{} has no dynamic section, so nobody can find the variable", m->path),
             "fully static", fmt::format("link with -static-pie {}", kExport));
  f.evidence = {line(*m, describe(*m))};
  if (s != nullptr) f.evidence.push_back(line(*m, describe(*s, ".symtab")));
  return f;
}

Finding symbol_type(const ImageEvidence& e) {
  bool any = false;
  for (const ModuleFacts& m : e.image->modules) {
    for (const ElfSymbol& s : m.dynamic_symbols) {
      if (!s.defined()) continue;
      any = true;
      Finding f;
      if (s.type != STT_TLS) {
        f = broken(fmt::format("the symbol of {} is an ordinary one, not thread-local", m.path),
                   "not thread-local", "declare the variable thread_local (__thread in C)");
      } else if (!m.tls) {
        f = broken(fmt::format("{} has a thread-local symbol and no PT_TLS segment", m.path),
                   "no PT_TLS", "link again with a linker that makes the segment");
      } else if (s.value >= m.tls->memory_size || s.size > m.tls->memory_size - s.value) {
        f = broken(fmt::format("the symbol of {} is not inside the PT_TLS segment, which has {} "
                               "bytes",
                               m.path, m.tls->memory_size),
                   "outside PT_TLS", "link again, and let no tool change the file afterwards");
      } else {
        continue;
      }
      f.evidence = {dynsym_line(m, s)};
      return f;
    }
  }
  return any ? kept() : without_definer(e);
}

Finding symbol_defined(const ImageEvidence& e) {
  const ElfSymbol* undefined = nullptr;
  const ModuleFacts* holder = nullptr;
  for (const ModuleFacts& m : e.image->modules) {
    for (const ElfSymbol& s : m.dynamic_symbols) {
      if (!s.defined() && undefined == nullptr) {
        undefined = &s;
        holder = &m;
      }
      if (!s.defined() || s.type != STT_TLS || is_slot_definition(s)) continue;
      Finding f = broken(fmt::format("no other module can bind to the definition of {}", m.path),
                         "definition is not visible",
                         "give the definition default visibility and global binding");
      f.evidence = {dynsym_line(m, s)};
      return f;
    }
  }
  if (!e.definers.empty()) return kept();
  if (undefined == nullptr || find(e, has_dynamic_definition) != nullptr ||
      find(e, has_hidden_definition) != nullptr) {
    return without_definer(e);
  }
  if (e.timeline->mode == Mode::kElf) {
    if (defined_in_another_file(e)) return kept();
    // Nothing runs without what a strong reference asks for, so another module has it.
    return unseen(undefined->binding == STB_WEAK
                      ? "the file only asks whether another module has the variable"
                      : "the file uses the variable of another module",
                  "name the module that defines it as well");
  }
  if (!claims_threads(e)) return not_claimed(*holder);
  Finding f = broken(
      fmt::format("{} has only an undefined entry: a name without an address", holder->path),
      "undefined only",
      fmt::format("link the object that defines the variable: {} pulls it out of a static library",
                  kKeep));
  f.evidence = {dynsym_line(*holder, *undefined)};
  return f;
}

// The relocations of a defining library; empty for an executable.
std::vector<std::string> relocation_lines(const std::vector<SlotAccess>& accesses) {
  std::vector<std::string> out;
  for (const SlotAccess& a : accesses) {
    if (out.size() == kMostRelocations) break;
    out.push_back(line(*a.module, describe(a)));
  }
  return out;
}

// The variable in use is one that no .dynsym has.
Finding without_exported_use(const ImageEvidence& e) {
  const auto& modules = e.image->modules;
  const std::size_t used = e.image->hidden_slots.front().module;
  return elsewhere(used < modules.size() && modules[used].executable
                       ? "tctx.tls.static-link-exported"
                       : "tctx.tls.dynsym-exported");
}

// Why it is not known how a definition that no relocation names is reached; nothing: it is known.
std::optional<Finding> unknown_access(const ImageEvidence& e, const ModuleFacts& m) {
  if (!knows_relocations(m)) {
    return unseen("the relocations of this machine are not known here",
                  "an x86-64 or aarch64 file");
  }
  if (!m.local_dynamic_code.empty()) return elsewhere("tctx.tls.not-local-dynamic");
  if (e.timeline->mode == Mode::kElf) {
    return unseen(
        "the file defines the variable and has no relocation for it; another module "
        "may hold one",
        "name the other modules as well, or `ctxconf attach` to a process that has "
        "loaded them");
  }
  const auto damaged = std::ranges::find_if(
      e.image->modules, [](const ModuleFacts& o) { return !o.problem.empty(); });
  if (damaged == e.image->modules.end()) return std::nullopt;
  return unseen("not all modules could be read: " + line(*damaged, damaged->problem),
                "modules whose tables are sound");
}

Finding access_model(const ImageEvidence& e) {
  if (e.definers.empty()) return without_definer(e);
  std::optional<Finding> unknown;
  const auto all = all_modules(e);
  std::string models;
  const bool reached = std::ranges::any_of(
      e.definers, [&](const ModuleFacts* m) { return !accesses_of(*m, all).empty(); });
  for (const ModuleFacts* m : judged_definers(e)) {
    const auto accesses = accesses_of(*m, all);
    if (!accesses.empty()) {
      models += (models.empty() ? "" : ", ") + std::string(sys::to_string(accesses.front().model));
      continue;
    }
    if (auto why = unknown_access(e, *m)) {
      if (!unknown) unknown = std::move(why);
      continue;
    }
    const ThreadSample* use = use_of(e, *m);
    // Then the program goes by another definition.
    if (use == nullptr && reached) continue;
    if (use == nullptr && !e.image->hidden_slots.empty()) {
      if (!unknown) unknown = without_exported_use(e);
      continue;
    }
    Finding f = broken(
        fmt::format("{} defines the variable and no module has a relocation for it", m->path),
        "no relocation", "access the variable by name in compiled code, not through dlsym");
    f.evidence = {dynsym_line(*m, *slot_definition(*m))};
    if (use != nullptr) f.evidence.push_back(use_line(*m, *use));
    return f;
  }
  return unknown ? *unknown : kept(models);
}

Finding not_local_dynamic(const ImageEvidence& e) {
  if (e.definers.empty()) return without_definer(e);
  const auto all = all_modules(e);
  std::optional<Finding> milder;
  std::optional<Finding> unread;
  for (const ModuleFacts* m : judged_definers(e)) {
    const ElfSymbol& symbol = *slot_definition(*m);
    // A zero in the word after a nameless module id may be the variable's offset or local
    // dynamic's: if ctxconf can read the code, the code decides.
    const bool code_decides = reads_code_of(*m);
    const auto accesses = accesses_of(*m, all);
    const bool certain = std::ranges::any_of(accesses, [&](const SlotAccess& a) {
      return symbol.value != 0 || a.relocation == nullptr || a.relocation->symbol != 0 ||
             a.relocation->kind != TlsRelocationKind::kModule;
    });
    if (certain || (!accesses.empty() && code_decides)) continue;
    std::vector<std::string> evidence = {dynsym_line(*m, symbol)};
    bool suspect = false;
    for (const TlsRelocation& r : m->relocations) {
      if (!may_be_local_dynamic(r, symbol)) continue;
      suspect = true;
      if (evidence.size() < kMostRelocations) evidence.push_back(line(*m, describe(r)));
    }
    if (!suspect || m->executable) continue;
    const auto& code = m->local_dynamic_code;
    evidence.insert(evidence.end(), code.begin(), code.end());
    const char* mend =
        "access the exported name itself, not a hidden alias of it, and drop "
        "-ftls-model=local-dynamic; clang takes it for a protected variable too, which then needs "
        "default visibility";
    Finding f;
    if (symbol.value != 0 && !code.empty()) {
      f = broken(fmt::format("code of {} adds {:#x}, the variable's offset, to a module base",
                             m->path, symbol.value),
                 "local dynamic", mend);
    } else if (symbol.value == 0 && (!code.empty() || !code_decides)) {
      f = info_with_remedy(
          fmt::format("{} may reach the variable as local dynamic: its offset is zero, so "
                      "the relocations do not tell",
                      m->path),
          "possibly local dynamic", mend);
    } else {
      if (!code_decides && accesses.empty() && !unread) {
        unread = unseen(
            fmt::format("code of {} may add the variable's offset to a module base: ctxconf reads "
                        "only code of x86-64",
                        m->path),
            "the same library for x86-64");
      }
      continue;
    }
    f.evidence = std::move(evidence);
    if (f.outcome == Outcome::kFail) return f;
    if (!milder) milder = std::move(f);
  }
  return milder ? *milder : unread ? *unread : kept();
}

Finding prefers_tlsdesc(const ImageEvidence& e) {
  if (e.definers.empty()) return without_definer(e);
  const auto all = all_modules(e);
  bool any = false;
  for (const ModuleFacts* m : judged_definers(e)) {
    if (m->executable) continue;
    const std::string_view option = sys::processor_of_elf(m->machine).tlsdesc_option;
    if (!knows_relocations(*m) || option.empty()) {
      return not_applicable(NaReason::kArch, "whether this machine has TLSDESC is not known here");
    }
    const auto accesses = accesses_of(*m, all);
    any = any || !accesses.empty();
    const bool general_only =
        !accesses.empty() && std::ranges::all_of(accesses, [](const SlotAccess& a) {
          return a.model == TlsModel::kGeneralDynamic;
        });
    if (!general_only) continue;
    Finding f = broken(fmt::format("{} is reached by traditional General Dynamic", m->path),
                       "General Dynamic", fmt::format("compile with {}", option));
    f.evidence = relocation_lines(accesses);
    return f;
  }
  const bool library =
      std::ranges::any_of(e.definers, [](const ModuleFacts* m) { return !m->executable; });
  if (!library) return kept("an executable reaches its own variable without any relocation");
  if (!any) return unseen("no relocation for the variable was seen", "the module that accesses it");
  return kept();
}

Finding is_pointer(const ImageEvidence& e) {
  if (e.definers.empty()) return without_definer(e);
  std::optional<Finding> milder;
  for (const ModuleFacts* m : judged_definers(e)) {
    const ElfSymbol& s = *slot_definition(*m);
    const std::uint64_t pointer = m->elf64 ? 8 : 4;
    Finding f;
    if (s.size != 0 && s.size != pointer) {
      f = broken(
          fmt::format("the variable of {} has {} bytes, a pointer {}", m->path, s.size, pointer),
          "not of pointer size", "declare a thread-local pointer and let it point at the record");
    } else if (s.size == 0) {
      f = info_with_remedy(fmt::format("the definition in {} states no size", m->path), "no size",
                           "give the symbol its size (.size in assembler)");
    } else if (s.value % pointer != 0 ||
               (m->tls && m->tls->alignment != 0 && m->tls->alignment % pointer != 0)) {
      f = info_with_remedy(fmt::format("the variable of {} is not aligned like a pointer", m->path),
                           "misaligned",
                           "declare the variable as a pointer, which the compiler aligns");
    } else {
      continue;
    }
    f.evidence = {dynsym_line(*m, s)};
    if (f.outcome == Outcome::kFail) return f;
    if (!milder) milder = std::move(f);
  }
  return milder ? *milder : kept();
}

// How many variables are in use of the modules that define it together. The relocation of one may
// lead to the variable of another, which then is shown as that of both: it counts once.
std::size_t variables_in_use(const ImageEvidence& e) {
  std::size_t used = 0;
  std::set<std::pair<std::int32_t, std::uint64_t>> counted;
  for (const std::uint32_t index : e.image->defined_together) {
    std::set<std::pair<std::int32_t, std::uint64_t>> own;
    for (const auto* samples : {&e.image->threads, &e.image->exits}) {
      for (const ThreadSample& t : *samples) {
        if (t.module == index && t.value != 0) own.emplace(t.tid, t.slot);
      }
    }
    if (std::ranges::any_of(own, [&](const auto& slot) { return !counted.contains(slot); })) ++used;
    counted.merge(own);
  }
  return used;
}

Finding one_definition(const ImageEvidence& e) {
  if (e.definers.empty()) return without_definer(e);
  const auto& together = e.image->defined_together;
  if (together.size() <= 1) return kept();
  std::vector<std::string> evidence;
  const std::size_t used = variables_in_use(e);
  for (const std::uint32_t index : together) {
    const ModuleFacts* m = &e.image->modules[index];
    if (evidence.size() >= kMostRelocations * 4) {
      if (evidence.back() != "...") evidence.emplace_back("...");
      continue;
    }
    if (slot_definition(*m) == nullptr) continue;
    evidence.push_back(dynsym_line(*m, *slot_definition(*m)));
    std::size_t shown = 0;
    for (const ThreadSample& t : e.image->threads) {
      if (t.module >= e.image->modules.size() || &e.image->modules[t.module] != m) continue;
      if (shown++ == kMostRelocations) break;
      evidence.push_back(use_line(*m, t));
    }
  }
  if (used <= 1 && e.image->threads_dropped > 0) {
    return unobservable(fmt::format("{} modules define the variable, and not all samples of "
                                    "threads were kept",
                                    together.size()),
                        "a program whose threads change their contexts less often");
  }
  const char* mend = "let one module define the variable and the others refer to it";
  Finding f = used > 1 ? broken(fmt::format("{} modules define the variable, and {} of these "
                                            "variables are in use",
                                            together.size(), used),
                                "several definitions", mend)
                       : info_with_remedy(
                             fmt::format("{} modules define the variable; {} of these variables "
                                         "was seen in use",
                                         together.size(), used == 0 ? "none" : "one"),
                             "several definitions, one in use", mend);
  f.evidence = std::move(evidence);
  return f;
}

// What a process has and does not use takes nothing from a reader.
template <Finding (*kRule)(const ImageEvidence&)>
Finding if_claimed(const ImageEvidence& e) {
  Finding f = kRule(e);
  const bool blames = f.outcome == Outcome::kFail || f.outcome == Outcome::kInfo;
  if (!blames || e.definers.empty() || claims_threads(e)) return f;
  return not_claimed(*e.definers.front());
}

constexpr auto kTlsRules = std::to_array<RequirementRule>({
    {"tctx.tls.dynsym-exported", dynsym_exported, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {.id = "tctx.tls.symbol-type",
     .rule = symbol_type,
     .under_faults = UnderFaults::kJudged,
     .leaves_variable_findable = true},
    {"tctx.tls.symbol-defined", symbol_defined, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.tls.static-link-exported", static_link_exported, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.tls.fully-static", fully_static, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.tls.access-model", if_claimed<access_model>, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.tls.not-local-dynamic", if_claimed<not_local_dynamic>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kJudged},
    {"tctx.tls.prefers-tlsdesc", if_claimed<prefers_tlsdesc>, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
    {.id = "tctx.tls.is-pointer",
     .rule = if_claimed<is_pointer>,
     .under_faults = UnderFaults::kJudged,
     .leaves_variable_findable = true},
    {"tctx.tls.one-definition", if_claimed<one_definition>, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> tls_rules() { return kTlsRules; }

}  // namespace ctxconf::conformance
