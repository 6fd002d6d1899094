#include "conformance/command/run_progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "conformance/command/print.h"

namespace ctxconf::conformance {
namespace {

// A longer line would wrap and could not be erased.
std::size_t columns() {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsual;
}

}  // namespace

RunProgress::RunProgress(bool quiet, std::size_t checks, std::uint32_t repeats)
    : terminal_(!quiet && isatty(STDERR_FILENO) != 0),
      lines_(!quiet && !terminal_),
      checks_(checks),
      repeats_(repeats) {}

RunProgress::~RunProgress() {
  if (terminal_) tell("\r\033[K");
}

void RunProgress::begin(std::string_view group, std::string_view check) {
  if (!terminal_) return;
  last_ = fmt::format("{}/{}  {} of {}", group, check, over_ + 1, checks_);
  show(last_);
}

void RunProgress::stepping(std::string_view group, std::uint64_t steps, double seconds) {
  if (!terminal_) return;
  if (steps == 0) return show(last_);
  std::string line = last_.starts_with(fmt::format("{}/", group)) ? last_ : std::string(group);
  line += fmt::format("  {} instructions stepped", steps);
  if (seconds > 0) line += fmt::format(", {:.0f}/s", static_cast<double>(steps) / seconds);
  show(std::move(line));
}

void RunProgress::show(std::string line) const {
  line.resize(std::min(line.size(), columns() - 1));
  tell(fmt::format("\r\033[K{}", line));
}

void RunProgress::end_group(std::string_view group, std::size_t checks, std::size_t asked) {
  over_ += checks - std::min(checks, asked);
  if (lines_ && repeats_ == 1 && checks > 0) {
    tell(fmt::format("{}  {} of {} checks\n", group, over_, checks_));
  }
}

void RunProgress::end_repeat(std::uint32_t repeat) {
  if (lines_ && repeats_ > 1) tell(fmt::format("repeat {} of {}\n", repeat + 1, repeats_));
}

}  // namespace ctxconf::conformance
