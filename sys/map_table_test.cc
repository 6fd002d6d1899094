#include "sys/map_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ctxconf::sys {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kText =
    "55d0c0a00000-55d0c0a02000 r--p 00000000 fe:00 1835                       /usr/bin/cat\n"
    "55d0c0a02000-55d0c0a07000 r-xp 00002000 fe:00 1835                       /usr/bin/cat\n"
    "7f10aa000000-7f10aa001000 rw-p 00000000 00:01 2061                       "
    "/memfd:OTEL_CTX (deleted)\n"
    "7f10aa001000-7f10aa003000 rw-p 00000000 00:00 0 \n"
    "7f10aa004000-7f10aa005000 ---s 00001000 00:01 7                          "
    "/dev/zero (deleted)\n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

MapEntry parsed(std::string_view line) {
  auto entry = parse_maps_line(line);
  EXPECT_TRUE(entry) << to_string(entry.error());
  return entry.value_or(MapEntry{});
}

RemoteRange range(std::uint64_t begin, std::uint64_t end) {
  return RemoteRange::from_bounds(RemoteAddr(begin), RemoteAddr(end)).value();
}

MapEntry readable(std::uint64_t begin, std::uint64_t end) {
  MapEntry e;
  e.range = range(begin, end);
  e.readable = true;
  return e;
}

std::vector<std::string> names(const std::vector<MapEntry>& entries) {
  std::vector<std::string> out;
  for (const auto& e : entries) out.push_back(e.name);
  return out;
}

std::string named(std::string_view name) {
  return "1000-2000 rw-p 00000000 00:01 5 " + std::string(name);
}

TEST(ParseMapsLine, TakesEveryField) {
  const MapEntry e =
      parsed("7f10aa000000-7f10aa003000 rw-s 00a01000 fe:1f 2061   /memfd:OTEL_CTX (deleted)");
  EXPECT_EQ(e.range, range(0x7f10aa000000, 0x7f10aa003000));
  EXPECT_TRUE(e.readable);
  EXPECT_TRUE(e.writable);
  EXPECT_FALSE(e.executable);
  EXPECT_TRUE(e.shared);
  EXPECT_EQ(e.offset, 0xa01000U);
  EXPECT_EQ(e.dev_major, 0xfeU);
  EXPECT_EQ(e.dev_minor, 0x1fU);
  EXPECT_EQ(e.inode, 2061U);
  EXPECT_EQ(e.name, "/memfd:OTEL_CTX (deleted)");
  EXPECT_EQ(permissions(e), "rw-s");
}

TEST(ParseMapsLine, TakesUnnamedMemoryWithAndWithoutTheSpaceAtTheEnd) {
  EXPECT_EQ(parsed("1000-2000 --xp 00000000 00:00 0 ").name, "");
  EXPECT_EQ(parsed("1000-2000 --xp 00000000 00:00 0").name, "");
  EXPECT_EQ(permissions(parsed("1000-2000 --xp 00000000 00:00 0")), "--xp");
}

TEST(ParseMapsLine, KeepsAllThatANameMayHold) {
  for (const std::string name : {"/tmp/with some  spaces ", "/tmp/a\\012b", "/tmp/cr\rname",
                                 "/tmp/x (deleted)", "[anon:OTEL_CTX]", "anon_inode:[perf_event]",
                                 "/tmp/\xff\xfe", "/1000-2000 rw-p 0 0:0 0 /x"}) {
    EXPECT_EQ(parsed(named(name)).name, name);
  }
  const std::string long_name = "/" + std::string(10000, 'x');
  EXPECT_EQ(parsed(named(long_name)).name, long_name);
}

TEST(ParseMapsLine, TakesTheLargestNumbersAndRefusesLargerOnes) {
  const MapEntry e =
      parsed("0-ffffffffffffffff r--p ffffffffffffffff ffffffff:ffffffff 18446744073709551615 /x");
  EXPECT_EQ(e.range.end().raw(), UINT64_MAX);
  EXPECT_EQ(e.offset, UINT64_MAX);
  EXPECT_EQ(e.dev_major, UINT32_MAX);
  EXPECT_EQ(e.dev_minor, UINT32_MAX);
  EXPECT_EQ(e.inode, UINT64_MAX);
  EXPECT_FALSE(parse_maps_line("0-10000000000000000 r--p 0 0:0 0"));
  EXPECT_FALSE(parse_maps_line("10000000000000000-2 r--p 0 0:0 0"));
  EXPECT_FALSE(parse_maps_line("0-1000 r--p 10000000000000000 0:0 0"));
  EXPECT_FALSE(parse_maps_line("0-1000 r--p 0 100000000:0 0"));
  EXPECT_FALSE(parse_maps_line("0-1000 r--p 0 0:100000000 0"));
  EXPECT_FALSE(parse_maps_line("0-1000 r--p 0 0:0 18446744073709551616"));
  EXPECT_FALSE(parse_maps_line(std::string(10000, 'f') + "-" + std::string(10000, 'f')));
}

TEST(ParseMapsLine, RefusesWhatTheKernelDoesNotPrint) {
  for (const std::string_view line : {"",
                                      " ",
                                      "-",
                                      "1000",
                                      "1000-",
                                      "1000-2000",
                                      "1000-2000 ",
                                      "1000-2000 rw-p",
                                      "1000-2000 rw-p ",
                                      "1000-2000 rw-p 0",
                                      "1000-2000 rw-p 0 ",
                                      "1000-2000 rw-p 0 0",
                                      "1000-2000 rw-p 0 0:",
                                      "1000-2000 rw-p 0 0:0",
                                      "1000-2000 rw-p 0 0:0 ",
                                      "1000-2000 rw-p 0 0:0 x",
                                      "1000-2000 rw-p 0 0:0 1x",
                                      "1000-2000 rw-p 0 0:0 -1",
                                      "-1000-2000 rw-p 0 0:0 0",
                                      "0x1000-0x2000 rw-p 0 0:0 0",
                                      "1000 -2000 rw-p 0 0:0 0",
                                      " 1000-2000 rw-p 0 0:0 0",
                                      "1000-2000  rw-p 0 0:0 0",
                                      "1000-2000 rw-p 0 0-0 0",
                                      "1000-2000 rwxq 0 0:0 0",
                                      "1000-2000 wr-p 0 0:0 0",
                                      "1000-2000 Rw-p 0 0:0 0",
                                      "1000-2000 rw-- 0 0:0 0",
                                      "1000-2000 rw-pp 0 0:0 0",
                                      "1000-2000 rw p 0 0:0 0",
                                      "1000-2000 r0-p 0 0:0 0",
                                      "2000-1000 rw-p 0 0:0 0",
                                      "1000-1000 rw-p 0 0:0 0",
                                      "1000-2000 rw-p 0 0:0 0\r",
                                      "1000-2000 rw-p 0 0:0 0 /x\n"}) {
    EXPECT_FALSE(parse_maps_line(line)) << line;
  }
  using std::string_view_literals::operator""sv;
  EXPECT_FALSE(parse_maps_line("1000-2000 rw-p 0 0:0 0 /x\0y"sv));
  EXPECT_FALSE(parse_maps_line("1000-2000\0 rw-p 0 0:0 0 /x"sv));
}

TEST(ParseMapsLine, HasALimit) {
  const std::string start = named("/");
  EXPECT_TRUE(parse_maps_line(start + std::string(kMaxMapsLine - start.size(), 'x')));
  const auto refused = parse_maps_line(start + std::string(kMaxMapsLine - start.size() + 1, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_LT(refused.error().detail.size(), 250U);
}

TEST(ParseMapsLine, ShowsTheLineInItsErrorWithoutControlCharacters) {
  const auto refused = parse_maps_line("1000-2000 r\x1b[31m\n");
  ASSERT_FALSE(refused);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("1000-2000 r?[31m?"));
}

TEST(PathOf, HasTheNewlinesThatMapsEscapes) {
  EXPECT_EQ(path_of(parsed("1000-2000 r--p 00000000 08:01 7  /tmp/a\\012b\\011\\01")),
            "/tmp/a\nb\\011\\01");
}

TEST(MapFilesName, HasNoLeadingZeros) {
  EXPECT_EQ(map_files_name(parsed("00400000-7ffff000 r--p 00000000 08:01 7  /tmp/a")),
            "400000-7ffff000");
}

TEST(ToMapsLine, IsTheInverseOfTheParser) {
  std::string_view text = kText;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    EXPECT_EQ(to_maps_line(parsed(line)), line);
    text.remove_prefix(line.size() + 1);
  }
  const std::string wide =
      "ffffffffffffe000-fffffffffffff000 rw-p ffffffffffff0000 fff:fffff 18446744073709551615  /x";
  EXPECT_EQ(to_maps_line(parsed(wide)), wide);
}

TEST(ForEachMapping, PassesABadLineAndGoesOn) {
  std::vector<bool> good;
  for_each_mapping("1000-2000 rw-p 0 0:0 0\nnonsense\n\n2000-3000 rw-p 0 0:0 0", [&](auto entry) {
    good.push_back(entry.has_value());
    return true;
  });
  EXPECT_THAT(good, ElementsAre(true, false, false, true));
}

TEST(ForEachMapping, StopsWhenTold) {
  int calls = 0;
  for_each_mapping(kText, [&](const auto&) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
  for_each_mapping("", [&](const auto&) { return ++calls != 0; });
  EXPECT_EQ(calls, 2);
}

TEST(MapTable, FindsTheEntryOfAnAddress) {
  const MapTable table = MapTable::parse(kText).value();
  ASSERT_EQ(table.entries().size(), 6U);
  EXPECT_EQ(table.find(RemoteAddr(0x55d0c09fffff)), nullptr);
  EXPECT_EQ(table.find(RemoteAddr(0x55d0c0a00000)), &table.entries()[0]);
  EXPECT_EQ(table.find(RemoteAddr(0x55d0c0a01fff)), &table.entries()[0]);
  EXPECT_EQ(table.find(RemoteAddr(0x55d0c0a02000)), &table.entries()[1]);
  EXPECT_EQ(table.find(RemoteAddr(0x7f10aa003000)), nullptr);
  EXPECT_EQ(table.find(RemoteAddr(UINT64_MAX)), nullptr);
  EXPECT_EQ(MapTable().find(RemoteAddr(0)), nullptr);
}

TEST(MapTable, IsTheFirstBadLinesError) {
  const auto table = MapTable::parse("1000-2000 rw-p 0 0:0 0\nfirst\nsecond\n");
  ASSERT_FALSE(table);
  EXPECT_THAT(table.error().detail, HasSubstr("first"));
  EXPECT_TRUE(MapTable::parse("").value().entries().empty());
}

TEST(MapTable, SortsAndKeepsWhatOverlaps) {
  const MapTable table(
      {readable(0x5000, 0x6000), readable(0x1000, 0x9000), readable(0x2000, 0x3000)});
  ASSERT_EQ(table.entries().size(), 3U);
  EXPECT_EQ(table.entries()[1].range, range(0x2000, 0x3000));
  ASSERT_NE(table.find(RemoteAddr(0x8000)), nullptr);
  EXPECT_EQ(table.find(RemoteAddr(0x8000))->range, range(0x1000, 0x9000));
  EXPECT_EQ(table.find(RemoteAddr(0x9000)), nullptr);
  EXPECT_EQ(table.readable_prefix(range(0x1800, 0xa000)), 0x7800U);
}

TEST(MapTable, CountsReadableBytesUpToAGap) {
  std::vector<MapEntry> entries = {readable(0x1000, 0x2000), readable(0x2000, 0x3000),
                                   readable(0x4000, 0x5000), readable(0x5000, 0x6000)};
  entries[3].readable = false;
  const MapTable table(entries);
  EXPECT_EQ(table.readable_prefix(range(0x1800, 0x2800)), 0x1000U);
  EXPECT_EQ(table.readable_prefix(range(0x1800, 0x4800)), 0x1800U);
  EXPECT_EQ(table.readable_prefix(range(0x4000, 0x6000)), 0x1000U);
  EXPECT_EQ(table.readable_prefix(range(0x5000, 0x6000)), 0U);
  EXPECT_EQ(table.readable_prefix(range(0x3000, 0x5000)), 0U);
  EXPECT_EQ(table.readable_prefix(range(0x1000, 0x1000)), 0U);
  EXPECT_EQ(table.readable_prefix(range(0x1000, UINT64_MAX)), 0x2000U);
}

// The lines of `text` when it arrives in pieces of `piece` bytes.
std::string through_pieces(std::string_view text, std::size_t piece) {
  LinePieces pieces;
  std::string out;
  while (!text.empty()) {
    const std::span<char> space = pieces.space();
    EXPECT_GE(space.size(), 64U * 1024);
    const std::size_t n = std::min({piece, text.size(), space.size()});
    std::copy_n(text.begin(), n, space.begin());
    text.remove_prefix(n);
    const std::string_view lines = pieces.added(n);
    EXPECT_TRUE(lines.empty() || lines.ends_with('\n'));
    out += lines;
  }
  return out + std::string(pieces.rest());
}

TEST(LinePieces, LoseNothingAtTheBordersOfPieces) {
  const std::string text = std::string(kText) + "the last line has no newline";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    ASSERT_EQ(through_pieces(text, piece), text) << piece;
  }
}

TEST(LinePieces, KeepALineOfTheLargestSizeAndDropLongerOnes) {
  const std::string fits = std::string(kMaxMapsLine, 'x') + "\n";
  const std::string too_long = std::string(kMaxMapsLine + 1, 'y') + "\n";
  const std::string huge = std::string(10 * kMaxMapsLine, 'z') + "\n";
  for (const std::size_t piece : {1000U, 4096U, 60000U}) {
    EXPECT_EQ(through_pieces(fits + "a\n" + huge + "b\n", piece), fits + "a\nb\n");
    EXPECT_EQ(through_pieces("a\n" + huge, piece), "a\n");
    // A line just over the limit may arrive with its newline: parse_maps_line refuses it.
    const std::string out = through_pieces("a\n" + too_long + "b", piece);
    EXPECT_TRUE(out == "a\nb" || out == "a\n" + too_long + "b");
  }
  EXPECT_EQ(through_pieces(std::string(10 * kMaxMapsLine, 'z'), 4096), "");
}

TEST(MappingFinder, ParsesTheLinesWhoseNameBeginsWithAPrefix) {
  const MappingFinder finder({"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"});
  std::vector<MapEntry> found;
  finder.find_in(named("/memfd:OTEL_CTX (deleted)") + "\n" + named("/tmp/memfd:OTEL_CTX") + "\n" +
                     named("/tmp/[anon:OTEL_CTX]") + "\n" + named("[anon:OTEL_CTX]") + "\n" +
                     named("[anon_shmem:OTEL_CTX]") + "\n" + named("[anon:OTEL_CTX_2]") + "\n" +
                     "bad line [anon:OTEL_CTX]\n" + named("/memfd:OTEL_CTX2"),
                 found);
  EXPECT_THAT(names(found), ElementsAre("/memfd:OTEL_CTX (deleted)", "[anon:OTEL_CTX]",
                                        "[anon_shmem:OTEL_CTX]", "/memfd:OTEL_CTX2"));
}

TEST(MappingFinder, FindsALineOnceHoweverOftenItSaysTheName) {
  const MappingFinder finder({"/memfd:OTEL_CTX"});
  std::string name;
  for (int i = 0; i < 300; ++i) name += "/memfd:OTEL_CTX";
  std::vector<MapEntry> found;
  finder.find_in(named(name) + "\n" + named("/x" + name), found);
  EXPECT_THAT(names(found), ElementsAre(name));
}

TEST(MappingFinder, TakesPrefixesWithNothingInCommon) {
  std::vector<MapEntry> found;
  MappingFinder({"[vsys", "/dev", "/memfd:"}).find_in(kText, found);
  EXPECT_THAT(names(found),
              ElementsAre("/memfd:OTEL_CTX (deleted)", "/dev/zero (deleted)", "[vsyscall]"));
  found.clear();
  MappingFinder({""}).find_in(kText, found);
  EXPECT_EQ(found.size(), 6U);
  found.clear();
  MappingFinder({}).find_in(kText, found);
  EXPECT_TRUE(found.empty());
}

TEST(MappingFinder, IgnoresALineOverTheLimit) {
  std::vector<MapEntry> found;
  MappingFinder({"/memfd:"}).find_in(named("/memfd:" + std::string(kMaxMapsLine, 'x')), found);
  EXPECT_TRUE(found.empty());
}

}  // namespace
}  // namespace ctxconf::sys
