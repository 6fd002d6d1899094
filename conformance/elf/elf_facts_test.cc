// Tests with libraries and programs that the compiler has built.
#include "conformance/elf/elf_facts.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <string>

#include "conformance/elf/tls_access.h"

namespace ctxconf::conformance {
namespace {

sys::ElfImage open(const std::string& name) {
  auto image = sys::ElfImage::open(std::string(CTXCONF_BIN_DIR) + "/" + name);
  EXPECT_TRUE(image) << (image ? "" : sys::to_string(image.error()));
  return std::move(*image);
}

ModuleFacts facts(const std::string& name) {
  const sys::ElfImage image = open(name);
  ModuleFacts m = module_facts(image, name, image.is_executable());
  EXPECT_EQ(m.problem, "");
  EXPECT_EQ(m.machine, EM_X86_64);
  return m;
}

// The GOT pair that stands for the module alone.
sys::TlsRelocation module_pair(const ModuleFacts& m) {
  for (const auto& r : m.relocations) {
    if (r.symbol == 0 && r.kind == sys::TlsRelocationKind::kModule && r.word_after == 0) return r;
  }
  ADD_FAILURE() << m.path << " has none";
  return {};
}

TEST(ElfFacts, ALibraryWithDescriptors) {
  const ModuleFacts m = facts("slot_tlsdesc.so");
  EXPECT_FALSE(m.executable);
  ASSERT_TRUE(m.tls);
  const auto* symbol = slot_definition(m);
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(symbol->size, 8U);
  const ModuleFacts* all[] = {&m};
  const auto accesses = accesses_of(m, all);
  ASSERT_EQ(accesses.size(), 1U);
  EXPECT_EQ(accesses.front().model, sys::TlsModel::kTlsdesc);
  EXPECT_EQ(hidden_definition(m), nullptr);
  EXPECT_NE(hidden_definition(facts("slot_hidden.so")), nullptr);
}

TEST(ElfFacts, ProgramsOfEachKind) {
  EXPECT_EQ(describe(facts("slot_pie")), "executable, x86-64, 64 bit");
  EXPECT_EQ(describe(facts("slot_static_pie")), "static-pie executable, x86-64, 64 bit");
  EXPECT_EQ(describe(facts("slot_static")),
            "static executable without a dynamic section, x86-64, 64 bit");
  EXPECT_EQ(describe(facts("slot_only.so")), "shared library, x86-64, 64 bit");
}

TEST(LocalDynamicCode, IsFoundWhereItUsesTheOffset) {
  const ModuleFacts m = facts("slot_local_dynamic.so");
  ASSERT_FALSE(m.local_dynamic_code.empty());
  EXPECT_NE(m.local_dynamic_code.front().find("lea rdi, [rip + 0x"), std::string::npos);
  const ModuleFacts* all[] = {&m};
  EXPECT_TRUE(accesses_of(m, all).empty());
  const auto image = open(m.path);
  auto pair = module_pair(m);
  EXPECT_TRUE(local_dynamic_code(image, {{pair}}, 0x40).empty());
  pair.offset += 16;
  EXPECT_TRUE(local_dynamic_code(image, {{pair}}, 8).empty());
}

// gcc does not emit such code; clang emits it for a hidden alias.
TEST(LocalDynamicCode, MayUseADescriptorOfTheModule) {
  const ModuleFacts m = facts("slot_alias_tlsdesc.so");
  const ModuleFacts* all[] = {&m};
  EXPECT_NE(accesses_of(m, all).empty(), m.local_dynamic_code.empty());
}

TEST(LocalDynamicCode, OfAnotherVariableIsNotOurs) {
  const ModuleFacts m = facts("slot_general_dynamic.so");
  EXPECT_TRUE(m.local_dynamic_code.empty());
  const auto image = open(m.path);
  EXPECT_TRUE(local_dynamic_code(image, {{module_pair(m)}}, slot_definition(m)->value).empty());
  EXPECT_FALSE(local_dynamic_code(image, {{module_pair(m)}}, 0).empty()) << "the other variable's";
}

TEST(LocalDynamicCode, GeneralDynamicBoundInsideIsAnotherSequence) {
  const ModuleFacts m = facts("slot_symbolic_general_dynamic.so");
  EXPECT_TRUE(m.local_dynamic_code.empty());
  const auto image = open(m.path);
  for (const auto& r : m.relocations) {
    if (r.symbol == 0) continue;
    EXPECT_TRUE(local_dynamic_code(image, {{r}}, 0).empty());
  }
}

}  // namespace
}  // namespace ctxconf::conformance
