#include "sys/map_table.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace ctxconf::sys {
namespace {

constexpr std::size_t kBufferSize = kMaxMapsLine + (64U << 10U);
constexpr std::size_t kShownOfABadLine = 120;
// Names start in this column, or one space after longer fields.
constexpr std::size_t kNameColumn = 73;
// What is before the name: three numbers and a device of 16 digits each at most, an inode of 20.
constexpr std::size_t kLongestFields = 3 * 16 + 16 + 20 + sizeof("- rwxp  :  ");

// Adds the start of the line, which is hostile, made safe to print.
std::unexpected<Error> bad(std::string_view what, std::string_view line) {
  constexpr std::string_view kIn = " in \"";
  constexpr std::string_view kCut = "...";
  const std::string_view shown = line.substr(0, kShownOfABadLine);
  std::string detail;
  detail.reserve(what.size() + kIn.size() + shown.size() + kCut.size() + 1);
  detail += what;
  detail += kIn;
  detail += shown;
  std::replace_if(
      detail.end() - static_cast<std::ptrdiff_t>(shown.size()), detail.end(),
      [](unsigned char c) { return c - 0x20U >= 0x7fU - 0x20U; }, '?');
  if (line.size() > shown.size()) detail += kCut;
  detail += '"';
  return fail("parse maps", 0, std::move(detail));
}

// Takes a number off the front of `text`; false if there is none or it is too big.
template <class T>
bool take_number(std::string_view& text, int base, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

bool take_permission(std::string_view& text, char yes, char no, bool& out) {
  out = text.starts_with(yes);
  return take(text, out ? yes : no);
}

void append_number(std::string& out, std::uint64_t value, int base, std::size_t width) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
  const auto length = static_cast<std::size_t>(end - digits);
  if (length < width) out.append(width - length, '0');
  out.append(digits, length);
}

std::string longest_common_part(const std::vector<std::string>& texts) {
  if (texts.empty()) return {};
  const std::string& first = texts.front();
  for (std::size_t length = first.size(); length > 0; --length) {
    for (std::size_t at = 0; at + length <= first.size(); ++at) {
      const std::string part = first.substr(at, length);
      if (std::all_of(texts.begin(), texts.end(),
                      [&](const std::string& t) { return t.find(part) != std::string::npos; })) {
        return part;
      }
    }
  }
  return {};
}

}  // namespace

std::string permissions(const MapEntry& entry) {
  return {entry.readable ? 'r' : '-', entry.writable ? 'w' : '-', entry.executable ? 'x' : '-',
          entry.shared ? 's' : 'p'};
}

std::uint64_t page_of(std::uint64_t address) {
  static const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return address / page_size * page_size;
}

std::string to_maps_line(const MapEntry& entry) {
  std::string out;
  out.reserve(kLongestFields + entry.name.size());
  append_number(out, entry.range.begin().raw(), 16, 8);
  out += '-';
  append_number(out, entry.range.end().raw(), 16, 8);
  out += ' ';
  out += permissions(entry);
  out += ' ';
  append_number(out, entry.offset, 16, 8);
  out += ' ';
  append_number(out, entry.dev_major, 16, 2);
  out += ':';
  append_number(out, entry.dev_minor, 16, 2);
  out += ' ';
  append_number(out, entry.inode, 10, 1);
  out += ' ';
  if (entry.name.empty()) return out;
  out.append(out.size() < kNameColumn ? kNameColumn - out.size() : 1, ' ');
  out += entry.name;
  return out;
}

Result<MapEntry> parse_maps_line(std::string_view line) {
  if (line.size() > kMaxMapsLine) return bad("too many bytes", line);
  if (line.find('\0') != std::string_view::npos) return bad("a NUL byte", line);
  if (line.find('\n') != std::string_view::npos) return bad("a newline", line);

  std::string_view text = line;
  MapEntry entry;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (!take_number(text, 16, begin) || !take(text, '-') || !take_number(text, 16, end) ||
      !take(text, ' ')) {
    return bad("no address range", line);
  }
  const auto range = RemoteRange::from_bounds(RemoteAddr(begin), RemoteAddr(end));
  if (!range || range->empty()) return bad("a range that ends before it starts", line);
  entry.range = *range;
  if (!take_permission(text, 'r', '-', entry.readable) ||
      !take_permission(text, 'w', '-', entry.writable) ||
      !take_permission(text, 'x', '-', entry.executable) ||
      !take_permission(text, 's', 'p', entry.shared) || !take(text, ' ')) {
    return bad("no permissions", line);
  }
  if (!take_number(text, 16, entry.offset) || !take(text, ' ')) return bad("no offset", line);
  if (!take_number(text, 16, entry.dev_major) || !take(text, ':') ||
      !take_number(text, 16, entry.dev_minor) || !take(text, ' ')) {
    return bad("no device", line);
  }
  if (!take_number(text, 10, entry.inode)) return bad("no inode", line);
  if (text.empty()) return entry;
  if (!take(text, ' ')) return bad("no inode", line);
  // No name begins with a space: a path begins with '/', the others are words of the kernel.
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  entry.name = text;
  return entry;
}

std::string path_of(const MapEntry& entry) {
  constexpr std::string_view kNewline = "\\012";
  std::string out;
  out.reserve(entry.name.size());
  std::string_view rest = entry.name;
  for (auto at = rest.find(kNewline); at != rest.npos; at = rest.find(kNewline)) {
    out += rest.substr(0, at);
    out += '\n';
    rest.remove_prefix(at + kNewline.size());
  }
  out += rest;
  return out;
}

std::string map_files_name(const MapEntry& entry) {
  std::string out;
  out.reserve(sizeof("-") + 2 * 16);
  append_number(out, entry.range.begin().raw(), 16, 1);
  out += '-';
  append_number(out, entry.range.end().raw(), 16, 1);
  return out;
}

void for_each_mapping(std::string_view text, const std::function<bool(Result<MapEntry>)>& visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (!visit(parse_maps_line(text.substr(0, end)))) return;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

LinePieces::LinePieces() : buffer_(std::make_unique_for_overwrite<char[]>(kBufferSize)) {}

std::span<char> LinePieces::space() {
  if (end_ - begin_ > kMaxMapsLine) {
    dropping_ = true;
    end_ = begin_;
  }
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  return {buffer_.get() + end_, kBufferSize - end_};
}

std::string_view LinePieces::added(std::size_t n) {
  const std::string_view fresh(buffer_.get() + end_, std::min(n, kBufferSize - end_));
  end_ += fresh.size();
  if (dropping_) {
    const std::size_t newline = fresh.find('\n');
    begin_ = newline == std::string_view::npos ? end_ : end_ - fresh.size() + newline + 1;
    dropping_ = newline == std::string_view::npos;
  }
  // The earlier text is a line without its end. Searching it again each time would make a long line
  // in small pieces slow.
  const std::size_t old = end_ - fresh.size();
  const std::size_t from = std::max(begin_, old);
  const void* last = memrchr(buffer_.get() + from, '\n', end_ - from);
  if (last == nullptr) return {};
  const std::size_t begin = std::exchange(
      begin_, static_cast<std::size_t>(static_cast<const char*>(last) - buffer_.get()) + 1);
  return {buffer_.get() + begin, begin_ - begin};
}

std::string_view LinePieces::rest() const { return {buffer_.get() + begin_, end_ - begin_}; }

MappingFinder::MappingFinder(std::vector<std::string> prefixes)
    : prefixes_(std::move(prefixes)), needle_(longest_common_part(prefixes_)) {}

bool MappingFinder::matches(std::string_view name) const {
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

void MappingFinder::find_in(std::string_view lines, std::vector<MapEntry>& found) const {
  if (prefixes_.empty()) return;
  while (!lines.empty()) {
    const auto* hit = static_cast<const char*>(
        memmem(lines.data(), lines.size(), needle_.data(), needle_.size()));
    if (hit == nullptr) return;
    const auto at = static_cast<std::size_t>(hit - lines.data());
    // Unlike rfind(), memrchr() does not go byte by byte, and a path may have thousands of them.
    const auto* before = static_cast<const char*>(memrchr(lines.data(), '\n', at));
    const std::size_t begin =
        before == nullptr ? 0 : static_cast<std::size_t>(before - lines.data()) + 1;
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    auto entry = parse_maps_line(lines.substr(begin, end - begin));
    if (entry && matches(entry->name)) found.push_back(std::move(*entry));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

MapTable::MapTable(std::vector<MapEntry> entries) : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const MapEntry& a, const MapEntry& b) { return a.range < b.range; });
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].range.begin() < entries_[i - 1].range.end()) overlapping_ = true;
  }
}

Result<MapTable> MapTable::parse(std::string_view text) {
  std::vector<MapEntry> entries;
  Result<> outcome;
  for_each_mapping(text, [&](Result<MapEntry> entry) {
    if (!entry) {
      outcome = std::unexpected(std::move(entry).error());
      return false;
    }
    entries.push_back(std::move(*entry));
    return true;
  });
  CTX_RETURN_IF_ERROR(std::move(outcome));
  return MapTable(std::move(entries));
}

const MapEntry* MapTable::find(RemoteAddr a) const {
  auto from = entries_.begin();
  if (!overlapping_) {
    from = std::partition_point(entries_.begin(), entries_.end(),
                                [&](const MapEntry& e) { return e.range.end() <= a; });
    return from != entries_.end() && from->range.contains(a) ? &*from : nullptr;
  }
  from = std::find_if(from, entries_.end(), [&](const MapEntry& e) { return e.range.contains(a); });
  return from != entries_.end() ? &*from : nullptr;
}

std::uint64_t MapTable::readable_prefix(RemoteRange range) const {
  const MapEntry* first = find(range.begin());
  if (first == nullptr) return 0;
  RemoteAddr reached = range.begin();
  for (auto e = entries_.begin() + (first - entries_.data()); e != entries_.end(); ++e) {
    if (reached >= range.end() || e->range.begin() > reached) break;
    if (e->range.end() <= reached) continue;
    if (!e->readable) break;
    reached = e->range.end();
  }
  return std::min(reached.raw(), range.end().raw()) - range.begin().raw();
}

}  // namespace ctxconf::sys
