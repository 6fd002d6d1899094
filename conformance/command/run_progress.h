// The progress of a run, on stderr: on a terminal one line that changes, elsewhere plain lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

class RunProgress {
 public:
  // `checks` counts those of all repeats. With `quiet` nothing is written.
  RunProgress(bool quiet, std::size_t checks, std::uint32_t repeats);
  ~RunProgress();  // clears the terminal's line
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void begin(std::string_view group, std::string_view check);
  void end() { ++over_; }  // a check
  // Call it while a check of the group is single-stepped: `steps` instructions in `seconds` so far;
  // 0 steps: it is over.
  void stepping(std::string_view group, std::uint64_t steps, double seconds);
  bool shows_stepping() const { return terminal_; }
  // A group has `checks`, of which `asked` were asked.
  void end_group(std::string_view group, std::size_t checks, std::size_t asked);
  void end_repeat(std::uint32_t repeat);

 private:
  void show(std::string line) const;

  const bool terminal_;
  const bool lines_;
  const std::size_t checks_;
  const std::uint32_t repeats_;
  std::string last_;      // the line of a check
  std::size_t over_ = 0;  // asked, or skipped for good
};

}  // namespace ctxconf::conformance
