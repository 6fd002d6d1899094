// The text of an OTEP.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/drift.h"
#include "conformance/requirements/source_text.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::size_t kMostPinned = 8;
constexpr std::size_t kMostSentences = 3;  // of a requirement

std::vector<std::string> lines_of_otep(std::string_view text) {
  std::vector<std::string> lines(1);
  for (std::size_t i = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
       i < text.size(); ++i) {
    if (text[i] == '\r' || text[i] == '\n') {
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
      lines.emplace_back();
    } else {
      lines.back() += text[i];
    }
  }
  return lines;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_space(char c) { return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f); }

// The lines of the headings of a text in ASCII.
std::vector<int> slow_headings(const std::vector<std::string>& lines) {
  std::vector<int> headings;
  bool fence = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto begin = std::ranges::find_if_not(lines[i], is_space) - lines[i].begin();
    if (lines[i].compare(static_cast<std::size_t>(begin), 3, "```") == 0) {
      fence = !fence;
      continue;
    }
    std::size_t level = 0;
    while (level < lines[i].size() && lines[i][level] == '#') ++level;
    const bool has_text = level < lines[i].size() && is_space(lines[i][level]);
    if (!fence && level >= 1 && level <= 6 && has_text) headings.push_back(static_cast<int>(i) + 1);
  }
  return headings;
}

// Cutting removes marks and joins lines; it adds spaces and bars alone, and changes no order.
bool is_from(const SourceUnit& unit, const std::vector<std::string>& lines) {
  std::string source;
  for (int line = unit.first; line <= unit.last; ++line)
    source += lines[static_cast<std::size_t>(line) - 1];
  std::size_t at = 0;
  for (const char c : unit.text) {
    if (c == ' ' || c == '|') continue;
    at = source.find(c, at);
    if (at == source.npos) return false;
    ++at;
  }
  return true;
}

bool has_two_spaces(std::string_view text) { return text.find("  ") != text.npos; }

std::string without_empty_cells(std::string text) {
  for (auto at = text.find("|  |"); at != text.npos; at = text.find("|  |")) text.erase(at, 3);
  return text;
}

void check_units(const SourceText& text, const std::vector<std::string>& lines) {
  int before = 1;
  for (const SourceUnit& unit : text.units()) {
    FUZZ_CHECK(before <= unit.first && unit.first <= unit.last);
    FUZZ_CHECK(unit.last <= static_cast<int>(lines.size()));
    FUZZ_CHECK(!unit.text.empty() && !has_two_spaces(without_empty_cells(unit.text)));
    FUZZ_CHECK(unit.text.find_first_of("\t\n\v\f\r") == unit.text.npos);
    FUZZ_CHECK(is_from(unit, lines));
    before = unit.first;
  }
}

void check_sections(const SourceText& text) {
  for (const SourceHeading& heading : text.headings()) {
    FUZZ_CHECK(text.section_at(heading.line) == heading.slug);
    FUZZ_CHECK(text.has_section(heading.slug) && !text.is_before_headings(heading.line));
    const auto [begin, end] = text.units_of_section(heading.slug);
    FUZZ_CHECK(begin <= end && end <= text.units().size());
    for (const SourceUnit& unit : text.units().subspan(begin, end - begin))
      FUZZ_CHECK(text.section_at(unit.first) == heading.slug);
  }
}

// All units as lines of code, which are not cut: reading that again finds the same units.
void check_read_as_code(const SourceText& text) {
  std::string code = "# Code\n```\n";
  std::vector<std::string_view> wanted;
  for (const SourceUnit& unit : text.units()) {
    if (unit.text.starts_with("//") || unit.text.starts_with("```")) continue;
    if (has_two_spaces(unit.text)) continue;
    wanted.push_back(unit.text);
    code += "  " + unit.text + "\t\n";
  }
  const auto again = SourceText::from(code);
  FUZZ_CHECK(again.has_value() && again->units().size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    FUZZ_CHECK(again->units()[i].text == wanted[i]);
    FUZZ_CHECK(again->units()[i].first == static_cast<int>(i) + 3);
  }
}

// Requirements that rest on sentences of the text itself, spread over it.
Specification pinned_to(const SourceText& text) {
  Specification out;
  out.otep = 4719;
  const auto units = text.units();
  const std::size_t step = units.size() / kMostPinned + 1;
  for (std::size_t at = 0; at < units.size(); at += step) {
    const std::size_t count = std::min(1 + at % kMostSentences, units.size() - at);
    const auto location = text.location_of(at, count);
    const auto chosen = text.select(location.lines, location.sentences);
    FUZZ_CHECK(chosen.data() == units.data() + at && chosen.size() == count);
    Requirement r;
    r.otep = out.otep;
    r.id = "pctx.fuzz.r" + std::to_string(at);
    r.anchor = text.section_at(location.lines[0]);
    r.lines = location.lines;
    r.sentences = location.sentences;
    r.fingerprint = fingerprint_of(chosen);
    out.requirements.push_back(std::move(r));
  }
  return out;
}

void check_drift(const SourceText& text, std::string_view bytes) {
  const Specification pinned = pinned_to(text);
  if (pinned.requirements.empty()) return;
  const auto same = drift_of(pinned, text);
  FUZZ_CHECK(same.has_value() && same->is_clean());
  // Every second one rests on words that the text does not have.
  Specification changed = pinned;
  const SourceUnit other_words{"\n", 1, 1};
  for (std::size_t i = 1; i < changed.requirements.size(); i += 2)
    changed.requirements[i].fingerprint = fingerprint_of({&other_words, 1});
  const auto partly = drift_of(changed, text);
  FUZZ_CHECK(partly.has_value());
  for (std::size_t i = 0; i < changed.requirements.size(); ++i) {
    const RequirementDrift& one = partly->requirements[i];
    const bool is_lost = one.kind == DriftKind::kChanged || one.kind == DriftKind::kVanished;
    FUZZ_CHECK(is_lost ? i % 2 == 1 : i % 2 == 0 && one.kind == DriftKind::kAsPinned);
    FUZZ_CHECK(one.text.size() <= kLongestShownText + 3);
  }
  // Two lines lower everything is there.
  std::string lower(bytes);
  lower.insert(bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0, "\n\n");
  const auto lowered = SourceText::from(lower);
  FUZZ_CHECK(lowered.has_value() && lowered->units().size() == text.units().size());
  FUZZ_CHECK(lowered->blob() != text.blob());
  const auto moved = drift_of(pinned, *lowered);
  FUZZ_CHECK(moved.has_value());
  FUZZ_CHECK(moved->count(DriftKind::kAsPinned) + moved->count(DriftKind::kMoved) ==
             static_cast<int>(pinned.requirements.size()));
  const auto other = drift_of(pinned, *SourceText::from("# Another document\n\nOf other words.\n"));
  if (!other) return;
  for (const RequirementDrift& one : other->requirements)
    FUZZ_CHECK(one.text.size() <= kLongestShownText + 3);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = text_of(data, size);
  const auto text = SourceText::from(bytes);
  const auto lines = lines_of_otep(bytes);
  if (is_ascii(bytes)) {
    const auto headings = slow_headings(lines);
    FUZZ_CHECK(text.has_value() != headings.empty());
    if (text) FUZZ_CHECK(std::ranges::equal(text->headings(), headings, {}, &SourceHeading::line));
  }
  if (!text) {
    FUZZ_CHECK(!text.error().detail.empty());
    return 0;
  }
  FUZZ_CHECK(text->blob().size() == 40);
  check_units(*text, lines);
  check_sections(*text);
  check_read_as_code(*text);
  check_drift(*text, bytes);
  return 0;
}
