#include "conformance/observe/code_locations.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

// These tests search for its symbol.
extern "C" __attribute__((noinline, used, visibility("default"))) int code_locations_test_target() {
  volatile int n = 1;
  return n;
}

// Stops in a function of the C library, at most `depth` calls deeper.
extern "C" __attribute__((noinline, visibility("default"))) void code_locations_test_stop(
    int depth) {
  if (depth > 0) {
    code_locations_test_stop(depth - 1);
  } else {
    raise(SIGSTOP);
  }
  asm volatile("" ::: "memory");
}

namespace ctxconf::conformance {
namespace {

constexpr auto kAnHour = std::chrono::milliseconds(3600 * 1000);
CodeLimits patient() {
  CodeLimits limits;
  limits.file.time = limits.all_files = kAnHour;
  return limits;
}

std::uint64_t target() { return reinterpret_cast<std::uint64_t>(&code_locations_test_target); }

InstructionLocation nowhere(std::uint64_t address) {
  InstructionLocation location;
  location.address = address;
  return location;
}

std::vector<Process> process_with(std::vector<InstructionLocation> locations) {
  Image image;
  image.locations = std::move(locations);
  Process process;
  process.images.push_back(std::move(image));
  std::vector<Process> out;
  out.push_back(std::move(process));
  return out;
}

class Mapped {
 public:
  explicit Mapped(const std::string& path, std::uint64_t at = 0) {
    const int fd = path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const int flags = MAP_PRIVATE | (path.empty() ? MAP_ANONYMOUS : 0) | (at == 0 ? 0 : MAP_FIXED);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): where another mapping was
    at_ = mmap(reinterpret_cast<void*>(at), 4096, PROT_READ | PROT_EXEC, flags, fd, 0);
    if (fd >= 0) close(fd);
    EXPECT_NE(at_, MAP_FAILED);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { munmap(at_, 4096); }
  std::uint64_t at() const { return reinterpret_cast<std::uint64_t>(at_); }

 private:
  void* at_;
};

class CodeLocationsTest : public testing::Test {
 protected:
  CodeLocationsTest() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ctxconf-locations-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    folder_ = name;
  }
  ~CodeLocationsTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(CodeLocationsTest, KnowTheFunctionBeforeTheProgramCounter) {
  CodeFiles files(patient());
  CodeLocations locations(files);
  EXPECT_EQ(locations.location_of(getpid(), target() + 1, 0), 0);
  EXPECT_EQ(locations.location_of(getpid(), target() + 2, 0), 1);
  EXPECT_EQ(locations.location_of(getpid(), target() + 1, 0), 0);
  auto processes = process_with(std::move(locations).finish());
  EXPECT_EQ(files.name_locations(processes), std::vector<std::string>{});
  const auto& found = processes[0].images[0].locations;
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].address, target());
  EXPECT_TRUE(found[0].module.ends_with("/observe_test")) << found[0].module;
  EXPECT_EQ(found[0].symbol, "code_locations_test_target");
  EXPECT_EQ(found[0].symbol_offset, 0);
  EXPECT_TRUE(found[0].source_file.ends_with("code_locations_test.cc")) << found[0].source_file;
  EXPECT_GT(found[0].source_line, 0);
  EXPECT_EQ(found[1].symbol_offset, 1);
  EXPECT_EQ(found[1].offset, found[0].offset + 1);
}

TEST_F(CodeLocationsTest, AreNamedAsThoseOfAnEarlierRecording) {
  KnownLocations known;
  const auto look = [&] {
    CodeFiles files(patient(), &known);
    CodeLocations locations(files);
    EXPECT_EQ(locations.location_of(getpid(), target() + 1, 0), 0);
    EXPECT_EQ(locations.location_of(getpid(), target() + 2, 0), 1);
    auto processes = process_with(std::move(locations).finish());
    EXPECT_EQ(files.name_locations(processes), std::vector<std::string>{});
    return processes[0].images[0].locations;
  };
  const auto first = look();
  ASSERT_EQ(first.size(), 2);
  EXPECT_EQ(first[0].symbol, "code_locations_test_target");
  EXPECT_EQ(look(), first);

  const auto self = sys::HeldFile::open("/proc/self/exe");
  ASSERT_TRUE(self);
  const KnownLocations::Key key{self->identity(), first[0].module, first[0].offset};
  ASSERT_NE(known.find(key), nullptr);
  known.add(key, {.symbol = "what_was_known", .symbol_offset = 5, .source_file = {}});
  const auto again = look();
  EXPECT_EQ(again[0].symbol, "what_was_known");
  EXPECT_EQ(again[1], first[1]);
  auto other = key;
  ++other.file.mtime_ns;
  EXPECT_EQ(known.find(other), nullptr);
}

TEST_F(CodeLocationsTest, AreInNoModuleWhereTheCodeIsInNoFile) {
  const Mapped code("");
  CodeFiles files(patient());
  CodeLocations locations(files);
  EXPECT_EQ(locations.location_of(getpid(), code.at() + 7, 0), 0);
  EXPECT_EQ(locations.location_of(getpid(), 5, 0), 1);
  EXPECT_EQ(locations.location_of(getpid(), 0, 0), std::nullopt);
  auto processes = process_with(std::move(locations).finish());
  EXPECT_EQ(files.name_locations(processes), std::vector<std::string>{});
  EXPECT_EQ(processes[0].images[0].locations[0], nowhere(code.at() + 6));
  EXPECT_EQ(processes[0].images[0].locations[1], nowhere(4));
}

TEST_F(CodeLocationsTest, SurviveTheFileAndTheProcess) {
  std::filesystem::copy_file("/proc/self/exe", file("program"));
  CodeFiles files(patient());
  CodeLocations locations(files);
  {
    const Mapped code(file("program"));
    EXPECT_EQ(locations.location_of(getpid(), code.at() + 1, 0), 0);
  }
  std::filesystem::remove(file("program"));
  auto found = std::move(locations).finish();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].module, file("program"));
  // Finds where the target is in this very file.
  CodeLocations own(files);
  own.location_of(getpid(), target() + 1, 0);
  found[0].offset = std::move(own).finish().at(0).offset;
  auto processes = process_with(std::move(found));
  EXPECT_EQ(files.name_locations(processes), std::vector<std::string>{});
  EXPECT_EQ(processes[0].images[0].locations[0].symbol, "code_locations_test_target");
}

TEST_F(CodeLocationsTest, AreNotNamedByOneOfTwoFilesOfTheSameName) {
  CodeFiles files(patient());
  CodeLocations first(files);
  CodeLocations second(files);
  std::ofstream(file("a")) << "one";
  const Mapped one(file("a"));
  first.location_of(getpid(), one.at() + 1, 0);
  std::filesystem::rename(file("a"), file("b"));
  std::ofstream(file("a")) << "two";
  const Mapped two(file("a"));
  second.location_of(getpid(), two.at() + 1, 0);
  auto locations = std::move(first).finish();
  EXPECT_EQ(locations.at(0).module, file("a"));
  auto processes = process_with(std::move(locations));
  EXPECT_EQ(files.name_locations(processes),
            std::vector{"functions of " + file("a") + ": two files had this name"});
}

TEST_F(CodeLocationsTest, AreOfTheLibraryThatIsThereNow) {
  CodeFiles files(patient());
  CodeLocations locations(files);
  std::ofstream(file("a")) << "one";
  std::ofstream(file("b")) << "two";
  const Mapped a(file("a"));
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 0), 0);
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 2, 0), 1);
  {
    const Mapped b(file("b"), a.at());
    EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 0), 2);
    EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 0), 2);
  }
  const auto found = std::move(locations).finish();
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[1].module, file("a"));
  EXPECT_EQ(found[2].module, file("b"));
  EXPECT_EQ(found[2].offset, 0);
}

TEST_F(CodeLocationsTest, AreOfTheSameFileWhileTheCodeIsTheSame) {
  CodeFiles files(patient());
  CodeLocations locations(files);
  std::ofstream(file("a")) << "one";
  std::ofstream(file("b")) << "two";
  const Mapped a(file("a"));
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 7), 0);
  const Mapped b(file("b"), a.at());
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 7), 0);
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 8), 1);
  const Mapped again(file("a"), a.at());
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 8), 1);
  locations.look_again();
  EXPECT_EQ(locations.location_of(getpid(), a.at() + 1, 8), 2);
}

TEST_F(CodeLocationsTest, HaveLimits) {
  CodeLimits limits = patient();
  limits.locations = 2;
  limits.files = 1;
  CodeFiles files(limits);
  CodeLocations locations(files);
  std::ofstream(file("a")) << "one";
  const Mapped other(file("a"));
  EXPECT_EQ(locations.location_of(getpid(), target() + 1, 0), 0);
  EXPECT_EQ(locations.location_of(getpid(), other.at() + 1, 0), 1);
  EXPECT_EQ(locations.location_of(getpid(), target() + 2, 0), std::nullopt);
  EXPECT_EQ(locations.location_of(getpid(), target() + 1, 0), 0);
  auto processes = process_with(std::move(locations).finish());
  EXPECT_EQ(files.name_locations(processes),
            std::vector{"functions of " + file("a") + ": more than 1 files have such code"});
  EXPECT_EQ(processes[0].images[0].locations[0].symbol, "code_locations_test_target");
}

// A process that stops in the C library again and again.
class StoppingChild {
 public:
  StoppingChild() : pid_(fork()) {
    if (pid_ == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      for (int depth = 0;; depth = (depth + 1) % 64) code_locations_test_stop(depth);
    }
    wait_for_stop();
  }
  StoppingChild(const StoppingChild&) = delete;
  StoppingChild& operator=(const StoppingChild&) = delete;
  ~StoppingChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void next() {
    ptrace(PTRACE_CONT, pid_, nullptr, nullptr);
    wait_for_stop();
  }

 private:
  void wait_for_stop() const {
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, 0), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  pid_t pid_;
};

TEST_F(CodeLocationsTest, TellWhoCalledCodeOfAStandardLibrary) {
  StoppingChild child;
  CodeLimits limits = patient();
  limits.stacks_of_location = 3;
  CodeFiles files(limits);
  CodeLocations locations(files);
  std::vector<std::uint32_t> seen;
  for (int depth = 0; depth < 6; ++depth) {
    const auto stack = sys::copy_registers(child.pid());
    if (!stack && stack.error().err == ENOTSUP) GTEST_SKIP() << "no stacks on this architecture";
    ASSERT_TRUE(stack) << sys::to_string(stack.error());
    const auto location = locations.location_of(child.pid(), stack->pc(), 0);
    ASSERT_TRUE(location);
    EXPECT_EQ(locations.location_of(child.pid(), stack->pc(), 0), location);
    seen.push_back(*location);
    child.next();
  }
  EXPECT_EQ(seen, (std::vector<std::uint32_t>{0, 1, 2, 3, 3, 3}));
  auto processes = process_with(std::move(locations).finish());
  EXPECT_EQ(files.name_locations(processes), std::vector<std::string>{});
  const auto& found = processes[0].images[0].locations;
  ASSERT_EQ(found.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NE(found[i].module.find("libc"), std::string::npos) << found[i].module;
    ASSERT_FALSE(found[i].callers.empty());
    const InstructionLocation& caller = found[i].callers.back();
    EXPECT_EQ(caller.symbol, "code_locations_test_stop");
    EXPECT_TRUE(caller.source_file.ends_with("code_locations_test.cc")) << caller.source_file;
    EXPECT_EQ(caller.stack, 0U);
  }
  EXPECT_TRUE(found[3].callers.empty()) << "there are too many callers to list";
}

TEST_F(CodeLocationsTest, ReadMapsOnlySoOften) {
  CodeLimits limits = patient();
  limits.maps_reads = 1;
  CodeFiles files(limits);
  CodeLocations locations(files);
  locations.location_of(getpid(), target() + 1, 0);
  locations.location_of(getpid(), target() + 2, 0);
  const Mapped code("/proc/self/exe");
  locations.location_of(getpid(), code.at() + 1, 0);
  const auto found = std::move(locations).finish();
  EXPECT_NE(found[1].module, "");
  EXPECT_EQ(found[2].module, "");
}

}  // namespace
}  // namespace ctxconf::conformance
