#include "sys/loaded_file.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sys/elf_image.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kMost = std::size_t{64} << 20U;
constexpr std::size_t kPage = 4096;

Result<std::vector<std::byte>> loaded(const std::vector<MapEntry>& mappings) {
  ElfBudget budget;
  return loaded_file(ProcessMemory(getpid()), mappings, kMost, budget);
}

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
  const auto bytes = loaded(mappings);
  ASSERT_TRUE(bytes) << to_string(bytes.error());
  const auto image = ElfImage::from_memory(*bytes, "loaded");
  ASSERT_TRUE(image) << to_string(image.error());
  const auto file = ElfImage::open(mappings.front().name);
  ASSERT_TRUE(file);
  EXPECT_EQ(image->soname(), "libc.so.6");
  EXPECT_EQ(image->soname(), file->soname());
  EXPECT_EQ(image->build_id(), file->build_id());
  EXPECT_EQ(image->segments(), file->segments());
  EXPECT_FALSE(image->has_section_headers());
  for (const char* name : {"errno", "printf", "no such name"}) {
    const auto one = image->dynamic_symbols(name);
    const auto other = file->dynamic_symbols(name);
    ASSERT_TRUE(one && other) << name;
    EXPECT_EQ(*one, *other) << name;
  }
  const auto one = image->tls_relocations("errno");
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

// A file of one page in the memory of this process: a header, program headers and a dynamic
// section.
struct Made {
  struct Layout {
    Elf64_Ehdr header;
    std::array<Elf64_Phdr, 2> segments;
    std::array<Elf64_Dyn, 4> dynamic;
  };
  Made() : memory(std::aligned_alloc(kPage, kPage), &std::free) {
    std::memset(memory.get(), 0, kPage);
    Elf64_Ehdr& h = layout().header;
    std::memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_DATA] = ELFDATA2LSB;
    h.e_phoff = offsetof(Layout, segments);
    h.e_phentsize = sizeof(Elf64_Phdr);
    h.e_phnum = 2;
    h.e_shoff = 1000;
    set_segment(0, PT_LOAD, PF_R | PF_X, 0, kPage);
    set_segment(1, PT_DYNAMIC, PF_R, offsetof(Layout, dynamic), sizeof layout().dynamic);
    set_dynamic(0, DT_HASH, address() + 8);
    set_dynamic(1, DT_STRTAB, 16);
    set_dynamic(2, DT_RELASZ, address());
    MapEntry& m = mappings.emplace_back();
    m.range = *RemoteRange::from_size(RemoteAddr(address()), kPage);
    m.readable = m.executable = true;
  }
  Layout& layout() { return *static_cast<Layout*>(memory.get()); }
  // The segment has the same address and offset.
  void set_segment(std::size_t i, Elf64_Word type, Elf64_Word flags, std::uint64_t offset,
                   std::uint64_t size) {
    Elf64_Phdr& s = layout().segments[i];
    s.p_type = type;
    s.p_flags = flags;
    s.p_offset = s.p_vaddr = offset;
    s.p_filesz = size;
  }
  void set_dynamic(std::size_t i, std::int64_t tag, std::uint64_t value) {
    layout().dynamic[i].d_tag = tag;
    layout().dynamic[i].d_un.d_val = value;
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory.get()); }
  int error() const {
    const auto bytes = loaded(mappings);
    return bytes ? 0 : bytes.error().err;
  }

  std::unique_ptr<void, void (*)(void*)> memory;
  std::vector<MapEntry> mappings;
};

TEST(LoadedFile, AddressesOfTheDynamicSectionAreThoseOfTheFile) {
  const Made made;
  const auto bytes = loaded(made.mappings);
  ASSERT_TRUE(bytes);
  ASSERT_EQ(bytes->size(), kPage);
  Made::Layout out;
  std::memcpy(&out, bytes->data(), sizeof out);
  EXPECT_EQ(out.header.e_shoff, 0U);
  EXPECT_EQ(out.dynamic[0].d_un.d_ptr, 8U);
  EXPECT_EQ(out.dynamic[1].d_un.d_ptr, 16U) << "it was not changed";
  EXPECT_EQ(out.dynamic[2].d_un.d_val, made.address()) << "it is a size";
}

// A linker may put the first bytes of the code into the page of the header, which is mapped twice.
TEST(LoadedFile, TwoSegmentsInTheFirstPage) {
  Made made;
  made.set_segment(0, PT_LOAD, PF_R, 0, 0x600);
  made.set_segment(1, PT_LOAD, PF_R | PF_X, 0x600, 0x100);
  made.mappings.push_back(made.mappings.front());
  made.mappings.front().executable = false;
  const auto bytes = loaded(made.mappings);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->size(), 0x700U);
}

TEST(LoadedFile, AViewOfTheFileIsNotItsCode) {
  Made view;
  const Made made;
  view.mappings.front().executable = false;
  view.layout().segments[0].p_filesz = 200;
  view.mappings.push_back(made.mappings.front());
  const auto bytes = loaded(view.mappings);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(bytes->size(), kPage);
  view.mappings.pop_back();
  EXPECT_EQ(view.error(), ENOEXEC);
}

TEST(LoadedFile, WhatIsNotSuchAFile) {
  EXPECT_EQ(Made().error(), 0);
  const auto error_of = [](void (*change)(Made&)) {
    Made made;
    change(made);
    return made.error();
  };
  EXPECT_EQ(error_of([](Made& m) { m.mappings.clear(); }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.mappings.front().offset = kPage; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.mappings.front().readable = false; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().header.e_ident[0] = 0; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().header.e_ident[EI_CLASS] = ELFCLASS32; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().header.e_phoff = UINT64_MAX; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().header.e_phnum = UINT16_MAX; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().segments[0].p_type = PT_NOTE; }), ENOEXEC);
  EXPECT_EQ(error_of([](Made& m) { m.layout().segments[0].p_filesz = UINT64_MAX; }), E2BIG);
  EXPECT_EQ(error_of([](Made& m) { m.layout().segments[1].p_offset = UINT64_MAX; }), 0);
  EXPECT_EQ(error_of([](Made& m) { m.layout().segments[1].p_filesz = UINT64_MAX; }), 0);
}

TEST(LoadedFile, Limits) {
  const Made made;
  ElfBudget all;
  const ProcessMemory memory(getpid());
  const auto large = loaded_file(memory, made.mappings, kPage - 1, all);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().err, E2BIG);
  ElfLimits limits;
  limits.bytes = kPage;
  ElfBudget few(limits);
  const auto spent = loaded_file(memory, made.mappings, kMost, few);
  ASSERT_FALSE(spent);
  EXPECT_EQ(spent.error().err, E2BIG);
}

}  // namespace
}  // namespace ctxconf::sys
