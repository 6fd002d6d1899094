#include "conformance/observe/stores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "conformance/observe/wrap.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

using testing::Each;
using testing::EndsWith;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Ne;
using testing::SizeIs;

constexpr int kSignature = 1;
constexpr int kNumbers = 2;  // version and size
constexpr int kTimestamp = 4;
constexpr int kPayload = 8;

abi::ProcessHeader header_of(const std::vector<std::byte>& bytes) {
  return abi::decode_process_header(bytes).value_or(abi::ProcessHeader{});
}

class StoresTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto& host = sys::Capabilities::of_this_host();
    if (!host.has(sys::kHostWatchpoints)) GTEST_SKIP() << "no watchpoints here";
  }
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    for (const auto& p : timeline_.processes) EXPECT_EQ(kill(p.pid, 0), -1) << p.pid;
  }
  void record(std::vector<std::string> arguments) {
    WrapOptions o;
    o.argv = std::move(arguments);
    o.argv.insert(o.argv.begin(), std::string(CTXCONF_BIN_DIR) + "/store_target");
    o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
    o.stores = true;
    o.watch_lifetime = lifetime_;
    o.timeout_scale = timeout_scale_;
    timeline_ = {};
    const auto r = record_wrap(o, timeline_);
    ASSERT_TRUE(r) << sys::to_string(r.error());
    ASSERT_FALSE(timeline_.processes.empty());
    EXPECT_EQ(timeline_.processes[0].exit_code, exit_code_);
    ASSERT_FALSE(timeline_.processes[0].images.empty());
    // What the recording guarantees in any case.
    for (const Process& p : timeline_.processes) {
      for (const Image& i : p.images) {
        EXPECT_THAT(i.stores_unseen, HasSubstr(unseen_));
        EXPECT_EQ(i.stores_unseen.empty(), unseen_.empty());
        check(i);
      }
    }
    const auto again = timeline_from_json(to_json(timeline_));
    EXPECT_TRUE(again) << again.error().detail;
  }
  static void check(const Image& image) {
    const Store* last = nullptr;
    std::uint64_t order = 0;
    for (const Store& s : image.stores) {
      EXPECT_GT(s.order, order);
      order = s.order;
      EXPECT_THAT(s.before, SizeIs(32));
      EXPECT_THAT(s.after, SizeIs(32));
      ASSERT_NE(watch_of(image, s), nullptr) << "a store outside a watch";
      if (last != nullptr && watch_of(image, *last) == watch_of(image, s)) {
        EXPECT_EQ(s.before, last->after);
      }
      last = &s;
      EXPECT_EQ(s.tid == 0, !s.location.has_value());
    }
  }
  static const Watch* watch_of(const Image& image, const Store& s) {
    for (const Watch& w : image.watches) {
      if (w.header == s.header && w.armed_order < s.order &&
          s.order < w.ended_order.value_or(UINT64_MAX)) {
        return &w;
      }
    }
    return nullptr;
  }
  const Image& image(std::size_t process = 0, std::size_t n = 0) const {
    return timeline_.processes.at(process).images.at(n);
  }
  std::vector<int> words(const Image& i) const {
    std::vector<int> out;
    out.reserve(i.stores.size());
    for (const Store& s : i.stores) out.push_back(s.words);
    return out;
  }
  const Store& zeroing(const Image& i) const {
    const auto it = std::ranges::find_if(i.stores, [](const Store& s) {
      return header_of(s.before).monotonic_published_at_ns != 0 &&
             header_of(s.after).monotonic_published_at_ns == 0;
    });
    EXPECT_NE(it, i.stores.end());
    static const Store none;
    return it == i.stores.end() ? none : *it;
  }

  bool lifetime_ = true;
  double timeout_scale_ = 10;
  int exit_code_ = 0;
  std::string unseen_;
  Timeline timeline_;
};

constexpr auto kPublication = {kSignature, kNumbers, kNumbers, kPayload, kTimestamp};
constexpr auto kUpdate = {kTimestamp, kNumbers, kPayload, kTimestamp};

std::vector<int> sequence(std::initializer_list<std::initializer_list<int>> parts) {
  std::vector<int> out;
  for (const auto& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

TEST_F(StoresTest, RecordsEveryStoreOfAPublicationAndItsUpdates) {
  record({"updates", "2"});
  const Image& i = image();
  EXPECT_TRUE(timeline_.watches_lifetime);
  EXPECT_EQ(words(i), sequence({kPublication, kUpdate, kUpdate}));
  EXPECT_THAT(i.stores, Each(Field(&Store::tid, timeline_.processes[0].pid)));
  ASSERT_THAT(i.watches, SizeIs(1));
  const Watch& w = i.watches[0];
  EXPECT_EQ(w.begin, WatchBegin::kMemfd);
  EXPECT_EQ(w.found, std::vector<std::byte>(32));
  EXPECT_FALSE(w.ended_order);
  EXPECT_THAT(w.unwatched, IsEmpty());
  // The watch begins between the mmap and the next call.
  const auto mapped = std::ranges::find(i.calls, "mmap", &SystemCall::name);
  const auto advised = std::ranges::find(i.calls, "madvise", &SystemCall::name);
  ASSERT_NE(mapped, i.calls.end());
  ASSERT_NE(advised, i.calls.end());
  EXPECT_LT(mapped->left_order, w.armed_order);
  EXPECT_LT(w.armed_order, advised->entered_order);
  EXPECT_LT(advised->left_order, i.stores[0].order);
  // The first naming call is between the publication and the first update.
  const auto named = std::ranges::find(i.calls, "prctl", &SystemCall::name);
  EXPECT_LT(i.stores[4].order, named->entered_order);
  EXPECT_LT(named->left_order, i.stores[5].order);

  const auto first = header_of(i.stores[4].after);
  ASSERT_TRUE(i.stores[4].payload);
  EXPECT_EQ(i.stores[4].payload->at.raw(), first.payload);
  EXPECT_EQ(i.stores[4].payload->bytes.size(), first.payload_size);
  ASSERT_TRUE(i.stores[5].payload);
  EXPECT_THAT(i.stores[5].payload->bytes, IsEmpty());
  EXPECT_EQ(i.stores[5].payload->hash, i.stores[4].payload->hash);
  EXPECT_FALSE(i.stores[6].payload);
  for (const Store& s : i.stores) {
    const InstructionLocation& location = i.locations.at(s.location.value());
    EXPECT_THAT(location.module, EndsWith("/store_target"));
    EXPECT_NE(location.offset, 0U);
  }
}

TEST_F(StoresTest, LosesNoneOfManyUpdates) {
  record({"updates", "60"});
  EXPECT_THAT(image().stores, SizeIs(5 + 4 * 60));
  EXPECT_EQ(image().stores_dropped, 0U);
}

TEST_F(StoresTest, EndsInTheZeroWindow) {
  record({"exit-in-zero"});
  EXPECT_EQ(words(image()), sequence({kPublication, {kTimestamp}}));
  EXPECT_FALSE(zeroing(image()).prepared);
}

TEST_F(StoresTest, OtherMemoryAtTheSameAddressIsNoHeader) {
  record({"unmap"});
  EXPECT_EQ(words(image()), sequence({kPublication, kPublication}));
  ASSERT_THAT(image().watches, SizeIs(2));
  EXPECT_EQ(image().watches[0].end, WatchEnd::kUnmapped);
}

TEST_F(StoresTest, WaitsForTheFileBehindTheMapping) {
  record({"map-before-size"});
  EXPECT_EQ(words(image()), sequence({kPublication}));
}

TEST_F(StoresTest, FollowsAHeaderThatMoves) {
  record({"remap"});
  EXPECT_EQ(words(image()), sequence({kPublication, kUpdate}));
  ASSERT_THAT(image().watches, SizeIs(2));
  EXPECT_EQ(image().watches[0].end, WatchEnd::kMoved);
  EXPECT_EQ(image().watches[1].begin, WatchBegin::kMoved);
  EXPECT_EQ(image().watches[1].found, image().stores[4].after);
}

TEST_F(StoresTest, FollowsTheLatestPublication) {
  record({"republished"});
  EXPECT_EQ(words(image()), sequence({kPublication, kPublication, kUpdate}));
  ASSERT_THAT(image().watches, SizeIs(2));
  EXPECT_EQ(image().watches[0].end, WatchEnd::kPublishedElsewhere);
}

// Each store belongs to one thread, whichever stopped first.
TEST_F(StoresTest, StoresAtTheSameTimeAreToldApart) {
  constexpr int kRounds = 150;
  record({"both-at-once", std::to_string(kRounds)});
  const Image& i = image();
  EXPECT_THAT(i.stores, SizeIs(5 + 2 * kRounds));
  EXPECT_THAT(i.stores, Each(Field(&Store::tid, Ne(0))));
  const pid_t main_thread = timeline_.processes[0].pid;
  int numbers = 0;
  for (const Store& s : std::span(i.stores).subspan(5)) {
    EXPECT_EQ(s.words, s.tid == main_thread ? kNumbers : kPayload);
    numbers += s.tid == main_thread ? 1 : 0;
    EXPECT_NE(s.before, s.after);
  }
  EXPECT_EQ(numbers, kRounds);
}

TEST_F(StoresTest, FollowsAPublicationFromThreadToThread) {
  record({"relay"});
  EXPECT_EQ(words(image()), sequence({kPublication}));
  std::set<std::int32_t> threads;
  for (const Store& s : image().stores) threads.insert(s.tid);
  EXPECT_THAT(threads, SizeIs(5));
  EXPECT_FALSE(threads.contains(0));
}

TEST_F(StoresTest, ArmsManyThreadsBeforeTheFirstStore) {
  record({"crowd", "400"});
  EXPECT_EQ(words(image()), sequence({kPublication, kUpdate}));
  ASSERT_THAT(image().watches, SizeIs(1));
  EXPECT_THAT(image().watches[0].unwatched, IsEmpty());
  EXPECT_NE(image().stores[5].tid, timeline_.processes[0].pid);
}

TEST_F(StoresTest, LeavesTheProgramItsTraps) {
  record({"own-traps"});
  EXPECT_EQ(words(image()), sequence({kPublication, kUpdate}));
}

TEST_F(StoresTest, SeesTheStoresOfAThreadThatBlocksAllSignals) {
  record({"blocked"});
  EXPECT_EQ(words(image()), sequence({kPublication, kUpdate}));
}

TEST_F(StoresTest, AStopInTheMiddleOfAnUpdateIsNoEnd) {
  record({"stopped"});
  ASSERT_THAT(timeline_.processes, SizeIs(2));
  EXPECT_EQ(words(image(1)), sequence({kPublication, {kTimestamp, kPayload, kTimestamp}}));
}

TEST_F(StoresTest, WhatTheKernelStoresInACallIsAStoreOfItsThread) {
  for (const std::string call : {"read", "pread64", "recvfrom"}) {
    SCOPED_TRACE(call);
    record({"kernel", call});
    EXPECT_EQ(words(image()), sequence({kPublication, {kTimestamp, kTimestamp}}));
    const Store& last = image().stores.back();
    EXPECT_EQ(last.tid, timeline_.processes[0].pid);
    EXPECT_EQ(last.call, call);
    EXPECT_NE(header_of(last.after).monotonic_published_at_ns, 0U);
    EXPECT_EQ(image().stores[5].call, "");
  }
}

TEST_F(StoresTest, ACallStoresNoMoreThanItReturns) {
  record({"kernel", "longer"});
  EXPECT_EQ(words(image()), sequence({kPublication, {kTimestamp, kTimestamp}}));
  EXPECT_EQ(image().stores.back().call, "read");
}

TEST_F(StoresTest, WhatTheKernelStoresInOtherCallsIsNobodys) {
  record({"kernel", "readv"});
  EXPECT_EQ(words(image()), sequence({kPublication, {kTimestamp, kTimestamp}}));
  EXPECT_EQ(image().stores.back().tid, 0);
}

TEST_F(StoresTest, WhatAChildThatSharesTheMemoryStoresIsNobodys) {
  record({"vfork"});
  EXPECT_EQ(words(image()), sequence({kPublication, {kTimestamp, kTimestamp}}));
  EXPECT_EQ(image().stores[5].tid, 0);
  EXPECT_EQ(image().stores[6].tid, timeline_.processes[0].pid);
}

TEST_F(StoresTest, SaysEachTimeWhichThreadDidNotStop) {
  timeout_scale_ = 0.5;
  record({"beside-vfork"});
  EXPECT_EQ(words(image()), sequence({kPublication, kPublication}));
  ASSERT_THAT(image().watches, SizeIs(2));
  for (const Watch& w : image().watches) {
    ASSERT_THAT(w.unwatched, SizeIs(1));
    EXPECT_NE(w.unwatched[0], timeline_.processes[0].pid);
  }
}

TEST_F(StoresTest, AForkedChildIsNotWatched) {
  record({"fork"});
  ASSERT_THAT(timeline_.processes, SizeIs(2));
  EXPECT_EQ(words(image()), sequence({kPublication, kUpdate}));
  EXPECT_THAT(image(1).stores, IsEmpty());
  EXPECT_THAT(image(1).watches, IsEmpty());
}

TEST_F(StoresTest, AnExecEndsTheWatchAndTheNextImageHasItsOwn) {
  record({"exec"});
  ASSERT_THAT(timeline_.processes[0].images, SizeIs(2));
  for (const Image& i : timeline_.processes[0].images) {
    EXPECT_EQ(words(i), sequence({kPublication}));
    ASSERT_THAT(i.watches, SizeIs(1));
    EXPECT_FALSE(i.watches[0].ended_order);
  }
}

TEST_F(StoresTest, TellsAnAnonymousHeaderFromOtherMemory) {
  record({"anonymous"});
  EXPECT_EQ(words(image()), sequence({{kNumbers, kNumbers, kPayload, kSignature, kTimestamp}}));
  ASSERT_THAT(image().watches, SizeIs(1));
  EXPECT_EQ(image().watches[0].begin, WatchBegin::kAnonymous);
}

TEST_F(StoresTest, ReturnsToAnAnonymousHeaderFromOtherMemory) {
  record({"anonymous-with-payload"});
  EXPECT_EQ(words(image()), sequence({{kSignature, kNumbers, kNumbers, kPayload, kTimestamp}}));
}

TEST_F(StoresTest, SaysWhenTheProgramHasDebugRegistersOfItsOwn) {
  unseen_ = "perf or a kernel debugger holds them";
  WrapOptions alone;
  alone.argv = {std::string(CTXCONF_BIN_DIR) + "/store_target", "own-breakpoint"};
  alone.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  ASSERT_TRUE(record_wrap(alone, timeline_));
  if (timeline_.processes[0].exit_code == 77) GTEST_SKIP() << "no breakpoints for programs here";
  record({"own-breakpoint"});
  EXPECT_THAT(image().stores, IsEmpty());
  EXPECT_THAT(image().calls, testing::Not(IsEmpty()));
}

TEST_F(StoresTest, MemoryThatIsNobodysContextIsNoEvidence) {
  record({"advises-only"});
  EXPECT_THAT(image().stores, IsEmpty());
  EXPECT_THAT(image().watches, IsEmpty());
}

TEST_F(StoresTest, BeginsLateWhereOnlyTheNameShowsTheMapping) {
  record({"only-named"});
  EXPECT_EQ(words(image()), sequence({kUpdate}));
  ASSERT_THAT(image().watches, SizeIs(1));
  EXPECT_EQ(image().watches[0].begin, WatchBegin::kNamed);
  EXPECT_TRUE(abi::is_valid(header_of(image().watches[0].found)));
}

TEST_F(StoresTest, WatchesPublicationsOnlyWhenAsked) {
  lifetime_ = false;
  record({"updates", "2"});
  EXPECT_FALSE(timeline_.watches_lifetime);
  EXPECT_EQ(words(image()), sequence({kPublication}));
  ASSERT_THAT(image().watches, SizeIs(1));
  EXPECT_EQ(image().watches[0].end, WatchEnd::kPublished);
}

TEST_F(StoresTest, KnowsThePayloadBeforeTheTimestampWasZero) {
  record({"prepared", "early"});
  const auto& early = zeroing(image());
  ASSERT_TRUE(early.prepared);
  ASSERT_TRUE(image().stores.back().payload);
  EXPECT_EQ(early.prepared->hash, image().stores.back().payload->hash);
  EXPECT_EQ(early.prepared->bytes, image().stores.back().payload->bytes);
  EXPECT_EQ(early.threads, 1U);

  record({"prepared", "untouched"});
  const auto& late = zeroing(image());
  ASSERT_TRUE(late.prepared);
  EXPECT_EQ(late.prepared->readable, late.prepared->wanted);
  EXPECT_EQ(late.prepared->bytes, std::vector<std::byte>(40));
  EXPECT_NE(late.prepared->hash, image().stores.back().payload->hash);

  record({"prepared", "unmapped"});
  const auto& later = zeroing(image());
  ASSERT_TRUE(later.prepared);
  EXPECT_EQ(later.prepared->readable, 0U);
  EXPECT_EQ(later.prepared->wanted, 40U);

  for (const char* source : {"constant", "shared", "pieces"}) {
    record({"prepared", source});
    EXPECT_FALSE(zeroing(image()).prepared) << source;
  }
}

TEST_F(StoresTest, KnowsThatTheThreadRestedWhileTheTimestampWasZero) {
  for (const char* how : {"sleeps", "ends"}) {
    record({"zero", how});
    EXPECT_TRUE(zeroing(image()).rested) << how;
  }
  record({"zero", "computes"});
  EXPECT_FALSE(zeroing(image()).rested);
}

TEST_F(StoresTest, IsNotRecordedUnlessItIsAskedFor) {
  WrapOptions o;
  o.argv = {std::string(CTXCONF_BIN_DIR) + "/store_target", "updates", "1"};
  o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  o.no_stores = "nobody asked";
  ASSERT_TRUE(record_wrap(o, timeline_));
  EXPECT_THAT(image().stores, IsEmpty());
  EXPECT_EQ(image().stores_unseen, "nobody asked");
  EXPECT_THAT(image().notes, IsEmpty());
}

// A header in this process, and threads of it that stand for those of a program.
class ClaimTest : public testing::Test {
 protected:
  static constexpr std::size_t kThreads = 3;
  ClaimTest() {
    int tids_to_come = kThreads;
    for (std::size_t n = 0; n < kThreads; ++n) {
      threads_.emplace_back([&, n] {
        std::unique_lock lock(mutex_);
        tids_[n] = gettid();
        --tids_to_come;
        changed_.notify_all();
        changed_.wait(lock, [&] { return done_; });
      });
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tids_to_come == 0; });
    lock.unlock();
    SystemCall call;
    call.tid = tids_[0];
    call.name = "mmap";
    call.args[1] = sizeof header_;
    call.file = "/memfd:OTEL_CTX (deleted)";
    recorder_.call_entered(call);
    recorder_.call_left({tids_[0], getpid(), static_cast<std::int64_t>(address())});
    EXPECT_EQ(recorder_.header(), sys::RemoteAddr(address()));
    EXPECT_FALSE(recorder_.is_armed());
    recorder_.armed(tids_[0], {});
    EXPECT_TRUE(recorder_.is_armed());
  }
  ~ClaimTest() override {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    for (auto& t : threads_) t.join();
  }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(&header_[0]); }
  void stops(std::size_t thread, std::uint8_t words) {
    recorder_.hit({tids_[thread], getpid(), words, 1});
    recorder_.resumed(tids_[thread]);
  }
  Image image() {
    Image image;
    recorder_.add_to(image, true);
    return image;
  }
  std::vector<Store> stores() {
    const Image image = this->image();
    for (std::size_t n = 1; n < image.stores.size(); ++n) {
      EXPECT_LT(image.stores[n - 1].order, image.stores[n].order);
      EXPECT_EQ(image.stores[n - 1].after, image.stores[n].before);
    }
    return image.stores;
  }
  std::uint64_t word(const Store& s, std::size_t n) const {
    std::uint64_t value = 0;
    std::memcpy(&value, &s.after.at(8 * n), sizeof value);
    return value;
  }

  alignas(32) std::array<std::uint64_t, 4> header_{};
  std::array<pid_t, kThreads> tids_{};
  CodeFiles files_;
  StoreRecorder recorder_{true, true, std::make_shared<EventOrder>(),
                          std::make_shared<CopyBudget>(), files_};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::vector<std::thread> threads_;
};

TEST_F(ClaimTest, AStoreSeenBeforeItsThreadsStopIsThatThreads) {
  header_ = {1, 2, 0, 2};
  stops(0, 1);
  stops(1, 2 | 8);
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].tid, tids_[1]);
  EXPECT_EQ(all[0].words, 2 | 8);
  EXPECT_EQ(all[1].tid, tids_[0]);
  EXPECT_EQ(all[1].words, 1);
}

TEST_F(ClaimTest, ThreeStoresSeenAtOnceAreOfThreeThreads) {
  header_ = {1, 2, 0, 3};
  stops(0, 1);
  stops(2, 8);
  stops(1, 2);
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].tid, tids_[2]);
  EXPECT_EQ(word(all[0], 3), 3U);
  EXPECT_EQ(word(all[0], 1), 0U);
  EXPECT_EQ(all[1].tid, tids_[1]);
  EXPECT_EQ(all[2].tid, tids_[0]);
}

// The store that is recorded may have been the cause of the others.
TEST_F(ClaimTest, NoOrderIsInventedAroundTheTimestamp) {
  header_ = {1, 2, 3, 0};
  stops(0, 1);
  stops(2, 4);
  stops(1, 2);
  header_ = {1, 2, 0, 0};
  stops(2, 4);
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].tid, 0);
  EXPECT_EQ(all[0].words, 1 | 2 | 4);
  EXPECT_EQ(word(all[0], 2), 3U);
  EXPECT_EQ(all[1].tid, tids_[2]);
  EXPECT_EQ(all[1].words, 4);
}

TEST_F(ClaimTest, AStoreOfTheSameBytesHasNoPlaceAroundTheTimestampEither) {
  header_ = {0, 0, 3, 0};
  stops(0, 2);
  stops(1, 4);
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].tid, 0);
  EXPECT_EQ(all[0].words, 2 | 4);
}

TEST_F(ClaimTest, AThreadThatIsAloneStoredLast) {
  header_ = {1, 2, 3, 4};
  recorder_.hit({tids_[0], getpid(), 4, 1}, {.alone = true});
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].tid, 0);
  EXPECT_EQ(all[0].words, 1 | 2 | 8);
  EXPECT_EQ(all[1].tid, tids_[0]);
  EXPECT_EQ(all[1].words, 4);
}

TEST_F(ClaimTest, WhatNoThreadStopsForStaysNobodys) {
  header_ = {1, 2, 0, 0};
  stops(0, 1);
  // Has continued since, and stores the same value once more.
  recorder_.resumed(tids_[1]);
  stops(1, 2);
  const auto all = stores();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].tid, 0);
  EXPECT_EQ(all[0].words, 2);
  EXPECT_FALSE(all[0].location);
  EXPECT_EQ(all[2].tid, tids_[1]);
  EXPECT_EQ(all[2].before, all[2].after);
}

TEST_F(ClaimTest, AWriterThatNeverRestsIsNotWatchedForEver) {
  for (std::size_t n = 1; n <= kMaxStores + 5; ++n) {
    header_[1] = n;
    stops(0, 2);
  }
  EXPECT_FALSE(recorder_.header());
  const Image i = image();
  EXPECT_THAT(i.stores, SizeIs(kMaxStores));
  EXPECT_EQ(i.stores_dropped, 1U);
  ASSERT_THAT(i.watches, SizeIs(1));
  EXPECT_EQ(i.watches[0].end, WatchEnd::kTooManyStores);
}

std::span<const std::byte> bytes_at(const void* p, std::size_t n) {
  return {static_cast<const std::byte*>(p), n};
}

TEST(MemoryCopy, FindsBytesWhereTheyStood) {
  std::string text = "a message that was encoded before";
  const std::span bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
  const auto copy = MemoryCopy::of(getpid(), {}, std::uint64_t{1} << 30U);
  ASSERT_TRUE(copy);
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  std::ranges::fill(text, 'x');
  const auto at = copy->find(before);
  ASSERT_TRUE(at);
  const auto block = copy->block(*at, before.size(), before.size(), before.size());
  ASSERT_TRUE(block);
  EXPECT_EQ(block->bytes, before);
  EXPECT_FALSE(copy->find({}));
  const auto nothing = MemoryCopy::of(getpid(), {}, 0);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->find(before));
  EXPECT_FALSE(nothing->lacks(getpid(), before, {}));
  EXPECT_FALSE(copy->lacks(getpid(), before, {}));
  EXPECT_FALSE(copy->lacks(getpid(), {}, {}));
}

TEST(MemoryCopy, LooksAtSoMuchUntouchedMemoryAndNoMore) {
  constexpr std::size_t kSize = std::size_t{1} << 30U;
  constexpr std::size_t kMappings = 68;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::uint64_t> mapped;
  for (std::size_t n = 0; n < kMappings; ++n) {
    void* at = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) break;
    mapped.push_back(reinterpret_cast<std::uint64_t>(at));
    // Neighbours would become one mapping.
    EXPECT_EQ(mprotect(static_cast<char*>(at) + kSize - page, page, PROT_NONE), 0);
  }
  std::size_t known = 0;
  if (mapped.size() == kMappings) {
    const auto copy = MemoryCopy::of(getpid(), {}, page << 16U);
    EXPECT_TRUE(copy);
    for (const auto at : mapped) known += copy && copy->block(sys::RemoteAddr(at), 8, 8, 8) ? 1 : 0;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what mmap returned
  for (const auto at : mapped) munmap(reinterpret_cast<void*>(at), kSize);
  if (mapped.size() < kMappings) GTEST_SKIP() << "no address space for it";
  EXPECT_GE(known, 1U);
  EXPECT_LE(known, 64U);
}

TEST(MemoryCopy, KeepsWhatWasThereAndSaysWhatIsNotKnown) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto map = [&](int protection) {
    void* at = mmap(nullptr, 2 * page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<char*>(at);
  };
  // Its first page is touched, its second is not; nothing is mapped after it.
  char* memory = static_cast<char*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  munmap(memory + 2 * page, page);
  std::memset(memory, 'x', page);
  char* unwritable = map(PROT_READ);
  const auto at = reinterpret_cast<std::uint64_t>(memory);
  const auto copy = MemoryCopy::of(getpid(), {at}, 2 * page);
  ASSERT_TRUE(copy);
  std::memset(memory, 'y', 2 * page);

  const auto over_both = copy->block(sys::RemoteAddr(at + page - 4), 8, 6, 100);
  ASSERT_TRUE(over_both);
  EXPECT_EQ(over_both->readable, 8U);
  const char then[] = {'x', 'x', 'x', 'x', 0, 0, 0, 0};
  EXPECT_EQ(over_both->hash, fnv1a(kFnvBasis, bytes_at(then, 8)));
  EXPECT_TRUE(std::ranges::equal(over_both->bytes, bytes_at(then, 6)));

  const auto over_the_end = copy->block(sys::RemoteAddr(at + 2 * page - 4), 8, 8, 100);
  ASSERT_TRUE(over_the_end);
  EXPECT_EQ(over_the_end->readable, 4U);

  // This is not private writable memory.
  EXPECT_FALSE(copy->block(sys::RemoteAddr(reinterpret_cast<std::uint64_t>(unwritable)), 8, 8, 8));
  // Over the limit: other memory of this program.
  const auto nothing = MemoryCopy::of(getpid(), {at}, 0);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->block(sys::RemoteAddr(at), 8, 8, 8));
  EXPECT_FALSE(MemoryCopy::of(-1, {}, 1000));
  munmap(memory, 2 * page);
  munmap(unwritable, 2 * page);
}

}  // namespace
}  // namespace ctxconf::conformance
