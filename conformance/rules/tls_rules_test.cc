// The rules about the variable in its ELF files, against literal facts: each mistake is one
// requirement's, and nothing legal is anybody's.
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "conformance/elf/tls_access.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using sys::ElfSymbol;
using sys::TlsRelocation;
using sys::TlsRelocationKind;

constexpr std::uint64_t kOffset = 8;

ElfSymbol symbol(std::uint8_t type = STT_TLS, std::uint16_t section = 16,
                 std::uint8_t binding = STB_GLOBAL) {
  return {.index = 7,
          .name = "otel_thread_ctx_v1",
          .value = section == SHN_UNDEF ? 0 : kOffset,
          .size = 8,
          .type = type,
          .binding = binding,
          .visibility = STV_DEFAULT,
          .section = section};
}

TlsRelocation relocation(TlsRelocationKind kind, std::uint32_t of_symbol = 7,
                         std::int64_t addend = 0) {
  return {.kind = kind, .type = 1, .offset = 0x4000, .symbol = of_symbol, .addend = addend};
}

ModuleFacts library(const std::string& path = "/lib/libsdk.so") {
  ModuleFacts m;
  m.path = path;
  m.machine = EM_X86_64;
  m.type = ET_DYN;
  m.has_dynamic_section = true;
  m.tls = sys::ElfSegment{.type = PT_TLS, .memory_size = 0x10, .alignment = 8};
  m.dynamic_symbols = {symbol()};
  m.static_symbols = {symbol()};
  m.relocations = {relocation(TlsRelocationKind::kTlsdesc)};
  return m;
}

ModuleFacts executable() {
  ModuleFacts m = library("/bin/app");
  m.executable = m.has_interpreter = true;
  m.relocations.clear();
  return m;
}

ModuleFacts without_variable(ModuleFacts m) {
  m.dynamic_symbols.clear();
  m.static_symbols.clear();
  m.relocations.clear();
  m.tls.reset();
  return m;
}

// One process, or one file.
struct Seen {
  Timeline timeline;
  std::optional<std::string> schema;

  explicit Seen(std::vector<ModuleFacts> modules, Mode mode = Mode::kWrap) {
    timeline.mode = mode;
    if (mode != Mode::kElf) schema = "tls_v1";
    add(std::move(modules));
  }
  void add(std::vector<ModuleFacts> modules) {
    Process p;
    p.images.emplace_back();
    p.images.back().modules = std::move(modules);
    timeline.processes.push_back(std::move(p));
  }
  Image& image() { return timeline.processes.front().images.front(); }

  Finding judge(std::string_view id) const {
    ImageEvidence e;
    e.timeline = &timeline;
    e.process = &timeline.processes.front();
    e.image = &e.process->images.front();
    e.schema = schema;
    e.uses_threads = schema.has_value();
    for (const ModuleFacts& m : e.image->modules) {
      if (!m.dynamic_symbols.empty() || !m.static_symbols.empty()) e.uses_threads = true;
      if (slot_definition(m) != nullptr) e.definers.push_back(&m);
    }
    return rule_of(id)->rule(e);
  }
  // "not-local-dynamic: local dynamic" of all requirements that found something.
  std::vector<std::string> mistakes() const {
    std::vector<std::string> out;
    for (const auto& rule : tls_rules()) {
      const Finding f = judge(rule.id);
      if (f.outcome != Outcome::kFail && f.outcome != Outcome::kInfo) continue;
      EXPECT_FALSE(f.saw.empty());
      EXPECT_FALSE(f.evidence.empty()) << rule.id;
      EXPECT_FALSE(f.remedy.empty()) << rule.id;
      EXPECT_EQ(f.level, "static");
      out.push_back(std::string(rule.id.substr(9)) + ": " + f.signature);
    }
    return out;
  }
};

using Mistakes = std::vector<std::string>;

void use(Seen& seen, std::uint32_t module, std::uint64_t slot) {
  ThreadSample t;
  t.tid = 31;
  t.module = module;
  t.slot = slot;
  t.value = 0x8000;
  seen.image().threads.push_back(t);
}

TEST(TlsRules, LegalBuildsBreakNothing) {
  ModuleFacts initial_exec = library();
  initial_exec.relocations = {relocation(TlsRelocationKind::kThreadPointerOffset)};
  ModuleFacts bound_inside = library();
  bound_inside.symbolic = true;
  bound_inside.relocations = {relocation(TlsRelocationKind::kTlsdesc, 0, kOffset)};
  ModuleFacts other_variables = library();
  other_variables.relocations.push_back(relocation(TlsRelocationKind::kModule, 0));
  ModuleFacts protected_symbol = library();
  protected_symbol.dynamic_symbols.front().visibility = STV_PROTECTED;
  ModuleFacts weak = library();
  weak.dynamic_symbols.front().binding = STB_WEAK;
  ModuleFacts stripped = library();
  stripped.static_symbols.clear();
  stripped.section_headers = false;
  for (const auto& m : {library(), initial_exec, bound_inside, other_variables, protected_symbol,
                        weak, stripped, executable()}) {
    EXPECT_EQ(Seen({m}).mistakes(), Mistakes());
    EXPECT_EQ(Seen({m}, Mode::kElf).mistakes(), Mistakes());
  }
}

TEST(TlsRules, OthersMayReferToTheDefinition) {
  ModuleFacts user = executable();
  user.dynamic_symbols = user.static_symbols = {symbol(STT_TLS, SHN_UNDEF)};
  user.relocations = {relocation(TlsRelocationKind::kTlsdesc)};
  ModuleFacts definer = library();
  definer.relocations.clear();
  EXPECT_EQ(Seen({user, definer}).mistakes(), Mistakes());
  EXPECT_EQ(Seen({user, definer}).judge("tctx.tls.access-model").outcome, Outcome::kPass);
  EXPECT_EQ(Seen({user, definer}).judge("tctx.tls.static-link-exported").outcome, Outcome::kPass);

  // As files: apart nobody can tell, together they are fine.
  EXPECT_EQ(Seen({user}, Mode::kElf).mistakes(), Mistakes());
  const Finding apart = Seen({definer}, Mode::kElf).judge("tctx.tls.access-model");
  EXPECT_EQ(apart.outcome, Outcome::kUnobservable);
  EXPECT_NE(apart.saw.find("another module may hold one"), std::string::npos);
  Seen together({definer}, Mode::kElf);
  together.add({user});
  EXPECT_EQ(together.judge("tctx.tls.access-model").outcome, Outcome::kPass);
}

TEST(TlsRules, EachMistakeIsForOneRequirement) {
  const auto change = [](ModuleFacts m, const std::function<void(ModuleFacts&)>& f) {
    f(m);
    return m;
  };
  const auto hide = [](ModuleFacts& m) {
    m.dynamic_symbols.clear();
    m.relocations.clear();
  };
  const std::map<std::string, ModuleFacts> broken = {
      {"dynsym-exported: not in .dynsym", change(library(), hide)},
      {"static-link-exported: not exported by the executable", change(executable(), hide)},
      {"fully-static: fully static", change(executable(),
                                            [&](ModuleFacts& m) {
                                              hide(m);
                                              m.has_dynamic_section = m.has_interpreter = false;
                                              m.type = ET_EXEC;
                                            })},
      {"symbol-type: not thread-local", change(library(),
                                               [](ModuleFacts& m) {
                                                 m.dynamic_symbols = {symbol(STT_OBJECT)};
                                                 m.static_symbols = m.dynamic_symbols;
                                                 m.relocations.clear();
                                                 m.tls.reset();
                                               })},
      {"symbol-type: no PT_TLS", change(library(), [](ModuleFacts& m) { m.tls.reset(); })},
      {"symbol-type: outside PT_TLS",
       change(library(), [](ModuleFacts& m) { m.dynamic_symbols.front().value = UINT64_MAX - 7; })},
      {"symbol-defined: undefined only", change(library(),
                                                [](ModuleFacts& m) {
                                                  m.dynamic_symbols = {
                                                      symbol(STT_TLS, SHN_UNDEF, STB_WEAK)};
                                                  m.static_symbols = m.dynamic_symbols;
                                                  m.tls.reset();
                                                })},
      {"symbol-defined: definition is not visible",
       change(library(),
              [](ModuleFacts& m) { m.dynamic_symbols.front().visibility = STV_HIDDEN; })},
      {"not-local-dynamic: local dynamic",
       change(library(),
              [](ModuleFacts& m) {
                m.relocations = {relocation(TlsRelocationKind::kModule, 0)};
                m.local_dynamic_code = {"0x1148: lea rax, [rax + 8]"};
              })},
      {"not-local-dynamic: possibly local dynamic",
       change(library(),
              [](ModuleFacts& m) {
                m.dynamic_symbols.front().value = 0;
                m.relocations = {relocation(TlsRelocationKind::kModule, 0)};
                m.local_dynamic_code = {"0x1148: mov rax, qword ptr [rax]"};
              })},
      {"prefers-tlsdesc: General Dynamic", change(library(),
                                                  [](ModuleFacts& m) {
                                                    m.relocations = {
                                                        relocation(TlsRelocationKind::kModule),
                                                        relocation(TlsRelocationKind::kOffset)};
                                                  })},
      {"is-pointer: not of pointer size", change(library(),
                                                 [](ModuleFacts& m) {
                                                   m.dynamic_symbols.front().size = 640;
                                                   m.tls->memory_size = 0x400;
                                                 })},
      {"is-pointer: no size",
       change(library(), [](ModuleFacts& m) { m.dynamic_symbols.front().size = 0; })},
      {"is-pointer: misaligned", change(library(),
                                        [](ModuleFacts& m) {
                                          m.dynamic_symbols.front().value = 2;
                                          m.relocations.front().addend = 2;
                                        })},
  };
  for (const auto& [mistake, m] : broken) {
    EXPECT_EQ(Seen({m}).mistakes(), Mistakes{mistake});
    // What a file asks for another one may have.
    const bool asks = mistake == "symbol-defined: undefined only";
    EXPECT_EQ(Seen({m}, Mode::kElf).mistakes(), asks ? Mistakes() : Mistakes{mistake});
  }
}

TEST(TlsRules, ALibraryWithoutRelocationsFailsInAProcessOnly) {
  ModuleFacts m = library();
  m.relocations.clear();
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes{"access-model: no relocation"});
  EXPECT_EQ(Seen({m}, Mode::kElf).mistakes(), Mistakes());
  // A module that could not be read may hold them.
  ModuleFacts damaged = library("/lib/libdamaged.so");
  damaged = without_variable(damaged);
  damaged.problem = "DT_GNU_HASH points outside the file";
  EXPECT_EQ(Seen({m, damaged}).mistakes(), Mistakes());
  // Nameless relocations of other variables do not help.
  m.relocations = {relocation(TlsRelocationKind::kTlsdesc, 0, 0),
                   relocation(TlsRelocationKind::kModule, 0)};
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes{"access-model: no relocation"});
  m.machine = EM_RISCV;
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes());
}

TEST(TlsRules, AModuleIdWithTheOffsetAfterItIsGeneralDynamic) {
  ModuleFacts m = library();
  m.relocations = {relocation(TlsRelocationKind::kModule, 0)};
  m.relocations.front().word_after = kOffset;
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes{"prefers-tlsdesc: General Dynamic"});
  // At offset zero the code decides, where it can be read.
  m.relocations.front().word_after = 0;
  m.dynamic_symbols.front().value = 0;
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes{"prefers-tlsdesc: General Dynamic"});
  ModuleFacts in_32_bits = m;
  in_32_bits.elf64 = false;
  m.machine = EM_AARCH64;
  for (const ModuleFacts& unread : {in_32_bits, m}) {
    const Finding f = Seen({unread}).judge("tctx.tls.not-local-dynamic");
    EXPECT_EQ(f.outcome, Outcome::kInfo);
    EXPECT_EQ(f.signature, "possibly local dynamic");
  }
  m.relocations.push_back(relocation(TlsRelocationKind::kTlsdesc));
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes());
}

TEST(TlsRules, LocalDynamicIsUnobservableWhereCodeIsNotRead) {
  ModuleFacts m = library();
  m.machine = EM_AARCH64;
  m.relocations = {relocation(TlsRelocationKind::kModule, 0)};
  EXPECT_EQ(Seen({m}).judge("tctx.tls.not-local-dynamic").outcome, Outcome::kUnobservable);
  m.relocations.push_back(relocation(TlsRelocationKind::kTlsdesc));
  EXPECT_EQ(Seen({m}).judge("tctx.tls.not-local-dynamic").outcome, Outcome::kPass)
      << "it is reached by its name";
}

TEST(TlsRules, ADescriptorOfTheModuleIsLocalDynamicWithItsCode) {
  ModuleFacts m = library();
  m.relocations = {relocation(TlsRelocationKind::kTlsdesc, 0, 0)};
  m.local_dynamic_code = {"0x113a: mov rcx, qword ptr fs:[rax + 8]"};
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes{"not-local-dynamic: local dynamic"});
  // At offset zero it leads to the variable itself.
  m.dynamic_symbols.front().value = 0;
  m.local_dynamic_code.clear();
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes());
}

TEST(TlsRules, TheWorstOfSeveralModulesDecides) {
  ModuleFacts perhaps = library("/lib/a.so");
  perhaps.relocations = {relocation(TlsRelocationKind::kModule, 0)};
  perhaps.dynamic_symbols.front().value = 0;
  perhaps.machine = EM_AARCH64;
  ModuleFacts certain = library("/lib/b.so");
  certain.relocations = {relocation(TlsRelocationKind::kModule, 0)};
  certain.local_dynamic_code = {"0x1148: lea rax, [rax + 8]"};
  ModuleFacts without_size = library("/lib/a.so");
  without_size.dynamic_symbols.front().size = 0;
  ModuleFacts too_large = library("/lib/b.so");
  too_large.dynamic_symbols.front().size = 640;
  too_large.tls->memory_size = 0x400;
  ModuleFacts unknown = library("/lib/a.so");
  unknown.machine = EM_RISCV;
  unknown.relocations.clear();
  ModuleFacts unreached = library("/lib/b.so");
  unreached.relocations.clear();
  for (const auto& [id, mild, bad] : {std::tuple{"tctx.tls.not-local-dynamic", perhaps, certain},
                                      std::tuple{"tctx.tls.is-pointer", without_size, too_large},
                                      std::tuple{"tctx.tls.access-model", unknown, unreached}}) {
    EXPECT_NE(Seen({mild}).judge(id).outcome, Outcome::kFail) << id;
    EXPECT_EQ(Seen({mild, bad}).judge(id).outcome, Outcome::kFail) << id;
    EXPECT_EQ(Seen({bad, mild}).judge(id).outcome, Outcome::kFail) << id;
  }
}

TEST(TlsRules, LocalDynamicNextToAnotherAccessDoesNoHarm) {
  ModuleFacts m = library();
  m.relocations.push_back(relocation(TlsRelocationKind::kModule, 0));
  m.local_dynamic_code = {"0x1148: lea rax, [rax + 8]"};
  EXPECT_EQ(Seen({m}).mistakes(), Mistakes());
}

TEST(TlsRules, AdviceNamesTheOption) {
  ModuleFacts m = executable();
  m.dynamic_symbols.clear();
  EXPECT_EQ(Seen({m}).judge("tctx.tls.static-link-exported").remedy,
            "link with -Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
  m.static_symbols.front().binding = STB_LOCAL;
  EXPECT_NE(Seen({m}).judge("tctx.tls.static-link-exported").remedy.find("visibility"),
            std::string::npos);
  m.has_dynamic_section = m.has_interpreter = false;
  EXPECT_NE(Seen({m}).judge("tctx.tls.fully-static").remedy.find("-static-pie"), std::string::npos);
  ModuleFacts old = library();
  old.relocations = {relocation(TlsRelocationKind::kModule)};
  EXPECT_EQ(Seen({old}).judge("tctx.tls.prefers-tlsdesc").remedy,
            "compile with -mtls-dialect=gnu2");
}

TEST(TlsRules, TwoDefinitionsAreShownWithTheirSlots) {
  Seen seen({library("/lib/a.so"), library("/lib/b.so")});
  ThreadSample t;
  t.tid = 31;
  t.module = 1;
  t.slot = 0x7000;
  t.value = 0x8000;
  seen.image().threads = {t};
  EXPECT_EQ(seen.mistakes(), Mistakes()) << "one was unloaded before the other came";
  seen.image().defined_together = {0, 1};
  EXPECT_EQ(seen.mistakes(), Mistakes{"one-definition: several definitions, one in use"});
  const Finding f = seen.judge("tctx.tls.one-definition");
  ASSERT_EQ(f.evidence.size(), 3U);
  EXPECT_EQ(f.evidence[2], "/lib/b.so: thread 31: slot at 0x7000 holds 0x8000");
}

TEST(TlsRules, SeveralVariablesInUseAreSeveral) {
  Seen seen({library("/lib/a.so"), library("/lib/b.so")});
  seen.image().defined_together = {0, 1};
  use(seen, 0, 0x6000);
  use(seen, 1, 0x7000);
  EXPECT_EQ(seen.mistakes(), Mistakes{"one-definition: several definitions"});
  // One variable, which the relocations of both modules lead to.
  seen.image().threads.back().slot = 0x6000;
  EXPECT_EQ(seen.mistakes(), Mistakes{"one-definition: several definitions, one in use"});
}

TEST(TlsRules, WhatIsNotUsedHarmsNobody) {
  ModuleFacts asks = library("/lib/asks.so");
  asks.dynamic_symbols = asks.static_symbols = {symbol(STT_TLS, SHN_UNDEF, STB_WEAK)};
  ModuleFacts unreached = library("/lib/unreached.so");
  unreached.relocations.clear();
  ModuleFacts hidden = library("/lib/hidden.so");
  hidden.dynamic_symbols.clear();
  hidden.relocations.clear();
  ModuleFacts program = executable();
  program.dynamic_symbols.clear();
  for (const auto& m : {asks, unreached, hidden, program}) {
    Seen alone({m});
    alone.schema.reset();
    EXPECT_EQ(alone.mistakes(), Mistakes()) << m.path;
    for (const auto& rule : tls_rules()) {
      const Finding f = alone.judge(rule.id);
      EXPECT_TRUE(f.outcome == Outcome::kNa || f.outcome == Outcome::kPass ||
                  f.outcome == Outcome::kUnobservable)
          << rule.id;
    }
    alone.schema = "go_pprof_labels_v1";
    EXPECT_EQ(alone.mistakes(), Mistakes()) << m.path;
    // The announced context would be in none of them.
    alone.schema = "tls_v1";
    EXPECT_EQ(alone.mistakes().size(), 1U) << m.path;
    Seen beside({m, library()});
    use(beside, 1, 0x7000);
    EXPECT_EQ(beside.mistakes(), Mistakes()) << m.path;
  }
}

TEST(TlsRules, AHiddenCopyInUseIsAMistakeNextToAnExportedOne) {
  ModuleFacts hidden = library("/lib/hidden.so");
  hidden.dynamic_symbols.clear();
  Seen seen({hidden, library()});
  seen.schema.reset();
  use(seen, 1, 0x7000);
  EXPECT_EQ(seen.mistakes(), Mistakes());
  ThreadSample t;
  t.tid = 32;
  t.module = 0;
  t.slot = 0x9000;
  t.value = 0xa000;
  seen.image().hidden_slots = {t};
  EXPECT_EQ(seen.mistakes(), Mistakes{"dynsym-exported: not in .dynsym"});
  EXPECT_EQ(seen.judge("tctx.tls.dynsym-exported").evidence.back(),
            "/lib/hidden.so: thread 32: slot at 0x9000 holds 0xa000");
  ModuleFacts program = executable();
  program.dynamic_symbols.clear();
  Seen linked({program, library()});
  linked.image().hidden_slots = {t};
  EXPECT_EQ(linked.mistakes(), Mistakes{"static-link-exported: not exported by the executable"});
  // Which of the two is used was not seen.
  linked.image().hidden_slots.clear();
  EXPECT_EQ(linked.mistakes(), Mistakes());
  EXPECT_EQ(linked.judge("tctx.tls.static-link-exported").outcome, Outcome::kUnobservable);
}

TEST(TlsRules, FilesTellByTheirRelocationsWhetherAHiddenCopyIsReached) {
  ModuleFacts hidden = library("/lib/hidden.so");
  hidden.dynamic_symbols.clear();
  hidden.relocations = {relocation(TlsRelocationKind::kTlsdesc, 0, kOffset)};
  Seen reached({hidden}, Mode::kElf);
  reached.add({library()});
  EXPECT_EQ(reached.mistakes(), Mistakes{"dynsym-exported: not in .dynsym"});
  hidden.relocations = {relocation(TlsRelocationKind::kTlsdesc, 0, 0)};
  Seen unreached({hidden}, Mode::kElf);
  unreached.add({library()});
  EXPECT_EQ(unreached.mistakes(), Mistakes());
}

TEST(TlsRules, ProgramsWithoutTheVariableAreNotAsked) {
  const auto outcomes = [](const Seen& seen) {
    std::map<Outcome, int> out;
    for (const auto& rule : tls_rules()) ++out[seen.judge(rule.id).outcome];
    return out;
  };
  Seen none({without_variable(executable())});
  none.schema.reset();
  EXPECT_EQ(outcomes(none), (std::map<Outcome, int>{{Outcome::kNa, 9}, {Outcome::kPass, 1}}));

  // A reader has a name like it that is not thread-local.
  ModuleFacts reader = without_variable(executable());
  reader.static_symbols = {symbol(STT_OBJECT, 3, STB_LOCAL)};
  EXPECT_EQ(Seen({reader}).mistakes(), Mistakes());

  // It says that it has one, and all is stripped.
  Seen announced({without_variable(executable())});
  announced.schema = "tls_v1";
  EXPECT_EQ(announced.mistakes(), Mistakes());
  EXPECT_EQ(announced.judge("tctx.tls.symbol-type").outcome, Outcome::kUnobservable);
  announced.image().modules.front().has_dynamic_section = false;
  EXPECT_EQ(announced.mistakes(), Mistakes{"fully-static: fully static"});
  announced.schema = "go_pprof_labels_v1";
  EXPECT_EQ(announced.mistakes(), Mistakes());
  EXPECT_EQ(announced.judge("tctx.tls.symbol-type").outcome, Outcome::kNa);
}

}  // namespace
}  // namespace ctxconf::conformance
