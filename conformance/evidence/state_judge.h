// What becomes of the states that a recording sees and cannot keep: they are judged before they go.
// The recorder knows this interface alone; the rules implement it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

struct BrokenRequirement {
  std::string_view requirement;  // id, of static storage
  std::string signature;
  friend auto operator<=>(const BrokenRequirement&, const BrokenRequirement&) = default;
};

class StateJudge {
 public:
  virtual ~StateJudge() = default;
  // The requirements that these states of a process context break, or are a warning for, judged
  // without any other evidence of the image. Faults that need more evidence, or states that are
  // further apart, are not found.
  virtual std::vector<BrokenRequirement> broken_by_states(const Image& image,
                                                          std::vector<Snapshot> states) const = 0;
  // The same for samples of threads, with the last snapshots of the image's process context.
  virtual std::vector<BrokenRequirement> broken_by_records(
      const Image& image, std::vector<ModuleFacts> modules,
      std::span<const ThreadSample> samples) const = 0;
};

// Limits how many of the states that cannot be kept are judged. After the first one that exceeds
// the limit, none is judged.
class JudgedSoFar {
 public:
  // Whether one more state, of `bytes` bytes, is judged. Counts it.
  bool takes(std::uint64_t bytes, std::size_t most, std::uint64_t most_bytes);
  std::size_t count() const { return count_; }

 private:
  bool is_over_ = false;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

// Counts, for each broken requirement, how many of the kept states or samples show it.
class ShownAsBroken {
 public:
  // The requirements that the kept states do not show often enough.
  std::vector<BrokenRequirement> unshown(const std::vector<BrokenRequirement>& broken) const;
  // The states that show these are kept now, or were kept before.
  void shown(const std::vector<BrokenRequirement>& broken);
  void shown_often(const std::vector<BrokenRequirement>& broken);

 private:
  std::map<BrokenRequirement, std::size_t> shown_;
};

// Adds these requirements to Image::requirements_dropped: the states that seemed to break them were
// not kept.
void add_dropped(const std::vector<BrokenRequirement>& broken, std::vector<std::string>& dropped);

}  // namespace ctxconf::conformance
