#include "sys/tls_variable.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

#include "sys/c_library.h"
#include "sys/child.h"
#include "sys/made_library.h"
#include "sys/process.h"
#include "sys/thread_stop.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kSlot = "ctx_test_slot";
constexpr auto kLong = 20s;

std::string built(const std::string& name) { return CTXCONF_BIN_DIR "/" + name; }

struct Thread {
  pid_t tid = 0;
  std::uint64_t address = 0;  // as the program itself prints it; 0 for a thread that never asked
};

// A program that has printed where its threads have the variable.
struct Testee {
  Child child;
  Thread main, thread, untouched;

  pid_t pid() const { return child.pid(); }
};

Result<Testee> start(const std::vector<std::string>& argv, const std::string& preload = {}) {
  ChildOptions options;
  options.argv = argv;
  if (!preload.empty()) options.extra_env.push_back("LD_PRELOAD=" + preload);
  CTX_ASSIGN_OR_RETURN(child, Child::start(options));
  Testee testee{std::move(child), {}, {}, {}};
  while (true) {
    CTX_ASSIGN_OR_RETURN(line, testee.child.read_line(kLong));
    std::istringstream words(line);
    std::string what;
    Thread thread;
    words >> what >> thread.tid >> std::hex >> thread.address;
    if (what == "ready") return testee;
    (what == "main" ? testee.main : what == "thread" ? testee.thread : testee.untouched) = thread;
  }
}

RemoteAddr thread_pointer(pid_t tid) {
  const auto stopped = ThreadStop::stop(tid, kLong);
  if (!stopped) {
    ADD_FAILURE() << to_string(stopped.error());
    return {};
  }
  return stopped->thread_pointer().value();
}

struct Found {
  Modules modules;
  std::vector<TlsDefinition> definitions;

  const Module& definer(std::size_t i) const { return modules.modules[definitions[i].module]; }
};

Found find_in(pid_t pid) {
  ElfCache cache;
  auto modules = modules_of(pid, cache);
  if (!modules) {
    ADD_FAILURE() << to_string(modules.error());
    return {};
  }
  for (const std::string& note : modules->notes) ADD_FAILURE() << note;
  auto definitions = find_tls_variable(*modules, kSlot);
  if (!definitions) {
    ADD_FAILURE() << to_string(definitions.error());
    return {};
  }
  return {std::move(*modules), std::move(*definitions)};
}

Result<std::optional<RemoteAddr>> address_for(const Found& found, std::size_t definition, pid_t pid,
                                              pid_t tid) {
  return tls_address(found.modules, found.definitions[definition], thread_pointer(tid),
                     ProcessMemory(pid));
}

// What the loader does for a thread that never touched the variable.
enum class Untouched { kHasBlock, kHasNone };

struct Case {
  const char* name;
  const char* program;
  const char* preload;  // loaded with the program
  const char* late;     // loaded when the threads already exist
  TlsModel model;
  bool named;
  Untouched untouched;
};

class Models : public testing::TestWithParam<Case> {};

TEST_P(Models, GiveTheAddressThatTheThreadPrints) {
  const Case& c = GetParam();
  std::vector<std::string> argv = {built(c.program)};
  if (*c.late != 0) argv.push_back(built(c.late));
  const auto testee = start(argv, *c.preload == 0 ? "" : built(c.preload));
  ASSERT_TRUE(testee) << to_string(testee.error());
  const Found found = find_in(testee->pid());
  ASSERT_EQ(found.definitions.size(), 1U);
  ASSERT_FALSE(found.definitions[0].accesses.empty());
  const TlsAccess& access = found.definitions[0].accesses.front();
  EXPECT_EQ(to_string(access.model), to_string(c.model));
  EXPECT_EQ(access.named, c.named);
  for (const Thread& thread : {testee->main, testee->thread}) {
    const auto address = address_for(found, 0, testee->pid(), thread.tid);
    ASSERT_TRUE(address) << to_string(address.error());
    ASSERT_TRUE(*address);
    EXPECT_EQ((*address)->raw(), thread.address);
  }
  const auto untouched = address_for(found, 0, testee->pid(), testee->untouched.tid);
  ASSERT_TRUE(untouched) << to_string(untouched.error());
  EXPECT_EQ(untouched->has_value(), c.untouched == Untouched::kHasBlock);
}

using enum TlsModel;
using enum Untouched;
INSTANTIATE_TEST_SUITE_P(
    Of, Models,
    testing::Values(
        Case{"desc", "tls_testee", "tls_desc.so", "", kTlsdesc, true, kHasBlock},
        Case{"gd", "tls_testee", "tls_gd.so", "", kGeneralDynamic, true, kHasBlock},
        Case{"ie", "tls_testee", "tls_ie.so", "", kInitialExec, true, kHasBlock},
        Case{"desc_symbolic", "tls_testee", "tls_desc_symbolic.so", "", kTlsdesc, false, kHasBlock},
        Case{"desc_protected", "tls_testee", "tls_desc_protected.so", "", kTlsdesc, false,
             kHasBlock},
        Case{"gd_symbolic", "tls_testee", "tls_gd_symbolic.so", "", kGeneralDynamic, true,
             kHasBlock},
        Case{"ie_protected", "tls_testee", "tls_ie_protected.so", "", kInitialExec, false,
             kHasBlock},
        // The loader keeps room in the static block for small libraries that are loaded late.
        Case{"late_desc", "tls_testee", "", "tls_desc.so", kTlsdesc, true, kHasBlock},
        Case{"late_ie", "tls_testee", "", "tls_ie.so", kInitialExec, true, kHasBlock},
        Case{"late_large_desc", "tls_testee", "", "tls_desc_large.so", kTlsdesc, true, kHasNone},
        Case{"late_large_desc_symbolic", "tls_testee", "", "tls_desc_large_symbolic.so", kTlsdesc,
             false, kHasNone},
        Case{"late_gd", "tls_testee", "", "tls_gd.so", kGeneralDynamic, true, kHasNone},
        Case{"late_gd_symbolic", "tls_testee", "", "tls_gd_symbolic.so", kGeneralDynamic, true,
             kHasNone},
        Case{"only_from_the_program", "tls_foreign", "", "", kInitialExec, true, kHasBlock},
        Case{"own", "tls_own", "", "", kLocalExec, true, kHasBlock},
        Case{"own_no_pie", "tls_own_no_pie", "", "", kLocalExec, true, kHasBlock},
        Case{"own_aligned", "tls_own_aligned", "", "", kLocalExec, true, kHasBlock},
        Case{"own_static", "tls_own_static", "", "", kLocalExec, true, kHasBlock}),
    [](const auto& test) { return std::string(test.param.name); });

// The definition whose module has a path with this suffix.
std::size_t definition_in(const Found& found, std::string_view library) {
  for (std::size_t i = 0; i < found.definitions.size(); ++i) {
    if (found.definer(i).path.ends_with(library)) return i;
  }
  ADD_FAILURE() << library;
  return 0;
}

void expect_address(const Found& found, std::string_view library, const Testee& testee,
                    bool is_the_one) {
  for (const Thread& thread : {testee.main, testee.thread}) {
    const auto address =
        address_for(found, definition_in(found, library), testee.pid(), thread.tid);
    ASSERT_TRUE(address) << library << ": " << to_string(address.error());
    if (is_the_one) {
      ASSERT_TRUE(*address) << library;
      EXPECT_EQ((*address)->raw(), thread.address) << library;
    } else if (*address) {
      EXPECT_NE((*address)->raw(), thread.address) << library;
    }
  }
}

struct TwoDefiners {
  const char* program;
  const char* preload;
  std::vector<std::string> late;
  const char* used;    // the library whose definition is used
  const char* unused;  // a definition that is not used, or used only by others
};

TEST(TlsVariable, OfSeveralDefinitionsTheLoaderTakesOne) {
  const std::string bin = CTXCONF_BIN_DIR "/";
  const std::string both = bin + "tls_desc.so:" + bin + "tls_gd.so";
  const std::string swapped = bin + "tls_gd.so:" + bin + "tls_desc.so";
  const std::string symbolic = bin + "tls_gd.so:" + bin + "tls_desc_symbolic.so";
  const std::string library = bin + "tls_desc.so";
  const std::vector<std::string> local = {"local:" + bin + "tls_desc.so",
                                          "local:" + bin + "tls_gd.so"};
  const std::vector<std::string> local_swapped = {local[1], local[0]};
  for (const auto& [program, preload, late, used, unused] : {
           TwoDefiners{"tls_testee", both.c_str(), {}, "/tls_desc.so", "/tls_gd.so"},
           TwoDefiners{"tls_testee", swapped.c_str(), {}, "/tls_gd.so", "/tls_desc.so"},
           TwoDefiners{"tls_testee", symbolic.c_str(), {}, "/tls_gd.so", "/tls_desc_symbolic.so"},
           TwoDefiners{"tls_own", library.c_str(), {}, "/tls_own", "/tls_desc.so"},
           TwoDefiners{"tls_testee", "", local, "/tls_gd.so", "/tls_desc.so"},
           TwoDefiners{"tls_testee", "", local_swapped, "/tls_desc.so", "/tls_gd.so"},
       }) {
    std::vector<std::string> argv = {built(program)};
    argv.insert(argv.end(), late.begin(), late.end());
    const auto testee = start(argv, preload);
    ASSERT_TRUE(testee) << to_string(testee.error());
    const Found found = find_in(testee->pid());
    ASSERT_EQ(found.definitions.size(), 2U);
    expect_address(found, used, *testee, true);
    expect_address(found, unused, *testee, false);
  }
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ctxconf-tls-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0777));
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string copy(const std::string& name, const std::string& as) const {
    std::filesystem::copy_file(built(name), path_ / as);
    return (path_ / as).string();
  }

 private:
  std::filesystem::path path_;
};

bool map_files_can_be_opened() { return geteuid() == 0; }

TEST(TlsVariable, ADeletedOrReplacedLibraryIsStillTheRightOne) {
  if (!map_files_can_be_opened()) GTEST_SKIP() << "needs CAP_CHECKPOINT_RESTORE";
  for (const bool replaced : {false, true}) {
    const Folder folder;
    const std::string library = folder.copy("tls_desc.so", "library.so");
    const auto testee = start({built("tls_testee")}, library);
    ASSERT_TRUE(testee) << to_string(testee.error());
    std::filesystem::remove(library);
    if (replaced) folder.copy("tls_own", "library.so");
    const Found found = find_in(testee->pid());
    ASSERT_EQ(found.definitions.size(), 1U);
    expect_address(found, "library.so (deleted)", *testee, true);
  }
}

// Runs in a process of its own, which drops its privileges; the exit status is the answer.
int without_privileges(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
    _exit(body());
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(TlsVariable, WithoutPrivilegesFilesAreReachedByTheirPath) {
  const Folder folder;
  const std::string library = folder.copy("tls_desc.so", "library.so");
  const std::string program = folder.copy("tls_testee", "program");
  const int answer = without_privileges([&] {
    const auto testee = start({program}, library);
    if (!testee) return 77;
    ElfCache cache;
    auto modules = modules_of(testee->pid(), cache);
    if (!modules || !modules->notes.empty()) return 1;
    const auto definitions = find_tls_variable(*modules, kSlot);
    return definitions && definitions->size() == 1 ? 0 : 2;
  });
  if (answer == 77) GTEST_SKIP() << "the build cannot be read without privileges";
  EXPECT_EQ(answer, 0);
}

// Its definition is that of the file that is loaded, which is read from memory.
TEST(TlsVariable, WithoutPrivilegesAReplacedFileIsReadFromMemory) {
  const Folder folder;
  const std::string library = folder.copy("tls_desc.so", "library.so");
  const std::string other = folder.copy("tls_gd.so", "other.so");
  const std::string program = folder.copy("tls_testee", "program");
  const int answer = without_privileges([&] {
    const auto testee = start({program}, library);
    if (!testee) return 77;
    std::filesystem::rename(other, library);
    ElfCache cache;
    auto modules = modules_of(testee->pid(), cache);
    if (!modules || !modules->notes.empty()) return 1;
    const auto definitions = find_tls_variable(*modules, kSlot);
    if (!definitions || definitions->size() != 1) return 2;
    const auto& accesses = definitions->front().accesses;
    return !accesses.empty() && accesses.front().model == TlsModel::kTlsdesc ? 0 : 3;
  });
  if (answer == 77) GTEST_SKIP() << "the build cannot be read without privileges";
  EXPECT_EQ(answer, 0);
}

TEST(TlsVariable, WithoutPrivilegesAReplacedFileIsNotedWhereMemoryHasNoBeginningOfIt) {
  const Folder folder;
  const std::string library = folder.copy("tls_desc.so", "library.so");
  const std::string other = folder.copy("tls_gd.so", "other.so");
  const std::string program = folder.copy("tls_testee", "program");
  const int answer = without_privileges([&] {
    const auto testee = start({program}, library);
    if (!testee) return 77;
    std::filesystem::rename(other, library);
    const auto text = read_maps_text(testee->pid());
    if (!text) return 1;
    std::string rest;
    for_each_mapping(*text, [&](const Result<MapEntry>& entry) {
      const bool begins = entry && entry->offset == 0 && entry->name.starts_with(library);
      if (entry && !begins) rest += to_maps_line(*entry) + "\n";
      return true;
    });
    ElfCache cache;
    auto modules = modules_of(testee->pid(), rest, cache);
    if (!modules || modules->notes.size() != 1) return 2;
    return modules->notes[0].starts_with(library) ? 0 : 3;
  });
  if (answer == 77) GTEST_SKIP() << "the build cannot be read without privileges";
  EXPECT_EQ(answer, 0);
}

TEST(Modules, HaveTheProgramThatTheLoaderStarts) {
  const auto program = ElfImage::open(built("tls_testee"));
  ASSERT_TRUE(program);
  const auto testee = start({interpreter_of(*program), built("tls_testee")}, built("tls_desc.so"));
  ASSERT_TRUE(testee) << to_string(testee.error());
  ElfCache cache;
  const auto modules = modules_of(testee->pid(), cache);
  ASSERT_TRUE(modules);
  for (const Module& module : modules->modules) {
    EXPECT_EQ(module.main_executable, module.path == built("tls_testee")) << module.path;
    EXPECT_EQ(module.main_executable, module.load_order == 0U) << module.path;
  }
}

TEST(Modules, AreTheFilesThatRun) {
  const auto testee = start({built("tls_testee")}, built("tls_desc.so"));
  ASSERT_TRUE(testee) << to_string(testee.error());
  ElfCache cache;
  auto modules = modules_of(testee->pid(), cache);
  ASSERT_TRUE(modules);
  EXPECT_TRUE(modules->notes.empty());
  EXPECT_FALSE(modules->musl);
  // The program, the library, libc and its loader.
  ASSERT_EQ(modules->modules.size(), 4U);
  EXPECT_EQ(cache.size(), 4U);
  EXPECT_TRUE(std::is_sorted(modules->modules.begin(), modules->modules.end(),
                             [](const Module& a, const Module& b) { return a.start < b.start; }));
  std::vector<std::size_t> order;
  for (const Module& module : modules->modules) {
    EXPECT_EQ(module.main_executable, module.path == built("tls_testee")) << module.path;
    EXPECT_EQ(module.main_executable, module.load_order == 0U);
    ASSERT_TRUE(module.load_order) << module.path;
    order.push_back(*module.load_order);
    std::array<std::byte, 4> magic;
    const auto header = RemoteAddr(module.image->segments()[0].address + module.load_bias);
    EXPECT_TRUE(ProcessMemory(testee->pid()).read_exact(module.start, magic));
    EXPECT_EQ(std::memcmp(magic.data(), ELFMAG, SELFMAG), 0) << module.path;
    EXPECT_GE(header, module.start);
  }
  std::sort(order.begin(), order.end());
  EXPECT_EQ(std::unique(order.begin(), order.end()), order.end());
}

TEST(Modules, OfASecondProcessComeFromTheCache) {
  const auto first = start({built("tls_testee")}, built("tls_desc.so"));
  const auto second = start({built("tls_testee")}, built("tls_desc.so"));
  ASSERT_TRUE(first && second);
  ElfCache cache;
  ASSERT_TRUE(modules_of(first->pid(), cache));
  const std::size_t files = cache.size();
  kill(first->pid(), SIGKILL);  // the files opened through it stay usable
  auto modules = modules_of(second->pid(), cache);
  ASSERT_TRUE(modules);
  EXPECT_EQ(cache.size(), files);
  const auto definitions = find_tls_variable(*modules, kSlot);
  ASSERT_TRUE(definitions) << to_string(definitions.error());
  EXPECT_EQ(definitions->size(), 1U);
}

// A fork of this test that has mapped a file as a symbolizer does.
TEST(Modules, AFileThatIsOnlyReadIsNone) {
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(built("tls_desc_symbolic.so").c_str(), O_RDONLY);
    if (mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED) _exit(1);
    if (write(ready[1], "r", 1) != 1) _exit(1);
    while (true) pause();
  }
  char c = 0;
  EXPECT_EQ(read(ready[0], &c, 1), 1);
  ElfCache cache;
  auto modules = modules_of(pid, cache);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  ASSERT_TRUE(modules) << to_string(modules.error());
  EXPECT_FALSE(modules->modules.empty());
  for (const Module& module : modules->modules) {
    EXPECT_FALSE(module.path.ends_with("tls_desc_symbolic.so"));
  }
}

TEST(Modules, OfNobody) {
  ElfCache cache;
  EXPECT_EQ(modules_of(-1, cache).error().err, ESRCH);
}

Module made_module(const MadeLibrary& library, std::vector<std::byte>& bytes,
                   std::shared_ptr<ElfBudget> budget = {}) {
  bytes = library.bytes();
  Module module;
  module.path = "made";
  module.image = std::make_shared<const ElfImage>(
      ElfImage::from_memory(bytes, "made", std::move(budget)).value());
  return module;
}

TEST(Modules, WhatTheLimitsLeaveOutIsNoted) {
  const auto testee = start({built("tls_testee")}, built("tls_desc.so"));
  ASSERT_TRUE(testee) << to_string(testee.error());
  for (const auto& [limits, modules] :
       {std::pair{ElfLimits{.files = 2}, 2U}, std::pair{ElfLimits{.bytes = 0}, 0U},
        std::pair{ElfLimits{.time = {}}, 0U}, std::pair{ElfLimits{.mappings = 0}, 0U}}) {
    ElfCache cache;
    auto found = modules_of(testee->pid(), cache, limits);
    ASSERT_TRUE(found) << to_string(found.error());
    EXPECT_EQ(found->modules.size(), modules);
    ASSERT_FALSE(found->notes.empty());
    EXPECT_NE(found->notes.back().find("left out: the limit of"), std::string::npos)
        << found->notes.back();
    // A file that could not be read must not count as not an ELF file.
    found = modules_of(testee->pid(), cache);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->modules.size(), 4U);
    EXPECT_TRUE(found->notes.empty());
  }
}

TEST(ElfCache, IsBoundedByRelocationsToo) {
  std::vector<std::byte> bytes;
  const Module module = made_module({.relocations = 65536}, bytes);
  ASSERT_EQ(module.image->kept_relocations(), 65536U);
  ElfCache cache;
  std::size_t most = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    cache.put({0, i, 0, 0}, module.image);
    cache.put({0, i, 0, 0}, module.image);
    most = std::max(most, cache.size());
  }
  EXPECT_EQ(most, 16U);
}

TEST(TlsVariable, OfManyDefinitionsSomeAreKept) {
  std::vector<std::byte> bytes;
  Modules modules;
  modules.modules = {made_module({.definitions = 100, .relocations = 1}, bytes)};
  const auto found = find_tls_variable(modules, kSlot);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->size(), 64U);
  ASSERT_EQ(modules.notes.size(), 1U);
  EXPECT_EQ(modules.notes[0], "only 64 definitions of ctx_test_slot are examined");
}

// Relocations of other names count too; otherwise a process could cause unlimited work.
TEST(TlsVariable, ASearchIsCutShort) {
  std::vector<std::byte> own;
  std::vector<std::byte> others;
  Modules modules;
  modules.budget = std::make_shared<ElfBudget>(ElfLimits{.relocations = 2500});
  const Module one = made_module({.name = "other", .relocations = 500}, others, modules.budget);
  modules.modules = {made_module({.definitions = 1, .relocations = 1}, own, modules.budget)};
  // Two files, each mapped many times: each file is asked once.
  modules.modules.insert(modules.modules.end(), 50, one);
  ASSERT_TRUE(find_tls_variable(modules, kSlot));
  EXPECT_TRUE(modules.notes.empty());
  for (int i = 0; i < 4; ++i) {
    Module next = one;
    next.image = std::make_shared<const ElfImage>(one.image->reached_by("", modules.budget));
    modules.modules.push_back(next);
  }
  const auto found = find_tls_variable(modules, kSlot);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->size(), 1U);
  ASSERT_EQ(modules.notes.size(), 1U);
  EXPECT_NE(modules.notes[0].find("cut short: the limit of relocations"), std::string::npos);
}

// From here on a process consists only of literal words. One library, one definition.
class Words : public testing::Test {
 protected:
  static constexpr std::uint64_t kBias = 0x7f0000000000;
  static constexpr std::uint64_t kThread = 0x7e0000001000;
  static constexpr std::uint64_t kDtv = 0x55550000;
  static constexpr std::uint64_t kBlock = 0x7d0000000000;
  static constexpr std::uint64_t kDescriptor = 0x55560000;

  void load(const std::string& library) {
    auto image = ElfImage::open(built(library));
    ASSERT_TRUE(image);
    load(std::move(*image));
  }
  void load(ElfImage image) {
    Module module;
    module.path = image.name();
    module.start = RemoteAddr(kBias);
    module.load_bias = kBias;
    module.image = std::make_shared<const ElfImage>(std::move(image));
    modules_.modules = {module};
    const auto found = find_tls_variable(modules_, kSlot);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), 1U);
    definition_ = found->front();
    // Other accesses of the same module would be followed if this one cannot be.
    definition_.accesses.resize(1);
    got_ = definition_.accesses[0].got.raw();
  }
  void put(std::uint64_t at, const std::vector<std::uint64_t>& words) {
    memory_.put(RemoteAddr(at), std::as_bytes(std::span(words)));
  }
  // A thread with three modules in its DTV; the second is ours.
  void put_thread(std::uint64_t length, std::uint64_t block) {
    put(kThread + 8, {kDtv});
    put(kDtv - 16, {length, 0, 5 /* generation */, 0, 1, 0, block, 0, 3, 0});
  }
  Result<std::optional<RemoteAddr>> address(std::uint64_t tp = kThread) const {
    return tls_address(modules_, definition_, RemoteAddr(tp), memory_);
  }
  int error() const {
    const auto result = address();
    return result ? 0 : result.error().err;
  }
  bool has_no_block() const {
    const auto result = address();
    return result && !*result;
  }

  Modules modules_;
  TlsDefinition definition_;
  std::uint64_t got_ = 0;
  SnapshotMemory memory_;
};

TEST_F(Words, GeneralDynamicGoesThroughTheDtv) {
  load("tls_gd.so");
  EXPECT_EQ(error(), EFAULT) << "no GOT";
  put(got_, {2, 24});
  EXPECT_EQ(error(), EFAULT) << "no thread";
  put(kThread + 8, {kDtv});
  EXPECT_EQ(error(), EFAULT) << "no DTV";
  put_thread(3, kBlock);
  EXPECT_EQ(address().value(), RemoteAddr(kBlock + 24));
  EXPECT_EQ(address(0).value(), std::nullopt);
  put(kThread + 8, {0});
  EXPECT_TRUE(has_no_block());
}

TEST_F(Words, ADtvThatLiesIsAnError) {
  load("tls_gd.so");
  put(got_, {2, 24});
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1} << 21U, UINT64_MAX}) {
    put_thread(length, kBlock);
    EXPECT_EQ(error(), EINVAL) << length;
  }
  put_thread(1000, kBlock);
  put(got_, {900, 24});
  EXPECT_EQ(error(), EFAULT) << "the DTV is longer than its memory";
}

TEST_F(Words, ModuleIdsThatCannotBeAreAnError) {
  load("tls_gd.so");
  put_thread(3, kBlock);
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1} << 32U, UINT64_MAX}) {
    put(got_, {id, 24});
    EXPECT_EQ(error(), EINVAL) << id;
  }
  put(got_, {2, 32});
  EXPECT_EQ(error(), EINVAL) << "the GOT entry is of another variable";
}

TEST_F(Words, AThreadWithoutABlockHasNoAddress) {
  load("tls_gd.so");
  put(got_, {2, 24});
  put_thread(3, UINT64_MAX);
  EXPECT_TRUE(has_no_block());
  put_thread(3, 0);
  EXPECT_TRUE(has_no_block());
  put_thread(1, kBlock);
  EXPECT_TRUE(has_no_block()) << "the DTV has not grown yet";
}

TEST_F(Words, AStaticDescriptorIsAnOffset) {
  load("tls_desc.so");
  put(got_, {0x1000, static_cast<std::uint64_t>(-64)});
  EXPECT_EQ(address().value(), RemoteAddr(kThread - 64));
  put(got_, {0x1000, std::uint64_t{1} << 63U});
  EXPECT_EQ(error(), EINVAL);
  put(got_, {0, 0});
  EXPECT_EQ(error(), ENOTSUP) << "not resolved yet";
}

TEST_F(Words, ADynamicDescriptorHasAGeneration) {
  load("tls_desc.so");
  put_thread(3, kBlock);
  put(got_, {0x1000, kDescriptor});
  EXPECT_EQ(error(), EFAULT) << "no such memory";
  put(kDescriptor, {2, 24, 5});
  EXPECT_EQ(address().value(), RemoteAddr(kBlock + 24));
  put(kDescriptor, {2, 24, 6});
  EXPECT_TRUE(has_no_block()) << "the entry belongs to a module that was unloaded";
  put(kDescriptor, {2, 25, 5});
  EXPECT_EQ(error(), EINVAL);
}

TEST_F(Words, InitialExecIsAnOffset) {
  load("tls_ie.so");
  put(got_, {static_cast<std::uint64_t>(-128)});
  EXPECT_EQ(address().value(), RemoteAddr(kThread - 128));
  for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{1} << 62U}) {
    put(got_, {word});
    EXPECT_EQ(error(), EINVAL) << word;
  }
}

TEST_F(Words, ABorrowedEntryTellsWhereTheBlockIs) {
  load("tls_gd.so");
  TlsAccess& access = definition_.accesses[0];
  access.borrowed = true;
  access.target = 8;
  put(got_, {2, 8});
  put_thread(3, kBlock);
  EXPECT_EQ(address().value(), RemoteAddr(kBlock + 24));
}

// Counts the reads.
class CountingMemory : public MemoryReader {
 public:
  explicit CountingMemory(const MemoryReader& memory) : memory_(memory) {}
  Result<std::size_t> read_some(RemoteAddr at, std::span<std::byte> out) const override {
    ++reads_;
    return memory_.read_some(at, out);
  }
  std::size_t reads() const { return std::exchange(reads_, 0); }

 private:
  const MemoryReader& memory_;
  mutable std::size_t reads_ = 0;
};

TEST_F(Words, ThousandsOfWaysCostAStoppedThreadLittle) {
  load("tls_gd.so");
  put_thread(1000, kBlock);
  const TlsAccess access = definition_.accesses[0];
  definition_.accesses.clear();
  for (std::uint64_t i = 0; i < 500; ++i) {
    definition_.accesses.push_back(access);
    definition_.accesses.back().got = RemoteAddr(got_ + i * 16);
    put(got_ + i * 16, {500 + i, 24});  // each has another module id, which the DTV does not have
  }
  const CountingMemory counted(memory_);
  const auto location = tls_location(modules_, definition_, counted);
  ASSERT_TRUE(location) << to_string(location.error());
  EXPECT_LE(counted.reads(), 500U);
  EXPECT_FALSE(tls_address(*location, RemoteAddr(kThread), counted));
  EXPECT_LE(counted.reads(), 8 * 4U);

  for (std::uint64_t i = 0; i < 500; ++i) put(got_ + i * 16, {2, 24});  // all the same
  const auto one = tls_location(modules_, definition_, memory_);
  ASSERT_TRUE(one);
  EXPECT_EQ(tls_address(*one, RemoteAddr(kThread), counted).value(), RemoteAddr(kBlock + 24));
  EXPECT_LE(counted.reads(), 4U);
}

TEST_F(Words, WithoutARelocationThereIsNoWay) {
  load("tls_gd.so");
  definition_.accesses.clear();
  const auto result = address();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().err, ENOTSUP);
  EXPECT_NE(result.error().detail.find("tls_gd.so"), std::string::npos);
}

TEST_F(Words, MuslCountsInTheFirstEntry) {
  load("tls_gd.so");
  modules_.musl = true;
  put(got_, {2, 24});
  put(kThread + 8, {kDtv});
  put(kDtv, {2, 1, kBlock});
  EXPECT_EQ(address().value(), RemoteAddr(kBlock + 24));
  put(kDtv, {1, 1, kBlock});
  EXPECT_TRUE(has_no_block());
}

// A copy of the program with other values in its header or its TLS segment.
std::vector<std::byte> changed(const std::function<void(Elf64_Ehdr&, Elf64_Phdr&)>& change) {
  std::ifstream file(built("tls_own"), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  Elf64_Ehdr header;
  std::memcpy(&header, text.data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    char* at = text.data() + header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    std::memcpy(&segment, at, sizeof segment);
    if (segment.p_type != PT_TLS) continue;
    change(header, segment);
    std::memcpy(at, &segment, sizeof segment);
  }
  std::memcpy(text.data(), &header, sizeof header);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST_F(Words, LocalExecFollowsTheAlignment) {
  struct Row {
    std::uint16_t machine;
    std::uint64_t address, size, alignment;
    std::int64_t offset;  // of the slot, 24 bytes into the segment
  };
  for (const Row& row :
       {Row{EM_X86_64, 0x4000, 0x20, 8, 24 - 0x20}, Row{EM_X86_64, 0x4000, 0x21, 8, 24 - 0x28},
        Row{EM_X86_64, 0x4000, 0x20, 64, 24 - 0x40}, Row{EM_X86_64, 0x4008, 0x20, 64, 24 - 0x38},
        Row{EM_X86_64, 0x4000, 0x20, 0, 24 - 0x20}, Row{EM_AARCH64, 0x4000, 0x20, 8, 24 + 16},
        Row{EM_AARCH64, 0x4000, 0x20, 64, 24 + 64}}) {
    const auto bytes = changed([&](Elf64_Ehdr& header, Elf64_Phdr& segment) {
      header.e_machine = row.machine;
      segment.p_vaddr = row.address;
      segment.p_filesz = 0;
      segment.p_memsz = row.size;
      segment.p_align = row.alignment;
    });
    auto image = ElfImage::from_memory(bytes, "program");
    ASSERT_TRUE(image) << to_string(image.error());
    load(std::move(*image));
    definition_.accesses[0] = {};
    definition_.accesses[0].model = kLocalExec;
    definition_.accesses[0].target = 24;
    EXPECT_EQ(address().value()->raw(), kThread + static_cast<std::uint64_t>(row.offset))
        << row.size << " aligned to " << row.alignment;
  }
}

TEST_F(Words, LocalExecOfASegmentThatCannotBeIsAnError) {
  for (const auto& [size, alignment] : {std::pair{std::uint64_t{0x20}, std::uint64_t{24}},
                                        std::pair{std::uint64_t{1} << 50U, std::uint64_t{8}},
                                        std::pair{std::uint64_t{8}, std::uint64_t{8}}}) {
    const auto bytes = changed([&](Elf64_Ehdr&, Elf64_Phdr& segment) {
      segment.p_filesz = 0;
      segment.p_memsz = size;
      segment.p_align = alignment;
    });
    load(ElfImage::from_memory(bytes, "program").value());
    definition_.accesses[0] = {};
    definition_.accesses[0].model = kLocalExec;
    definition_.accesses[0].target = 24;
    EXPECT_EQ(error(), EINVAL) << size << " aligned to " << alignment;
  }
}

// gold keeps the names of such relocations.
TEST_F(Words, ANamedRelocationOfASymbolicLibraryStaysInside) {
  std::ifstream file(built("tls_gd.so"), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto image = ElfImage::open(built("tls_gd.so"));
  ASSERT_TRUE(image);
  for (const ElfSegment& segment : image->segments()) {
    if (segment.type != PT_DYNAMIC) continue;
    Elf64_Dyn entry;
    for (std::uint64_t at = 0; at < segment.file_size; at += sizeof entry) {
      std::memcpy(&entry, text.data() + segment.offset + at, sizeof entry);
      if (entry.d_tag != DT_SONAME) continue;
      entry.d_tag = DT_SYMBOLIC;
      std::memcpy(text.data() + segment.offset + at, &entry, sizeof entry);
    }
  }
  auto symbolic = ElfImage::from_memory(std::as_bytes(std::span(text)), "symbolic");
  ASSERT_TRUE(symbolic);
  ASSERT_TRUE(symbolic->is_symbolic());
  load(std::move(*symbolic));
  EXPECT_FALSE(definition_.accesses[0].borrowed);
  EXPECT_TRUE(definition_.accesses[0].named);
}

TEST_F(Words, AnotherMachineIsNotSupported) {
  const auto bytes = changed([](Elf64_Ehdr& header, Elf64_Phdr&) { header.e_machine = EM_RISCV; });
  auto image = ElfImage::from_memory(bytes, "program");
  modules_.modules.resize(1);
  modules_.modules[0].image = std::make_shared<const ElfImage>(std::move(*image));
  EXPECT_EQ(error(), ENOTSUP);
}

}  // namespace
}  // namespace ctxconf::sys
