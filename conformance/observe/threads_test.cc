#include "conformance/observe/threads.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/elf/elf_facts.h"
#include "conformance/observe/target_record.h"
#include "conformance/rules/state_rules.h"

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

// A process whose only thread has a record; the test sets its one-byte value.
class RecordOwner {
 public:
  RecordOwner() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      be_told(ends[0]);
    }
    close(ends[0]);
    fd_ = ends[1];
    char byte = 0;
    EXPECT_EQ(recv(fd_, &byte, 1, 0), 1);
  }
  ~RecordOwner() {
    close(fd_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  RecordOwner(const RecordOwner&) = delete;
  RecordOwner& operator=(const RecordOwner&) = delete;

  pid_t pid() const { return pid_; }
  void attach(char value) const {
    EXPECT_EQ(send(fd_, &value, 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(recv(fd_, &value, 1, 0), 1);
  }

 private:
  [[noreturn]] static void be_told(int fd) {
    const std::string library = std::string(CTXCONF_BIN_DIR) + "/slot_general_dynamic.so";
    void* const handle = dlopen(library.c_str(), RTLD_NOW);
    if (handle == nullptr) _exit(1);
    const auto exchange = reinterpret_cast<void* (*)(void*)>(dlsym(handle, "slot_exchange"));
    if (exchange == nullptr) _exit(2);
    alignas(8) static Record record = {{1}, {1}, 1, 0, 3, {0, 1, 'a'}};
    exchange(&record);
    char byte = 0;
    while (send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1) {
      record.entries[2] = static_cast<unsigned char>(byte);
    }
    _exit(0);
  }

  pid_t pid_ = -1;
  int fd_ = -1;
};

std::string values(const Image& image) {
  std::string out;
  for (const ThreadSample& s : image.threads) {
    if (s.record && s.record->bytes.size() == 31) {
      out += static_cast<char>(std::to_integer<int>(s.record->bytes[30]));
    }
  }
  return out;
}

// Sees each value twice.
Image image_of(const std::string& sequence, ThreadLimits limits) {
  const RecordOwner owner;
  ModuleCache modules;
  SnapshotRecorder context(ImageKey{owner.pid(), 0}, {.judge = &state_judge()});
  context.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ThreadRecorder threads(owner.pid(), modules, context, limits);
  threads.look_at_modules();
  EXPECT_TRUE(threads.wants_threads());
  for (const char value : sequence) {
    owner.attach(value);
    for (int i = 0; i < 2; ++i) {
      const auto stop = sys::ThreadStop::stop(owner.pid(), 10s);
      const auto pointer = stop ? stop->thread_pointer() : std::unexpected(stop.error());
      EXPECT_TRUE(pointer);
      if (pointer) threads.sample(owner.pid(), *pointer);
    }
  }
  Image image = std::move(context).finish("");
  threads.add_to(image, true);
  return image;
}

std::vector<std::byte> bytes_of_file(const std::string& name) {
  std::ifstream file(std::string(CTXCONF_BIN_DIR) + "/" + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(ModuleCache, FilesFromMemoryHaveNoIdentityToBeKnownBy) {
  ModuleCache cache;
  for (const char* name : {"slot_general_dynamic.so", "slot_initial_exec.so"}) {
    const auto bytes = bytes_of_file(name);
    auto image = sys::ElfImage::from_memory(bytes, name);
    ASSERT_TRUE(image) << sys::to_string(image.error());
    const sys::Module module{.path = name,
                             .start = {},
                             .load_bias = 0,
                             .main_executable = false,
                             .load_order = {},
                             .image = std::make_shared<const sys::ElfImage>(std::move(*image))};
    const auto facts = cache.facts_of(module);
    ASSERT_TRUE(facts);
    EXPECT_EQ(*facts, module_facts(*module.image, name, false));
  }
}

TEST(ThreadRecorder, ASampleBeyondTheLimitIsKeptWhereItBreaksARow) {
  const Image image = image_of(
      "abc\xff"
      "def",
      {.samples = 2});
  EXPECT_EQ(values(image), "ab\xff");
  EXPECT_EQ(image.threads_dropped, 4U);
  EXPECT_EQ(image.threads_judged, 4U);
  EXPECT_THAT(image.requirements_dropped, IsEmpty());
}

TEST(ThreadRecorder, WhatBreaksARowAgainAndAgainIsKeptTwice) {
  const Image image = image_of(
      "abc\xff"
      "d\xfe"
      "e\xfd"
      "f",
      {.samples = 2, .judged_together = 2});
  EXPECT_EQ(values(image), "ab\xff\xfe");
  EXPECT_EQ(image.threads_dropped, 5U);
  EXPECT_EQ(image.threads_judged, 5U);
  EXPECT_THAT(image.requirements_dropped, ElementsAre("tctx.attrs.utf8"));
}

TEST(ThreadRecorder, OnlySoManySamplesAreJudgedBeforeTheyGo) {
  const Image image = image_of("abcde\xff", {.samples = 2, .judged = 3});
  EXPECT_EQ(values(image), "ab");
  EXPECT_EQ(image.threads_dropped, 4U);
  EXPECT_EQ(image.threads_judged, 3U);
}

}  // namespace
}  // namespace ctxconf::conformance
