// Compares the catalogue's source sentences with another text of an OTEP.
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
  kNoSentence,  // it rests on no sentence, and its section still exists
  kMoved,       // the same sentences on other lines, or under another heading
  kChanged,     // not found word for word, but its section or its neighbours are
  kVanished,    // no text is left in its place, or the section is gone
};
std::string_view to_string(DriftKind);  // "as-pinned", "no-sentence", "moved", ...

struct RequirementDrift {
  const Requirement* requirement = nullptr;  // in the compared Specification
  DriftKind kind = DriftKind::kAsPinned;
  // kMoved: where the sentences are now. kChanged: the section, and the text between the
  // neighbouring sentences; no lines if their order changed.
  std::string section;
  bool before_headings = false;  // kMoved: `section` is empty because no heading precedes it
  SourceText::Location location;
  std::string text;  // kChanged: that text, cut at kLongestShownText
};
inline constexpr std::size_t kLongestShownText = 600;

struct Drift {
  std::vector<RequirementDrift> requirements;  // one per requirement, in the catalogue's order

  int count(DriftKind kind) const;
  bool is_clean() const;
};

// Fails if nothing of the catalogue is found, because it is then another document.
sys::Result<Drift> drift_of(const Specification& specification, const SourceText& text);

}  // namespace ctxconf::conformance
