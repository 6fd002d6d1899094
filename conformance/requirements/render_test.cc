#include "conformance/requirements/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ctxconf::conformance {
namespace {

const Catalogue& catalogue() { return Catalogue::builtin(); }

std::string explained(std::string_view id) {
  const auto text = explain(catalogue(), id);
  return text ? *text : "error";
}

TEST(List, HasALineForEachRequirementAndTheirNumber) {
  const auto requirements = requirements_of(catalogue(), default_spec());
  const std::string text = list_text(requirements);
  EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(requirements.size()) + 1);
  EXPECT_TRUE(text.ends_with("\n" + std::to_string(requirements.size()) + " requirements\n"));
  EXPECT_NE(text.find("\npctx.header.version  "), text.npos);
  const std::vector<const Requirement*> one = {catalogue().find("pctx.header.signature")};
  EXPECT_EQ(list_text(one),
            "pctx.header.signature  MUST    error    snapshot  attach,wrap,run\n1 requirement\n");
}

TEST(List, ShowsExcludedRequirementsAndTheOtepsThatAreAskedFor) {
  const auto requirements = requirements_of(catalogue(), all_specs(catalogue()));
  const std::string text = list_text(requirements);
  EXPECT_NE(text.find("\ntctx."), text.npos);
  EXPECT_NE(text.find(" none      -\n"), text.npos);
  const auto one = parse_spec(catalogue(), "4719=2026-04-07").value();
  EXPECT_EQ(list_text(requirements_of(catalogue(), one)).find("tctx."), text.npos);
}

TEST(List, IsJsonForMachines) {
  const std::vector<const Requirement*> requirements = {catalogue().find("pctx.header.signature"),
                                                        catalogue().find("pctx.publish.additive")};
  const std::string json = list_json(requirements);
  EXPECT_TRUE(json.starts_with("[\n {\n  \"id\": \"pctx.header.signature\",\n  \"otep\": 4719,"));
  EXPECT_NE(json.find("\"level\": \"none\",\n  \"modes\": [],"), json.npos);
  EXPECT_NE(json.find("\"excluded\": "), json.npos);
  EXPECT_EQ(list_json({}), "[]\n");
}

TEST(Explain, SaysAllThatIsKnown) {
  const Requirement& r = *catalogue().find("pctx.header.version");
  std::string text = explained(r.id);
  EXPECT_TRUE(
      text.starts_with("pctx.header.version\n  The 32-bit field at offset 8 has the value"));
  EXPECT_NE(
      text.find("OTEP 4719 at revision 2026-04-07, #header-structure, line 41, sentences 1-3"),
      text.npos)
      << text;
  EXPECT_NE(text.find("counted from\n            line 41 (git blob "), text.npos) << text;
  EXPECT_NE(text.find("\n  strength  MUST: "), text.npos);
  EXPECT_NE(text.find("\n  basis     table: "), text.npos);
  EXPECT_NE(text.find("\n  severity  error: breaking it fails the run"), text.npos);
  EXPECT_NE(text.find("\n  level     snapshot: "), text.npos);
  EXPECT_NE(text.find("\n  modes     attach, wrap, run\n"), text.npos);
  // However it is wrapped, every word of the requirement is there.
  const auto words = [](std::string_view s) {
    std::istringstream in{std::string(s)};
    return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
  };
  const auto all = words(text);
  for (const std::string* part : {&r.text, &r.why, &r.check, &r.mutant, &r.variants.at(0)}) {
    const auto wanted = words(*part);
    EXPECT_FALSE(std::ranges::search(all, wanted).empty()) << *part;
  }
}

TEST(Explain, KeepsToItsColumns) {
  for (const Requirement* r : requirements_of(catalogue(), all_specs(catalogue()))) {
    std::istringstream lines(explained(r->id));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100U) << r->id << ": " << line;
      EXPECT_FALSE(line.ends_with(' ')) << r->id << ": " << line;
    }
  }
}

TEST(Explain, SaysWhyARequirementIsExcluded) {
  const std::string text = explained("pctx.publish.additive");
  EXPECT_NE(text.find("\n  level     none: no check can exist\n"), text.npos);
  EXPECT_NE(text.find("\n  modes     -\n"), text.npos);
  EXPECT_NE(text.find("\n  excluded  "), text.npos);
  EXPECT_EQ(text.find("\n  check "), text.npos);
}

TEST(Explain, SuggestsAnId) {
  const auto near = explain(catalogue(), "pctx.header.versoin");
  ASSERT_FALSE(near);
  EXPECT_EQ(near.error().err, EINVAL);
  EXPECT_EQ(near.error().detail,
            "no requirement is called \"pctx.header.versoin\"; did you mean pctx.header.version?");
  const auto far = explain(catalogue(), "?");
  ASSERT_FALSE(far);
  EXPECT_EQ(far.error().detail, "no requirement is called \"?\"; `ctxconf list` shows all");
}

TEST(RequirementsTable, IsUpToDate) {
  const std::string wanted = requirements_markdown(catalogue());
  std::ifstream in(CTXCONF_SOURCE_DIR "/docs/requirements.md");
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  // EXPECT_EQ would print both files.
  EXPECT_TRUE(found == wanted) << "docs/requirements.md differs from the catalogue. To fix it:\n"
                                  "  ctxconf list --markdown > docs/requirements.md";
  if (found != wanted) std::ofstream("requirements.md") << wanted;
}

TEST(RequirementsTable, HasEveryRequirement) {
  const std::string text = requirements_markdown(catalogue());
  for (const Requirement* r : requirements_of(catalogue(), all_specs(catalogue()))) {
    EXPECT_NE(text.find("\n| `" + r->id + "` | "), text.npos) << r->id;
  }
}

TEST(RequirementsTable, EscapesWhatMarkdownWouldTakeApart) {
  Specification s = catalogue().specifications().front();
  s.requirements = {*catalogue().find("pctx.header.signature")};
  s.requirements[0].text = "a|b <i> *c* `d`.";
  const auto c = Catalogue::from({s});
  ASSERT_TRUE(c);
  EXPECT_NE(requirements_markdown(*c).find("| a\\|b \\<i> \\*c\\* \\`d\\`. | MUST"),
            std::string::npos);
}

}  // namespace
}  // namespace ctxconf::conformance
