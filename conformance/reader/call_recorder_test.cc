#include "conformance/reader/call_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <string>

#include "sys/fd.h"

namespace ctxconf::conformance::reader {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr pid_t kTarget = 4711;
constexpr std::uint64_t kHeader = 0x10000;

std::uint64_t word(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Calls of this thread, which plays the reader.
class CallRecorderTest : public testing::Test {
 protected:
  void begin(std::vector<ArmedHold> holds = {}) {
    recorder_.begin({.process = kTarget,
                     .thread = 0,
                     .counter = {},
                     .holds = std::move(holds),
                     .looked_at = {.at = kHeader, .size = 32}});
  }
  bool enter(long nr, std::array<std::uint64_t, 6> args) {
    return recorder_.entered(
        {.tid = gettid(), .process = getpid(), .nr = nr, .args = args, .short_time = false});
  }
  void leave(std::int64_t result) {
    recorder_.left({.tid = gettid(), .process = getpid(), .result = result});
  }
  void copy(std::uint64_t at, std::uint64_t size, std::int64_t result) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
    const iovec remote{reinterpret_cast<void*>(at), size};
    EXPECT_TRUE(enter(SYS_process_vm_readv, {kTarget, 0, 0, word(&remote), 1, 0}));
    leave(result);
  }
  ReaderQuestion end() {
    ReaderQuestion out;
    recorder_.end(out);
    return out;
  }

  ReaderCallRecorder recorder_;
};

TEST_F(CallRecorderTest, ACopyHasTheTargetAndTheRanges) {
  begin();
  copy(kHeader, 32, 32);
  const auto q = end();
  ASSERT_EQ(q.calls.size(), 1U);
  EXPECT_EQ(q.calls.front().name, "process_vm_readv");
  EXPECT_EQ(q.calls.front().target, kTarget);
  EXPECT_THAT(q.calls.front().ranges, ElementsAre(MemoryRange{.at = kHeader, .size = 32}));
  EXPECT_EQ(q.calls.front().result, 32);
}

TEST_F(CallRecorderTest, NothingIsRecordedBetweenQuestions) {
  EXPECT_FALSE(enter(SYS_kill, {kTarget, SIGSTOP, 0, 0, 0, 0}));
  begin();
  EXPECT_THAT(end().calls, IsEmpty());
  EXPECT_FALSE(enter(SYS_kill, {kTarget, SIGSTOP, 0, 0, 0, 0}));
}

TEST_F(CallRecorderTest, ReadsOfAMemoryFileHaveItsPosition) {
  const sys::Fd file(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  ASSERT_GE(file.get(), 0);
  ASSERT_EQ(lseek(file.get(), 0x2000, SEEK_SET), 0x2000);
  begin();
  const auto fd = static_cast<std::uint64_t>(file.get());
  EXPECT_TRUE(enter(SYS_read, {fd, 0, 8, 0, 0, 0}));
  leave(8);
  EXPECT_TRUE(enter(SYS_pread64, {fd, 0, 16, 0x3000, 0, 0}));
  leave(-EIO);
  const auto q = end();
  ASSERT_EQ(q.calls.size(), 2U);
  EXPECT_EQ(q.calls[0].target, getpid());
  EXPECT_THAT(q.calls[0].ranges, ElementsAre(MemoryRange{.at = 0x2000, .size = 8}));
  EXPECT_THAT(q.calls[1].ranges, ElementsAre(MemoryRange{.at = 0x3000, .size = 16}));
  EXPECT_EQ(q.calls[1].result, -EIO);
}

TEST_F(CallRecorderTest, OtherFilesAndItsOwnThreadsDoNotConcernIt) {
  const sys::Fd file(open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  begin();
  EXPECT_FALSE(enter(SYS_read, {static_cast<std::uint64_t>(file.get()), 0, 8, 0, 0, 0}));
  EXPECT_FALSE(enter(SYS_getpid, {}));
  const auto own = static_cast<std::uint64_t>(getpid());
  EXPECT_FALSE(enter(SYS_tgkill, {own, own, SIGURG, 0, 0, 0}));
  EXPECT_THAT(end().calls, IsEmpty());
}

TEST_F(CallRecorderTest, OpenedFilesSignalsAndRequestsHaveNames) {
  begin();
  const std::string path = "/proc/4711/maps";
  EXPECT_TRUE(
      enter(SYS_openat, {static_cast<std::uint64_t>(AT_FDCWD), word(path.c_str()), 0, 0, 0, 0}));
  EXPECT_TRUE(enter(SYS_kill, {kTarget, SIGSTOP, 0, 0, 0, 0}));
  EXPECT_TRUE(enter(SYS_ptrace, {PTRACE_PEEKDATA, kTarget, kHeader, 0, 0, 0}));
  const auto q = end();
  ASSERT_EQ(q.calls.size(), 3U);
  EXPECT_EQ(q.calls[0].detail, path);
  EXPECT_EQ(q.calls[0].target, kTarget);
  EXPECT_EQ(q.calls[1].detail, "SIGSTOP");
  EXPECT_EQ(q.calls[2].detail, "PTRACE_PEEKDATA");
  EXPECT_THAT(q.calls[2].ranges, ElementsAre(MemoryRange{.at = kHeader, .size = sizeof(long)}));
  EXPECT_EQ(q.calls[2].result, std::nullopt) << "it has not returned";
}

TEST_F(CallRecorderTest, HoldsComeOnceBeforeOrAfterACopyOfTheirPart) {
  std::string played;
  const MemoryRange part{.at = kHeader, .size = 32};
  begin(
      {{.name = "before", .before = true, .part = part, .nth = 2, .play = [&] { played += 'b'; }},
       {.name = "after", .before = false, .part = part, .nth = 1, .play = [&] { played += 'a'; }},
       {.name = "never", .before = false, .part = {.at = 0x90000, .size = 8}, .nth = 1, .play = [] {
        }}});
  copy(kHeader + 64, 8, 8);
  EXPECT_EQ(played, "");
  copy(kHeader, 32, -EFAULT);
  EXPECT_EQ(played, "") << "nothing was copied";
  copy(kHeader, 32, 32);
  EXPECT_EQ(played, "ba");
  copy(kHeader, 32, 32);
  EXPECT_EQ(played, "ba");
  const auto q = end();
  EXPECT_EQ(q.calls[2].held, "after") << "the later one";
  EXPECT_THAT(q.missed, ElementsAre("never"));
}

TEST_F(CallRecorderTest, CallsBeyondTheLimitAreCounted) {
  begin();
  for (std::size_t i = 0; i < kMaxReaderCalls; ++i) copy(kHeader, 32, 32);
  EXPECT_FALSE(enter(SYS_kill, {kTarget, SIGSTOP, 0, 0, 0, 0}));
  const auto q = end();
  EXPECT_EQ(q.calls.size(), kMaxReaderCalls);
  EXPECT_EQ(q.calls_dropped, 1U);
}

TEST_F(CallRecorderTest, ALookReadsTheHeaderTwice) {
  EXPECT_EQ(recorder_.has_looked(), std::nullopt);
  begin();
  EXPECT_EQ(recorder_.has_looked(), std::nullopt) << "its calls may not be seen";
  EXPECT_TRUE(enter(SYS_kill, {kTarget + 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(recorder_.has_looked(), false) << "about another process";
  copy(kHeader, 32, 32);  // of a look that had begun
  for (int look = 0; look < 2; ++look) {
    EXPECT_EQ(recorder_.has_looked(), false);
    copy(kHeader, 32, 32);
    copy(kHeader + 4096, 100, 100);
    copy(kHeader + 16, 8, 8);
  }
  copy(kHeader, 32, 32);
  EXPECT_EQ(recorder_.has_looked(), true);
  end();
  begin();
  EXPECT_EQ(recorder_.has_looked(), false);
}

TEST_F(CallRecorderTest, ALookThatDoesNotFindTheHeaderRepeatsItsFirstCall) {
  begin();
  const std::string path = "/proc/4711/maps";
  const auto look = [&] {
    EXPECT_TRUE(
        enter(SYS_openat, {static_cast<std::uint64_t>(AT_FDCWD), word(path.c_str()), 0, 0, 0, 0}));
  };
  look();
  EXPECT_EQ(recorder_.has_looked(), false);
  for (int i = 0; i < 20; ++i) look();
  EXPECT_EQ(recorder_.has_looked(), true);
}

}  // namespace
}  // namespace ctxconf::conformance::reader
