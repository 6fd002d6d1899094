#include "sys/code_location.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "sys/code_stack.h"
#include "sys/elf_image.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

constexpr std::string_view kStore = "_ZN11code_testee5storeEm";
constexpr std::string_view kExported = "code_store";
constexpr std::string_view kHidden = "_ZL11code_hiddenm";
constexpr CodeLookUpLimits kPatient{std::chrono::milliseconds(60000), std::uint64_t{1} << 30U};

std::string built(std::string_view name) { return CTXCONF_BIN_DIR "/" + std::string(name); }

bool is_built(std::string_view name) { return access(built(name).c_str(), R_OK) == 0; }

// The line of the source that contains `text`.
std::uint32_t line_of(std::string_view text) {
  std::ifstream source(CTXCONF_SOURCE_DIR "/sys/code_testee.cc");
  std::uint32_t number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    if (line.find(text) != line.npos) return number;
  }
  ADD_FAILURE() << text;
  return 0;
}

// The file offset of a function's second byte; `symbols_of` is the same code with its symbols.
std::uint64_t inside(std::string_view function, const std::string& symbols_of) {
  const auto image = ElfImage::open(symbols_of);
  if (!image) {
    ADD_FAILURE() << to_string(image.error());
    return 0;
  }
  const auto symbols = image->static_symbols(function);
  if (!symbols || symbols->empty()) {
    ADD_FAILURE() << function << " is not in " << symbols_of;
    return 0;
  }
  for (const auto& s : image->segments()) {
    const auto value = symbols->front().value;
    if (s.type == PT_LOAD && value >= s.address && value - s.address < s.file_size) {
      return value - s.address + s.offset + 1;
    }
  }
  ADD_FAILURE() << function << " is in no segment";
  return 0;
}

CodeLocations locate(const std::string& path, std::vector<std::uint64_t> offsets) {
  const auto file = HeldFile::open(path);
  if (!file) return {{}, to_string(file.error())};
  return locate_code(*file, path, offsets, kPatient);
}

CodeLocations locate_all(std::string_view name, std::string_view symbols_of) {
  std::vector<std::uint64_t> offsets;
  for (const auto function : {kStore, kExported, kHidden}) {
    offsets.push_back(inside(function, built(symbols_of)));
  }
  return locate(built(name), offsets);
}

void expect_symbols(const CodeLocations& at, std::vector<std::string> symbols) {
  EXPECT_EQ(at.problem, "");
  ASSERT_EQ(at.found.size(), symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    EXPECT_EQ(at.found[i].symbol, symbols[i]);
    EXPECT_EQ(at.found[i].symbol_offset, symbols[i].empty() ? 0 : 1);
  }
}

void expect_source(const CodeLocation& location) {
  // With ccache, it may be that of another folder.
  EXPECT_TRUE(location.source_file.starts_with('/') && !location.source_file.contains("..") &&
              location.source_file.ends_with("/sys/code_testee.cc"))
      << location.source_file;
}

void expect_lines(const CodeLocations& at) {
  const std::vector<std::uint32_t> lines = {line_of("void store("), line_of("void code_store("),
                                            line_of("void code_hidden(")};
  ASSERT_EQ(at.found.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    expect_source(at.found[i]);
    EXPECT_EQ(at.found[i].source_line, lines[i]);
  }
}

void expect_no_lines(const CodeLocations& at) {
  for (const auto& location : at.found) {
    EXPECT_EQ(location.source_file, "");
    EXPECT_EQ(location.source_line, 0);
  }
}

const std::vector<std::string> kAll = {"code_testee::store(unsigned long)", "code_store",
                                       "code_hidden(unsigned long)"};

TEST(LocateCode, NamesFunctionAndLineInEveryKindOfDebugInformation) {
  for (const auto* name : {"code_dwarf4", "code_dwarf5", "code_compressed", "code_library.so",
                           "code_partial_aranges"}) {
    SCOPED_TRACE(name);
    const auto at = locate_all(name, name);
    expect_symbols(at, kAll);
    expect_lines(at);
  }
}

TEST(LocateCode, NamesTheCallerOfASystemHeaderThatWasInlined) {
  for (const auto* name : {"code_dwarf5", "code_compressed"}) {
    SCOPED_TRACE(name);
    const auto at = locate(built(name), {inside("code_atomic", built(name))});
    expect_symbols(at, {"code_atomic"});
    expect_source(at.found[0]);
    EXPECT_EQ(at.found[0].source_line, line_of("void code_atomic_set("));
  }
}

TEST(LocateCode, KnowsFunctionsWithoutDebugInformation) {
  const auto at = locate_all("code_symbols", "code_symbols");
  expect_symbols(at, kAll);
  expect_no_lines(at);
}

TEST(LocateCode, ANameOfCIsNotReadAsATypeOfCpp) {
  expect_symbols(locate(built("code_symbols"), {inside("i", built("code_symbols"))}), {"i"});
}

TEST(LocateCode, KnowsExportedFunctionsOfAStrippedLibraryAndBlamesNoneForOthers) {
  const auto at = locate_all("code_stripped_library", "code_library.so");
  expect_symbols(at, {kAll[0], kAll[1], ""});
  expect_no_lines(at);
}

TEST(LocateCode, KnowsNothingOfAStrippedProgram) {
  const auto at = locate_all("code_stripped", "code_dwarf5");
  expect_symbols(at, {"", "", ""});
  expect_no_lines(at);
}

TEST(LocateCode, FindsASeparateDebugFileBesideTheProgram) {
  const auto at = locate_all("code_linked", "code_dwarf5");
  expect_symbols(at, kAll);
  expect_lines(at);
}

TEST(LocateCode, ReadsThirtyTwoBitPrograms) {
  if (!is_built("code_32bit")) GTEST_SKIP() << "no 32-bit programs can be built here";
  const auto at = locate_all("code_32bit", "code_32bit");
  expect_symbols(at, kAll);
  expect_lines(at);
}

TEST(LocateCode, HasNoAnswerForWhatIsNoCode) {
  const auto path = built("code_dwarf5");
  const auto at = locate(path, {0, std::filesystem::file_size(path) - 1, UINT64_MAX});
  expect_symbols(at, {"", "", ""});
  expect_no_lines(at);
  EXPECT_TRUE(locate(path, {}).found.empty());
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ctxconf-code-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LocateCode, TakesADebugFileOnlyWithTheSameBuildId) {
  const Folder folder;
  const auto program = folder.write("program", bytes_of(built("code_linked")));
  const auto offset = inside(kExported, built("code_dwarf5"));
  EXPECT_EQ(locate(program, {offset}).found.at(0).symbol, "");
  folder.write("code_linked.debug", bytes_of(built("code_dwarf4")));
  EXPECT_EQ(locate(program, {offset}).found.at(0).symbol, "");
  std::filesystem::create_directory(folder.file(".debug"));
  folder.write(".debug/code_linked.debug", bytes_of(built("code_linked.debug")));
  EXPECT_EQ(locate(program, {offset}).found.at(0).symbol, "code_store");
}

TEST(LocateCode, SurvivesFilesThatAreCutOffOrNoElfFiles) {
  const Folder folder;
  const auto whole = bytes_of(built("code_dwarf5"));
  const auto offset = inside(kExported, built("code_dwarf5"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{64}, whole.size() / 4,
                                 whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(size);
    const auto at = locate(folder.write("cut", whole.substr(0, size)), {offset});
    EXPECT_EQ(at.found.size(), 1);
  }
  EXPECT_EQ(locate(folder.write("text", std::string(100000, 'x')), {1}).found.size(), 1);
}

TEST(LocateCode, SurvivesFilesWithWrongBytes) {
  const Folder folder;
  const auto whole = bytes_of(built("code_dwarf5"));
  const auto offset = inside(kExported, built("code_dwarf5"));
  std::mt19937 random(1);
  for (int round = 0; round < 24; ++round) {
    auto bytes = whole;
    for (int i = 0; i < 200; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (round % 2 == 0) bytes.replace(0, 4, whole, 0, 4);
    const auto path = folder.write("wrong", bytes);
    const auto file = HeldFile::open(path);
    ASSERT_TRUE(file);
    const CodeLookUpLimits limits{std::chrono::milliseconds(2000), std::uint64_t{64} << 20U};
    EXPECT_EQ(locate_code(*file, path, {{offset, 1}}, limits).found.size(), 2);
  }
}

TEST(LocateCode, SaysThatItTookTooLong) {
  const auto file = HeldFile::open(built("code_dwarf5"));
  ASSERT_TRUE(file);
  const std::vector<std::uint64_t> offsets = {inside(kExported, built("code_dwarf5"))};
  const auto at = locate_code(*file, "code", offsets, {std::chrono::milliseconds(0), 1U << 30U});
  ASSERT_EQ(at.found.size(), 1);
  // The child may have been fast enough.
  if (at.problem.empty()) {
    EXPECT_EQ(at.found[0].symbol, "code_store");
  } else {
    EXPECT_EQ(at.problem, "reading its symbols took more than 0 ms");
  }
}

TEST(HeldFile, IsReadableWhenItsNameIsGone) {
  const Folder folder;
  const auto path = folder.write("program", bytes_of(built("code_dwarf5")));
  const auto file = HeldFile::open(path);
  ASSERT_TRUE(file);
  std::filesystem::remove(path);
  const std::vector<std::uint64_t> offsets = {inside(kExported, built("code_dwarf5"))};
  EXPECT_EQ(locate_code(*file, path, offsets, kPatient).found.at(0).symbol, "code_store");
}

TEST(FindCallers, AnyStackEnds) {
  const auto path = built("code_dwarf5");
  const auto file = HeldFile::open(path);
  ASSERT_TRUE(file);
  constexpr std::uint64_t kBegin = 0x10000;
  const std::uint64_t offset = inside(kStore, path) / 4096 * 4096;
  const std::uint64_t pc = kBegin + inside(kStore, path) - offset;
  const CodeMapping code{&*file, path, kBegin, offset};
  std::mt19937_64 random(1);
  std::vector<StackCopy> stacks(64);
  for (StackCopy& stack : stacks) {
    for (auto& r : stack.registers) r = random() % 2 == 0 ? random() : 0x7000;
    stack.registers[StackCopy::kProgramCounter] = pc;
    for (int i = 0; i < 512; ++i) {
      const std::uint64_t word = random() % 4 == 0 ? random() : pc;
      const auto* bytes = reinterpret_cast<const std::byte*>(&word);
      stack.bytes.insert(stack.bytes.end(), bytes, bytes + sizeof word);
    }
  }
  const auto callers = find_callers({{code}}, stacks, kPatient);
  EXPECT_EQ(callers.problem, "");
  ASSERT_EQ(callers.found.size(), stacks.size());
  for (const auto& found : callers.found) EXPECT_LE(found.size(), kMostCallers);
  EXPECT_TRUE(std::ranges::any_of(callers.found, [](const auto& f) { return !f.empty(); }));
}

TEST(LocateCode, KnowsStandardLibraries) {
  const auto is = [](const char* symbol, const char* file, const char* module) {
    return is_library_code({symbol, 0, file, 1}, module);
  };
  EXPECT_TRUE(is("runtime.memmove", "/opt/go/src/runtime/memmove_amd64.s", "/bin/app"));
  EXPECT_TRUE(is("core::ptr::write", "/rustc/0123/library/core/src/ptr/mod.rs", "/bin/app"));
  EXPECT_TRUE(is("main.publish", "/usr/local/go/src/sync/atomic/type.go", "/bin/app"));
  EXPECT_TRUE(is("", "", "/usr/lib/x86_64-linux-gnu/libc.so.6"));
  EXPECT_FALSE(is("main.publish", "/src/main.go", "/bin/app"));
  EXPECT_FALSE(is("standard", "/src/a.c", "/lib/libc.so.6.d/app"));
  EXPECT_FALSE(is("", "", "/bin/app"));
}

TEST(HeldFile, OpensNoDevicesAndNoFifos) {
  const Folder folder;
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  for (const auto& path : {folder.file("fifo"), std::string("/dev/null"), std::string("/tmp")}) {
    const auto file = HeldFile::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().err, EINVAL) << path;
  }
}

TEST(HeldFile, IsWhatAProcessHasMapped) {
  const Folder folder;
  const auto path = folder.write("a\nb", bytes_of(built("code_dwarf5")));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* at = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  ASSERT_NE(at, MAP_FAILED);
  const auto text = read_maps_text(getpid());
  ASSERT_TRUE(text);
  const auto maps = MapTable::parse(*text);
  ASSERT_TRUE(maps);
  const MapEntry* entry = maps->find(RemoteAddr(reinterpret_cast<std::uint64_t>(at)));
  ASSERT_NE(entry, nullptr);
  const auto file = HeldFile::of_mapping(getpid(), *entry);
  ASSERT_TRUE(file) << to_string(file.error());
  EXPECT_EQ(file->identity().inode, entry->inode);
  munmap(at, 4096);
  // Another file has that name, and the mapping is gone.
  std::filesystem::rename(path, path + "2");
  folder.write("a\nb", "new");
  const auto other = HeldFile::of_mapping(getpid(), *entry);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().err, ESTALE);
}

}  // namespace
}  // namespace ctxconf::sys
