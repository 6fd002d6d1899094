#include "sys/c_library.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <expected>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sys/made_library.h"
#include "sys/map_table.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

using namespace std::string_view_literals;

// A file with this text and `count` segments, each of which is `size` bytes of it from its
// beginning on.
std::vector<std::byte> file_with(std::string_view text, std::size_t count = 1,
                                 std::size_t size = 0) {
  const Elf64_Ehdr head = header_with(count);
  const std::size_t text_at = sizeof head + count * sizeof(Elf64_Phdr);
  std::vector<std::byte> file(text_at + text.size());
  std::memcpy(file.data(), &head, sizeof head);
  for (std::size_t i = 0; i < count; ++i) {
    Elf64_Phdr segment = {};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R;
    segment.p_filesz = segment.p_memsz = size == 0 ? file.size() : size;
    std::memcpy(file.data() + sizeof head + i * sizeof segment, &segment, sizeof segment);
  }
  if (!text.empty()) std::memcpy(file.data() + text_at, text.data(), text.size());
  return file;
}

// What a file with this text in its only segment is said to be.
std::string library_with(std::string_view text) {
  const auto file = file_with(text);
  const auto image = ElfImage::from_memory(file, "libc.so");
  EXPECT_TRUE(image) << to_string(image.error());
  const auto library = image ? c_library_in(*image) : std::unexpected(image.error());
  EXPECT_TRUE(library);
  EXPECT_TRUE(library->empty() || is_c_library(*library)) << *library;
  return *library;
}

TEST(CLibrary, IsThatOfThisProgram) {
  const auto text = read_maps_text(getpid());
  ASSERT_TRUE(text);
  std::set<std::string> paths;
  for_each_mapping(*text, [&](const Result<MapEntry>& entry) {
    if (entry && entry->inode != 0 && may_be_c_library(entry->name)) paths.insert(entry->name);
    return true;
  });
  EXPECT_EQ(paths.size(), 2U);  // the loader and the library
  for (const std::string& path : paths) {
    const auto image = ElfImage::open(path);
    ASSERT_TRUE(image) << to_string(image.error());
    EXPECT_EQ(c_library_in(*image).value_or("?"), std::string("glibc ") + gnu_get_libc_version())
        << path;
    EXPECT_FALSE(is_musl(*image)) << path;
  }
  const auto program = ElfImage::open("/proc/self/exe");
  ASSERT_TRUE(program);
  EXPECT_TRUE(interpreter_of(*program).starts_with("/lib")) << interpreter_of(*program);
}

TEST(CLibrary, HasAVersionIfItIsClear) {
  EXPECT_EQ(library_with(""sv), "");
  EXPECT_EQ(library_with("1.2.3\0"sv), "");
  EXPECT_EQ(library_with("\0musl libc (x86_64)\nVersion %s\n\0007.0\0001.2.3\0001.2\0"sv),
            "musl 1.2.3");
  EXPECT_EQ(library_with("musl libc (aarch64)\0001.2.5-git-12-gdeadbee\0"sv),
            "musl 1.2.5-git-12-gdeadbee");
  EXPECT_EQ(library_with("musl libc (x86_64)\0001.2.4_git20230717\0"sv), "musl 1.2.4_git20230717");
  EXPECT_EQ(library_with("musl libc (x86_64)\0001.2.3\0001.2.3\0"sv), "musl 1.2.3");
  EXPECT_EQ(library_with("musl libc (x86_64)\0001.2.3\0001.2.4\0"sv), "musl");
  EXPECT_EQ(library_with("musl libc (x86_64)\000127.0.0.1\0001..3\0001.2.3-git-\x1b[2J\0"sv),
            "musl");
  EXPECT_EQ(library_with("GNU C Library (GNU libc) stable release version 2.31.\n\0"sv),
            "glibc 2.31");
  EXPECT_EQ(library_with("ld.so (x) development release version 2.40.9000.\n\0"sv),
            "glibc 2.40.9000");
  EXPECT_EQ(library_with("GNU C Library (x) release version x\0"sv), "glibc");
  EXPECT_EQ(library_with("GNU C Library (x) release version " + std::string(99, '1') + "."),
            "glibc");
  EXPECT_EQ(library_with("GNU C Library (x)"sv), "");
}

TEST(CLibrary, IsLookedForInEightMegabytes) {
  constexpr std::size_t kSegments = 1000;
  constexpr std::size_t kClaimed = std::size_t{8} << 20U;
  const auto said = [](const std::vector<std::byte>& file, std::size_t most) {
    ElfLimits limits;
    limits.time = std::chrono::hours(1);
    const auto budget = std::make_shared<ElfBudget>(limits);
    const auto image = ElfImage::from_memory(file, "libc.so", budget);
    EXPECT_TRUE(image) << to_string(image.error());
    if (!image) return std::string("?");
    const auto texts = image->constant_segments(kClaimed);
    EXPECT_TRUE(texts);
    std::size_t bytes = 0;
    for (const std::string& text : texts.value_or(std::vector<std::string>())) bytes += text.size();
    EXPECT_EQ(bytes, most);
    return c_library_in(*image).value_or("?");
  };
  // Beyond the end of the file.
  EXPECT_EQ(said(file_with("GNU C Library (x)", kSegments, kClaimed), 0), "");
  EXPECT_EQ(
      said(file_with(std::string(kClaimed, '.') + "musl libc (x)", kSegments, kClaimed), kClaimed),
      "");
  EXPECT_EQ(said(file_with("", kSegments, 100), 1600), "");
}

TEST(CLibrary, IsNotSaidWithoutABudget) {
  const auto file = file_with("musl libc (x86_64)\0001.2.3\0"sv);
  ElfLimits limits;
  limits.bytes = 300;
  const auto budget = std::make_shared<ElfBudget>(limits);
  const auto image = ElfImage::from_memory(file, "libc.so", budget);
  ASSERT_TRUE(image) << to_string(image.error());
  while (c_library_in(*image)) {
  }
  EXPECT_EQ(c_library_in(*image).error().err, E2BIG);
}

TEST(CLibrary, HasANameOfAFewForms) {
  for (const auto name : {"static"sv, "glibc"sv, "glibc 2.36"sv, "musl"sv, "musl 1.2.5-git-12-ga"sv,
                          "musl 1.2.4_git20230717"sv, "musl 1.2.5+B.7"sv})
    EXPECT_TRUE(is_c_library(name)) << name;
  for (const auto name : {""sv, "glibc "sv, "glibc x"sv, "musl 1.2 3"sv, "musl 1\x1b"sv, "bionic"sv,
                          "musl 1.2"sv, "musl 1.2."sv, "musl 1.2.3."sv, "musl 1.2.3.4"sv,
                          "musl .1.2.3"sv, "musl 1.2.3/"sv, "glibc 2"sv, "glibc 2.36-9"sv})
    EXPECT_FALSE(is_c_library(name)) << name;
  EXPECT_FALSE(is_c_library("musl " + std::string(33, '1')));
}

TEST(CLibrary, HasAFileNameOfAFewForms) {
  for (const auto path : {"/lib/ld-musl-x86_64.so.1"sv, "libc.so"sv, "/a/libc.so.6 (deleted)"sv,
                          "/lib64/ld-linux-x86-64.so.2"sv, "/lib/libc-2.31.so"sv})
    EXPECT_TRUE(may_be_c_library(path)) << path;
  for (const auto path : {""sv, "/"sv, "/libc.so/x"sv, "/usr/lib/libcrypto.so"sv})
    EXPECT_FALSE(may_be_c_library(path)) << path;
}

}  // namespace
}  // namespace ctxconf::sys
