#include "writer_ref/publisher.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "writer_ref/scripted_kernel.h"

namespace ctxconf::writer {
namespace {

using ::testing::ElementsAre;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

State* wiped_by_handler = nullptr;
void forked() {
  wiped_by_handler->owner = 0;
  wipe(*wiped_by_handler);
}

class PublisherTest : public testing::Test {
 protected:
  PublisherTest() { wiped_by_handler = &state; }
  ~PublisherTest() override {
    kernel.mend();
    kernel.watch({});
    EXPECT_EQ(publisher.drop().status, OTEL_CTX_OK);
    EXPECT_EQ(kernel.mapped(), 0U);
    EXPECT_EQ(kernel.open(), 0U);
  }
  int publish(std::string_view text) { return publisher.publish(bytes(text)).status; }
  int update(std::string_view text) { return publisher.update(bytes(text)).status; }
  std::optional<std::string> visible() { return kernel.visible(); }

  ScriptedKernel kernel;
  State state{};
  Publisher<ScriptedKernel> publisher{kernel, state, true, forked};
};

TEST_F(PublisherTest, TakesTheStepsInTheOrderOfTheDocument) {
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_THAT(kernel.log(),
              ElementsAre("wipe_on_fork", "memfd_create 11", "resize", "map memfd", "close",
                          "dont_fork", "map anonymous", "dont_fork", "boot_time", "name"));
  EXPECT_EQ(visible(), "one");
  EXPECT_EQ(kernel.timestamp(), 1000U);
}

TEST_F(PublisherTest, UpdatesInPlaceWithTheClockAndOneName) {
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  const auto before = publisher.info();
  ASSERT_EQ(update("two"), OTEL_CTX_OK);
  kernel.forget_log();
  ASSERT_EQ(update("three"), OTEL_CTX_OK);
  EXPECT_THAT(kernel.log(), ElementsAre("boot_time", "name"));
  EXPECT_EQ(visible(), "three");
  const auto after = publisher.info();
  EXPECT_EQ(after.header, before.header);
  EXPECT_EQ(after.updates, 2U);
  EXPECT_EQ(after.last_timestamp, 3000U);
}

TEST_F(PublisherTest, TreatsASecondPublishAsAnUpdate) {
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  const auto before = publisher.info();
  kernel.forget_log();
  ASSERT_EQ(publish("two"), OTEL_CTX_OK);
  EXPECT_THAT(kernel.log(), ElementsAre("map anonymous", "dont_fork", "boot_time", "name"));
  EXPECT_EQ(publisher.info().header, before.header);
  EXPECT_EQ(visible(), "two");
}

TEST_F(PublisherTest, RefusesAPayloadThatTheHeaderCannotAnnounce) {
  EXPECT_EQ(publish(""), OTEL_CTX_BAD_PAYLOAD);
  const std::span<const std::byte> nowhere(static_cast<const std::byte*>(nullptr), 5);
  EXPECT_EQ(publisher.publish(nowhere).status, OTEL_CTX_BAD_PAYLOAD);
  const std::byte one{};
  const std::span<const std::byte> huge(&one, std::size_t{UINT32_MAX} + 1);
  const auto error = publisher.publish(huge);
  EXPECT_EQ(error.status, OTEL_CTX_BAD_PAYLOAD);
  EXPECT_EQ(error.sys_errno, EMSGSIZE);
  EXPECT_TRUE(kernel.log().empty());

  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_EQ(update(""), OTEL_CTX_BAD_PAYLOAD);
  EXPECT_EQ(visible(), "one");
}

TEST_F(PublisherTest, HasNothingToUpdateBeforePublishAndAfterDrop) {
  EXPECT_EQ(update("one"), OTEL_CTX_NOT_PUBLISHED);
  EXPECT_EQ(publisher.drop().status, OTEL_CTX_OK);
  EXPECT_TRUE(kernel.log().empty());
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  EXPECT_EQ(update("two"), OTEL_CTX_NOT_PUBLISHED);
  EXPECT_EQ(kernel.mapped(), 0U);
  EXPECT_EQ(publisher.info().published, 0);
  EXPECT_EQ(publisher.info().last_timestamp, 1000U);
}

// EPERM and EACCES come from seccomp filters and security modules; EMFILE and similar errors come
// from exhausted limits.
TEST_F(PublisherTest, TriesAgainWithoutTheSealAndThenAnonymousMemory) {
  for (const int err : {EINVAL, EPERM, EACCES, ENOSYS, EMFILE, ENFILE, ENOMEM}) {
    SCOPED_TRACE(err);
    kernel.mend();
    kernel.forget_log();
    kernel.fail("memfd_create", 0, err);
    ASSERT_EQ(publish("one"), OTEL_CTX_OK);
    EXPECT_EQ(std::ranges::count(kernel.log(), "memfd_create 3"), 1);
    EXPECT_EQ(publisher.info().memfd, 1);
    EXPECT_STREQ(publisher.info().name_in_maps, "[anon_shmem:OTEL_CTX]");
    ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);

    kernel.fail_always("memfd_create", err);
    ASSERT_EQ(publish("two"), OTEL_CTX_OK);
    EXPECT_EQ(publisher.info().memfd, 0);
    EXPECT_STREQ(publisher.info().name_in_maps, "[anon:OTEL_CTX]");
    EXPECT_EQ(visible(), "two");
    ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  }
}

TEST_F(PublisherTest, UsesAnonymousMemoryWhenTheMemfdCannotHoldTheHeader) {
  for (const char* call : {"resize", "map memfd"}) {
    SCOPED_TRACE(call);
    kernel.mend();
    kernel.fail_always(call, ENOSPC);
    ASSERT_EQ(publish("one"), OTEL_CTX_OK);
    EXPECT_EQ(kernel.open(), 0U);
    EXPECT_EQ(publisher.info().memfd, 0);
    ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  }
}

TEST_F(PublisherTest, FailsWhenNoReaderCouldFindIt) {
  for (const int err : {EINVAL, EBADF, EPERM}) {
    kernel.fail_always("memfd_create", EPERM);
    kernel.fail_always("name", err);
    const auto error = publisher.publish(bytes("one"));
    EXPECT_EQ(error.status, OTEL_CTX_NO_NAME);
    EXPECT_EQ(error.sys_errno, err);
    EXPECT_EQ(kernel.mapped(), 0U);
    EXPECT_EQ(kernel.open(), 0U);
    EXPECT_EQ(publisher.info().published, 0);
  }
}

TEST_F(PublisherTest, DoesWithoutANameForAMemfdAndStillAsksForIt) {
  kernel.fail_always("name", EINVAL);
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_STREQ(publisher.info().name_in_maps, "/memfd:OTEL_CTX");
  EXPECT_EQ(publisher.info().naming_errno, EINVAL);
  for (int i = 0; i < 3; ++i) {
    kernel.forget_log();
    ASSERT_EQ(update("two"), OTEL_CTX_OK);
    EXPECT_EQ(std::ranges::count(kernel.log(), "name"), 1);
  }
}

TEST_F(PublisherTest, KeepsAnAnonymousContextWhoseSecondNamingFails) {
  kernel.fail_always("memfd_create", EPERM);
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  kernel.fail_always("name", ENOMEM);
  EXPECT_EQ(update("two"), OTEL_CTX_OK);
  EXPECT_EQ(visible(), "two");
}

TEST_F(PublisherTest, LeavesNothingBehindWhicheverCallsFail) {
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  const int calls = static_cast<int>(kernel.log().size());
  ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  int failures = 0;
  for (int first = 0; first < calls; ++first) {
    for (int second = first; second < calls + 2; ++second) {
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
      state.owner = 0;
      wipe(state);  // so that it tries the guard again
      kernel.mend();
      kernel.fail("", first, EPERM);
      kernel.fail("", second, EPERM);
      kernel.forget_log();
      const auto error = publisher.publish(bytes("one"));
      if (error.status == OTEL_CTX_OK) {
        EXPECT_EQ(visible(), "one");
      } else {
        ++failures;
        EXPECT_EQ(error.sys_errno, EPERM);
        EXPECT_STRNE(error.step, "");
        EXPECT_FALSE(visible());
        EXPECT_EQ(kernel.open(), 0U);
        const bool could_not_unmap =
            !kernel.log().empty() && kernel.log().back() == "unmap" && kernel.mapped() != 0;
        EXPECT_TRUE(could_not_unmap || kernel.mapped() == 0);
      }
      kernel.mend();
      ASSERT_EQ(publish("again"), OTEL_CTX_OK);
      EXPECT_EQ(visible(), "again");
      ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
      ASSERT_EQ(kernel.mapped(), 0U);
    }
  }
  EXPECT_GT(failures, calls);
}

TEST_F(PublisherTest, NamesTheStepThatFailed) {
  const struct {
    const char* call;
    int nth;
    const char* step;
  } cases[] = {{"close", 0, "close of the memfd"},
               {"dont_fork", 0, "madvise of the header"},
               {"map anonymous", 0, "mmap of the payload"},
               {"dont_fork", 1, "madvise of the payload"},
               {"boot_time", 0, "clock_gettime"}};
  for (const auto& step : cases) {
    SCOPED_TRACE(step.step);
    kernel.mend();
    kernel.fail(step.call, step.nth, EIO);
    const auto error = publisher.publish(bytes("one"));
    EXPECT_EQ(error.status, OTEL_CTX_SYSTEM);
    EXPECT_EQ(error.sys_errno, EIO);
    EXPECT_STREQ(error.step, step.step);
    EXPECT_EQ(kernel.mapped(), 0U);
  }
  kernel.mend();
  kernel.fail_always("map", ENOMEM);
  EXPECT_STREQ(publisher.publish(bytes("one")).step, "mmap of the header");
}

TEST_F(PublisherTest, AnInterruptedCloseHasClosed) {
  kernel.fail("close", 0, EINTR);
  EXPECT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_EQ(publisher.info().memfd, 1);
}

TEST_F(PublisherTest, AFailedUpdateLeavesTheOldContext) {
  const std::string large(3 * ScriptedKernel::kPage, 'x');
  for (const char* call : {"map anonymous", "dont_fork", "unmap"}) {
    SCOPED_TRACE(call);
    ASSERT_EQ(publish("one"), OTEL_CTX_OK);
    ASSERT_EQ(update("two"), OTEL_CTX_OK);
    const auto before = kernel.timestamp();
    kernel.fail(call, 0, ENOMEM);
    EXPECT_EQ(update(large), OTEL_CTX_SYSTEM);
    EXPECT_EQ(visible(), "two");
    EXPECT_EQ(kernel.timestamp(), before);
    kernel.mend();
    EXPECT_EQ(update(large), OTEL_CTX_OK);
    EXPECT_EQ(visible(), large);
    ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
    EXPECT_EQ(kernel.mapped(), 0U);
  }
}

TEST_F(PublisherTest, AReaderSeesOldOrNewDuringEveryCallOfAnUpdate) {
  ASSERT_EQ(publish("old"), OTEL_CTX_OK);
  std::string before = "old";
  std::string after;
  int looked = 0;
  kernel.watch([&](std::string_view call) {
    ++looked;
    const auto now = kernel.visible();
    ASSERT_TRUE(now) << "no context during " << call;
    const bool announced = call == "name" || (call == "unmap" && kernel.timestamp() != 1000);
    EXPECT_TRUE(*now == before || (announced && *now == after)) << call;
  });
  for (const std::size_t size : {1UL, 10UL, 5000UL, 200'000UL, 100UL, 70'000UL, 1UL, 2UL}) {
    after = std::string(size, static_cast<char>('a' + size % 26));
    ASSERT_EQ(update(after), OTEL_CTX_OK);
    EXPECT_EQ(visible(), after);
    before = after;
  }
  EXPECT_GT(looked, 16);
  EXPECT_LE(kernel.mapped(), 3U);
}

TEST_F(PublisherTest, GivesALargeBufferBackOnceItIsReplaced) {
  ASSERT_EQ(publish(std::string(10 * kKeptCapacity, 'x')), OTEL_CTX_OK);
  ASSERT_EQ(update("small"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.mapped(), 2U);
  EXPECT_EQ(visible(), "small");
}

TEST_F(PublisherTest, TimestampsRiseWhateverTheClockSays) {
  kernel.set_clock({500, 500, 400, 0, 502, UINT64_MAX - 1});
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), 500U);
  for (const std::uint64_t expected : {501U, 502U, 503U, 504U}) {
    ASSERT_EQ(update("two"), OTEL_CTX_OK);
    EXPECT_EQ(kernel.timestamp(), expected);
  }
  kernel.fail("boot_time", 0, EINVAL);
  ASSERT_EQ(update("three"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), 505U);

  ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  kernel.fail("boot_time", 0, EINVAL);
  ASSERT_EQ(publish("four"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), 506U);

  ASSERT_EQ(update("five"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), UINT64_MAX - 1);
  ASSERT_EQ(update("six"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), UINT64_MAX);
  const auto error = publisher.update(bytes("seven"));
  EXPECT_EQ(error.status, OTEL_CTX_SYSTEM);
  EXPECT_EQ(error.sys_errno, EOVERFLOW);
  EXPECT_EQ(visible(), "six");
}

TEST_F(PublisherTest, NeverStoresTheZeroOfAClock) {
  kernel.set_clock({0});
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  EXPECT_EQ(kernel.timestamp(), 1U);
}

TEST_F(PublisherTest, DropHidesTheHeaderBeforeThePayloadGoes) {
  ASSERT_EQ(publish("one"), OTEL_CTX_OK);
  ASSERT_EQ(update("two"), OTEL_CTX_OK);
  kernel.watch([&](std::string_view) { EXPECT_FALSE(kernel.visible()); });
  ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
  EXPECT_EQ(kernel.mapped(), 0U);
}

TEST_F(PublisherTest, ADropThatFailsIsFinishedLater) {
  for (const int nth : {0, 1, 2}) {
    SCOPED_TRACE(nth);
    ASSERT_EQ(publish("one"), OTEL_CTX_OK);
    ASSERT_EQ(update("two"), OTEL_CTX_OK);
    kernel.fail("unmap", nth, ENOMEM);
    EXPECT_EQ(publisher.drop().status, OTEL_CTX_SYSTEM);
    EXPECT_FALSE(visible());
    EXPECT_EQ(publisher.info().published, 0);
    EXPECT_EQ(update("three"), OTEL_CTX_NOT_PUBLISHED);
    EXPECT_GT(kernel.mapped(), 0U);
    if (nth == 1) {
      EXPECT_EQ(publish("three"), OTEL_CTX_OK);
      EXPECT_EQ(visible(), "three");
    }
    ASSERT_EQ(publisher.drop().status, OTEL_CTX_OK);
    EXPECT_EQ(kernel.mapped(), 0U);
  }
}

TEST_F(PublisherTest, AChildWithAClearedPageIsNewAndTouchesNothing) {
  ASSERT_EQ(publish("parent"), OTEL_CTX_OK);
  pthread_mutex_lock(&state.lock);  // a thread of the parent is inside
  kernel.become_child();
  std::memset(static_cast<void*>(&state), 0, sizeof state);
  EXPECT_EQ(kernel.mapped(), 0U) << "inherited";
  EXPECT_EQ(update("child"), OTEL_CTX_NOT_PUBLISHED);
  ASSERT_EQ(publish("child"), OTEL_CTX_OK);
  EXPECT_EQ(visible(), "child");
}

class OldKernelTest : public PublisherTest {
 protected:
  OldKernelTest() { kernel.fail_always("wipe_on_fork", EINVAL); }
};

TEST_F(OldKernelTest, AsksLibcToTellAboutForks) {
  ASSERT_EQ(publish("parent"), OTEL_CTX_OK);
  ASSERT_NE(kernel.fork_handler(), nullptr);
  pthread_mutex_lock(&state.lock);
  kernel.become_child();
  kernel.fork_handler()();  // with the same pid, as in another namespace
  EXPECT_EQ(update("child"), OTEL_CTX_NOT_PUBLISHED);
  ASSERT_EQ(publish("child"), OTEL_CTX_OK);
  EXPECT_EQ(visible(), "child");
}

TEST_F(OldKernelTest, NoticesAnotherProcessNumberWhereLibcWasNotAsked) {
  ASSERT_EQ(publish("parent"), OTEL_CTX_OK);
  pthread_mutex_lock(&state.lock);
  kernel.become_child();
  kernel.set_process_id(101);
  EXPECT_EQ(publisher.info().published, 0);
  EXPECT_EQ(update("child"), OTEL_CTX_NOT_PUBLISHED);
  ASSERT_EQ(publish("child"), OTEL_CTX_OK);
  EXPECT_EQ(visible(), "child");
  // A claim that its own fork interrupted belongs to another process.
  kernel.become_child();
  kernel.set_process_id(102);
  state.owner = -101;
  ASSERT_EQ(publish("grandchild"), OTEL_CTX_OK);
  EXPECT_EQ(visible(), "grandchild");
}

TEST_F(OldKernelTest, DoesNotPublishWhatAForkCouldBreak) {
  kernel.fail("at_fork", 0, ENOMEM);
  const auto error = publisher.publish(bytes("one"));
  EXPECT_EQ(error.status, OTEL_CTX_SYSTEM);
  EXPECT_STREQ(error.step, "pthread_atfork");
  EXPECT_EQ(kernel.mapped(), 0U);
  EXPECT_EQ(publish("one"), OTEL_CTX_OK);
}

TEST(State, ZeroBytesAreAnUnlockedMutex) {
  const State zero{};
  pthread_mutex_t fresh;
  std::memset(&fresh, 0xff, sizeof fresh);
  ASSERT_EQ(pthread_mutex_init(&fresh, nullptr), 0);
  EXPECT_EQ(std::memcmp(&zero.lock, &fresh, sizeof fresh), 0);
}

}  // namespace
}  // namespace ctxconf::writer
