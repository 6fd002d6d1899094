// How far a run is, on stderr: one line that changes on a terminal, plain lines elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

class RunProgress {
 public:
  // `checks` of all repeats. With `quiet` nothing is written.
  RunProgress(bool quiet, std::size_t checks, std::uint32_t repeats);
  ~RunProgress();  // leaves the terminal's line empty
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void begin(std::string_view group, std::string_view check);
  void end() { ++over_; }  // a check
  // While a check of the group is stepped through: instructions so far, and for how long. 0: no
  // more.
  void walk(std::string_view group, std::uint64_t steps, double seconds);
  bool shows_walks() const { return terminal_; }
  // A group of `checks` of which `asked` were asked.
  void end_group(std::string_view group, std::size_t checks, std::size_t asked);
  void end_repeat(std::uint32_t repeat);

 private:
  void show(std::string line) const;

  const bool terminal_;
  const bool lines_;
  const std::size_t checks_;
  const std::uint32_t repeats_;
  std::string last_;      // what was shown of a check
  std::size_t over_ = 0;  // asked, or not to be asked any more
};

}  // namespace ctxconf::conformance
