#include "conformance/requirements/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;

constexpr std::string_view kPinned =
    "# Boats\n"                                             // 1
    "\n"                                                    // 2
    "Boats float.\n"                                        // 3
    "\n"                                                    // 4
    "## Hull\n"                                             // 5
    "The hull is dry. It has a keel. The keel is heavy.\n"  // 6
    "\n"                                                    // 7
    "It is painted. The paint is red.\n"                    // 8
    "\n"                                                    // 9
    "## Sails\n"                                            // 10
    "Sails are white.\n";                                   // 11

SourceText text_of(std::string_view bytes) {
  auto text = SourceText::from(bytes);
  EXPECT_TRUE(text) << sys::to_string(text.error());
  return text ? *text : SourceText();
}

Requirement requirement(std::string id, std::string anchor, std::array<int, 2> lines,
                        std::array<int, 2> sentences) {
  Requirement r;
  r.otep = 4719;
  r.id = std::move(id);
  r.anchor = std::move(anchor);
  r.lines = lines;
  r.sentences = sentences;
  const SourceText pinned = text_of(kPinned);
  const auto units = pinned.select(lines, sentences);
  EXPECT_FALSE(units.empty()) << r.id;
  r.fingerprint = fingerprint_of(units);
  return r;
}

Specification boats() {
  Specification s;
  s.otep = 4719;
  s.requirements = {
      requirement("float", "boats", {3, 3}, {1, 1}), requirement("dry", "hull", {6, 6}, {1, 1}),
      requirement("keel", "hull", {6, 6}, {2, 3}), requirement("red", "hull", {8, 8}, {2, 2}),
      requirement("white", "sails", {11, 11}, {1, 1})};
  Requirement implied;
  implied.id = "implied";
  implied.anchor = "sails";
  implied.lines = {10, 11};
  s.requirements.push_back(implied);
  return s;
}

std::string replaced(std::string_view from, std::string_view to) {
  std::string text(kPinned);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

// The requirements that changed: "moved dry 6-6 7-7 #hull 1-1", "changed dry 6-6 #hull It is wet."
std::vector<std::string> drift(const std::string& text) {
  static const Specification specification = boats();
  const auto drift = drift_of(specification, text_of(text));
  if (!drift) return {drift.error().detail};
  std::vector<std::string> out;
  for (const RequirementDrift& d : drift->requirements) {
    if (d.kind == DriftKind::kAsPinned || d.kind == DriftKind::kNoSentence) continue;
    std::string line = std::string(to_string(d.kind)) + " " + d.requirement->id;
    if (d.location.lines[0] > 0) {
      line += " " + std::to_string(d.location.lines[0]) + "-" + std::to_string(d.location.lines[1]);
    }
    if (!d.section.empty()) line += " #" + d.section;
    if (d.kind == DriftKind::kMoved) {
      line += " " + std::to_string(d.location.sentences[0]) + "-" +
              std::to_string(d.location.sentences[1]);
    }
    if (!d.text.empty()) line += " " + d.text;
    out.push_back(line);
  }
  EXPECT_EQ(out.empty(), drift->is_clean());
  return out;
}

TEST(Drift, ThePinnedTextIsClean) {
  EXPECT_THAT(drift(std::string(kPinned)), ElementsAre());
  const Specification specification = boats();
  const auto clean = drift_of(specification, text_of(kPinned));
  ASSERT_TRUE(clean);
  EXPECT_EQ(clean->requirements.size(), 6U);
  EXPECT_EQ(clean->count(DriftKind::kAsPinned), 5);
  EXPECT_EQ(clean->count(DriftKind::kNoSentence), 1);
}

TEST(Drift, WhatNoRequirementRestsOnMayChange) {
  EXPECT_THAT(drift(replaced("It is painted.", "It is tarred.")), ElementsAre());
}

TEST(Drift, OtherLinesAreAMove) {
  EXPECT_THAT(drift(replaced("## Sails", "More.\n\n## Sails")),
              ElementsAre("moved white 13-13 #sails 1-1"));
  EXPECT_THAT(drift(replaced("The hull is dry.", "New. The hull is dry.")),
              ElementsAre("moved dry 6-6 #hull 2-2", "moved keel 6-6 #hull 3-4"));
}

TEST(Drift, AnotherHeadingIsAMove) {
  EXPECT_THAT(drift(replaced("## Sails", "## Canvas")),
              ElementsAre("moved white 11-11 #canvas 1-1", "vanished implied"));
  EXPECT_THAT(drift(replaced("Boats float.\n", "") + "\nBoats float.\n"),
              testing::Contains("moved float 12-12 #sails 1-1"));
}

TEST(Drift, OfSeveralTheOneInTheSectionIsMeant) {
  EXPECT_THAT(drift(replaced("Boats float.", "Sails are white. Boats float.\n\nExtra.")),
              testing::Contains("moved white 13-13 #sails 1-1"));
}

TEST(Drift, OtherWordsAreAChangeAndShowWhatStandsThere) {
  EXPECT_THAT(drift(replaced("It has a keel.", "It has two keels.")),
              ElementsAre("changed keel 6-8 #hull It has two keels. The keel is heavy. It is "
                          "painted."));
  EXPECT_THAT(drift(replaced("is red", "is blue")),
              ElementsAre("changed red 8-8 #hull It is painted. The paint is blue."));
  EXPECT_THAT(drift(replaced("Sails are white.", "Sails are brown. Or red.")),
              ElementsAre("changed white 11-11 #sails Sails are brown. Or red."));
}

TEST(Drift, RequirementsThatShareSentencesBoundEachOther) {
  Specification s = boats();
  s.requirements.push_back(requirement("both", "hull", {6, 6}, {1, 2}));
  const auto drift = drift_of(s, text_of(replaced("It has a keel.", "It is wet.")));
  ASSERT_TRUE(drift);
  EXPECT_EQ(drift->requirements.back().kind, DriftKind::kChanged);
  EXPECT_THAT(drift->requirements.back().text, testing::StartsWith("The hull is dry. It is wet."));
}

TEST(Drift, NothingInItsPlaceIsVanished) {
  EXPECT_THAT(drift(replaced("The hull is dry. ", "")),
              ElementsAre("vanished dry #hull", "moved keel 6-6 #hull 1-2"));
  EXPECT_THAT(drift(replaced("Boats float.", "")), ElementsAre("vanished float #boats"));
  EXPECT_THAT(drift(replaced("## Sails\nSails are white.\n", "")),
              ElementsAre("vanished white", "vanished implied"));
}

TEST(Drift, AHeadingWithoutANameIsNoSection) {
  EXPECT_THAT(drift(replaced("## Sails\nSails are white.", "# \nMore.")),
              ElementsAre("vanished white", "vanished implied"));
}

TEST(Drift, AChangeInARenamedSectionIsFound) {
  EXPECT_THAT(drift(replaced("## Hull\nThe hull is dry.", "## Body\nThe hull is wet.")),
              ElementsAre("changed dry 6-6 #body The hull is wet.", "moved keel 6-6 #body 2-3",
                          "moved red 8-8 #body 2-2"));
}

TEST(Drift, AnotherOrderIsNoPlace) {
  EXPECT_THAT(
      drift(replaced("The hull is dry. It has a keel. The keel is heavy.\n\nIt is painted. The "
                     "paint is red.",
                     "The paint is red. It has one keel.\n\nThe hull is dry.")),
      ElementsAre("moved dry 8-8 #hull 1-1", "changed keel #hull", "moved red 6-6 #hull 1-1"));
}

TEST(Drift, AnEnormousPlaceIsCut) {
  std::string long_text(5000, 'x');
  long_text.replace(kLongestShownText - 8, 2, "\xc3\xa9");  // across the cut, after "Big. "
  Specification s = boats();
  const auto drift =
      drift_of(s, text_of(replaced("Sails are white.", "Sails. " + long_text + ".")));
  ASSERT_TRUE(drift);
  const auto& text = drift->requirements[4].text;
  EXPECT_EQ(drift->requirements[4].kind, DriftKind::kChanged);
  EXPECT_LE(text.size(), kLongestShownText + 3);
  EXPECT_TRUE(text.ends_with("…"));
}

TEST(Drift, AnotherDocumentIsAnError) {
  const Specification s = boats();
  const auto none = drift_of(s, text_of("# Trains\n\nThey run.\n"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().detail, "it has no section and no sentence of OTEP 4719");
  EXPECT_TRUE(drift_of(s, text_of("# Trains\n\nBoats float.\n")));
  EXPECT_TRUE(drift_of(s, text_of("# Boats\n")));
}

TEST(Drift, ALongTextOfNothingIsAnotherDocument) {
  std::string text = "# A\n```\n";
  for (int i = 0; i < 10'000; ++i) text += "x\n";
  for (const Specification& s : Catalogue::builtin().specifications()) {
    EXPECT_FALSE(drift_of(s, text_of(text)));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
