// What became of the catalogue's source sentences in another text of an OTEP.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/requirements/source_text.h"

namespace ctxconf::conformance {

enum class DriftKind {
  kAsPinned,    // the same sentences, lines and section
  kNoSentence,  // the row rests on no sentence, and its section is still there
  kMoved,       // the same sentences on other lines, or under another heading
  kChanged,     // not to be found word for word; its section or its neighbours are
  kVanished,    // nothing is left where they stood, or the section is gone
};
std::string_view to_string(DriftKind);  // "as-pinned", "no-sentence", "moved", ...

struct RowDrift {
  const Requirement* row = nullptr;  // of the Specification that was compared
  DriftKind kind = DriftKind::kAsPinned;
  // kMoved: where the sentences are now. kChanged: the section, and what stands between the
  // sentences of other rows that surrounded them; no lines when their order changed.
  std::string section;
  bool before_headings = false;  // kMoved: `section` is empty since no heading stands above
  SourceText::Place place;
  std::string text;  // kChanged: that text, cut at kLongestShownText
};
inline constexpr std::size_t kLongestShownText = 600;

struct Drift {
  std::vector<RowDrift> rows;  // of each row, in the catalogue's order

  int count(DriftKind kind) const;
  bool is_clean() const;
};

// An error when nothing of the catalogue is found: then this is another document.
sys::Result<Drift> drift_of(const Specification& specification, const SourceText& text);

}  // namespace ctxconf::conformance
