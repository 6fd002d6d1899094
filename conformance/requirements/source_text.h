// The text of an OTEP, cut into the units to which requirements refer. A requirement has no
// sentence, only its place and its fingerprint. So the cutting is part of the catalogue's format:
// another way to cut gives another fingerprint.
//
// The units, in reading order, are: a sentence of a paragraph or list item (without list and
// quotation marks); all cells of a table row but the last, joined by " | ", and then each sentence
// of the last cell; each line of code in a fenced block, where a run of // comment lines is a
// paragraph. Headings and the rules of tables are not units. White space within a unit becomes one
// space; an empty cell within a row leaves two.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/result.h"

namespace ctxconf::conformance {

// Every OTEP is far smaller.
inline constexpr std::size_t kLongestSourceText = std::size_t{512} << 10U;

struct SourceUnit {
  std::string text;
  int first = 0;  // the line on which it begins, from 1
  int last = 0;   // the line on which it ends
};

struct SourceHeading {
  int line = 0;
  std::string slug;  // as in a link: "header-structure"; the second heading of that name has "-1"
};

class SourceText {
 public:
  // Lines end with LF, CR LF or CR; a byte order mark at the start is ignored. Fails if this cannot
  // be the text of an OTEP: more than kLongestSourceText bytes, not UTF-8, or no Markdown heading.
  static sys::Result<SourceText> from(std::string_view bytes);

  // The git blob id of the bytes: 40 hex digits.
  const std::string& blob() const { return blob_; }
  std::span<const SourceUnit> units() const { return units_; }
  std::span<const SourceHeading> headings() const { return headings_; }

  // The slug of the last heading on or before `line`. Empty before the first heading, and under a
  // heading without a letter or digit.
  std::string_view section_at(int line) const;
  bool is_before_headings(int line) const {
    return headings_.empty() || line < headings_.front().line;
  }
  bool has_section(std::string_view slug) const;
  // The units that begin in that section, without its subsections: the first index and one past the
  // last. Both are equal if there is none.
  std::array<std::size_t, 2> units_of_section(std::string_view slug) const;

  // The units of a requirement: `sentences` are ordinals, from 1, among the units that begin on or
  // after lines[0]; the last must end by lines[1]. Empty if they do not exist.
  std::span<const SourceUnit> select(std::array<int, 2> lines, std::array<int, 2> sentences) const;
  // The reference by which select() finds `count` units from index `at` on.
  struct Location {
    std::array<int, 2> lines{};
    std::array<int, 2> sentences{};
  };
  Location location_of(std::size_t at, std::size_t count) const;

 private:
  std::string blob_;
  std::vector<SourceUnit> units_;
  std::vector<SourceHeading> headings_;
};

// SHA-256 over the units' text, joined by one space: 64 hex digits.
std::string fingerprint_of(std::span<const SourceUnit> units);

}  // namespace ctxconf::conformance
