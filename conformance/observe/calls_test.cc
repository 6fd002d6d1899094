#include "conformance/observe/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>

#include "sys/seccomp_filter.h"

namespace ctxconf::conformance {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The calls that it gets are this process's own and did not happen.
class CallRecorderTest : public testing::Test {
 protected:
  static std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
  static sys::SyscallEntry entry(long nr, std::array<std::uint64_t, 6> args) {
    return {getpid(), getpid(), nr, args};
  }
  static sys::SyscallEntry naming(std::uint64_t at, const char* name) {
    return entry(SYS_prctl, {sys::kPrSetVma, 0, at, 64, address_of(name), 0});
  }
  static sys::SyscallEntry marking(std::uint64_t at) {
    return entry(SYS_madvise, {at, 64, MADV_DONTFORK, 0, 0, 0});
  }

  bool is_recorded(const sys::SyscallEntry& e, std::int64_t result = 0) {
    auto call = calls_.describe(e);
    if (!call) return false;
    calls_.entered(*std::move(call));
    EXPECT_THAT(calls_.left({e.tid, e.process, result}), Not(IsEmpty()));
    return true;
  }
  Image image() {
    Image out;
    calls_.add_to(out, true);
    return out;
  }

  CallRecorder calls_{std::nullopt, std::make_shared<EventOrder>(),
                      CallLimits{.calls = 10, .marks = 3, .bytes = 100'000}};
  std::array<std::byte, 64> memory_{};
};

TEST_F(CallRecorderTest, KeepsAnonymousMemoryOfAThreadThatPublishes) {
  const auto anonymous = entry(SYS_mmap, {0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX});
  const auto memfd = [](const char* name) {
    return entry(SYS_memfd_create, {address_of(name), 0, 0, 0, 0, 0});
  };
  EXPECT_FALSE(is_recorded(anonymous));
  EXPECT_TRUE(is_recorded(memfd("wayland"), 3));
  EXPECT_FALSE(is_recorded(anonymous));
  EXPECT_TRUE(is_recorded(memfd("OTEL_CTX"), -1));
  EXPECT_TRUE(is_recorded(anonymous));
  EXPECT_FALSE(is_recorded(
      entry(SYS_mmap, {0, kLargestAnonymous + 1, 3, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX})));
  EXPECT_FALSE(is_recorded(entry(SYS_mmap, {0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, UINT64_MAX})));
  EXPECT_TRUE(is_recorded(naming(address_of(memory_.data()), "OTEL_CTX")));
  EXPECT_FALSE(is_recorded(anonymous));
  calls_.begins_to_publish(getpid() + 1);
  EXPECT_FALSE(is_recorded(anonymous));
  calls_.begins_to_publish(getpid());
  EXPECT_TRUE(is_recorded(anonymous));
}

TEST_F(CallRecorderTest, KeepsTheReadingsNextToACallOfTheirThread) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const timespec now{3, static_cast<long>(i)};
    EXPECT_TRUE(is_recorded(entry(SYS_clock_gettime, {7, address_of(&now), 0, 0, 0, 0})));
    EXPECT_EQ(calls_.last_reading(getpid()), 3'000'000'000 + i);
  }
  EXPECT_TRUE(is_recorded(naming(address_of(memory_.data()), "OTEL_CTX")));
  EXPECT_EQ(calls_.last_reading(getpid()), std::nullopt);
  const Image i = image();
  ASSERT_THAT(i.calls, SizeIs(5));
  EXPECT_EQ(i.calls[3].name, "clock_gettime");
  EXPECT_EQ(i.calls[3].clock_ns, 3'000'000'999U);
  EXPECT_EQ(i.calls[4].name, "prctl");
  EXPECT_EQ(i.calls_dropped, 0U);
  EXPECT_TRUE(std::ranges::is_sorted(i.calls, {}, &SystemCall::left_order));
}

TEST_F(CallRecorderTest, ReadsTheTimeOf32BitCallers) {
  const std::array<std::int32_t, 2> now = {5, 6};
  auto e = entry(SYS_clock_gettime, {7, address_of(now.data()), 0, 0, 0, 0});
  auto call = calls_.describe(e);
  ASSERT_TRUE(call);
  calls_.entered(*std::move(call), true);
  calls_.left({e.tid, e.process, 0});
  EXPECT_EQ(calls_.last_reading(e.tid), 5'000'000'006U);
}

TEST_F(CallRecorderTest, ATimeThatCannotBeIsNone) {
  const timespec wrong{-1, 2'000'000'000};
  EXPECT_TRUE(is_recorded(entry(SYS_clock_gettime, {7, address_of(&wrong), 0, 0, 0, 0})));
  EXPECT_EQ(calls_.last_reading(getpid()), std::nullopt);
  EXPECT_TRUE(is_recorded(entry(SYS_clock_gettime, {7, 0x10, 0, 0, 0, 0})));
  EXPECT_EQ(calls_.last_reading(getpid()), std::nullopt);
}

TEST_F(CallRecorderTest, KeepsNamesThatLookLikeTheOneAndNamesOfKnownMemory) {
  const auto at = address_of(memory_.data());
  EXPECT_TRUE(is_recorded(naming(at, "OTEL_CTX")));
  EXPECT_TRUE(is_recorded(naming(at, "otel-ctx")));
  EXPECT_FALSE(is_recorded(naming(at, "glibc: malloc")));
  EXPECT_FALSE(is_recorded(naming(at, "")));
  EXPECT_FALSE(is_recorded(entry(SYS_prctl, {sys::kPrSetVma, 1, at, 64, address_of("OTEL_CTX")})));
  EXPECT_TRUE(is_recorded(marking(at)));
  EXPECT_TRUE(is_recorded(naming(at + 8, "glibc: malloc")));
  EXPECT_FALSE(is_recorded(naming(at + 64, "glibc: malloc")));
  const auto out = image();
  ASSERT_THAT(out.calls, SizeIs(4));
  EXPECT_EQ(out.calls[1].text, "otel-ctx");
  EXPECT_THAT(out.calls[1].before, SizeIs(32));
}

TEST_F(CallRecorderTest, FollowsMemoryThatMoves) {
  EXPECT_FALSE(is_recorded(entry(SYS_mremap, {0x10000, 64, 64, 0, 0, 0}), 0x20000));
  EXPECT_TRUE(is_recorded(marking(0x10000)));
  EXPECT_TRUE(is_recorded(entry(SYS_mremap, {0x10000, 64, 64, 0, 0, 0}), 0x20000));
  EXPECT_FALSE(is_recorded(entry(SYS_mremap, {0x10000, 64, 64, 0, 0, 0}), 0x30000));
  EXPECT_TRUE(is_recorded(entry(SYS_mremap, {0x20000, 64, 64, 0, 0, 0}), -ENOMEM));
  EXPECT_FALSE(is_recorded(entry(SYS_mremap, {static_cast<std::uint64_t>(-ENOMEM), 64, 64})));
  // A 32-bit process has its address sign-extended.
  EXPECT_TRUE(is_recorded(entry(SYS_mremap, {0x20000, 64, 64}), std::int32_t{-0x10000000}));
  EXPECT_TRUE(is_recorded(entry(SYS_mremap, {0xf0000000, 64, 64})));
}

TEST_F(CallRecorderTest, ListsWhatHappensToAMappingThatMayBeAContexts) {
  constexpr std::uint64_t kAt = 0x10000;
  constexpr std::uint64_t kBig = 0x900000;
  EXPECT_FALSE(is_recorded(entry(SYS_munmap, {kAt, 4096})));
  EXPECT_TRUE(is_recorded(marking(kAt)));
  EXPECT_TRUE(is_recorded(entry(SYS_madvise, {kBig, 1U << 20U, MADV_DONTFORK})));
  EXPECT_TRUE(is_recorded(entry(SYS_mprotect, {kAt, 4096, PROT_READ})));
  EXPECT_FALSE(is_recorded(entry(SYS_mprotect, {kAt + 4096, 4096, PROT_READ})));
  EXPECT_FALSE(is_recorded(entry(SYS_munmap, {kBig, 4096})));
  EXPECT_TRUE(is_recorded(entry(SYS_munmap, {kAt - 4096, 8192}), -EINVAL));
  EXPECT_TRUE(is_recorded(entry(SYS_munmap, {kAt, 4096})));
  EXPECT_FALSE(is_recorded(entry(SYS_munmap, {kAt, 4096})));
  const auto out = image();
  ASSERT_THAT(out.calls, SizeIs(5));
  EXPECT_EQ(out.calls[2].name, "mprotect");
  EXPECT_EQ(out.calls[3].result, -EINVAL);
  EXPECT_EQ(out.calls[4].name, "munmap");
  EXPECT_THAT(out.notes, IsEmpty());
}

TEST_F(CallRecorderTest, ListsNewProcessesOnceThereWasAMapping) {
  calls_.made_process(7, "fork", 8);
  EXPECT_TRUE(is_recorded(marking(0x10000)));
  EXPECT_TRUE(is_recorded(entry(SYS_munmap, {0x10000, 4096})));
  calls_.made_process(7, "vfork", 9);
  const auto out = image();
  ASSERT_THAT(out.calls, SizeIs(3));
  EXPECT_EQ(out.calls[2].name, "vfork");
  EXPECT_EQ(out.calls[2].tid, 7);
  EXPECT_EQ(out.calls[2].result, 9);
}

TEST_F(CallRecorderTest, NewProcessesTakeNoPlaceOfAPublicationsCalls) {
  EXPECT_TRUE(is_recorded(marking(0x10000)));
  for (int i = 0; i < 20; ++i) calls_.made_process(7, "fork", 100 + i);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(is_recorded(naming(0x10000, "OTEL_CTX")));
  const auto out = image();
  EXPECT_THAT(out.calls, SizeIs(10));
  EXPECT_EQ(out.calls_dropped, 0U);
  ASSERT_THAT(out.notes, SizeIs(1));
  EXPECT_THAT(out.notes[0], HasSubstr("16 more calls"));
}

TEST_F(CallRecorderTest, NotesWhoWantsToTrace) {
  EXPECT_TRUE(is_recorded(entry(SYS_ptrace, {PTRACE_TRACEME}), -EPERM));
  EXPECT_TRUE(is_recorded(entry(SYS_ptrace, {PTRACE_TRACEME}), -EPERM));
  EXPECT_TRUE(is_recorded(entry(SYS_ptrace, {PTRACE_SEIZE, 1}), 0));
  const auto out = image();
  EXPECT_THAT(out.calls, IsEmpty());
  ASSERT_THAT(out.notes, SizeIs(1));
  EXPECT_THAT(out.notes[0], HasSubstr("ptrace(PTRACE_TRACEME) failed (Operation not permitted)"));
}

TEST_F(CallRecorderTest, NotesWhoIsNotDumpable) {
  EXPECT_FALSE(is_recorded(entry(SYS_prctl, {PR_SET_DUMPABLE, 1})));
  EXPECT_FALSE(is_recorded(entry(SYS_prctl, {PR_SET_DUMPABLE, 0})));
  const auto out = image();
  ASSERT_THAT(out.notes, SizeIs(1));
  EXPECT_THAT(out.notes[0], HasSubstr("not dumpable"));
}

TEST_F(CallRecorderTest, KnowsAMemfdByItsDescriptor) {
  const int memfd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  ASSERT_GE(memfd, 0);
  const auto fd = static_cast<std::uint64_t>(memfd);
  EXPECT_TRUE(is_recorded(entry(SYS_ftruncate, {fd, 64})));
  EXPECT_TRUE(is_recorded(entry(SYS_mmap, {0, 64, PROT_WRITE, MAP_PRIVATE, fd, 0}), 0x10000));
  EXPECT_TRUE(is_recorded(entry(SYS_mremap, {0x10000, 64, 64}), 0x20000));
  close(memfd);
  EXPECT_FALSE(is_recorded(entry(SYS_ftruncate, {fd, 64}), -EBADF));
  EXPECT_FALSE(is_recorded(entry(SYS_ftruncate, {UINT64_MAX, 64}), -EBADF));
  EXPECT_EQ(image().calls.at(1).file, "/memfd:OTEL_CTX (deleted)");
}

TEST_F(CallRecorderTest, ReadsOnlySoMuchOfAName) {
  const std::string longest(10'000, 'x');
  EXPECT_TRUE(is_recorded(entry(SYS_memfd_create, {address_of(longest.c_str())}), -EINVAL));
  EXPECT_TRUE(is_recorded(entry(SYS_memfd_create, {8}), -EFAULT));
  const auto out = image();
  EXPECT_THAT(out.calls.at(0).text, SizeIs(256));
  EXPECT_THAT(out.calls.at(1).text, IsEmpty());
  EXPECT_THAT(out.calls_unseen, IsEmpty());
}

TEST_F(CallRecorderTest, CountsWhatItDoesNotKeep) {
  for (std::uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(is_recorded(marking(i << 20U)), i <= 3);
  EXPECT_TRUE(
      is_recorded(marking(std::uint64_t{1} << 20U)));  // known memory: the limit does not apply
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(is_recorded(naming(0, "OTEL_CTX")));
  const auto out = image();
  EXPECT_THAT(out.calls, SizeIs(10));
  EXPECT_EQ(out.calls_dropped, 6U);
}

TEST_F(CallRecorderTest, ACallThatDoesNotReturnIsListedWithoutAResult) {
  EXPECT_FALSE(calls_.describe(entry(SYS_execve, {})));
  ASSERT_TRUE(is_recorded(marking(4096)));
  auto exec = calls_.describe(entry(SYS_execve, {}));
  ASSERT_TRUE(exec);
  calls_.entered(*std::move(exec));
  EXPECT_EQ(calls_.left({getpid(), getpid(), -ENOENT}), "execve");
  auto named = calls_.describe(naming(4096, "OTEL_CTX"));
  ASSERT_TRUE(named);
  calls_.entered(*std::move(named));
  EXPECT_THAT(calls_.left({getpid() + 1, getpid(), 0}), IsEmpty());
  const auto out = image();
  ASSERT_THAT(out.calls, SizeIs(3));
  EXPECT_EQ(out.calls[1].result, -ENOENT);
  EXPECT_EQ(out.calls[2].name, "prctl");
  EXPECT_FALSE(out.calls[2].result);
}

TEST_F(CallRecorderTest, AStateThatGaveWayIsNotTheOneThatACallFound) {
  Image out;
  out.snapshots.resize(2);
  out.snapshots[1].first_seen_ns = UINT64_MAX;
  for (std::uint64_t state = 0; state < 3; ++state) {
    auto call = calls_.describe(naming(4096, "OTEL_CTX"));
    ASSERT_TRUE(call);
    call->snapshot = state;
    calls_.entered(*std::move(call));
    calls_.left({getpid(), getpid(), 0});
  }
  calls_.add_to(out, true);
  ASSERT_THAT(out.calls, SizeIs(3));
  EXPECT_EQ(out.calls[0].snapshot, 0U);
  EXPECT_FALSE(out.calls[1].snapshot);
  EXPECT_FALSE(out.calls[2].snapshot);
}

TEST_F(CallRecorderTest, CallsWithoutAContextOrANameSayNothing) {
  EXPECT_TRUE(is_recorded(marking(4096)));
  calls_.unseen("a reason");
  Image out;
  calls_.add_to(out, false);
  EXPECT_THAT(out.calls, IsEmpty());
  EXPECT_THAT(out.notes, IsEmpty());
  EXPECT_EQ(out.calls_unseen, "a reason");
}

TEST_F(CallRecorderTest, TheFirstReasonIsKept) {
  calls_.unseen("a reason");
  calls_.unseen("another");
  const auto out = image();
  EXPECT_EQ(out.calls_unseen, "a reason");
  ASSERT_THAT(out.notes, SizeIs(1));
  EXPECT_THAT(out.notes[0], HasSubstr("a reason"));
}

}  // namespace
}  // namespace ctxconf::conformance
