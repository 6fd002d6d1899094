// The texts of /proc/PID/stat, status and smaps. Input: 1 byte that selects one; the text.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/slow_maps.h"
#include "sys/map_table.h"
#include "sys/proc_text.h"
#include "sys/process.h"

namespace {

using namespace ctxconf;

constexpr std::size_t kMostEntries = 16;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The leading digits of `text`, after a minus sign if T is signed.
template <class T>
std::optional<T> slow_number(const std::string& text) {
  const bool negative = std::numeric_limits<T>::is_signed && text.starts_with('-');
  const std::uint64_t largest = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  const std::uint64_t limit = negative ? largest + 1 : largest;
  std::uint64_t value = 0;
  const std::size_t first = negative ? 1 : 0;
  std::size_t end = first;
  for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end) {
    const auto digit = static_cast<std::uint64_t>(text[end] - '0');
    if (value > (limit - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  if (end == first) return std::nullopt;
  return static_cast<T>(negative ? -value : value);
}

std::optional<sys::ProcessStat> slow_stat(const std::string& text) {
  const auto name_end = text.find_last_of(')');
  if (name_end == std::string::npos) return std::nullopt;
  // Field 2 ends there: the empty text after it is at index 0, field 3 at index 1.
  const auto fields = split(text.substr(name_end + 1), ' ');
  if (fields.size() < 21 || !fields[0].empty()) return std::nullopt;
  const auto parent = slow_number<pid_t>(fields[2]);
  const auto flags = slow_number<std::uint64_t>(fields[7]);
  const auto start = slow_number<std::uint64_t>(fields[20]);
  if (!parent || !flags || !start) return std::nullopt;
  return sys::ProcessStat{fields[1].empty() ? '?' : fields[1][0], *parent, *flags, *start};
}

std::optional<std::string> slow_field(const std::string& status, const std::string& key) {
  const auto lines = split(status, '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto colon = lines[i].find(":\t", key.size());
    if (colon == key.size() && lines[i].compare(0, colon, key) == 0) {
      return lines[i].substr(colon + 2);
    }
  }
  return std::nullopt;
}

bool is_header(std::string_view line) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return !line.empty() && kDigits.find(line[0]) != kDigits.npos;
}

std::string without_spaces_around(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

std::optional<std::string> slow_flags(const std::vector<std::string_view>& lines,
                                      const sys::MapEntry& wanted, std::uint64_t last) {
  std::optional<std::string> flags;
  bool inside = false;
  for (const std::string_view line : lines) {
    if (is_header(line)) {
      const auto m = fuzz::slow_mapping(line);
      if (m && m->begin > last) break;
      inside = m && m->begin == wanted.range.begin().raw() && m->end == wanted.range.end().raw() &&
               m->inode == wanted.inode;
    } else if (inside && line.starts_with("VmFlags:")) {
      flags = without_spaces_around(line.substr(8));
    }
  }
  return flags;
}

void check_stat(const std::string& text) {
  const auto stat = sys::parse_stat(text);
  const auto slow = slow_stat(text);
  FUZZ_CHECK(stat == slow);
}

void check_status(const std::string& text) {
  constexpr std::array kKeys = {"Name",   "State",     "Tgid",           "Pid",
                                "PPid",   "TracerPid", "SigIgn",         "NSpid",
                                "CapEff", "Seccomp",   "Seccomp_filters"};
  for (const std::string key : kKeys) {
    const auto field = sys::status_field(text, key);
    const auto slow = slow_field(text, key);
    FUZZ_CHECK(field.has_value() == slow.has_value());
    if (field) FUZZ_CHECK(*field == *slow);
    FUZZ_CHECK(sys::status_number<pid_t>(text, key) ==
               (slow ? slow_number<pid_t>(*slow) : std::nullopt));
    (void)sys::status_number<std::uint64_t>(text, key, 16);
  }
}

void check_smaps(const std::string& text) {
  const auto lines = fuzz::slow_lines(text);
  // Every second mapping that it names, the last one first.
  std::vector<sys::MapEntry> entries;
  for (const std::string_view line : lines) {
    auto entry = is_header(line) ? sys::parse_maps_line(line) : sys::fail("", 0, "");
    if (entry && entries.size() < kMostEntries) entries.push_back(std::move(*entry));
  }
  std::vector<sys::MapEntry> wanted;
  for (std::size_t i = 0; i < entries.size(); i += 2) wanted.push_back(entries[i]);
  std::ranges::reverse(wanted);
  std::uint64_t last = 0;
  for (const auto& entry : wanted) last = std::max(last, entry.range.begin().raw());
  const auto flags = sys::parse_vm_flags(text, wanted);
  FUZZ_CHECK(flags.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    FUZZ_CHECK(flags[i] == slow_flags(lines, wanted[i], last));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      check_stat(text);
      break;
    case 1:
      check_status(text);
      break;
    default:
      check_smaps(text);
  }
  return 0;
}
