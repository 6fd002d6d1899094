#include "conformance/observe/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ranges>

#include "abi/process_header.h"
#include "conformance/observe/instructions.h"
#include "conformance/observe/recording.h"
#include "conformance/observe/wrap.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::Each;
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
  const Image& record(std::vector<std::string> arguments) {
    WrapOptions o;
    o.argv = std::move(arguments);
    o.argv.insert(o.argv.begin(), std::string(CTXCONF_BIN_DIR) + "/store_target");
    o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
    o.stores = true;
    o.steps = true;
    o.timeout_scale = 10;
    timeline_ = {};
    const auto r = record_wrap(o, timeline_);
    EXPECT_TRUE(r) << sys::to_string(r.error());
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
    for (const auto& walk : image.walks)
      out.insert(out.end(), walk.views.begin(), walk.views.end());
    return out;
  }
  std::optional<int> exit_code_ = 0;
  Timeline timeline_;
};

TEST_F(StepsTest, ShowsEveryStateBetweenTwoInstructions) {
  const auto& image = record({"updates", "2"});
  EXPECT_THAT(image.walks_unseen, IsEmpty());
  // Each store that changes the header is the beginning of a view, and nothing else changed.
  std::vector<Store> stores;
  std::ranges::copy_if(image.stores, std::back_inserter(stores),
                       [](const Store& s) { return s.before != s.after; });
  std::size_t store = 0;
  for (const auto& walk : image.walks) {
    ASSERT_FALSE(walk.views.empty());
    EXPECT_FALSE(walk.views[0].place.has_value());
    EXPECT_EQ(walk.views[0].header, stores.at(store).before);
    std::uint64_t step = 0;
    for (const auto& view : walk.views | std::views::drop(1)) {
      EXPECT_GT(view.step, step);
      step = view.step;
      EXPECT_EQ(view.header, stores.at(store).after);
      EXPECT_EQ(view.place, stores.at(store).place) << "the instruction of the store";
      EXPECT_EQ(view.payload.has_value(), header_of(view).monotonic_published_at_ns != 0);
      ++store;
    }
    EXPECT_GE(walk.steps, step);
  }
  EXPECT_EQ(store, stores.size());
}

TEST_F(StepsTest, ShowsWhatIsDoneToThePayloadBehindTheTimestamp) {
  const auto& image = record({"late-payload"});
  const auto all = views(image);
  ASSERT_GT(all.size(), 2U);
  const ReaderView& late = all.back();
  ASSERT_TRUE(late.place.has_value());
  ASSERT_TRUE(late.payload.has_value());
  EXPECT_EQ(late.header, all[all.size() - 2].header) << "no store to the header";
  EXPECT_EQ(late.payload->bytes.back(), std::byte{'!'});
  EXPECT_THAT(image.places.at(*late.place).symbol, HasSubstr("late_payload"));
  EXPECT_LT(image.stores.back().order, late.order);
}

TEST_F(StepsTest, NamesTheBarriersOnTheWay) {
  const auto& image = record({"barriers"});
  std::vector<std::string> texts;
  for (const auto& walk : image.walks) {
    for (const auto& barrier : walk.barriers) texts.push_back(barrier.text);
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
    return v.place && image.places.at(*v.place).symbol.find("rep_payload") != std::string::npos &&
           v.payload;
  });
  EXPECT_GE(inside, 8) << "eight bytes behind the timestamp";
}

TEST_F(StepsTest, WhatComesBetweenTheInstructionsOfAChangeIsSurvived) {
  for (const auto* mode : {"signals-in-zero", "fork-in-zero", "thread-in-zero", "sleep-in-zero"}) {
    const auto& image = record({mode});
    EXPECT_THAT(image.walks, Contains(testing::Truly([](const StepWalk& w) { return w.whole(); })))
        << mode;
    EXPECT_THAT(image.walks, Contains(Field(&StepWalk::steps, testing::Gt(500U)))) << mode;
  }
}

TEST_F(StepsTest, AChangeWithoutEndIsGivenUp) {
  const auto& image = record({"long-zero"});
  ASSERT_THAT(image.walks, Not(IsEmpty()));
  EXPECT_THAT(image.walks, Contains(Field(&StepWalk::ended_because, "too many instructions")));
}

TEST_F(StepsTest, ALockOfAnotherThreadIsWaitedFor) {
  EXPECT_THAT(record({"lock-in-zero"}).walks,
              Contains(testing::Truly([](const StepWalk& w) { return w.whole(); })));
}

TEST_F(StepsTest, AStormOfSignalsEndsTheWalkAndNotTheProgram) {
  const auto& image = record({"storm-in-zero"});
  EXPECT_THAT(image.walks, Contains(Field(&StepWalk::ended_because, "too many instructions")));
  EXPECT_NE(abi::decode_process_header(image.stores.back().after)->monotonic_published_at_ns, 0U);
}

TEST_F(StepsTest, ASigtrapOfTheProgramItselfEndsTheWalkAndReachesIt) {
  EXPECT_THAT(record({"trap-in-zero"}).walks,
              Contains(Field(&StepWalk::ended_because, "the program's own SIGTRAP")));
}

TEST_F(StepsTest, AnExecInTheMiddleEndsTheWalk) {
  const auto& first = record({"exec-in-zero"});
  EXPECT_THAT(first.walks,
              Contains(Field(&StepWalk::ended_because, "the program was replaced or ended")));
  ASSERT_THAT(timeline_.processes[0].images, SizeIs(2));
  EXPECT_THAT(timeline_.processes[0].images[1].walks,
              Contains(testing::Truly([](const StepWalk& w) { return w.whole(); })));
}

TEST_F(StepsTest, AProgramThatIsKilledInTheMiddleLeavesItsWalk) {
  exit_code_.reset();
  EXPECT_THAT(record({"killed-in-zero"}).walks, Not(IsEmpty()));
  EXPECT_EQ(timeline_.processes[0].killed_by, SIGKILL);
}

TEST_F(StepsTest, WeMayEndItInTheMiddle) {
  WrapOptions o;
  o.argv = {std::string(CTXCONF_BIN_DIR) + "/store_target", "long-zero"};
  o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  o.stores = true;
  o.steps = true;
  auto recording = Recording::start(o, {}, timeline_);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  while (recording->late() == Recording::Clock::duration::zero()) {
    const auto stepped = recording->step(Recording::Clock::now() + std::chrono::seconds(1));
    ASSERT_TRUE(stepped && *stepped);
  }
  EXPECT_TRUE(recording->finish());
  ASSERT_FALSE(timeline_.processes.empty());
  EXPECT_TRUE(timeline_.processes[0].ended_by_us);
  ASSERT_THAT(timeline_.processes[0].images[0].walks, Not(IsEmpty()));
  EXPECT_FALSE(timeline_.processes[0].images[0].walks.back().whole());
}

TEST_F(StepsTest, AProgramWithAHandlerOfSigtrapIsNotStepped) {
  const auto& image = record({"own-traps"});
  EXPECT_THAT(image.walks, IsEmpty());
  EXPECT_THAT(image.walks_unseen, HasSubstr("SIGTRAP"));
}

TEST_F(StepsTest, TheEndOfTheThreadOrTheImageEndsTheWalk) {
  EXPECT_THAT(record({"exit-in-zero"}).walks, Not(IsEmpty()));
  const auto& relayed = record({"relay"});
  EXPECT_THAT(relayed.walks, SizeIs(testing::Ge(2U)));
  EXPECT_THAT(relayed.walks, Contains(Field(&StepWalk::ended_because, "the thread ended")));
}

#if defined(__x86_64__)
TEST(InstructionDecoderTest, KnowsFencesAndLockedInstructions) {
  const InstructionDecoder decoder;
  const auto text = [&](std::initializer_list<int> code) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    const auto barrier = decoder.decode(bytes, 0x1000).barrier;
    return barrier.empty() ? "none" : barrier;
  };
  EXPECT_EQ(text({0x0f, 0xae, 0xf0}), "mfence");
  EXPECT_EQ(text({0x0f, 0xae, 0xf8}), "sfence");
  EXPECT_EQ(text({0x0f, 0xae, 0xe8}), "none") << "lfence orders loads";
  EXPECT_THAT(text({0xf0, 0x83, 0x0c, 0x24, 0x00}), testing::StartsWith("lock or"));
  EXPECT_THAT(text({0x48, 0x87, 0x07}), testing::StartsWith("xchg"));
  EXPECT_EQ(text({0x48, 0x87, 0xc3}), "none") << "between registers";
  EXPECT_EQ(text({0x48, 0x89, 0x07}), "none") << "a plain store";
  EXPECT_EQ(text({0x0f}), "none") << "half an instruction";
  EXPECT_EQ(text({}), "none");
}

TEST(InstructionDecoderTest, TellsWhatMayStore) {
  const InstructionDecoder decoder;
  const auto may_store = [&](std::initializer_list<int> code) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    return decoder.decode(bytes, 0x1000).may_store;
  };
  EXPECT_FALSE(may_store({0x48, 0x89, 0xc3})) << "mov rbx, rax";
  EXPECT_FALSE(may_store({0x48, 0x8b, 0x07})) << "mov rax, [rdi]";
  EXPECT_FALSE(may_store({0x48, 0x39, 0x07})) << "cmp [rdi], rax";
  EXPECT_FALSE(may_store({0x48, 0x8d, 0x07})) << "lea rax, [rdi]";
  EXPECT_FALSE(may_store({0x74, 0x02})) << "je";
  EXPECT_FALSE(may_store({0x58})) << "pop rax";
  EXPECT_FALSE(may_store({0xc3})) << "ret";
  EXPECT_FALSE(may_store({0x0f, 0x1f, 0x44, 0x00, 0x00})) << "nop [rax + rax]";
  EXPECT_TRUE(may_store({0x48, 0x89, 0x07})) << "mov [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x01, 0x07})) << "add [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x87, 0x07})) << "xchg [rdi], rax";
  EXPECT_TRUE(may_store({0x48, 0x0f, 0xc1, 0x07})) << "xadd [rdi], rax";
  EXPECT_TRUE(may_store({0x0f, 0x95, 0x07})) << "setne [rdi]";
  EXPECT_TRUE(may_store({0x8f, 0x07})) << "pop [rdi]";
  EXPECT_TRUE(may_store({0x50})) << "push rax";
  EXPECT_TRUE(may_store({0xe8, 0x00, 0x00, 0x00, 0x00})) << "call";
  EXPECT_TRUE(may_store({0x0f, 0x05})) << "syscall";
  EXPECT_TRUE(may_store({0xf3, 0xa4})) << "rep movsb";
  EXPECT_TRUE(may_store({0xc5, 0xfe, 0x7f, 0x07})) << "vmovdqu [rdi], ymm0";
  EXPECT_FALSE(may_store({0xc5, 0xfe, 0x6f, 0x07})) << "vmovdqu ymm0, [rdi]";
  EXPECT_TRUE(may_store({0x66, 0x0f, 0xf7, 0xc1})) << "maskmovdqu xmm0, xmm1";
  EXPECT_TRUE(may_store({0x0f})) << "half an instruction";
}
#endif

}  // namespace
}  // namespace ctxconf::conformance
