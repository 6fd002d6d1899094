#include "conformance/observe/slot_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/observe/gated_recording.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::chrono::minutes kPatience{5};

abi::ThreadRecordHead head_of(const SlotView& view) {
  EXPECT_TRUE(view.record.has_value());
  return abi::decode_thread_record(view.record.value_or(MemoryBlock{}).bytes)
      .value_or(abi::ThreadRecordHead{});
}

class SlotStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!sys::Capabilities::of_this_host().has(sys::kHostWatchpoints)) {
      GTEST_SKIP() << "no watchpoints here";
    }
  }
  static void watch(Recording& recording, pid_t tid) {
    const auto until = Recording::Clock::now() + kPatience;
    (void)recording.look(SnapshotDepth::kQuick, until);
    recording.watch_thread(recording.root(), tid, until);
  }
  // Single-steps through what follows a gate, until the next gate.
  const Image& record(const std::string& mode) {
    return record(mode, [](Recording& recording, pid_t tid) {
      recording.step_changes(false);
      watch(recording, tid);
      recording.step_changes(true);
    });
  }
  const Image& record(const std::string& mode,
                      const std::function<void(Recording&, pid_t)>& at_gate) {
    WrapOptions options;
    options.argv = {std::string(CTXCONF_BIN_DIR) + "/slot_target", mode};
    options.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
    options.slot_steps = true;
    options.steps_at_once = false;
    options.keep_all = true;
    options.timeout_scale = 10;
    timeline_ = {};
    record_gated(options, timeline_, at_gate);
    const auto again = timeline_from_json(to_json(timeline_));
    EXPECT_TRUE(again) << again.error().detail;
    if (again) timeline_ = *again;
    static const Image none;
    if (timeline_.processes.empty() || timeline_.processes[0].images.empty()) return none;
    return timeline_.processes[0].images[0];
  }
  std::optional<int> exit_code() const { return timeline_.processes.at(0).exit_code; }
  Timeline timeline_;
};

TEST_F(SlotStepsTest, ShowsWhatIsBeforeAndBehindEachStore) {
  const auto& image = record("changes");
  EXPECT_EQ(exit_code(), 0);
  EXPECT_THAT(image.slot_steps_unseen, IsEmpty());
  ASSERT_THAT(image.slot_step_traces, SizeIs(4));
  for (const auto& trace : image.slot_step_traces) {
    EXPECT_EQ(trace.tid, timeline_.processes[0].pid);
    EXPECT_EQ(trace.ended_because, "over");
    ASSERT_THAT(trace.views, SizeIs(2));
    EXPECT_EQ(trace.views[0].step, 0U);
    EXPECT_FALSE(trace.views[0].location.has_value());
    EXPECT_EQ(trace.views[1].step, 1U) << "the store that began it";
    EXPECT_LT(trace.views[0].order, trace.views[1].order);
    ASSERT_TRUE(trace.views[1].location.has_value());
    EXPECT_THAT(image.locations.at(*trace.views[1].location).symbol,
                testing::AnyOf(HasSubstr("changes"), HasSubstr("show")));
  }
  const auto& shown = image.slot_step_traces[0].views;
  EXPECT_EQ(shown[0].value, 0U) << "a variable that is null is watched";
  EXPECT_FALSE(shown[0].record.has_value());
  EXPECT_EQ(head_of(shown[1]).trace_id[0], 1);
  const auto& switched = image.slot_step_traces[1].views;
  EXPECT_EQ(switched[0].value, shown[1].value);
  EXPECT_EQ(head_of(switched[1]).trace_id[0], 2);
  const auto& grown = image.slot_step_traces[2].views;
  EXPECT_EQ(grown[0].value, grown[1].value);
  EXPECT_EQ(head_of(grown[0]).attrs_data_size, 0);
  EXPECT_EQ(head_of(grown[1]).attrs_data_size, 3);
  EXPECT_EQ(grown[1].record->bytes.back(), std::byte{'x'});
  const auto& gone = image.slot_step_traces[3].views;
  EXPECT_EQ(gone[0].value, grown[1].value);
  EXPECT_EQ(gone[1].value, 0U);
}

TEST_F(SlotStepsTest, TellsWhatAnotherThreadStored) {
  const auto& image = record("changed-elsewhere");
  EXPECT_EQ(exit_code(), 0);
  ASSERT_THAT(image.slot_step_traces, SizeIs(1));
  const auto& views = image.slot_step_traces[0].views;
  ASSERT_THAT(views, SizeIs(4));
  EXPECT_FALSE(views[1].by_another) << "the pointer";
  EXPECT_FALSE(views[2].by_another) << "its own flags";
  EXPECT_EQ(head_of(views[2]).trace_flags, 2);
  EXPECT_TRUE(views[3].by_another);
  EXPECT_FALSE(views[3].location.has_value());
  EXPECT_EQ(head_of(views[3]).trace_flags, 1);
}

TEST_F(SlotStepsTest, WhatComesLongBehindAChangeIsAnother) {
  const auto& image = record("apart");
  EXPECT_EQ(exit_code(), 0);
  ASSERT_THAT(image.slot_step_traces, SizeIs(2));
  for (const auto& trace : image.slot_step_traces) {
    EXPECT_TRUE(trace.whole());
    EXPECT_THAT(trace.views, SizeIs(2));
  }
  EXPECT_EQ(image.slot_step_traces[0].steps, image.slot_step_traces[0].views[1].step + 1000U);
  EXPECT_EQ(image.slot_step_traces[1].views[0].value, image.slot_step_traces[0].views[1].value);
}

TEST_F(SlotStepsTest, WhatChangesBetweenTheOperationsIsWhereTheNextStepTraceBegins) {
  int gates = 0;
  const auto& image = record("twice", [&](Recording& recording, pid_t tid) {
    ++gates;
    if (gates == 1) watch(recording, tid);
    recording.step_changes(gates == 2);
  });
  EXPECT_EQ(exit_code(), 0);
  ASSERT_THAT(image.slot_step_traces, SizeIs(1));
  const auto& views = image.slot_step_traces[0].views;
  ASSERT_THAT(views, SizeIs(2));
  EXPECT_EQ(head_of(views[0]).trace_id[0], 1);
  EXPECT_EQ(views[1].value, 0U);
}

TEST_F(SlotStepsTest, WhatEndsInTheMiddleLeavesItsStepTrace) {
  const std::vector<std::pair<std::string, std::string>> modes = {
      {"thread-ends", "the thread ended"},
      {"exec-behind", "the program was replaced or ended"},
      {"killed-behind", "the thread ended"},
      {"trap-behind", "the program's own SIGTRAP"},
  };
  for (const auto& [mode, because] : modes) {
    const auto& image = record(mode);
    EXPECT_THAT(image.slot_step_traces,
                ElementsAre(AllOf(Field(&SlotStepTrace::ended_because, because),
                                  Field(&SlotStepTrace::views, SizeIs(2)))))
        << mode;
    if (mode == "killed-behind") {
      EXPECT_EQ(timeline_.processes.at(0).killed_by, SIGKILL);
    } else {
      EXPECT_EQ(exit_code(), 0) << mode;
    }
    if (mode == "exec-behind") {
      ASSERT_THAT(timeline_.processes[0].images, SizeIs(2));
      EXPECT_THAT(timeline_.processes[0].images[1].slot_step_traces, SizeIs(2))
          << "of the next image";
    }
  }
}

TEST_F(SlotStepsTest, AProgramWithAHandlerOfSigtrapIsNotStepped) {
  const auto& image = record("own-traps");
  EXPECT_EQ(exit_code(), 0);
  EXPECT_THAT(image.slot_step_traces, IsEmpty());
  EXPECT_THAT(image.slot_steps_unseen, HasSubstr("SIGTRAP"));
}

TEST_F(SlotStepsTest, RegistersThatOthersHoldAreNotWaitedFor) {
  const auto begun = Recording::Clock::now();
  const auto& image = record("own-breakpoint");
  if (exit_code() == 77) GTEST_SKIP() << "no breakpoints of perf here";
  EXPECT_EQ(exit_code(), 0);
  EXPECT_THAT(image.slot_step_traces, IsEmpty());
  EXPECT_THAT(image.slot_steps_unseen, HasSubstr("debug registers"));
  EXPECT_LT(Recording::Clock::now() - begun, kPatience) << "it must not wait for its deadline";
}

// Tests the recorder alone, which follows this thread: a store between two calls counts as made by
// the instruction that the calls name.
class SlotStepRecorderTest : public testing::Test {
 protected:
  struct Record {
    abi::ThreadRecordHead head{};
    unsigned char entries[64] = {};
  };
  SlotStepRecorder recorder(SlotStepLimits limits) { return {order_, files_, threads_, limits}; }
  void watch(SlotStepRecorder& r) const {
    r.watch(gettid(), sys::RemoteAddr(std::bit_cast<std::uint64_t>(&slot_)), std::nullopt);
  }
  static void begin(SlotStepRecorder& r) {
    r.begin({.tid = gettid(), .process = getpid(), .words = 1, .pc = kNoCode});
  }
  static void step(SlotStepRecorder& r) {
    sys::Stepped e;
    e.tid = gettid();
    e.process = getpid();
    e.pc = kNoCode;
    r.stepped(e);
  }
  static Image finish(SlotStepRecorder& r) {
    Image image;
    r.add_to(image, true);
    return image;
  }
  // The instruction there is unknown, so it may store.
  static constexpr std::uint64_t kNoCode = 8;
  std::shared_ptr<EventOrder> order_ = std::make_shared<EventOrder>();
  CodeFiles files_;
  ModuleCache modules_;
  SnapshotRecorder context_{ImageKey{getpid(), 0}, {}};
  ThreadRecorder threads_{getpid(), modules_, context_};
  Record first_;
  Record second_;
  Record* volatile slot_ = nullptr;
};

TEST_F(SlotStepRecorderTest, WatchesTheVariableAndThreeWordsOfTheRecord) {
  auto r = recorder({});
  EXPECT_EQ(r.watched(gettid()), std::nullopt);
  watch(r);
  const sys::RemoteAddr slot(std::bit_cast<std::uint64_t>(&slot_));
  EXPECT_EQ(r.watched(gettid()), (sys::WatchedWords{slot, slot, slot, slot}));
  EXPECT_EQ(r.watched(gettid() + 1), std::nullopt);
  slot_ = &first_;
  begin(r);
  EXPECT_TRUE(r.is_stepping(gettid()));
  EXPECT_EQ(r.watched(gettid()), std::nullopt) << "not watched during a step trace";
  r.end("over");
  const auto at = std::bit_cast<std::uint64_t>(&first_) / 8 * 8;
  EXPECT_EQ(r.watched(gettid()),
            (sys::WatchedWords{slot, sys::RemoteAddr(at), sys::RemoteAddr(at + 16),
                               sys::RemoteAddr(at + 24)}));
}

TEST_F(SlotStepRecorderTest, AnAddressThatIsNotAlignedIsWatchedFromTheWordBefore) {
  auto r = recorder({});
  const auto at = std::bit_cast<std::uint64_t>(&first_) / 8 * 8;
  r.watch(gettid(), sys::RemoteAddr(at + 4), std::nullopt);
  ASSERT_TRUE(r.watched(gettid()).has_value());
  EXPECT_EQ(r.watched(gettid())->front().raw(), at);
}

TEST_F(SlotStepRecorderTest, NothingButAViewDiffersFromTheOneBefore) {
  auto r = recorder({});
  watch(r);
  slot_ = &first_;
  begin(r);
  step(r);
  second_.head.valid = 1;
  step(r);  // not the record that is shown
  first_.head.attrs_data_size = 2;
  step(r);
  step(r);
  first_.entries[1] = 7;
  step(r);
  first_.entries[2] = 7;
  step(r);  // after its end
  const Image image = finish(r);
  ASSERT_THAT(image.slot_step_traces, SizeIs(1));
  std::vector<std::uint64_t> steps;
  for (const auto& view : image.slot_step_traces[0].views) steps.push_back(view.step);
  EXPECT_THAT(steps, ElementsAre(0, 1, 4, 6));
  EXPECT_EQ(image.slot_step_traces[0].steps, 7U);
  EXPECT_EQ(image.slot_step_traces[0].ended_because, "the program was replaced or ended");
}

TEST_F(SlotStepRecorderTest, OfARecordThatCannotBeCopiedItSaysHowMuchWould) {
  auto r = recorder({.record = 64});
  watch(r);
  first_.head.attrs_data_size = 1000;
  slot_ = &first_;
  begin(r);
  slot_ = std::bit_cast<Record*>(std::uintptr_t{4096});
  step(r);
  const Image image = finish(r);
  const auto& views = image.slot_step_traces.at(0).views;
  ASSERT_THAT(views, SizeIs(3));
  EXPECT_EQ(views[1].record->wanted, sizeof(abi::ThreadRecordHead) + 1000);
  EXPECT_THAT(views[1].record->bytes, SizeIs(64));
  EXPECT_EQ(views[2].value, 4096U);
  EXPECT_EQ(views[2].record->readable, 0U);
}

TEST_F(SlotStepRecorderTest, EachLimitEndsAStepTrace) {
  struct Case {
    SlotStepLimits limits;
    std::string because;
    std::uint64_t steps;
  };
  const std::vector<Case> cases = {
      {{.steps = 5}, "too many instructions", 5},
      {{.all_steps = 6}, "too many instructions", 6},
      {{.views = 4}, "too many changes", 4},
      {{.bytes = 3 * sizeof(abi::ThreadRecordHead)}, "too much memory", 4},
      {{.stable = 3}, "over", 12},
  };
  for (const auto& c : cases) {
    slot_ = nullptr;
    auto r = recorder(c.limits);
    watch(r);
    slot_ = &first_;
    begin(r);
    for (int i = 0; i < 20 && r.is_stepping(gettid()); ++i) {
      if (i < 8) ++first_.head.span_id[0];
      step(r);
    }
    EXPECT_FALSE(r.is_stepping(gettid()));
    EXPECT_THAT(finish(r).slot_step_traces,
                ElementsAre(AllOf(Field(&SlotStepTrace::ended_because, c.because),
                                  Field(&SlotStepTrace::steps, c.steps))));
  }
}

TEST_F(SlotStepRecorderTest, ATurnEndsWhereAnotherStepTraceMightBeCut) {
  auto r = recorder({.stable = 3});
  const sys::RemoteAddr slot(std::bit_cast<std::uint64_t>(&slot_));
  r.watch(gettid(), slot, std::nullopt, {.steps = 12, .step_traces = 4});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(r.turn_is_over());
    EXPECT_NE(r.watched(gettid()), std::nullopt);
    slot_ = i % 2 == 0 ? &first_ : &second_;
    begin(r);
    while (r.is_stepping(gettid())) step(r);
  }
  EXPECT_EQ(r.traces_of_turn(), 2U);
  EXPECT_TRUE(r.turn_is_over());
  EXPECT_EQ(r.watched(gettid()), std::nullopt);
  EXPECT_FALSE(r.gave_up());
  r.watch(gettid(), slot, std::nullopt, {.steps = 2});
  slot_ = nullptr;
  begin(r);
  while (r.is_stepping(gettid())) step(r);
  EXPECT_TRUE(r.turn_is_over());
  const Image image = finish(r);
  ASSERT_THAT(image.slot_step_traces, SizeIs(3));
  EXPECT_EQ(image.slot_step_traces[1].ended_because, "over");
  EXPECT_EQ(image.slot_step_traces[2].ended_because, "too many instructions");
  EXPECT_THAT(image.slot_steps_unseen, IsEmpty());
}

TEST_F(SlotStepRecorderTest, BeyondTheLimitsOfAnImageNoStepTraceBegins) {
  for (const SlotStepLimits limits :
       {SlotStepLimits{.step_traces = 2}, SlotStepLimits{.all_steps = 2}}) {
    slot_ = nullptr;
    auto r = recorder(limits);
    for (int i = 0; i < 3; ++i) {
      watch(r);
      slot_ = i % 2 == 0 ? &first_ : &second_;
      begin(r);
      EXPECT_EQ(r.is_stepping(gettid()), i < 2);
      r.end("over");
    }
    EXPECT_EQ(r.watched(gettid()), std::nullopt);
    const Image image = finish(r);
    EXPECT_THAT(image.slot_step_traces, SizeIs(2));
    EXPECT_THAT(image.slot_steps_unseen, HasSubstr("too many"));
  }
}

}  // namespace
}  // namespace ctxconf::conformance
