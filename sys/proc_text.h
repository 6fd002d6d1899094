// The texts of /proc/PID/stat and /proc/PID/status (proc_pid_stat(5), proc_pid_status(5)). Pure.
// The program chooses the name in both: it may contain spaces and parentheses. The kernel escapes
// newlines of the name in status but not in stat.
#pragma once

#include <sys/types.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace ctxconf::sys {

struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t flags = 0;        // PF_*
  std::uint64_t start_ticks = 0;  // since boot
  friend bool operator==(const ProcessStat&, const ProcessStat&) = default;
};
// Nothing if a field is missing or is not a number.
std::optional<ProcessStat> parse_stat(std::string_view text);

// What follows "KEY:" and a tab on its line. Nothing if there is no such line; ignores the first
// line, which has the name.
std::optional<std::string_view> status_field(std::string_view status, std::string_view key);

// The number at the start of `text`; nothing if there is none or it is too large.
template <class T>
std::optional<T> leading_number(std::string_view text, int base = 10) {
  T value{};
  const auto done = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return done.ec == std::errc() ? std::optional(value) : std::nullopt;
}
template <class T>
std::optional<T> status_number(std::string_view status, std::string_view key, int base = 10) {
  const auto text = status_field(status, key);
  return text ? leading_number<T>(*text, base) : std::nullopt;
}

}  // namespace ctxconf::sys
