#include "conformance/observe/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ranges>
#include <span>
#include <tuple>

#include "abi/process_header.h"
#include "conformance/observe/gated_recording.h"
#include "conformance/observe/recording.h"
#include "conformance/observe/wrap.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

abi::ProcessHeader header_of(const ReaderView& view) {
  return abi::decode_process_header(view.header).value_or(abi::ProcessHeader{});
}

class StepsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!sys::Capabilities::of_this_host().has(sys::kHostWatchpoints)) {
      GTEST_SKIP() << "no watchpoints here";
    }
  }
  WrapOptions options(std::vector<std::string> arguments) const {
    WrapOptions o;
    o.argv = std::move(arguments);
    o.argv.insert(o.argv.begin(), std::string(CTXCONF_BIN_DIR) + "/store_target");
    o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
    o.stores = true;
    o.steps = true;
    o.step_limits = limits_;
    o.timeout_scale = 10;
    return o;
  }
  const Image& record(std::vector<std::string> arguments) {
    timeline_ = {};
    const auto r = record_wrap(options(std::move(arguments)), timeline_);
    EXPECT_TRUE(r) << sys::to_string(r.error());
    return recorded();
  }
  // Each time the thread waits at its gate, the step trace begins there.
  const Image& record_from_gates(const std::string& mode) {
    timeline_ = {};
    record_gated(options({mode}), timeline_, [](Recording& recording, pid_t tid) {
      recording.step_from_gate(recording.root(), tid);
    });
    return recorded();
  }
  const Image& recorded() {
    const auto again = timeline_from_json(to_json(timeline_));
    EXPECT_TRUE(again) << again.error().detail;
    if (again) timeline_ = *again;
    static const Image none;
    if (timeline_.processes.empty() || timeline_.processes[0].images.empty()) return none;
    EXPECT_EQ(timeline_.processes[0].exit_code, exit_code_);
    return timeline_.processes[0].images[0];
  }
  static std::vector<ReaderView> views(const Image& image) {
    std::vector<ReaderView> out;
    for (const auto& trace : image.step_traces)
      out.insert(out.end(), trace.views.begin(), trace.views.end());
    return out;
  }
  StepLimits limits_;
  std::optional<int> exit_code_ = 0;
  Timeline timeline_;
};

TEST_F(StepsTest, ShowsEveryStateBetweenTwoInstructions) {
  const auto& image = record({"updates", "2"});
  EXPECT_THAT(image.steps_unseen, IsEmpty());
  // Each store that changes the header begins a view, and nothing else changed.
  std::vector<Store> stores;
  std::ranges::copy_if(image.stores, std::back_inserter(stores),
                       [](const Store& s) { return s.before != s.after; });
  std::size_t store = 0;
  for (const auto& trace : image.step_traces) {
    ASSERT_FALSE(trace.views.empty());
    EXPECT_FALSE(trace.views[0].location.has_value());
    EXPECT_EQ(trace.views[0].header, stores.at(store).before);
    std::uint64_t step = 0;
    for (const auto& view : trace.views | std::views::drop(1)) {
      EXPECT_GT(view.step, step);
      step = view.step;
      EXPECT_EQ(view.header, stores.at(store).after);
      EXPECT_EQ(view.location, stores.at(store).location) << "the instruction of the store";
      EXPECT_EQ(view.payload.has_value(), header_of(view).monotonic_published_at_ns != 0);
      ++store;
    }
    EXPECT_GE(trace.steps, step);
  }
  EXPECT_EQ(store, stores.size());
}

TEST_F(StepsTest, ShowsWhatIsDoneToThePayloadBehindTheTimestamp) {
  const auto& image = record({"late-payload"});
  const auto all = views(image);
  ASSERT_GT(all.size(), 2U);
  const ReaderView& late = all.back();
  ASSERT_TRUE(late.location.has_value());
  ASSERT_TRUE(late.payload.has_value());
  EXPECT_EQ(late.header, all[all.size() - 2].header) << "the store was not to the header";
  EXPECT_EQ(late.payload->bytes.back(), std::byte{'!'});
  EXPECT_THAT(image.locations.at(*late.location).symbol, HasSubstr("late_payload"));
  EXPECT_LT(image.stores.back().order, late.order);
}

TEST_F(StepsTest, NamesTheBarriersOnTheWay) {
  const auto& image = record({"barriers"});
  std::vector<std::string> texts;
  for (const auto& trace : image.step_traces) {
    for (const auto& barrier : trace.barriers) texts.push_back(barrier.text);
  }
#if defined(__x86_64__)
  EXPECT_THAT(texts, Contains("mfence"));
  EXPECT_THAT(texts, Contains(HasSubstr("xchg ")));
  EXPECT_THAT(texts, Contains(HasSubstr("lock ")));
#endif
}

TEST_F(StepsTest, AnInstructionThatRepeatsIsAViewARound) {
  const auto& image = record({"rep-payload"});
  const auto all = views(image);
  const auto inside = std::ranges::count_if(all, [&](const ReaderView& v) {
    return v.location &&
           image.locations.at(*v.location).symbol.find("rep_payload") != std::string::npos &&
           v.payload;
  });
  EXPECT_GE(inside, 8) << "eight bytes after the timestamp";
}

TEST_F(StepsTest, WhatComesBetweenTheInstructionsOfAChangeIsSurvived) {
  for (const auto* mode : {"signals-in-zero", "fork-in-zero", "thread-in-zero", "sleep-in-zero"}) {
    const auto& image = record({mode});
    EXPECT_THAT(image.step_traces,
                Contains(testing::Truly([](const StepTrace& w) { return w.whole(); })))
        << mode;
    EXPECT_THAT(image.step_traces, Contains(Field(&StepTrace::steps, testing::Gt(500U)))) << mode;
  }
}

TEST_F(StepsTest, AChangeWithoutEndIsGivenUp) {
  limits_.steps = 10'000;
  const auto& image = record({"long-zero"});
  ASSERT_THAT(image.step_traces, Not(IsEmpty()));
  EXPECT_THAT(image.step_traces,
              Contains(Field(&StepTrace::ended_because, "too many instructions")));
}

TEST_F(StepsTest, ALockOfAnotherThreadIsWaitedFor) {
  EXPECT_THAT(record({"lock-in-zero"}).step_traces,
              Contains(testing::Truly([](const StepTrace& w) { return w.whole(); })));
}

TEST_F(StepsTest, AStormOfSignalsEndsTheStepTraceAndNotTheProgram) {
  limits_.steps = 10'000;
  const auto& image = record({"storm-in-zero"});
  EXPECT_THAT(image.step_traces,
              Contains(Field(&StepTrace::ended_because, "too many instructions")));
  EXPECT_NE(abi::decode_process_header(image.stores.back().after)->monotonic_published_at_ns, 0U);
}

TEST_F(StepsTest, ASigtrapOfTheProgramItselfEndsTheStepTraceAndReachesIt) {
  EXPECT_THAT(record({"trap-in-zero"}).step_traces,
              Contains(Field(&StepTrace::ended_because, "the program's own SIGTRAP")));
}

TEST_F(StepsTest, AnExecInTheMiddleEndsTheStepTrace) {
  const auto& first = record({"exec-in-zero"});
  EXPECT_THAT(first.step_traces,
              Contains(Field(&StepTrace::ended_because, "the program was replaced or ended")));
  ASSERT_THAT(timeline_.processes[0].images, SizeIs(2));
  EXPECT_THAT(timeline_.processes[0].images[1].step_traces,
              Contains(testing::Truly([](const StepTrace& w) { return w.whole(); })));
}

TEST_F(StepsTest, AProgramThatIsKilledInTheMiddleLeavesItsStepTrace) {
  exit_code_.reset();
  EXPECT_THAT(record({"killed-in-zero"}).step_traces, Not(IsEmpty()));
  EXPECT_EQ(timeline_.processes[0].killed_by, SIGKILL);
}

TEST_F(StepsTest, WeMayEndItInTheMiddle) {
  auto recording = Recording::start(options({"long-zero"}), {}, timeline_);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  while (recording->late() == Recording::Clock::duration::zero()) {
    const auto stepped = recording->step(Recording::Clock::now() + std::chrono::seconds(1));
    ASSERT_TRUE(stepped && *stepped);
  }
  EXPECT_TRUE(recording->finish());
  ASSERT_FALSE(timeline_.processes.empty());
  EXPECT_TRUE(timeline_.processes[0].ended_by_us);
  ASSERT_THAT(timeline_.processes[0].images[0].step_traces, Not(IsEmpty()));
  EXPECT_FALSE(timeline_.processes[0].images[0].step_traces.back().whole());
}

TEST_F(StepsTest, AProgramWithAHandlerOfSigtrapIsNotStepped) {
  const auto& image = record({"own-traps"});
  EXPECT_THAT(image.step_traces, IsEmpty());
  EXPECT_THAT(image.steps_unseen, HasSubstr("SIGTRAP"));
}

TEST_F(StepsTest, TheEndOfTheThreadOrTheImageEndsTheStepTrace) {
  EXPECT_THAT(record({"exit-in-zero"}).step_traces, Not(IsEmpty()));
  const auto& relayed = record({"relay"});
  EXPECT_THAT(relayed.step_traces, SizeIs(testing::Ge(2U)));
  EXPECT_THAT(relayed.step_traces, Contains(Field(&StepTrace::ended_because, "the thread ended")));
}

StepTrace first_from_gate(const Image& image) {
  const auto found = std::ranges::find_if(image.step_traces, &StepTrace::from_gate);
  EXPECT_NE(found, image.step_traces.end());
  return found == image.step_traces.end() ? StepTrace{} : *found;
}

TEST_F(StepsTest, FromAGateItShowsWhatComesBeforeTheFirstStore) {
  const auto& image = record_from_gates("gated");
  EXPECT_THAT(image.steps_unseen, IsEmpty());
  const StepTrace trace = first_from_gate(image);
  EXPECT_EQ(trace.ended_because, "over");
  ASSERT_THAT(trace.views, SizeIs(testing::Ge(6U)));
  const auto& [gate, changed, back, zero] =
      std::tie(trace.views[0], trace.views[1], trace.views[2], trace.views[3]);
  EXPECT_EQ(gate.step, 0U);
  EXPECT_TRUE(abi::is_valid(header_of(gate)));
  EXPECT_GT(changed.step, 1000U) << "stores that change nothing do not end it";
  EXPECT_EQ(changed.header, gate.header);
  EXPECT_EQ(changed.payload->bytes.back(), std::byte{'!'});
  ASSERT_TRUE(changed.location.has_value());
  EXPECT_THAT(image.locations.at(*changed.location).symbol, HasSubstr("gated"));
  EXPECT_EQ(back.payload->hash, gate.payload->hash);
  EXPECT_GT(zero.step, back.step + 1000U);
  EXPECT_EQ(header_of(zero).monotonic_published_at_ns, 0U);
  // The stores of the update are recorded as usual.
  std::vector<Store> stores;
  std::ranges::copy_if(image.stores, std::back_inserter(stores),
                       [&](const Store& s) { return s.order > gate.order; });
  ASSERT_THAT(stores, SizeIs(testing::Ge(3U)));
  EXPECT_EQ(stores[0].before, gate.header);
  EXPECT_EQ(stores[0].after, zero.header);
  EXPECT_EQ(stores[0].location, zero.location);
  EXPECT_EQ(stores[0].tid, trace.tid);
  EXPECT_EQ(std::ranges::count(image.step_traces, true, &StepTrace::from_gate), 1);
}

TEST_F(StepsTest, WhatTheKernelStoresInACallIsAViewAndOneStore) {
  const auto& image = record({"kernel", "read"});
  const auto all = views(image);
  ASSERT_THAT(all, SizeIs(testing::Ge(3U)));
  const auto last = std::span(all).last(3);
  ASSERT_THAT(image.stores, SizeIs(7));
  EXPECT_EQ(image.stores[4].after, last[0].header);
  EXPECT_EQ(image.stores[5].after, last[1].header);
  EXPECT_EQ(image.stores[6].after, last[2].header);
  EXPECT_EQ(image.stores[6].call, "read");
  EXPECT_EQ(image.stores[6].tid, image.step_traces.back().tid);
}

TEST_F(StepsTest, FromAGateTheFirstStoreMayBeTheKernels) {
  const auto& image = record_from_gates("gated-kernel");
  const StepTrace trace = first_from_gate(image);
  EXPECT_EQ(trace.ended_because, "over");
  ASSERT_THAT(trace.views, SizeIs(3));
  const std::span stores(image.stores);
  ASSERT_THAT(stores, SizeIs(7));
  for (const std::size_t i : {1U, 2U}) {
    const Store& s = stores[4 + i];
    EXPECT_EQ(s.after, trace.views[i].header);
    EXPECT_EQ(s.location, trace.views[i].location);
    EXPECT_EQ(s.tid, trace.tid);
    EXPECT_EQ(s.call, "read");
  }
}

TEST_F(StepsTest, WhatIsTooLongBeforeTheFirstStoreIsStepTracedFromThere) {
  limits_.early_steps = 5000;
  const auto& image = record_from_gates("gated-long");
  EXPECT_EQ(first_from_gate(image).ended_because, "too many instructions before the first store");
  EXPECT_THAT(first_from_gate(image).views, SizeIs(1));
  EXPECT_EQ(std::ranges::count(image.step_traces, true, &StepTrace::from_gate), 1) << "only once";
  const auto updates = std::ranges::count_if(image.step_traces, [](const StepTrace& w) {
    return w.whole() && !w.from_gate && abi::is_valid(header_of(w.views.front()));
  });
  EXPECT_EQ(updates, 2);
}

TEST_F(StepsTest, TheFirstStoreOfAnotherThreadBeginsAStepTraceOfItsOwn) {
  const auto& image = record_from_gates("gated-other");
  const StepTrace trace = first_from_gate(image);
  EXPECT_EQ(trace.ended_because, "another thread stored to the header first");
  const StepTrace& other = image.step_traces.back();
  EXPECT_NE(other.tid, trace.tid);
  EXPECT_EQ(other.ended_because, "over");
  EXPECT_TRUE(abi::is_valid(header_of(other.views.front())));
  EXPECT_EQ(image.stores.back().tid, other.tid);
}

TEST_F(StepsTest, AHeaderElsewhereEndsTheStepTraceFromAGate) {
  const auto& image = record_from_gates("gated-elsewhere");
  EXPECT_EQ(first_from_gate(image).ended_because, "another header replaced this one");
  EXPECT_EQ(image.stores.back().header, image.watches.back().header);
  EXPECT_TRUE(abi::is_valid(header_of(image.step_traces.back().views.back())));
}

}  // namespace
}  // namespace ctxconf::conformance
