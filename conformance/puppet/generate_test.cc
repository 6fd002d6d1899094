#include "conformance/puppet/generate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "conformance/requirements/catalogue.h"

namespace ctxconf::conformance::puppet {
namespace {

constexpr std::uint64_t kSeed = 0x4719;
constexpr std::uint64_t kPrograms = 600;

Surroundings host(bool names) {
  Surroundings out;
  out.names_anonymous = names;
  return out;
}

TEST(GenerateTest, EveryScriptCanBeRun) {
  for (std::uint64_t i = 0; i < kPrograms / 12; ++i) {
    for (const bool deviant : {false, true}) {
      const auto program = generate(kSeed, i, deviant, host(i % 2 == 0));
      const auto problem = check(program.script);
      EXPECT_FALSE(problem) << i << ": " << problem->line << ": " << problem->text;
      EXPECT_TRUE(script_from_json(to_json(program.script)) == program.script) << i;
    }
  }
}

TEST(GenerateTest, TheSameNumbersGiveTheSameProgram) {
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto once = generate(kSeed, i, i % 2 != 0, host(false));
    EXPECT_EQ(to_json(once.script), to_json(generate(kSeed, i, i % 2 != 0, host(false)).script));
    EXPECT_NE(to_json(once.script),
              to_json(generate(kSeed + 1, i, i % 2 != 0, host(false)).script));
  }
}

TEST(GenerateTest, EveryProductionIsUsed) {
  std::map<std::string_view, int> used;
  for (std::uint64_t i = 0; i < kPrograms; ++i) {
    for (const auto p : generate(kSeed, i, false, host(true)).plan.used) ++used[p];
  }
  std::set<std::string_view> known;
  for (const auto& p : productions()) {
    EXPECT_TRUE(known.insert(p.id).second) << p.id;
    EXPECT_GT(used[p.id], 0) << p.id;
    const bool is_id = p.sentence.starts_with("pctx.") || p.sentence.starts_with("tctx.");
    EXPECT_TRUE(!is_id || Catalogue::builtin().find(p.sentence) != nullptr) << p.sentence;
  }
  for (const auto& [id, n] : used) EXPECT_TRUE(known.contains(id)) << id;
}

TEST(GenerateTest, DeviationsNameRequirementsThatExist) {
  std::set<std::string_view> names;
  for (const auto& d : deviations()) {
    EXPECT_TRUE(names.insert(d.name).second) << d.name;
    EXPECT_NE(Catalogue::builtin().find(d.must), nullptr) << d.must;
    for (const auto id : d.follow) {
      EXPECT_NE(Catalogue::builtin().find(id), nullptr) << d.name << ": " << id;
    }
  }
}

TEST(GenerateTest, OnlyAStoreToAMemfdOfNoSizeMayEndAProgram) {
  std::set<std::string_view> deadly;
  for (const auto& d : deviations()) {
    if (d.may_die) deadly.insert(d.must);
  }
  EXPECT_EQ(deadly, std::set<std::string_view>{"pctx.publish.memfd-sized"});
  for (const auto& d : deviations()) EXPECT_EQ(d.may_die, deadly.contains(d.must)) << d.name;
}

// The rows of the tables in a document.
std::set<std::string> rows_of(const char* document) {
  std::ifstream file(std::string(CTXCONF_SOURCE_DIR "/docs/") + document);
  std::set<std::string> out;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    EXPECT_TRUE(out.insert(line).second) << line;
  }
  return out;
}

TEST(GenerateTest, TheDocumentHasAllProductionsAndDeviations) {
  std::set<std::string> rows;
  for (const auto& d : deviations())
    rows.insert(fmt::format("| `{}` | {} | `{}` |", d.name, d.how, d.must));
  for (const auto& p : productions()) rows.insert(fmt::format("| `{}` | `{}` |", p.id, p.sentence));
  EXPECT_EQ(rows_of("generated-programs.md"), rows);
}

TEST(GenerateTest, ADeviationChangesTheProgram) {
  for (std::uint64_t i = 0; i < deviations().size(); ++i) {
    const auto program = generate(kSeed, i, true, host(true));
    ASSERT_NE(program.deviation, nullptr);
    EXPECT_EQ(program.deviation, &deviations()[i]);
    const bool marked = std::ranges::any_of(program.plan.acts, &Act::deviant);
    EXPECT_TRUE(marked) << program.deviation->name;
  }
}

TEST(GenerateTest, ShrinkingKeepsWhatIsAskedOfTheScript) {
  const auto has_update = [](const Script& script) {
    return std::ranges::count_if(script.operations,
                                 [](const Operation& o) { return o.name() == "name"; }) >= 2;
  };
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto program = generate(kSeed, i, false, host(false));
    if (!has_update(program.script)) continue;
    Plan small = shrink(program.plan, has_update);
    const Script script = script_of(small);
    EXPECT_TRUE(has_update(script));
    EXPECT_FALSE(check(script));
    EXPECT_LE(script.operations.size(), program.script.operations.size());
  }
}

}  // namespace
}  // namespace ctxconf::conformance::puppet
