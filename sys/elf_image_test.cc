#include "sys/elf_image.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "sys/made_library.h"

namespace ctxconf::sys {
namespace {

constexpr std::string_view kSlot = "ctx_test_slot";
using Bytes = std::vector<std::byte>;

std::string built(const std::string& name) { return CTXCONF_BIN_DIR "/" + name; }

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <class T>
T get(const Bytes& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put(Bytes& bytes, std::size_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ctxconf-elf-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

// Asks all questions; the answers do not matter, only that the calls return.
void ask_everything(const ElfImage& image) {
  std::array<std::byte, 64> out;
  (void)image.is_executable();
  (void)image.is_symbolic();
  (void)image.is_go();
  (void)image.soname();
  (void)image.build_id();
  (void)image.tls_segment();
  (void)image.dynamic_symbols(kSlot);
  (void)image.dynamic_symbols("no_such_symbol");
  (void)image.static_symbols(kSlot);
  (void)image.tls_relocations(kSlot);
  for (const ElfSegment& segment : image.segments()) (void)image.read_at(segment.address, out);
}

void ask_everything(const Bytes& bytes) {
  const auto image = ElfImage::from_memory(bytes, "bytes");
  if (image) ask_everything(*image);
}

// Entries of the dynamic section in a 64-bit file in this machine's byte order.
std::uint64_t* dynamic_value(Bytes& bytes, std::int64_t tag) {
  const auto header = get<Elf64_Ehdr>(bytes, 0);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto p = get<Elf64_Phdr>(bytes, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (p.p_type != PT_DYNAMIC) continue;
    for (auto* entry = reinterpret_cast<Elf64_Dyn*>(bytes.data() + p.p_offset);
         entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == tag) return &entry->d_un.d_val;
    }
  }
  return nullptr;
}

// The file offset of a table in the first segment, whose addresses are offsets.
std::size_t table_offset(Bytes& bytes, std::int64_t tag) {
  const std::uint64_t* address = dynamic_value(bytes, tag);
  return address == nullptr ? 0 : *address;
}

TEST(ElfImage, TellsWhatALibraryIs) {
  const auto image = ElfImage::open(built("tls_desc.so"));
  ASSERT_TRUE(image) << to_string(image.error());
  EXPECT_EQ(image->name(), built("tls_desc.so"));
  EXPECT_TRUE(image->is_64());
  EXPECT_EQ(image->type(), ET_DYN);
  EXPECT_FALSE(image->is_executable());
  EXPECT_TRUE(image->has_dynamic_section());
  EXPECT_FALSE(image->has_interpreter());
  EXPECT_TRUE(image->has_section_headers());
  EXPECT_FALSE(image->is_go());
  EXPECT_EQ(image->soname(), "tls_desc.so");
  EXPECT_EQ(image->build_id(), "0123456789abcdef");
  ASSERT_TRUE(image->tls_segment());
  EXPECT_EQ(image->tls_segment()->file_size, 24U);
  EXPECT_EQ(image->tls_segment()->memory_size, 32U);
}

TEST(ElfImage, TellsPrograms) {
  for (const auto* name : {"tls_own", "tls_own_no_pie", "tls_own_static"}) {
    const auto image = ElfImage::open(built(name));
    ASSERT_TRUE(image) << to_string(image.error());
    EXPECT_TRUE(image->is_executable()) << name;
    EXPECT_EQ(image->has_interpreter(), std::string_view(name) != "tls_own_static") << name;
  }
}

TEST(ElfImage, FindsSymbolsByAnyHashTable) {
  // GNU hash with a version, System V hash, lld
  for (const auto* name : {"tls_desc.so", "tls_gd.so", "tls_gd_symbolic.so"}) {
    const auto image = ElfImage::open(built(name));
    ASSERT_TRUE(image);
    for (const auto& found : {image->dynamic_symbols(kSlot), image->static_symbols(kSlot)}) {
      ASSERT_TRUE(found) << to_string(found.error());
      ASSERT_EQ(found->size(), 1U) << name;
      EXPECT_EQ(found->front().value, 24U);
      EXPECT_EQ(found->front().size, 8U);
      EXPECT_EQ(found->front().type, STT_TLS);
      EXPECT_EQ(found->front().binding, STB_GLOBAL);
      EXPECT_EQ(found->front().visibility, STV_DEFAULT);
      EXPECT_TRUE(found->front().defined());
    }
    EXPECT_EQ(image->dynamic_symbols("test_slot")->size(), 0U) << "the end of another name";
    EXPECT_EQ(image->dynamic_symbols("")->size(), 0U);
  }
}

TEST(ElfImage, FindsUndefinedSymbols) {
  for (const auto* name : {"tls_gd.so", "tls_gd_symbolic.so"}) {
    const auto found = ElfImage::open(built(name))->dynamic_symbols("__tls_get_addr");
    ASSERT_TRUE(found) << to_string(found.error());
    ASSERT_EQ(found->size(), 1U) << name;
    EXPECT_FALSE(found->front().defined());
  }
}

TEST(ElfImage, SeesVisibility) {
  const auto found = ElfImage::open(built("tls_desc_protected.so"))->dynamic_symbols(kSlot);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().visibility, STV_PROTECTED);
}

// The answers are the same without section headers, except for .symtab.
TEST(ElfImage, NeedsNoSectionHeaders) {
  for (const auto* name : {"tls_desc.so", "tls_gd.so", "tls_gd_symbolic.so", "tls_ie.so"}) {
    Bytes bytes = read_file(built(name));
    const auto whole = ElfImage::open(built(name));
    auto header = get<Elf64_Ehdr>(bytes, 0);
    header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
    put(bytes, 0, header);
    const auto stripped = ElfImage::from_memory(bytes, "stripped");
    ASSERT_TRUE(stripped);
    EXPECT_FALSE(stripped->has_section_headers());
    EXPECT_EQ(stripped->dynamic_symbols(kSlot).value(), whole->dynamic_symbols(kSlot).value());
    EXPECT_EQ(stripped->tls_relocations(kSlot).value(), whole->tls_relocations(kSlot).value());
    EXPECT_EQ(stripped->static_symbols(kSlot)->size(), 0U);
    EXPECT_EQ(stripped->soname(), name);
  }
}

struct ExpectedRelocation {
  const char* library;
  TlsRelocationKind kind;
  bool named;
  std::int64_t addend;
};

class Relocations : public testing::TestWithParam<ExpectedRelocation> {};
TEST_P(Relocations, AreFound) {
  const auto found = ElfImage::open(built(GetParam().library))->tls_relocations(kSlot);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_TRUE(std::any_of(found->begin(), found->end(), [](const TlsRelocation& r) {
    return r.kind == GetParam().kind && (r.symbol != 0) == GetParam().named &&
           r.addend == GetParam().addend;
  }));
}
using enum TlsRelocationKind;
INSTANTIATE_TEST_SUITE_P(
    OfEachModel, Relocations,
    testing::Values(ExpectedRelocation{"tls_desc.so", kTlsdesc, true, 0},
                    ExpectedRelocation{"tls_desc_symbolic.so", kTlsdesc, false, 24},
                    // clang takes the start of the segment here and adds in code
                    ExpectedRelocation{"tls_desc_protected.so", kTlsdesc, false, 0},
                    ExpectedRelocation{"tls_gd.so", kModule, true, 0},
                    ExpectedRelocation{"tls_gd.so", kOffset, true, 0},
                    ExpectedRelocation{"tls_gd_symbolic.so", kModule, false, 0},
                    ExpectedRelocation{"tls_ie.so", kThreadPointerOffset, true, 0},
                    ExpectedRelocation{"tls_ie_protected.so", kThreadPointerOffset, false, 24},
                    ExpectedRelocation{"tls_foreign", kThreadPointerOffset, true, 0}));

TEST(ElfImage, GivesTheGotWordsBesideARelocation) {
  const auto found = ElfImage::open(built("tls_gd_symbolic.so"))->tls_relocations(kSlot);
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::any_of(found->begin(), found->end(), [](const TlsRelocation& r) {
    return r.kind == kModule && r.word_after == 24;
  }));
  for (const TlsRelocation& r : *found) EXPECT_NE(r.kind, kOffset);
}

TEST(ElfImage, LeavesOutRelocationsOfOtherNames) {
  const auto found = ElfImage::open(built("tls_ie.so"))->tls_relocations("other");
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::none_of(found->begin(), found->end(),
                           [](const TlsRelocation& r) { return r.symbol != 0; }));
}

TEST(ElfImage, ReadsWhatWouldBeMapped) {
  const auto image = ElfImage::open(built("tls_own"));
  ASSERT_TRUE(image);
  const auto last = std::find_if(image->segments().rbegin(), image->segments().rend(),
                                 [](const ElfSegment& s) { return s.type == PT_LOAD; });
  ASSERT_GT(last->memory_size, last->file_size);
  std::array<std::byte, 8> out;
  out.fill(std::byte{1});
  const std::uint64_t end = last->address + last->memory_size;
  EXPECT_EQ(image->read_at(end - 4, out), 4U);
  EXPECT_EQ(out[0], std::byte{0}) << "after the file's part";
  EXPECT_EQ(image->read_at(end, out), 0U);
  EXPECT_EQ(image->read_at(0, out), 8U);
  EXPECT_EQ(std::memcmp(out.data(), ELFMAG, SELFMAG), 0);
  EXPECT_EQ(image->read_at(UINT64_MAX, out), 0U);
}

TEST(ElfImage, KnowsGoByItsBuildInformation) {
  Bytes bytes = read_file(built("tls_own"));
  ASSERT_FALSE(ElfImage::from_memory(bytes, "c")->is_go());
  const auto image = ElfImage::from_memory(bytes, "go");
  const auto data =
      std::find_if(image->segments().begin(), image->segments().end(),
                   [](const ElfSegment& s) { return s.type == PT_LOAD && (s.flags & PF_W) != 0; });
  const std::uint64_t aligned = (data->address + 15) / 16 * 16 - data->address + data->offset;
  const std::string magic = "\xff Go buildinf:";
  std::memcpy(bytes.data() + aligned + 1, magic.data(), magic.size());
  EXPECT_FALSE(ElfImage::from_memory(bytes, "go")->is_go()) << "not aligned";
  std::memcpy(bytes.data() + aligned, magic.data(), magic.size());
  EXPECT_TRUE(ElfImage::from_memory(bytes, "go")->is_go());
}

TEST(ElfImage, RefusesWhatIsNoFile) {
  const Folder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/"), std::string("/dev/zero")}) {
    const auto image = ElfImage::open(path);
    ASSERT_FALSE(image) << path;
    EXPECT_EQ(image.error().err, EINVAL) << path;
  }
  EXPECT_EQ(ElfImage::open(folder.file("absent")).error().err, ENOENT);
  EXPECT_EQ(ElfImage::open("").error().err, ENOENT);
}

TEST(ElfImage, RefusesWhatIsNoElfFile) {
  const Folder folder;
  for (const Bytes& bytes : {Bytes(), Bytes(3, std::byte{0x7f}), Bytes(4096, std::byte{0xa5})}) {
    const auto image = ElfImage::open(folder.write("file", bytes));
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().err, ENOEXEC);
  }
}

TEST(ElfImage, AFileThatChangesIsNotReadOn) {
  const Folder folder;
  const Bytes bytes = read_file(built("tls_desc.so"));
  const std::string path = folder.write("library", bytes);
  const auto image = ElfImage::open(path);
  ASSERT_TRUE(image);
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  ASSERT_FALSE(image->dynamic_symbols(kSlot));
  EXPECT_EQ(image->dynamic_symbols(kSlot).error().err, ESTALE);
  EXPECT_EQ(image->soname(), "");

  const std::string other = folder.write("other", bytes);
  EXPECT_EQ(image->reached_by(other).dynamic_symbols(kSlot).error().err, ESTALE)
      << "the same bytes, but another file";
}

TEST(ElfImage, IsReachedByAnotherPath) {
  const Folder folder;
  const std::string path = folder.write("library", read_file(built("tls_desc.so")));
  const auto image = ElfImage::open(path, "it");
  ASSERT_TRUE(image);
  std::filesystem::rename(path, folder.file("moved"));
  EXPECT_FALSE(image->dynamic_symbols(kSlot));
  const ElfImage moved = image->reached_by(folder.file("moved"));
  EXPECT_EQ(moved.name(), "it");
  EXPECT_EQ(moved.dynamic_symbols(kSlot)->size(), 1U);
}

TEST(ElfImage, SurvivesTruncation) {
  for (const auto* name : {"tls_gd.so", "tls_gd_symbolic.so"}) {
    const Bytes bytes = read_file(built(name));
    for (std::size_t size = 0; size < bytes.size(); size += size < 1024 ? 1 : 61) {
      ask_everything(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)));
    }
  }
}

TEST(ElfImage, SurvivesFlippedBytes) {
  for (const auto* name : {"tls_gd.so", "tls_desc_symbolic.so"}) {
    Bytes bytes = read_file(built(name));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i > 2048 && bytes[i] == std::byte{0}) continue;  // mostly padding
      for (const unsigned mask : {0xffU, 0x01U}) {
        bytes[i] ^= std::byte(mask);
        ask_everything(bytes);
        bytes[i] ^= std::byte(mask);
      }
    }
  }
}

TEST(ElfImage, HashChainsEnd) {
  Bytes bytes = read_file(built("tls_gd.so"));
  const std::size_t hash = table_offset(bytes, DT_HASH);
  const auto buckets = get<std::uint32_t>(bytes, hash);
  const auto chains = get<std::uint32_t>(bytes, hash + 4);
  for (std::uint32_t i = 0; i < buckets; ++i)
    put<std::uint32_t>(bytes, hash + 8 + std::size_t{i} * 4, 1);
  for (std::uint32_t i = 0; i < chains; ++i) {
    put<std::uint32_t>(bytes, hash + 8 + (std::size_t{buckets} + i) * 4,
                       1);  // each refers to symbol 1
  }
  const auto found = ElfImage::from_memory(bytes, "cycle")->dynamic_symbols(kSlot);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().err, ENOEXEC);
}

TEST(ElfImage, TablesLongerThanTheFileAreAnError) {
  for (const auto size : {std::uint64_t{1} << 32U, UINT64_MAX, UINT64_MAX - 4095}) {
    Bytes bytes = read_file(built("tls_gd.so"));
    *dynamic_value(bytes, DT_STRSZ) = size;
    EXPECT_EQ(ElfImage::from_memory(bytes, "strings")->dynamic_symbols(kSlot).error().err, ENOEXEC);
    bytes = read_file(built("tls_gd.so"));
    *dynamic_value(bytes, DT_RELASZ) = size;
    EXPECT_EQ(ElfImage::from_memory(bytes, "relocations")->tls_relocations(kSlot).error().err,
              ENOEXEC);
    bytes = read_file(built("tls_gd.so"));
    *dynamic_value(bytes, DT_SYMTAB) = size;
    EXPECT_FALSE(ElfImage::from_memory(bytes, "symbols")->dynamic_symbols(kSlot));
  }
}

TEST(ElfImage, SegmentsThatCannotBeTrueAreRefused) {
  const Bytes good = read_file(built("tls_gd.so"));
  const auto header = get<Elf64_Ehdr>(good, 0);
  const auto load = get<Elf64_Phdr>(good, header.e_phoff);
  ASSERT_EQ(load.p_type, static_cast<unsigned>(PT_LOAD));
  for (const auto& [offset, address, file_size, memory_size] :
       {std::array{UINT64_MAX, std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{2}},
        std::array{std::uint64_t{0}, UINT64_MAX, std::uint64_t{2}, std::uint64_t{2}},
        std::array{std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1}}}) {
    Bytes bytes = good;
    auto bad = load;
    bad.p_offset = offset;
    bad.p_vaddr = address;
    bad.p_filesz = file_size;
    bad.p_memsz = memory_size;
    put(bytes, header.e_phoff, bad);
    const auto image = ElfImage::from_memory(bytes, "bad");
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().err, ENOEXEC);
  }
}

TEST(ElfImage, OfOverlappingSegmentsTheLastIsMapped) {
  Bytes bytes = read_file(built("tls_gd.so"));
  const auto header = get<Elf64_Ehdr>(bytes, 0);
  auto over = get<Elf64_Phdr>(bytes, header.e_phoff);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const std::size_t at = header.e_phoff + i * sizeof over;
    if (get<Elf64_Phdr>(bytes, at).p_type != PT_GNU_STACK) continue;
    over.p_vaddr = 0;
    over.p_offset = 1;
    over.p_filesz = over.p_memsz = 3;
    put(bytes, at, over);
  }
  const auto image = ElfImage::from_memory(bytes, "overlap");
  ASSERT_TRUE(image);
  std::array<std::byte, 8> out;
  EXPECT_EQ(image->read_at(0, out), 8U);
  EXPECT_EQ(std::memcmp(out.data(), "ELFF", 4), 0);
}

// A sparse file can have any size; it must not be read to its end.
TEST(ElfImage, HugeTablesAreNotReadWhole) {
  const Folder folder;
  Bytes bytes = read_file(built("tls_gd.so"));
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40U;
  auto header = get<Elf64_Ehdr>(bytes, 0);
  auto load = get<Elf64_Phdr>(bytes, header.e_phoff);
  load.p_filesz = load.p_memsz = kHuge - 4096;
  put(bytes, header.e_phoff, load);
  *dynamic_value(bytes, DT_STRSZ) = kHuge / 2;
  *dynamic_value(bytes, DT_RELASZ) = kHuge / 2;
  header.e_shnum = 0;  // counted in the first section header
  header.e_shoff = kHuge / 2;
  put(bytes, 0, header);
  const std::string path = folder.write("sparse", bytes);
  if (truncate(path.c_str(), static_cast<off_t>(kHuge)) != 0) GTEST_SKIP() << "no sparse files";
  const auto image = ElfImage::open(path);
  ASSERT_TRUE(image) << to_string(image.error());
  EXPECT_EQ(image->dynamic_symbols(kSlot).error().err, E2BIG);
  EXPECT_EQ(image->tls_relocations(kSlot).error().err, E2BIG);
  ask_everything(*image);
}

TEST(ElfImage, ManySegmentsAreRefused) {
  EXPECT_TRUE(ElfImage::from_memory(MadeLibrary{.loads = 1000}.bytes(), "many"));
  const auto image = ElfImage::from_memory(MadeLibrary{.loads = 2000}.bytes(), "too many");
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().err, ENOEXEC);
}

TEST(ElfImage, OfManySegmentsEachIsFound) {
  const Bytes bytes = MadeLibrary{.loads = 1000}.bytes();
  const auto image = ElfImage::from_memory(bytes, "many");
  ASSERT_TRUE(image);
  std::array<std::byte, 8> out;
  for (const ElfSegment& s : image->segments()) {
    if (s.type != PT_LOAD) continue;
    EXPECT_EQ(image->read_at(s.address, out), 8U);
    EXPECT_EQ(image->read_at(s.address + s.memory_size - 1, out), 1U);
    EXPECT_EQ(image->read_at(s.address + s.memory_size, out), 0U);
  }
}

TEST(ElfImage, ALongSparseTableIsNotRead) {
  const Folder folder;
  constexpr std::size_t kLong = std::size_t{65} << 20U;
  const Bytes bytes = MadeLibrary{.relocations = 1, .relocation_bytes = kLong}.bytes();
  const std::string path = folder.write("sparse", bytes);
  if (truncate(path.c_str(), static_cast<off_t>(bytes.size() + kLong)) != 0) GTEST_SKIP();
  const auto budget = std::make_shared<ElfBudget>(ElfLimits{.bytes = 65536});
  const auto image = ElfImage::open(path, "sparse", budget);
  ASSERT_TRUE(image) << to_string(image.error());
  EXPECT_EQ(image->tls_relocations(kSlot).error().err, E2BIG);
  EXPECT_EQ(budget->exhausted(), nullptr) << "the size alone is enough";
}

TEST(ElfImage, ABudgetEnds) {
  const Bytes bytes = MadeLibrary{.definitions = 1, .relocations = 100}.bytes();
  for (const auto& [limits, what] : {std::pair{ElfLimits{.bytes = 200}, "bytes"},
                                     std::pair{ElfLimits{.relocations = 99}, "relocations"},
                                     std::pair{ElfLimits{.time = {}}, "time"}}) {
    const auto budget = std::make_shared<ElfBudget>(limits);
    const auto image = ElfImage::from_memory(bytes, "library", budget);
    ASSERT_FALSE(image) << what;
    EXPECT_EQ(image.error().err, E2BIG) << "no part of a file is kept";
    EXPECT_STREQ(budget->exhausted(), what);
  }
  const auto budget = std::make_shared<ElfBudget>(ElfLimits{.relocations = 250});
  const auto image = ElfImage::from_memory(bytes, "library", budget);
  ASSERT_TRUE(image) << to_string(image.error());
  EXPECT_EQ(image->kept_relocations(), 100U);
  EXPECT_TRUE(image->tls_relocations(kSlot));
  EXPECT_EQ(image->tls_relocations(kSlot).error().err, E2BIG)
      << "the third hundred exceeds the budget";
  EXPECT_EQ(image->dynamic_symbols(kSlot).error().err, E2BIG) << "all other questions fail too";
}

// Built by hand: ELF class 32, big-endian, a program header for TLS, a symbol in DT_HASH.
void put_be(Bytes& bytes, std::size_t at, std::initializer_list<std::uint32_t> words) {
  for (const std::uint32_t word : words) {
    for (unsigned i = 0; i < 4; ++i) bytes[at++] = std::byte(word >> (24 - 8 * i));
  }
}

TEST(ElfImage, ReadsAnotherClassAndByteOrder) {
  Bytes bytes(512);
  std::memcpy(bytes.data(),
              "\x7f"
              "ELF\x01\x02\x01",
              7);
  put_be(bytes, 16, {ET_DYN << 16U | EM_PPC, 1, 0, 52, 0, 0, 52U << 16U | 32, 3U << 16U, 0});
  put_be(bytes, 52, {PT_LOAD, 0, 0x1000, 0, 512, 512, PF_R, 4096});
  put_be(bytes, 84, {PT_TLS, 0, 0x1000, 0, 16, 40, PF_R, 32});
  put_be(bytes, 116, {PT_DYNAMIC, 160, 0x1000 + 160, 0, 48, 48, PF_R, 4});
  put_be(bytes, 160,
         {DT_SYMTAB, 0x1000 + 220, DT_STRTAB, 0x1000 + 300, DT_STRSZ, 15, DT_HASH, 0x1000 + 260,
          DT_NULL, 0});
  put_be(bytes, 220 + 16, {1, 24, 8, (STB_GLOBAL << 4U | STT_TLS) << 24U | 7});
  put_be(bytes, 260, {1, 2, 1, 0, 0});
  std::memcpy(bytes.data() + 301, kSlot.data(), kSlot.size());
  const auto image = ElfImage::from_memory(bytes, "foreign");
  ASSERT_TRUE(image) << to_string(image.error());
  EXPECT_FALSE(image->is_64());
  EXPECT_FALSE(image->little_endian());
  EXPECT_EQ(image->machine(), EM_PPC);
  ASSERT_TRUE(image->tls_segment());
  EXPECT_EQ(image->tls_segment()->alignment, 32U);
  EXPECT_EQ(image->tls_segment()->memory_size, 40U);
  const auto found = image->dynamic_symbols(kSlot);
  ASSERT_TRUE(found) << to_string(found.error());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().value, 24U);
  EXPECT_EQ(found->front().section, 7U);
  ASSERT_TRUE(image->tls_relocations(kSlot));
  ask_everything(*image);
}

// Whatever libraries the machine has, including those with nothing to compare with.
TEST(ElfImage, ReadsTheLibrariesOfThisProcess) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t libraries = 0;
  while (std::getline(maps, line)) {
    const auto at = line.find('/');
    if (at == line.npos || line.find(".so") == line.npos) continue;
    const auto image = ElfImage::open(line.substr(at));
    ASSERT_TRUE(image) << to_string(image.error());
    EXPECT_TRUE(image->tls_relocations(kSlot)) << line;
    EXPECT_TRUE(image->dynamic_symbols(kSlot)) << line;
    if (line.ends_with("/libc.so.6")) {
      EXPECT_EQ(image->dynamic_symbols("errno")->size(), 1U);
      EXPECT_EQ(image->dynamic_symbols("memcpy")->size(), 2U) << "two versions";
    }
    ++libraries;
  }
  EXPECT_GT(libraries, 0U);
}

}  // namespace
}  // namespace ctxconf::sys
