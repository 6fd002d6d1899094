#include "fuzz/maps_oracle.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_header.h"
#include "fuzz/check.h"
#include "fuzz/expand.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/slow_maps.h"
#include "sys/map_table.h"

namespace ctxconf::fuzz {
namespace {

using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::size_t kLongRun = 8000;
constexpr std::size_t kMostText = 80'000;
constexpr std::size_t kBytewise = 128;
constexpr std::size_t kLongText = 4096;
constexpr std::size_t kCutsOfShortText = 24;
constexpr std::size_t kHashedBytes = 1024;
constexpr std::size_t kStopsAfter = 4;  // lines, at most

bool same(const MapEntry& e, const SlowMapping& s) {
  return e.range.begin().raw() == s.begin && e.range.end().raw() == s.end &&
         sys::permissions(e) == s.permissions && e.offset == s.offset && e.dev_major == s.major &&
         e.dev_minor == s.minor && e.inode == s.inode && e.name == s.name;
}

// Accepted: every field is valid, and printing loses nothing.
void check_entry(const MapEntry& e, const SlowMapping& s) {
  FUZZ_CHECK(same(e, s));
  FUZZ_CHECK(!e.range.empty());
  FUZZ_CHECK(e.name.find('\n') == std::string::npos && e.name.find('\0') == std::string::npos);
  FUZZ_CHECK(!e.name.starts_with(' '));
  const std::string line = sys::to_maps_line(e);
  // Printing may move a name at the limit of a line further to the right.
  if (line.size() <= sys::kMaxMapsLine) {
    const auto again = sys::parse_maps_line(line);
    FUZZ_CHECK(again.has_value());
    FUZZ_CHECK(*again == e);
  }
  const std::string path = sys::path_of(e);
  FUZZ_CHECK(e.name.find('\\') == std::string::npos ? path == e.name : path == slow_path(e.name));
  const std::string file = sys::map_files_name(e);
  FUZZ_CHECK(std::ranges::count(file, '-') == 1 && !file.starts_with('-') && !file.ends_with('-'));
  FUZZ_CHECK(file.find_first_not_of("0123456789abcdef-") == std::string::npos);
  if (s.begin >= 0x10000000) FUZZ_CHECK(line.starts_with(file + " "));
}

using Lines = std::vector<std::string_view>;
using Parsed = std::vector<std::optional<SlowMapping>>;

void check_lines(std::string_view text, const Parsed& slow) {
  std::size_t n = 0;
  sys::for_each_mapping(text, [&](sys::Result<MapEntry> entry) {
    FUZZ_CHECK(n < slow.size());
    FUZZ_CHECK(entry.has_value() == slow[n].has_value());
    if (entry) {
      check_entry(*entry, *slow[n]);
    } else {
      // Its text is used in messages.
      const std::string& detail = entry.error().detail;
      FUZZ_CHECK(!detail.empty() && detail.size() < 200);
      FUZZ_CHECK(std::ranges::all_of(detail, [](char c) { return c >= 0x20 && c < 0x7f; }));
    }
    ++n;
    return true;
  });
  FUZZ_CHECK(n == slow.size());
  if (n < 2) return;
  const std::size_t last = std::min(n / 2, kStopsAfter);
  std::size_t calls = 0;
  sys::for_each_mapping(text, [&](const sys::Result<MapEntry>&) { return ++calls < last; });
  FUZZ_CHECK(calls == last);
}

// --- text in pieces

// The output of LinePieces for `text` passed in pieces of these sizes (the last repeats).
struct Reassembled {
  std::string lines;
  std::string rest;
};
const Reassembled& reassemble(std::string_view text, std::span<const std::size_t> sizes) {
  // Reused: an allocation of that size for each text would take most of the time.
  static sys::LinePieces pieces;
  static Reassembled out;
  out.lines.clear();
  for (std::size_t at = 0, n = 0; at < text.size(); ++n) {
    const auto space = pieces.space();
    FUZZ_CHECK(space.size() >= 64U << 10U);
    const std::size_t size =
        std::min({sizes[std::min(n, sizes.size() - 1)], space.size(), text.size() - at});
    std::memcpy(space.data(), text.data() + at, size);
    const auto lines = pieces.added(size);
    FUZZ_CHECK(lines.empty() || lines.ends_with('\n'));
    out.lines += lines;
    at += size;
  }
  out.rest = pieces.rest();
  FUZZ_CHECK(out.rest.find('\n') == std::string::npos);
  // Ends the last line, so that the next text starts on a new line.
  pieces.space().front() = '\n';
  const auto last = pieces.added(1);
  const bool is_rest = last.ends_with('\n') && last.substr(0, last.size() - 1) == out.rest;
  FUZZ_CHECK(is_rest || (last.empty() && text.size() > sys::kMaxMapsLine));
  FUZZ_CHECK(pieces.rest().empty());
  return out;
}

// Every line arrives in order and complete; only lines over the limit may be missing. If such a
// line is at the end of the text, any part of it may be left.
void check_reassembled(const Reassembled& got, const Lines& lines, const std::string& text) {
  if (text.size() <= sys::kMaxMapsLine) {
    FUZZ_CHECK(text.starts_with(got.lines));
    FUZZ_CHECK(std::string_view(text).substr(got.lines.size()) == got.rest);
    return;
  }
  const bool ends_with_newline = text.ends_with('\n');
  Lines arrived = slow_lines(got.lines);
  if (!got.rest.empty()) arrived.emplace_back(got.rest);
  std::size_t next = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (next < arrived.size() && arrived[next] == lines[i]) {
      ++next;
      continue;
    }
    FUZZ_CHECK(lines[i].size() > sys::kMaxMapsLine);
    const bool last = i + 1 == lines.size() && !ends_with_newline;
    if (last && next < arrived.size() && lines[i].ends_with(arrived[next])) ++next;
  }
  FUZZ_CHECK(next == arrived.size());
}

void check_pieces(const std::string& text, const Lines& lines) {
  const auto check = [&](std::initializer_list<std::size_t> sizes) {
    check_reassembled(reassemble(text, {sizes.begin(), sizes.size()}), lines, text);
  };
  if (text.size() <= kBytewise) check({1});
  // Derived from the text, so that an input determines its cuts. Every byte of a long text would
  // take longer than the parsing.
  std::uint64_t state = 14695981039346656037U ^ text.size();
  const std::size_t stride = text.size() / kHashedBytes + 1;
  for (std::size_t i = 0; i < text.size(); i += stride) {
    state = (state ^ static_cast<unsigned char>(text[i])) * 1099511628211U;
  }
  const auto below = [&](std::size_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>((state >> 33U) % n);
  };
  // A long text is cut in one of three ways only: to copy and compare it takes most of the time.
  const bool is_long = text.size() > kLongText;
  const std::size_t way = is_long ? below(3) : 3;
  if (way == 0 || !is_long) check({SIZE_MAX});
  if (text.size() <= kCutsOfShortText) {
    for (std::size_t cut = 1; cut < text.size(); ++cut) check({cut, SIZE_MAX});
    return;
  }
  // Cuts the text before a newline, after one, anywhere, and in many pieces.
  const std::size_t newline = text.find('\n', below(text.size()));
  if (newline != std::string::npos && newline > 0 && !is_long) {
    check({newline, SIZE_MAX});
    check({newline + 1, SIZE_MAX});
  }
  if (way == 1 || !is_long) check({1 + below(text.size() - 1), SIZE_MAX});
  if (way < 2) return;
  std::array<std::size_t, 17> many;
  for (std::size_t& size : many) size = 1 + below(text.size() / 8 + 1);
  many.back() = 1 + text.size() / 4;
  check_reassembled(reassemble(text, many), lines, text);
}

// --- search

using Prefixes = std::vector<std::string>;
struct Search {
  explicit Search(Prefixes p) : prefixes(p), finder(std::move(p)) {}
  Prefixes prefixes;
  sys::MappingFinder finder;
};

void check_finder(std::string_view text, const Parsed& slow, const Search& search) {
  const auto& [prefixes, finder] = search;
  std::vector<MapEntry> found;
  finder.find_in(text, found);
  std::size_t next = 0;
  for (const auto& s : slow) {
    if (!s) continue;
    const bool matches = std::ranges::any_of(
        prefixes, [&](const std::string& p) { return s->name.substr(0, p.size()) == p; });
    FUZZ_CHECK(finder.matches(s->name) == matches);
    if (!matches) continue;
    FUZZ_CHECK(next < found.size());
    FUZZ_CHECK(same(found[next++], *s));
  }
  FUZZ_CHECK(next == found.size());
}

void check_search(std::string_view text, const Parsed& slow) {
  static const Search searches[] = {
      Search(Prefixes(abi::kMappingNamePrefixes.begin(), abi::kMappingNamePrefixes.end())),
      Search({"[heap]", "/memfd:"}), Search({})};
  check_finder(text, slow, searches[0]);
  check_finder(text, slow, searches[1 + text.size() % 2]);
  for (const auto& s : slow) {
    if (!s) continue;
    const bool candidate = s->name.starts_with("[anon_shmem:OTEL_CTX]") ||
                           s->name.starts_with("[anon:OTEL_CTX]") ||
                           s->name.starts_with("/memfd:OTEL_CTX");
    FUZZ_CHECK(abi::is_candidate_name(s->name) == candidate);
  }
}

// --- the table

std::uint64_t slow_readable(const std::vector<MapEntry>& entries, RemoteRange range) {
  std::uint64_t at = range.begin().raw();
  while (at < range.end().raw()) {
    const auto e = std::ranges::find_if(
        entries, [&](const MapEntry& m) { return m.range.contains(RemoteAddr(at)); });
    if (e == entries.end() || !e->readable) break;
    at = std::min(e->range.end().raw(), range.end().raw());
  }
  return at - range.begin().raw();
}

void check_address(const sys::MapTable& table, bool overlapping, std::uint64_t address,
                   std::span<const std::uint64_t> sizes) {
  const auto& entries = table.entries();
  const auto first = std::ranges::find_if(
      entries, [&](const MapEntry& m) { return m.range.contains(RemoteAddr(address)); });
  const MapEntry* found = table.find(RemoteAddr(address));
  FUZZ_CHECK(found == (first == entries.end() ? nullptr : &*first));
  for (const std::uint64_t size : sizes) {
    const auto range = RemoteRange::from_size(RemoteAddr(address), size);
    if (!range) continue;
    const std::uint64_t readable = table.readable_prefix(*range);
    FUZZ_CHECK(readable <= size);
    if (!overlapping) FUZZ_CHECK(readable == slow_readable(entries, *range));
  }
}

void check_table(std::string_view text, const Parsed& slow) {
  const auto table = sys::MapTable::parse(text);
  FUZZ_CHECK(table.has_value() == std::ranges::all_of(slow, [](const auto& s) { return !!s; }));
  if (!table) return;
  const auto& entries = table->entries();
  FUZZ_CHECK(entries.size() == slow.size());
  bool overlapping = false;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    FUZZ_CHECK(entries[i - 1].range.begin() <= entries[i].range.begin());
    overlapping |= entries[i].range.begin() < entries[i - 1].range.end();
  }
  const std::size_t step = entries.size() / 16 + 1;  // for a long table, only some
  for (std::size_t i = 0; i < entries.size(); i += step) {
    const std::uint64_t begin = entries[i].range.begin().raw();
    const std::uint64_t end = entries[i].range.end().raw();
    const std::uint64_t sizes[] = {0, 1, end - begin, end};
    check_address(*table, overlapping, begin, sizes);
    check_address(*table, overlapping, end - 1, sizes);
    check_address(*table, overlapping, end, sizes);
    if (begin > 0) check_address(*table, overlapping, begin - 1, sizes);
  }
}

}  // namespace

void check_maps(std::span<const std::byte> input) {
  static GuardedBuffer buffer;
  static std::string plain;
  const std::string_view given(reinterpret_cast<const char*>(input.data()), input.size());
  if (given.starts_with('\x01')) {
    expand(given.substr(1), kLongRun, kMostText, plain);
  } else {
    plain = given;
  }
  const auto guarded = buffer.copy(std::as_bytes(std::span(plain)));
  const std::string_view text(reinterpret_cast<const char*>(guarded.data()), guarded.size());
  const Lines lines = slow_lines(plain);
  static Parsed slow;
  slow.clear();
  for (const std::string_view line : lines) slow.push_back(slow_mapping(line));
  check_lines(text, slow);
  check_pieces(plain, lines);
  check_search(text, slow);
  check_table(text, slow);
}

}  // namespace ctxconf::fuzz
