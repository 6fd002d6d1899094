#include "fuzz/slow_maps.h"

namespace ctxconf::fuzz {
namespace {

// One or more digits and nothing else, with a value of at most `limit`.
bool number(std::string_view digits, unsigned base, std::uint64_t limit, std::uint64_t& out) {
  out = 0;
  if (digits.empty()) return false;
  for (const char c : digits) {
    std::uint64_t digit = 99;
    if (c >= '0' && c <= '9') digit = static_cast<std::uint64_t>(c - '0');
    if (c >= 'a' && c <= 'f') digit = static_cast<std::uint64_t>(c - 'a') + 10;
    if (c >= 'A' && c <= 'F') digit = static_cast<std::uint64_t>(c - 'A') + 10;
    if (digit >= base || out > (limit - digit) / base) return false;
    out = out * base + digit;
  }
  return true;
}

// The text from `begin` to the next `end`; `begin` then moves past that. Nothing if there is no
// `end`.
std::optional<std::string_view> before(std::string_view line, std::size_t& begin, char end) {
  const auto at = line.find(end, begin);
  if (at == std::string_view::npos) return std::nullopt;
  const auto out = line.substr(begin, at - begin);
  begin = at + 1;
  return out;
}

bool is_permissions(std::string_view p) {
  return p.size() == 4 && (p[0] == 'r' || p[0] == '-') && (p[1] == 'w' || p[1] == '-') &&
         (p[2] == 'x' || p[2] == '-') && (p[3] == 's' || p[3] == 'p');
}

}  // namespace

std::optional<SlowMapping> slow_mapping(std::string_view line) {
  if (line.size() > 65536) return std::nullopt;
  if (line.find('\0') != std::string_view::npos || line.find('\n') != std::string_view::npos) {
    return std::nullopt;
  }
  std::size_t at = 0;
  const auto begin = before(line, at, '-');
  const auto end = before(line, at, ' ');
  const auto permissions = before(line, at, ' ');
  const auto offset = before(line, at, ' ');
  const auto major = before(line, at, ':');
  const auto minor = before(line, at, ' ');
  if (!begin || !end || !permissions || !offset || !major || !minor) return std::nullopt;
  const bool more = line.find(' ', at) != std::string_view::npos;
  const std::string_view inode = more ? *before(line, at, ' ') : line.substr(at);

  SlowMapping m;
  if (!number(*begin, 16, UINT64_MAX, m.begin) || !number(*end, 16, UINT64_MAX, m.end) ||
      m.begin >= m.end || !is_permissions(*permissions) ||
      !number(*offset, 16, UINT64_MAX, m.offset) || !number(*major, 16, UINT32_MAX, m.major) ||
      !number(*minor, 16, UINT32_MAX, m.minor) || !number(inode, 10, UINT64_MAX, m.inode)) {
    return std::nullopt;
  }
  m.permissions = *permissions;
  if (!more) return m;
  while (at < line.size() && line[at] == ' ') ++at;
  m.name = line.substr(at);
  return m;
}

std::vector<std::string_view> slow_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {
      lines.push_back(text.substr(begin));
      break;
    }
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string slow_path(std::string_view name) {
  if (name.find('\\') == std::string_view::npos) return std::string(name);
  std::string out;
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '\\' && name.compare(at, 4, "\\012") == 0) {
      out += '\n';
      at += 3;
    } else {
      out += name[at];
    }
  }
  return out;
}

}  // namespace ctxconf::fuzz
