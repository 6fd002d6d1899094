#include "sys/proc_text.h"

#include <type_traits>

namespace ctxconf::sys {

std::optional<ProcessStat> parse_stat(std::string_view text) {
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  ProcessStat stat;
  const auto set = [](auto& member, std::string_view value) {
    const auto number = leading_number<std::remove_reference_t<decltype(member)>>(value);
    member = number.value_or(0);
    return number.has_value();
  };
  bool good = true;
  for (int field = 3; field <= 22 && good; ++field) {
    if (!text.starts_with(' ')) return std::nullopt;
    text.remove_prefix(1);
    const std::string_view value = text.substr(0, text.find(' '));
    text.remove_prefix(value.size());
    if (field == 3) stat.state = value.empty() ? '?' : value.front();
    if (field == 4) good = set(stat.parent, value);
    if (field == 9) good = set(stat.flags, value);
    if (field == 22) good = set(stat.start_ticks, value);
  }
  return good ? std::optional(stat) : std::nullopt;
}

std::optional<std::string_view> status_field(std::string_view status, std::string_view key) {
  while (true) {
    const auto line_end = status.find('\n');
    if (line_end == std::string_view::npos) return std::nullopt;
    status.remove_prefix(line_end + 1);
    if (!status.starts_with(key)) continue;
    const std::string_view rest = status.substr(key.size());
    if (rest.starts_with(":\t")) return rest.substr(2, rest.find('\n') - 2);
  }
}

}  // namespace ctxconf::sys
