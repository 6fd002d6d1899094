// Which image of which process: exec replaces the image and keeps the process.
#pragma once

#include <compare>
#include <cstdint>
#include <tuple>

namespace ctxconf::conformance {

struct ImageKey {
  std::int32_t pid = 0;
  std::uint32_t image = 0;  // 0 for the first, counted per process
  // The session (run) or cell (wrap --faults), from 1; 0: none. Two of them may reuse a pid.
  std::uint32_t session = 0;
  friend bool operator==(const ImageKey&, const ImageKey&) = default;
  friend std::strong_ordering operator<=>(const ImageKey& a, const ImageKey& b) {
    return std::tie(a.session, a.pid, a.image) <=> std::tie(b.session, b.pid, b.image);
  }
};

}  // namespace ctxconf::conformance
