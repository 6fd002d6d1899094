#include "conformance/requirements/source_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace ctxconf::conformance {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SourceText text_with_heading(std::string_view body) {
  auto text = SourceText::from("# Boats\n" + std::string(body));
  EXPECT_TRUE(text) << sys::to_string(text.error());
  return text ? *text : SourceText();
}

// "LINE-LINE TEXT"; the heading of text_with_heading() does not count as a line.
std::vector<std::string> units(std::string_view body) {
  std::vector<std::string> out;
  const SourceText text = text_with_heading(body);
  for (const auto& u : text.units()) {
    out.push_back(std::to_string(u.first - 1) + "-" + std::to_string(u.last - 1) + " " + u.text);
  }
  return out;
}

std::vector<std::string> slugs(std::string_view body) {
  std::vector<std::string> out;
  const SourceText text = text_with_heading(body);
  for (const auto& h : text.headings()) {
    out.push_back(std::to_string(h.line - 1) + " " + h.slug);
  }
  return out;
}

TEST(SourceText, AParagraphGivesItsSentencesWithTheirLines) {
  EXPECT_THAT(
      units("A boat\tfloats.  It may\n  sink! \"Why?\" Nobody\nknows"),
      ElementsAre("1-1 A boat floats.", "1-2 It may sink!", "2-2 \"Why?\"", "2-3 Nobody knows"));
  EXPECT_THAT(units("One.\n\nTwo.\n## More\nThree."),
              ElementsAre("1-1 One.", "3-3 Two.", "5-5 Three."));
}

TEST(SourceText, ASentenceEndsBeforeACapitalLetterOnly) {
  EXPECT_THAT(units("Version 1.2 of it. small. (Large.) `Code`. *It* ends."),
              ElementsAre("1-1 Version 1.2 of it. small.", "1-1 (Large.)", "1-1 `Code`.",
                          "1-1 *It* ends."));
  EXPECT_THAT(units("Boats, e.g. Canoes, i.e.) Small ones, vs. Rafts etc. And cf. Ships. End."),
              ElementsAre("1-1 Boats, e.g. Canoes, i.e.) Small ones, vs. Rafts etc. And cf. Ships.",
                          "1-1 End."));
  EXPECT_THAT(units("The devs. Then. An \xe2\x80\x94"
                    "e.g. Dash. Caf\xc3\xa9"
                    "cf. Yes."),
              ElementsAre("1-1 The devs.", "1-1 Then.",
                          "1-1 An \xe2\x80\x94"
                          "e.g. Dash.",
                          "1-1 Caf\xc3\xa9"
                          "cf.",
                          "1-1 Yes."));
}

TEST(SourceText, ListsAndQuotationsLoseTheirMarks) {
  EXPECT_THAT(units("- One. Two.\n  goes on\n* Three.\n 1. Four\n2.1 Five\n3.1. Six\n-7\n8.9\n"),
              ElementsAre("1-1 One.", "1-2 Two. goes on", "3-3 Three.", "4-4 Four", "5-5 Five",
                          "6-8 Six -7 8.9"));
  EXPECT_THAT(units("> Quoted\n>twice. Once\n"), ElementsAre("1-2 Quoted twice.", "2-2 Once"));
}

TEST(SourceText, ATableRowGivesItsHeadAndTheSentencesOfItsLastCell) {
  EXPECT_THAT(
      units("| name | what |\n|:---|---:|\n| hull |  8  | It floats. It is wide. |\n"),
      ElementsAre("1-1 name", "1-1 what", "3-3 hull | 8", "3-3 It floats.", "3-3 It is wide."));
  EXPECT_THAT(units("||\n|\n| alone |\n|  | behind an empty cell |"),
              ElementsAre("3-3 alone", "4-4 behind an empty cell"));
  EXPECT_THAT(units("| keel | | 8 | It floats. |"),
              ElementsAre("1-1 keel |  | 8", "1-1 It floats."));
}

TEST(SourceText, AFenceGivesLinesOfCodeAndParagraphsOfComments) {
  EXPECT_THAT(
      units("Code.\n```c\nint  hull; // wood\n\n// It is. Wide\n/// and flat.\n//\n// Yes.\n"
            "# no heading\n| no | table |\n```\nEnd."),
      ElementsAre("1-1 Code.", "3-3 int hull; // wood", "5-5 It is.", "5-6 Wide and flat.",
                  "8-8 Yes.", "9-9 # no heading", "10-10 | no | table |", "12-12 End."));
  EXPECT_THAT(units("```\n// to the end"), ElementsAre("2-2 to the end"));
}

TEST(SourceText, LinesEndInEveryWay) {
  EXPECT_THAT(units("A.\r\n\r\nB.\rC.\n\rD."), ElementsAre("1-1 A.", "3-3 B.", "4-4 C.", "6-6 D."));
  EXPECT_THAT(units("No newline at the end"), ElementsAre("1-1 No newline at the end"));
  EXPECT_THAT(units(""), IsEmpty());
}

TEST(SourceText, AByteOrderMarkIsNoPartOfTheFirstLine) {
  const std::string_view boats = "# Boats\nThey float.\n";
  const auto plain = SourceText::from(boats);
  const auto marked = SourceText::from("\xef\xbb\xbf" + std::string(boats));
  ASSERT_TRUE(plain && marked);
  EXPECT_TRUE(marked->has_section("boats"));
  ASSERT_EQ(marked->units().size(), 1U);
  EXPECT_EQ(marked->units()[0].first, plain->units()[0].first);
  EXPECT_EQ(fingerprint_of(marked->units()), fingerprint_of(plain->units()));
  EXPECT_NE(marked->blob(), plain->blob());
  // Only the first one is removed, and only at the start.
  EXPECT_FALSE(SourceText::from("\xef\xbb\xbf\xef\xbb\xbf# Boats\n"));
  EXPECT_THAT(units("\xef\xbb\xbfThey float."), ElementsAre("1-1 \xef\xbb\xbfThey float."));
  EXPECT_FALSE(SourceText::from("\xef\xbb\xbf"));
}

TEST(SourceText, BytesThatNoTextHasAreText) {
  const std::string nul("A\0B. \0 C", 8);
  EXPECT_THAT(units(nul), ElementsAre("1-1 " + nul));
  EXPECT_THAT(units("A.\xc2\xa0\x1c\xe2\x80\xa8"
                    "B"),
              ElementsAre("1-1 A.", "1-1 B"));
}

TEST(SourceText, HeadingsNameSections) {
  EXPECT_THAT(slugs("## The `hull` & *keel*\n##no\n ### Not\n####### Nor\n```\n# nor\n```\n"
                    "## Boats\n###### snake_case-x, (2)\n"),
              ElementsAre("0 boats", "1 the-hull--keel", "8 boats-1", "9 snake_case-x-2"));
  const SourceText t =
      text_with_heading("One.\n## Keel\nTwo. Three.\n### Deep\n## Empty\n## Last\nFour.");
  EXPECT_EQ(t.section_at(0), "");
  EXPECT_TRUE(t.is_before_headings(0));
  EXPECT_FALSE(t.is_before_headings(1));
  EXPECT_EQ(t.section_at(2), "boats");
  EXPECT_EQ(t.section_at(4), "keel");
  EXPECT_EQ(t.section_at(1000), "last");
  EXPECT_TRUE(t.has_section("deep"));
  EXPECT_FALSE(t.has_section("sails"));
  EXPECT_THAT(t.units_of_section("boats"), ElementsAre(0, 1));
  EXPECT_THAT(t.units_of_section("keel"), ElementsAre(1, 3));
  EXPECT_THAT(t.units_of_section("empty"), ElementsAre(3, 3));
  EXPECT_THAT(t.units_of_section("last"), ElementsAre(3, 4));
  EXPECT_THAT(t.units_of_section("sails"), ElementsAre(0, 0));
}

TEST(SourceText, SelectCountsFromTheFirstLine) {
  const SourceText t = text_with_heading("One. Two.\nThree goes\non. Four.\n");
  const auto selected = [&](int first, int last, int from, int to) {
    std::string out;
    for (const auto& u : t.select({first, last}, {from, to})) out += u.text + "|";
    return out;
  };
  EXPECT_EQ(selected(2, 2, 1, 2), "One.|Two.|");
  EXPECT_EQ(selected(3, 4, 1, 1), "Three goes on.|");
  EXPECT_EQ(selected(2, 9, 3, 4), "Three goes on.|Four.|");
  EXPECT_EQ(selected(3, 3, 1, 1), "");  // ends on a later line
  EXPECT_EQ(selected(2, 9, 3, 5), "");
  EXPECT_EQ(selected(2, 9, 0, 1), "");
  EXPECT_EQ(selected(2, 9, 2, 1), "");
  EXPECT_EQ(selected(2, 9, 1, 2147483647), "");
  EXPECT_EQ(selected(99, 100, 1, 1), "");
  const auto location = t.location_of(1, 2);
  EXPECT_THAT(location.lines, ElementsAre(2, 4));
  EXPECT_THAT(location.sentences, ElementsAre(2, 3));
}

// The digests were computed with sha256sum and git hash-object.
TEST(SourceText, FingerprintsAreSha256OfTheJoinedUnits) {
  const SourceText t = text_with_heading("It is one. (It is\n two.) Three.");
  EXPECT_EQ(fingerprint_of(t.units().first(2)),
            "7fed5251d21fb96849294e03707021f8a190fe8ff0015bb7a08a5fe451acbc3b");
  const auto boats = SourceText::from("# Boats\n\nA boat floats.\n");
  ASSERT_TRUE(boats);
  EXPECT_EQ(boats->blob(), "a0a286b313776f5152bba12566cf911f458434a6");
}

TEST(SourceText, RefusesWhatIsNoOtep) {
  const auto refused = [](std::string_view bytes) {
    const auto text = SourceText::from(bytes);
    return text ? "accepted" : text.error().detail;
  };
  EXPECT_THAT(refused(""), testing::HasSubstr("no Markdown heading"));
  EXPECT_THAT(refused("<html>#\n##x\n```\n# code\n```"), testing::HasSubstr("heading"));
  for (const char* bytes : {"# A\n\xff", "# A\xc3", "# \xc0\x80", "# \xed\xa0\x80",
                            "# \xe0\x80\x80", "# \xf4\x90\x80\x80", "# \x80", "# \xf0\x9f\x98"}) {
    EXPECT_EQ(refused(bytes), "it is not UTF-8") << bytes;
  }
  EXPECT_EQ(refused("# \xf0\x9f\x98\x80\xed\x9f\xbf"), "accepted");
  const std::string large = "# A\n" + std::string(kLongestSourceText, 'x');
  const auto text = SourceText::from(large);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().err, EFBIG);
  EXPECT_EQ(refused(std::string_view(large).substr(0, kLongestSourceText)), "accepted");
}

}  // namespace
}  // namespace ctxconf::conformance
