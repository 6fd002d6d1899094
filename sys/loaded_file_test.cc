#include "sys/loaded_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_image.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kMost = std::size_t{64} << 20U;

// The mappings of the first file of this process whose path contains the text.
std::vector<MapEntry> mappings_of(std::string_view text) {
  std::vector<MapEntry> out;
  const auto maps = read_maps_text(getpid());
  if (!maps) return out;
  for_each_mapping(*maps, [&](Result<MapEntry> entry) {
    if (entry && entry->inode != 0 && entry->name.find(text) != std::string::npos &&
        (out.empty() || out.front().inode == entry->inode)) {
      out.push_back(*std::move(entry));
    }
    return true;
  });
  return out;
}

TEST(LoadedFile, AnswersLikeTheFile) {
  const auto mappings = mappings_of("/libc.so.6");
  ASSERT_FALSE(mappings.empty());
  const auto bytes = loaded_file(ProcessMemory(getpid()), mappings, kMost);
  ASSERT_TRUE(bytes) << to_string(bytes.error());
  const auto loaded = ElfImage::from_memory(*bytes, "loaded");
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  const auto file = ElfImage::open(mappings.front().name);
  ASSERT_TRUE(file);
  EXPECT_EQ(loaded->soname(), "libc.so.6");
  EXPECT_EQ(loaded->soname(), file->soname());
  EXPECT_EQ(loaded->build_id(), file->build_id());
  EXPECT_EQ(loaded->segments(), file->segments());
  EXPECT_FALSE(loaded->has_section_headers());
  for (const char* name : {"errno", "printf", "no such name"}) {
    const auto one = loaded->dynamic_symbols(name);
    const auto other = file->dynamic_symbols(name);
    ASSERT_TRUE(one && other) << name;
    EXPECT_EQ(*one, *other) << name;
  }
  const auto one = loaded->tls_relocations("errno");
  const auto other = file->tls_relocations("errno");
  ASSERT_TRUE(one && other);
  ASSERT_EQ(one->size(), other->size());
  ASSERT_FALSE(one->empty());
  for (std::size_t i = 0; i < one->size(); ++i) {
    // The words in memory are those that the loader has stored.
    auto expected = (*other)[i];
    expected.word = (*one)[i].word;
    expected.word_after = (*one)[i].word_after;
    EXPECT_EQ((*one)[i], expected);
  }
}

TEST(LoadedFile, TakesTheFirstOfTwoCopies) {
  auto mappings = mappings_of("/libc.so.6");
  ASSERT_FALSE(mappings.empty());
  const auto once = loaded_file(ProcessMemory(getpid()), mappings, kMost);
  const auto twice = mappings;
  mappings.insert(mappings.end(), twice.begin(), twice.end());
  const auto bytes = loaded_file(ProcessMemory(getpid()), mappings, kMost);
  ASSERT_TRUE(once && bytes);
  EXPECT_EQ(bytes->size(), once->size());
}

TEST(LoadedFile, Errors) {
  auto mappings = mappings_of("/libc.so.6");
  ASSERT_FALSE(mappings.empty());
  const auto error_of = [&] {
    const auto bytes = loaded_file(ProcessMemory(getpid()), mappings, kMost);
    return bytes ? 0 : bytes.error().err;
  };
  EXPECT_EQ(error_of(), 0);
  const auto large = loaded_file(ProcessMemory(getpid()), mappings, 4096);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().err, E2BIG);
  const auto all = mappings;
  mappings.erase(mappings.begin());  // no longer the beginning
  EXPECT_EQ(error_of(), ENOEXEC);
  mappings = {};
  EXPECT_EQ(error_of(), ENOEXEC);
  mappings = {all.front()};
  mappings.front().readable = false;
  EXPECT_EQ(error_of(), ENOEXEC);
  mappings = {all.front()};
  mappings.front().offset = UINT64_MAX - 10;
  EXPECT_EQ(error_of(), E2BIG);
}

}  // namespace
}  // namespace ctxconf::sys
