// The text of an OTEP, cut into the units that the rows of the catalogue point
// at. Rows keep no sentence, only where it stands and its fingerprint, so the
// cutting is part of the catalogue's format: another way to cut is another
// fingerprint.
//
// A unit is, in reading order: a sentence of a paragraph or list item (list
// and quotation marks removed); of a table row all cells but the last, joined
// by " | ", and then each sentence of the last cell; in a fenced block each
// line of code, while a run of // comment lines is a paragraph. Headings and the
// rules of tables give none. White space within a unit is one space.
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

// No OTEP is nearly as large.
inline constexpr std::size_t kLongestSourceText = std::size_t{512} << 10U;

struct SourceUnit {
  std::string text;
  int first = 0;  // the line on which it begins, from 1
  int last = 0;   // the line on which it ends
};

struct SourceHeading {
  int line = 0;
  std::string slug;  // as in a link to it: "header-structure"; the second of a name has "-1"
};

class SourceText {
 public:
  // Lines end with LF, CR LF or CR; a byte order mark before the first is no part of it. An error
  // for what is no text of an OTEP: more than
  // kLongestSourceText bytes, not UTF-8, or without any Markdown heading.
  static sys::Result<SourceText> from(std::string_view bytes);

  // Git's name of the bytes as they came: 40 hex digits.
  const std::string& blob() const { return blob_; }
  std::span<const SourceUnit> units() const { return units_; }
  std::span<const SourceHeading> headings() const { return headings_; }

  // The slug of the last heading on or before `line`; empty before the first, and under one of
  // which no letter or digit is left.
  std::string_view section_at(int line) const;
  bool is_before_headings(int line) const {
    return headings_.empty() || line < headings_.front().line;
  }
  bool has_section(std::string_view slug) const;
  // The units that begin in that section, without those of its subsections; first index and one
  // behind the last. Both the same when there is none.
  std::array<std::size_t, 2> units_of_section(std::string_view slug) const;

  // The units that a row means: `sentences` are ordinals, from 1, among those that begin on
  // or after lines[0], and the last of them ends by lines[1]. Empty when they are not there.
  std::span<const SourceUnit> select(std::array<int, 2> lines, std::array<int, 2> sentences) const;
  // The reference that select() takes for `count` units from index `at` on.
  struct Place {
    std::array<int, 2> lines{};
    std::array<int, 2> sentences{};
  };
  Place place_of(std::size_t at, std::size_t count) const;

 private:
  std::string blob_;
  std::vector<SourceUnit> units_;
  std::vector<SourceHeading> headings_;
};

// SHA-256 over the units' text, joined by one space: 64 hex digits.
std::string fingerprint_of(std::span<const SourceUnit> units);

}  // namespace ctxconf::conformance
