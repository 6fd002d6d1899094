// The rows that rest on what a reader can copy of a process, and what a few of its states say
// about them. A recording keeps so many states, and those beyond are judged before they go.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/timeline.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

struct BrokenRow {
  std::string_view requirement;
  std::string signature;
  friend auto operator<=>(const BrokenRow&, const BrokenRow&) = default;
};

// The rows that these states of a process context contradict, or warn of, without any other
// evidence of the image. What needs more than them, or states that are further apart, is not found.
std::vector<BrokenRow> broken_by_states(const Image& states);
// The same of samples of threads, with the process context in the snapshots of the image.
std::vector<BrokenRow> broken_by_records(const Image& samples);

// What of the states that are to go shows each broken row, and is kept.
class BrokenRows {
 public:
  // The rows that what is kept does not show often enough.
  std::vector<BrokenRow> unshown(const std::vector<BrokenRow>& rows) const;
  // What shows these is kept from now on, or was all along.
  void shown(const std::vector<BrokenRow>& rows);
  void shown_often(const std::vector<BrokenRow>& rows);

 private:
  std::map<BrokenRow, std::size_t> shown_;
};
// What seemed to break these has gone; in Image::rows_dropped.
void add_dropped(const std::vector<BrokenRow>& rows, std::vector<std::string>& dropped);

// Why a pass of the requirement would rest on states or samples of the image that nobody has
// judged; nothing: it does not.
std::optional<Finding> rests_on_dropped(const Image& image, std::string_view requirement);

}  // namespace ctxconf::conformance
