#include "conformance/requirements/catalogue.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "conformance/requirements/builtin_files.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kSha =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// A valid requirement; each test breaks something in it.
std::string requirement(std::string_view id = "pctx.header.magic") {
  return R"({"id": ")" + std::string(id) +
         R"(", "anchor": "header", "lines": [4, 7], "sentences": [1, 2], "fingerprint": ")" +
         std::string(kSha) + R"(", "strength": "MUST", "basis": "table", "severity": "error",
 "role": "writer", "text": "The magic is right.", "why": "Readers look for it.",
 "observe": {"level": "snapshot", "modes": ["attach", "wrap"]},
 "check": "Compare the bytes. Prints both.", "mutant": "Writes other bytes in )" +
         std::string(id) + R"(.",
 "variants": ["Padding behind it."], "excluded": null})";
}

std::string file(const std::string& requirements, std::string_view otep = "4719") {
  return R"({"otep": )" + std::string(otep) +
         R"(, "revision": "2026-04-07", "source_blob": "0123456789abcdef0123456789abcdef01234567",
 "requirements": [)" +
         requirements + "]}";
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  if (at != text.npos) text.replace(at, from.size(), to);
  return text;
}

std::string error_of(const std::string& json) {
  const auto parsed = parse_specification(json, "rows.json");
  return parsed ? "accepted" : parsed.error().detail;
}

TEST(ParseSpecification, ReadsEveryMember) {
  const auto s = parse_specification(file(requirement()));
  ASSERT_TRUE(s) << sys::to_string(s.error());
  EXPECT_EQ(s->otep, 4719);
  EXPECT_EQ(s->revision, "2026-04-07");
  EXPECT_EQ(s->source_blob, "0123456789abcdef0123456789abcdef01234567");
  ASSERT_EQ(s->requirements.size(), 1U);
  const Requirement& r = s->requirements[0];
  EXPECT_EQ(r.otep, 4719);
  EXPECT_EQ(r.revision, "2026-04-07");
  EXPECT_EQ(r.id, "pctx.header.magic");
  EXPECT_EQ(r.anchor, "header");
  EXPECT_EQ(r.lines, (std::array{4, 7}));
  EXPECT_EQ(r.sentences, (std::array{1, 2}));
  EXPECT_EQ(r.fingerprint, kSha);
  EXPECT_EQ(r.strength, Strength::kMust);
  EXPECT_EQ(r.basis, Basis::kTable);
  EXPECT_EQ(r.severity, Severity::kError);
  EXPECT_EQ(r.role, Role::kWriter);
  EXPECT_EQ(r.text, "The magic is right.");
  EXPECT_EQ(r.why, "Readers look for it.");
  EXPECT_EQ(r.level, Level::kSnapshot);
  EXPECT_EQ(r.modes, (std::vector{Mode::kAttach, Mode::kWrap}));
  EXPECT_TRUE(r.has_mode(Mode::kWrap));
  EXPECT_FALSE(r.has_mode(Mode::kRun));
  EXPECT_EQ(r.check, "Compare the bytes. Prints both.");
  EXPECT_EQ(r.mutant, "Writes other bytes in pctx.header.magic.");
  EXPECT_EQ(r.variants, (std::vector<std::string>{"Padding behind it."}));
  EXPECT_FALSE(r.excluded);
}

struct BrokenRequirement {
  const char* from;
  const char* to;
  const char* error;  // after "rows.json: pctx.header.magic: "
};

class ParseBrokenRequirement : public testing::TestWithParam<BrokenRequirement> {};

TEST_P(ParseBrokenRequirement, NamesTheRequirementAndTheMember) {
  const BrokenRequirement& p = GetParam();
  EXPECT_EQ(error_of(file(replaced(requirement(), p.from, p.to))),
            std::string("rows.json: pctx.header.magic: ") + p.error);
}

constexpr BrokenRequirement kSchema[] = {
    {R"("anchor": "header", )", "", "anchor: missing"},
    {R"("anchor")", R"("note": 1, "anchor")", "note: unknown member"},
    {R"("anchor": "header")", R"("anchor": "He ad")", "anchor: \"He ad\" is not a heading slug"},
    {R"("anchor": "header")", R"("anchor": 3)", "anchor: is not a string"},
    {"[4, 7]", "[4]", "lines: is not a pair of numbers"},
    {"[4, 7]", "4", "lines: is not a pair of numbers"},
    {"[4, 7]", "[0, 7]", "lines: 0 is not a number from 1 on"},
    {"[4, 7]", "[-4, 7]", "lines: -4 is not a number from 1 on"},
    {"[4, 7]", "[4.0, 7]", "lines: 4.0 is not a number from 1 on"},
    {"[4, 7]", "[4, 4294967300]", "lines: 4294967300 is not a number from 1 on"},
    {"[4, 7]", "[7, 4]", "lines: the first is after the last"},
    {"[1, 2]", "[2, 1]", "sentences: the first is after the last"},
    {"[1, 2]", "[1, 2, 3]", "sentences: is not a pair of numbers"},
    {"0123456789abcdef", "0123456789ABCDEF", "fingerprint: is not 64 lower-case hex digits"},
    {"MUST", "must", "strength: \"must\" is not one of MUST, SHOULD, MAY"},
    {R"("table")", R"("guess")",
     "basis: \"guess\" is not one of keyword, step, table, implied, undecided"},
    {R"("severity": "error")", R"("severity": null)",
     "severity: null is not one of error, warning, info"},
    {R"("writer")", R"("publisher")", "role: \"publisher\" is not one of writer, reader"},
    {"The magic is right.", "Magic it is", "text: is not one line that ends with a full stop"},
    {"The magic is right.", "The magic\\nis right.",
     "text: is not one line that ends with a full stop"},
    {"The magic is right.", "Right.", "text: is shorter than 10 characters"},
    {"Readers look for it.", "Readers look for it",
     "why: is not one line that ends with a full stop"},
    {R"("level": "snapshot")", R"("level": "deep")",
     "observe.level: \"deep\" is not one of static, snapshot, syscalls, stores, steps, "
     "race, puppet, none"},
    {R"("level": "snapshot", )", "", "observe: level: missing"},
    {R"(["attach", "wrap"])", R"("wrap")", "observe.modes: is not a list"},
    {R"(["attach", "wrap"])", R"(["wrap", "wrap"])", "observe.modes: wrap is repeated"},
    {R"(["attach", "wrap"])", R"(["look"])",
     "observe.modes: \"look\" is not one of attach, wrap, run, elf, reader"},
    {R"({"level": "snapshot", "modes": ["attach", "wrap"]})", "[]", "observe: is not an object"},
    {"Prints both.", "Shows both.", "check: does not say what it prints (\"Prints ...\")"},
    {"Compare the bytes. Prints both.", "Prints it.", "check: is shorter than 20 characters"},
    {"Writes other bytes in pctx.header.magic.", "Wrong.", "mutant: is shorter than 10 characters"},
    {R"(["Padding behind it."])", "{}", "variants: is not a list"},
    {R"(["Padding behind it."])", R"(["No"])", "variants: is shorter than 3 characters"},
    {R"(["Padding behind it."])", R"(["Same", "Same"])", "variants: \"Same\" is repeated"},
    {R"("excluded": null)", R"("excluded": "Short")", "excluded: is shorter than 10 characters"},
    {R"("excluded": null)", R"("excluded": false)", "excluded: is not a string"}};
INSTANTIATE_TEST_SUITE_P(Schema, ParseBrokenRequirement, testing::ValuesIn(kSchema));

constexpr BrokenRequirement kMeaning[] = {
    {R"("writer")", R"("reader")", "role: reader does not fit the id"},
    {"[1, 2]", "null", "fingerprint: is null exactly when sentences is null"},
    {R"("table")", R"("implied")", "severity: basis implied cannot be an error"},
    {R"("table")", R"("undecided")", "severity: basis undecided cannot be an error"},
    {"MUST", "MAY", "severity: a MAY cannot be an error"},
    {"MUST", "SHOULD", "severity: a SHOULD is an error only as a reader's keyword"},
    {R"("excluded": null)", R"("excluded": "Nobody could see it.")",
     "excluded: an excluded requirement has level none and no mode"},
    {R"("level": "snapshot")", R"("level": "none")",
     "observe: a requirement that is not excluded needs a level and a mode"},
    {R"(["attach", "wrap"])", "[]",
     "observe: a requirement that is not excluded needs a level and a mode"},
    {R"(["attach", "wrap"])", R"(["wrap", "reader"])",
     "observe.modes: a writer requirement does not run in mode reader"},
    {R"(["attach", "wrap"])", R"(["elf"])", "observe.modes: elf proves static requirements only"},
    {R"("level": "snapshot")", R"("level": "syscalls")",
     "observe.modes: attach does not reach level syscalls"}};
INSTANTIATE_TEST_SUITE_P(Meaning, ParseBrokenRequirement, testing::ValuesIn(kMeaning));

TEST(ParseSpecification, RefusesReaderRequirementsInOtherModes) {
  const std::string reader =
      replaced(requirement("pctx.reader.magic"), R"("writer")", R"("reader")");
  EXPECT_EQ(error_of(file(reader)),
            "rows.json: pctx.reader.magic: observe.modes: a reader requirement does not run in "
            "mode attach");
  EXPECT_EQ(error_of(file(requirement("pctx.reader.magic"))),
            "rows.json: pctx.reader.magic: role: writer does not fit the id");
}

TEST(ParseSpecification, TakesAShouldAsAnErrorFromAReadersKeywordOnly) {
  std::string reader = replaced(requirement("pctx.reader.magic"), R"("writer")", R"("reader")");
  reader = replaced(reader, R"(["attach", "wrap"])", R"(["reader"])");
  reader = replaced(reader, "MUST", "SHOULD");
  EXPECT_EQ(
      error_of(file(reader)),
      "rows.json: pctx.reader.magic: severity: a SHOULD is an error only as a reader's keyword");
  reader = replaced(reader, R"("table")", R"("keyword")");
  EXPECT_EQ(error_of(file(reader)),
            "rows.json: pctx.reader.magic: severity: a SHOULD with basis keyword is of severity "
            "warning, and severity_because gives no reason for another");
  EXPECT_EQ(error_of(file(
                replaced(reader, R"("role")", R"("severity_because": "It does harm.", "role")"))),
            "accepted");
}

TEST(ParseSpecification, TakesASeverityFromStrengthAndBasisOrWithAReason) {
  const std::string because = R"("severity_because": "It harms nobody.", "role")";
  const std::string warning =
      replaced(requirement(), R"("severity": "error")", R"("severity": "warning")");
  EXPECT_EQ(error_of(file(warning)),
            "rows.json: pctx.header.magic: severity: a MUST with basis table is of severity error, "
            "and severity_because gives no reason for another");
  EXPECT_EQ(error_of(file(replaced(requirement(), R"("role")", because))),
            "rows.json: pctx.header.magic: severity_because: the severity follows from strength "
            "and basis");
  const auto s = parse_specification(file(replaced(warning, R"("role")", because)));
  ASSERT_TRUE(s) << sys::to_string(s.error());
  const Requirement& r = s->requirements[0];
  EXPECT_EQ(r.severity_because, "It harms nobody.");
  EXPECT_EQ(severity_in(r, Reading::kReaderVisible), Severity::kWarning);
  EXPECT_EQ(severity_in(r, Reading::kStrict), Severity::kWarning);
}

TEST(ParseSpecification, TakesAStepThatNoReaderCanNotice) {
  const std::string unnoticed = R"("unnoticed": "Readers do not look there.", "role")";
  std::string step = replaced(requirement(), R"("role")", unnoticed);
  EXPECT_EQ(error_of(file(step)),
            "rows.json: pctx.header.magic: unnoticed: only a MUST that is a step can go unnoticed");
  step = replaced(step, R"("table")", R"("step")");
  EXPECT_EQ(error_of(file(step)),
            "rows.json: pctx.header.magic: severity: a MUST with basis step is of severity "
            "warning, and severity_because gives no reason for another");
  step = replaced(step, R"("severity": "error")", R"("severity": "warning")");
  const auto s = parse_specification(file(step));
  ASSERT_TRUE(s) << sys::to_string(s.error());
  const Requirement& r = s->requirements[0];
  EXPECT_EQ(severity_in(r, Reading::kReaderVisible), Severity::kWarning);
  EXPECT_EQ(severity_in(r, Reading::kStrict), Severity::kError);
}

TEST(Severities, FollowFromStrengthBasisAndReading) {
  using enum Basis;
  for (const Reading reading : {Reading::kReaderVisible, Reading::kStrict}) {
    for (const Basis b : {kKeyword, kStep, kTable, kImplied, kUndecided}) {
      const bool open = b == kImplied || b == kUndecided;
      EXPECT_EQ(severity_by_rule(Strength::kMust, b, false, reading),
                open ? Severity::kWarning : Severity::kError);
      EXPECT_EQ(severity_by_rule(Strength::kShould, b, false, reading), Severity::kWarning);
      EXPECT_EQ(severity_by_rule(Strength::kMay, b, false, reading), Severity::kInfo);
    }
  }
  EXPECT_EQ(severity_by_rule(Strength::kMust, kStep, true, Reading::kReaderVisible),
            Severity::kWarning);
  EXPECT_EQ(severity_by_rule(Strength::kMust, kStep, true, Reading::kStrict), Severity::kError);
}

TEST(Severities, OfAContradictionThatGoesUnnoticed) {
  Requirement step;
  step.basis = Basis::kStep;
  EXPECT_EQ(severity_in(step, Reading::kReaderVisible), Severity::kError);
  EXPECT_EQ(severity_unnoticed(step, Reading::kReaderVisible), Severity::kWarning);
  EXPECT_EQ(severity_unnoticed(step, Reading::kStrict), Severity::kError);
  step.strength = Strength::kMay;
  EXPECT_EQ(severity_unnoticed(step, Reading::kReaderVisible), Severity::kInfo);
}

TEST(Severities, OfTheCatalogueAreByTheRuleButForThese) {
  std::set<std::string> exceptions;
  std::set<std::string> by_reading;
  for (const Specification& s : Catalogue::builtin().specifications()) {
    for (const Requirement& r : s.requirements) {
      const bool unnoticed = r.unnoticed.has_value();
      const Severity by_rule =
          severity_by_rule(r.strength, r.basis, unnoticed, Reading::kReaderVisible);
      if (r.severity != by_rule) exceptions.insert(r.id);
      EXPECT_EQ(r.severity, severity_in(r, Reading::kReaderVisible)) << r.id;
      if (r.severity != severity_in(r, Reading::kStrict)) by_reading.insert(r.id);
    }
  }
  EXPECT_EQ(exceptions,
            (std::set<std::string>{
                "pctx.publish.footprint", "pctx.publish.on-init", "pctx.reader.bounded-retry",
                "pctx.reader.byte-order", "pctx.reader.no-context", "pctx.reader.no-permission",
                "pctx.reader.payload-size-bounded", "pctx.reader.survives-bad-header",
                "pctx.reader.survives-bad-payload", "tctx.reader.byte-order",
                "tctx.record.trace-flags-without-ids", "tctx.tls.prefers-tlsdesc"}));
  EXPECT_EQ(by_reading,
            (std::set<std::string>{"pctx.exec.memfd-not-leaked", "pctx.publish.mapping-protection",
                                   "pctx.publish.memfd-first", "pctx.publish.memfd-flags",
                                   "pctx.reader.decode-after-check",
                                   "tctx.reader.attrs-read-when-needed"}));
}

TEST(Readings, GoBothWays) {
  for (const Reading r : {Reading::kReaderVisible, Reading::kStrict}) {
    EXPECT_EQ(reading_from(to_string(r)), r);
  }
  EXPECT_FALSE(reading_from("visible"));
}

TEST(ParseSpecification, NeedsASentenceUnlessTheBasisIsOpen) {
  std::string r = replaced(requirement(), "[1, 2]", "null");
  r = replaced(r, "\"" + std::string(kSha) + "\"", "null");
  EXPECT_EQ(error_of(file(r)), "rows.json: pctx.header.magic: basis: table needs a sentence");
  r = replaced(r, R"("severity": "error")", R"("severity": "warning")");
  EXPECT_EQ(error_of(file(replaced(r, R"("table")", R"("implied")"))), "accepted");
}

TEST(ParseSpecification, TakesExcludedRequirementsWithoutALevel) {
  std::string r =
      replaced(requirement(), R"("excluded": null)", R"("excluded": "Nobody could see it.")");
  r = replaced(r, R"("snapshot")", R"("none")");
  EXPECT_EQ(
      error_of(file(r)),
      "rows.json: pctx.header.magic: excluded: an excluded requirement has level none and no mode");
  EXPECT_EQ(error_of(file(replaced(r, R"("attach", "wrap")", ""))), "accepted");
}

TEST(ParseSpecification, RefusesIdsOfAnotherShape) {
  for (const char* id : {"pctx.header", "pctx.a.b.c.d", "pctx..a.b", "pctx.a.b.", "pctx.a-.b",
                         "pctx.-a.b", "pctx.a.b-", "pctx.a--b.c", "pctx.A.b", "pctx.a_b.c",
                         "xctx.a.b", "pctxa.b.c", "pctx.a. b"}) {
    EXPECT_EQ(error_of(file(requirement(id))),
              "rows.json: " + std::string(id) + ": id: is not pctx.GROUP.NAME or tctx.GROUP.NAME");
  }
  EXPECT_EQ(error_of(file(requirement("pctx.a.b.c"))), "accepted");
  EXPECT_EQ(error_of(file(requirement("pctx.a-1.b2-c"))), "accepted");
}

TEST(ParseSpecification, RefusesRequirementsOfTheOtherOtep) {
  EXPECT_EQ(error_of(file(requirement("tctx.header.magic"))),
            "rows.json: tctx.header.magic: id: belongs to the other OTEP's file");
  EXPECT_EQ(error_of(file(requirement(), "4947")),
            "rows.json: pctx.header.magic: id: belongs to the other OTEP's file");
  EXPECT_EQ(error_of(file(requirement("tctx.header.magic"), "4947")), "accepted");
}

TEST(ParseSpecification, NumbersRequirementsThatHaveNoId) {
  EXPECT_EQ(error_of(file("7")), "rows.json: requirement 1: is not an object");
  EXPECT_EQ(error_of(file(requirement() + R"(, {"ID": 1})")),
            "rows.json: requirement 2: id: missing");
  EXPECT_EQ(error_of(file(replaced(requirement(), R"("pctx.header.magic")", "5"))),
            "rows.json: requirement 1: id: is not a string");
}

TEST(ParseSpecification, RefusesWhatRequirementsMustNotShare) {
  EXPECT_EQ(error_of(file(requirement() + "," + requirement())),
            "rows.json: pctx.header.magic: id: used twice");
  const std::string other =
      replaced(requirement("pctx.header.other"), "in pctx.header.other.", "in pctx.header.magic.");
  EXPECT_EQ(error_of(file(requirement() + "," + other)),
            "rows.json: pctx.header.other: mutant: the same as that of pctx.header.magic");
}

TEST(ParseSpecification, RefusesReferencesToUnknownRequirements) {
  const auto with = [&](const char* member, std::string_view from, const std::string& to) {
    EXPECT_EQ(error_of(file(replaced(requirement(), from, to))),
              std::string("rows.json: pctx.header.magic: ") + member +
                  ": refers to unknown requirement pctx.header.other");
  };
  with("text", "The magic is right.", "The magic is as pctx.header.other.");
  with("check", "Compare the bytes.", "Compare as (pctx.header.other).");
  with("mutant", "Writes other bytes in pctx.header.magic.", "Writes pctx.header.other wrongly.");
  with("variants", "Padding behind it.", "See pctx.header.other, padding.");
  // Groups, undecided points, and requirements of a file that is not loaded.
  for (const char* fine : {"The pctx.header rows, as open.pctx.levels.two says.",
                           "As tctx.record.size has it.", "As pctx.header.magic.", "xpctx.a.b."}) {
    EXPECT_EQ(error_of(file(replaced(requirement(), "The magic is right.", fine))), "accepted")
        << fine;
  }
  EXPECT_EQ(error_of(file(requirement() + "," +
                          replaced(requirement("pctx.header.other"), "The magic is right.",
                                   "More than pctx.header.magic."))),
            "accepted");
}

TEST(ParseSpecification, RefusesABadFrame) {
  const std::string good = file(requirement());
  EXPECT_EQ(error_of(replaced(good, "4719", "4720")), "rows.json: otep: 4720 is not 4719 or 4947");
  EXPECT_EQ(error_of(replaced(good, "4719", "\"4719\"")),
            "rows.json: otep: \"4719\" is not 4719 or 4947");
  EXPECT_EQ(error_of(replaced(good, "2026-04-07", "2026-4-7")),
            "rows.json: revision: \"2026-4-7\" is not YYYY-MM-DD");
  EXPECT_EQ(error_of(replaced(good, "2026-04-07", "2026-04/07")),
            "rows.json: revision: \"2026-04/07\" is not YYYY-MM-DD");
  EXPECT_EQ(error_of(replaced(good, "01234567\"", "0123456\"")),
            "rows.json: source_blob: is not 40 lower-case hex digits");
  EXPECT_EQ(error_of(file("")), "rows.json: requirements: is not a list of requirements");
  EXPECT_EQ(error_of("[]"), "rows.json: is not an object");
  EXPECT_EQ(error_of("{}"), "rows.json: otep: missing");
  EXPECT_EQ(error_of(replaced(good, "{", R"({"more": 1, )")), "rows.json: more: unknown member");
  EXPECT_EQ(error_of(replaced(good, R"("anchor")", R"("anchor": "x", "anchor")")),
            "rows.json: anchor: member given twice");
  EXPECT_EQ(error_of(std::string(65, '[')), "rows.json: is nested deeper than 64 levels");
  EXPECT_TRUE(error_of(std::string(64, '[')).starts_with("rows.json: [json.exception"));
}

// It would take an hour if the time grew with the square of the elements.
TEST(ParseSpecification, ReadsVeryManyObjects) {
  std::string many = "[";
  for (int i = 0; i < 1'000'000; ++i) many += "{},";
  EXPECT_EQ(error_of(many + "{}]"), "rows.json: is not an object");
}

TEST(ParseSpecification, SaysWhereJsonIsBroken) {
  for (const std::string& text : {std::string(), std::string("{"), file(requirement()) + "x",
                                  std::string("\xff"), std::string(10, '[')}) {
    EXPECT_TRUE(error_of(text).starts_with("rows.json: [json.exception.parse_error"))
        << error_of(text);
  }
}

TEST(BuiltinCatalogue, HoldsBothOtepsUnderTheNamesOfTheirFiles) {
  const Catalogue& c = Catalogue::builtin();
  ASSERT_EQ(c.specifications().size(), builtin_files().size());
  std::set<int> oteps;
  for (std::size_t i = 0; i < builtin_files().size(); ++i) {
    const Specification& s = c.specifications()[i];
    EXPECT_EQ(builtin_files()[i].name, std::to_string(s.otep) + "-" + s.revision + ".json");
    EXPECT_TRUE(parse_specification(builtin_files()[i].text, builtin_files()[i].name));
    oteps.insert(s.otep);
  }
  EXPECT_EQ(oteps, (std::set{4719, 4947}));
  ASSERT_NE(c.find("pctx.header.signature"), nullptr);
  EXPECT_EQ(c.find("pctx.header.signature")->otep, 4719);
  ASSERT_NE(c.find("tctx.attach.compiler-fences"), nullptr);
  EXPECT_EQ(c.find("pctx.header"), nullptr);
}

TEST(Catalogue, RefusesOneIdInTwoFiles) {
  const Specification s = parse_specification(file(requirement())).value();
  Specification later = s;
  later.revision = "2027-01-01";
  const auto c = Catalogue::from({s, later});
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().detail, "pctx.header.magic: id used twice");
}

TEST(Catalogue, ChecksReferencesBetweenFiles) {
  const Specification a = parse_specification(file(replaced(requirement(), "The magic is right.",
                                                            "As tctx.header.magic.")))
                              .value();
  const Specification b =
      parse_specification(file(requirement("tctx.header.magic"), "4947")).value();
  const Specification c =
      parse_specification(file(requirement("tctx.header.other"), "4947")).value();
  EXPECT_TRUE(Catalogue::from({a, b}));
  ASSERT_FALSE(Catalogue::from({a, c}));
  EXPECT_EQ(Catalogue::from({a, c}).error().detail,
            "pctx.header.magic: text: refers to unknown requirement tctx.header.magic");
}

TEST(Catalogue, SuggestsTheNearestId) {
  const Catalogue& c = Catalogue::builtin();
  EXPECT_EQ(c.nearest("pctx.header.signatur"), "pctx.header.signature");
  EXPECT_EQ(c.nearest("pctx.headre.signature"), "pctx.header.signature");
  EXPECT_EQ(c.nearest("pctx.header.signature"), "pctx.header.signature");
  EXPECT_EQ(c.nearest("completely different"), "");
  EXPECT_EQ(c.nearest(""), "");
  EXPECT_EQ(c.nearest(std::string(1 << 20, 'p')), "");
}

TEST(Names, GoBothWays) {
  for (int i = 0; i <= static_cast<int>(Level::kNone); ++i) {
    EXPECT_EQ(level_from(to_string(static_cast<Level>(i))), static_cast<Level>(i));
  }
  EXPECT_FALSE(level_from("Static"));
  EXPECT_EQ(to_string(Role::kReader), "reader");
}

TEST(Glob, MatchesTheWholeText) {
  EXPECT_TRUE(glob_matches("", ""));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("***", "abc"));
  EXPECT_TRUE(glob_matches("a*c", "ac"));
  EXPECT_TRUE(glob_matches("a*c", "abcbc"));
  EXPECT_TRUE(glob_matches("a?c", "abc"));
  EXPECT_TRUE(glob_matches("*.b.*", "a.b.b.c"));
  EXPECT_TRUE(glob_matches("a*?", "ab"));
  EXPECT_TRUE(glob_matches("*ab*ab", "abxabab"));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("?", ""));
  EXPECT_FALSE(glob_matches("a?c", "ac"));
  EXPECT_FALSE(glob_matches("a*?", "a"));
  EXPECT_FALSE(glob_matches("abc", "abcd"));
  EXPECT_FALSE(glob_matches("bc", "abc"));
  EXPECT_FALSE(glob_matches("*a", "ab"));
}

TEST(Glob, TakesAHostilePatternInBoundedSteps) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "a*";
  pattern += "b";
  // A recursive algorithm would need more steps than the universe has atoms.
  EXPECT_FALSE(glob_matches(pattern, std::string(5000, 'a')));
  EXPECT_TRUE(glob_matches(pattern, std::string(5000, 'a') + "b"));
}

TEST(Spec, IsBothOtepsUnlessAskedFor) {
  EXPECT_EQ(default_spec().revisions, (std::vector{std::pair(4719, std::string("2026-04-07")),
                                                   std::pair(4947, std::string("2026-07-17"))}));
  const auto both = parse_spec(Catalogue::builtin(), "4947=2026-07-17,4719=2026-04-07");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->revisions, (std::vector{std::pair(4947, std::string("2026-07-17")),
                                          std::pair(4719, std::string("2026-04-07"))}));
}

TEST(Spec, RefusesWhatIsNotBuiltInAndListsWhatIs) {
  const auto error = [](std::string_view text) {
    const auto s = parse_spec(Catalogue::builtin(), text);
    return s ? "accepted" : s.error().detail;
  };
  const std::string known = "; known: 4719=2026-04-07, 4947=2026-07-17";
  EXPECT_EQ(error("4720=2026-04-07"), "OTEP 4720 is unknown" + known);
  EXPECT_EQ(error("04719=2026-04-07"), "OTEP 04719 is unknown" + known);
  EXPECT_EQ(error("4719=2025-04-07"), "revision 2025-04-07 of OTEP 4719 is unknown" + known);
  EXPECT_EQ(error("4719"), "\"4719\" is not OTEP=REVISION" + known);
  EXPECT_EQ(error(""), "\"\" is not OTEP=REVISION" + known);
  EXPECT_EQ(error("4719=2026-04-07,"), "\"\" is not OTEP=REVISION" + known);
  EXPECT_EQ(error("4719=2026-04-07,4719=2026-04-07"), "OTEP 4719 is named twice");
}

TEST(Select, TakesTheWritersRequirementsOfTheDefaultSpec) {
  const auto requirements = select(Catalogue::builtin(), {});
  ASSERT_TRUE(requirements);
  EXPECT_GT(requirements->size(), 50U);
  std::set<int> oteps;
  for (const Requirement* r : *requirements) {
    oteps.insert(r->otep);
    EXPECT_EQ(r->role, Role::kWriter);
    EXPECT_FALSE(r->excluded) << r->id;
  }
  EXPECT_EQ(oteps, (std::set{4719, 4947}));
}

TEST(Select, LeavesOutDeeperLevels) {
  Selection s;
  s.deepest = Level::kSnapshot;
  const auto requirements = select(Catalogue::builtin(), s);
  ASSERT_TRUE(requirements);
  for (const Requirement* r : *requirements) EXPECT_LE(r->level, Level::kSnapshot) << r->id;
  EXPECT_LT(requirements->size(), select(Catalogue::builtin(), {})->size());
}

TEST(Select, KeepsPuppetRequirementsForReadersAtAnyLevel) {
  Selection s;
  s.role = Role::kReader;
  s.deepest = Level::kSnapshot;
  const auto requirements = select(Catalogue::builtin(), s);
  ASSERT_TRUE(requirements);
  for (const Requirement* r : *requirements) EXPECT_EQ(r->level, Level::kPuppet) << r->id;
}

TEST(Select, AppliesOnlyThenSkip) {
  Selection s;
  s.only = {"pctx.header.*"};
  s.skip = {"pctx.header.v*", "pctx.header.layout"};
  const auto requirements = select(Catalogue::builtin(), s);
  ASSERT_TRUE(requirements);
  std::set<std::string> ids;
  for (const Requirement* r : *requirements) ids.insert(r->id);
  EXPECT_TRUE(ids.contains("pctx.header.signature"));
  EXPECT_FALSE(ids.contains("pctx.header.version"));
  EXPECT_FALSE(ids.contains("pctx.header.layout"));
  for (const std::string& id : ids) EXPECT_TRUE(id.starts_with("pctx.header."));
}

std::string select_error(const Selection& s) {
  const auto requirements = select(Catalogue::builtin(), s);
  if (requirements) return "accepted";
  EXPECT_EQ(requirements.error().err, EINVAL);
  return requirements.error().detail;
}

TEST(Select, RefusesPatternsThatMatchNothing) {
  Selection s;
  s.only = {"pctx.header.*", "pctx.header.signatur"};
  EXPECT_EQ(select_error(s),
            "--only pctx.header.signatur matches no requirement; did you mean "
            "pctx.header.signature?");
  s.only = {};
  s.skip = {"nothing*"};
  EXPECT_EQ(select_error(s), "--skip nothing* matches no requirement; `ctxconf list` shows all");
}

TEST(Select, SaysWhyNothingIsLeft) {
  Selection s;
  s.only = {"tctx.attach.compiler-fences"};
  s.spec = parse_spec(Catalogue::builtin(), "4719=2026-04-07").value();
  EXPECT_EQ(select_error(s), "none is left of 1; 1 not in the set chosen by --spec");
  s.spec = parse_spec(Catalogue::builtin(), "4947=2026-07-17").value();
  EXPECT_EQ(select_error(s), "none is left of 1; 1 excluded (`ctxconf explain` says why)");
  s.spec = default_spec();
  s.only = {"pctx.reader.rereads-timestamp"};
  EXPECT_EQ(select_error(s), "none is left of 1; 1 about readers (use `ctxconf reader`)");
  s.only = {"pctx.header.signature"};
  s.skip = {"pctx.*"};
  EXPECT_EQ(select_error(s), "none is left of 1; 1 left out by --skip");
  s.skip = {};
  s.deepest = Level::kStatic;
  EXPECT_EQ(select_error(s), "none is left of 1; 1 above --level static");
  s.role = Role::kReader;
  EXPECT_EQ(select_error(s), "none is left of 1; 1 about writers");
}

}  // namespace
}  // namespace ctxconf::conformance
