#include "conformance/observe/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <ranges>
#include <tuple>

#include "abi/process_header.h"
#include "conformance/observe/gated_recording.h"
#include "conformance/observe/instructions.h"
#include "conformance/observe/recording.h"
#include "conformance/observe/wrap.h"
#include "sys/capabilities.h"
#include "sys/code_stack.h"

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
  static WrapOptions options(std::vector<std::string> arguments) {
    WrapOptions o;
    o.argv = std::move(arguments);
    o.argv.insert(o.argv.begin(), std::string(CTXCONF_BIN_DIR) + "/store_target");
    o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
    o.stores = true;
    o.steps = true;
    o.timeout_scale = 10;
    return o;
  }
  const Image& record(std::vector<std::string> arguments) {
    timeline_ = {};
    const auto r = record_wrap(options(std::move(arguments)), timeline_);
    EXPECT_TRUE(r) << sys::to_string(r.error());
    return recorded();
  }
  // Each time that it waits at its gate, the thread is walked from there.
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
  auto recording = Recording::start(options({"long-zero"}), {}, timeline_);
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

StepWalk first_from_gate(const Image& image) {
  const auto found = std::ranges::find_if(image.walks, &StepWalk::from_gate);
  EXPECT_NE(found, image.walks.end());
  return found == image.walks.end() ? StepWalk{} : *found;
}

TEST_F(StepsTest, FromAGateItShowsWhatComesBeforeTheFirstStore) {
  const auto& image = record_from_gates("gated");
  EXPECT_THAT(image.walks_unseen, IsEmpty());
  const StepWalk walk = first_from_gate(image);
  EXPECT_EQ(walk.ended_because, "over");
  ASSERT_THAT(walk.views, SizeIs(testing::Ge(6U)));
  const auto& [gate, changed, back, zero] =
      std::tie(walk.views[0], walk.views[1], walk.views[2], walk.views[3]);
  EXPECT_EQ(gate.step, 0U);
  EXPECT_TRUE(abi::is_valid(header_of(gate)));
  EXPECT_GT(changed.step, 1000U) << "what changes nothing does not end it";
  EXPECT_EQ(changed.header, gate.header);
  EXPECT_EQ(changed.payload->bytes.back(), std::byte{'!'});
  ASSERT_TRUE(changed.place.has_value());
  EXPECT_THAT(image.places.at(*changed.place).symbol, HasSubstr("gated"));
  EXPECT_EQ(back.payload->hash, gate.payload->hash);
  EXPECT_GT(zero.step, back.step + 1000U);
  EXPECT_EQ(header_of(zero).monotonic_published_at_ns, 0U);
  // The stores of the update are recorded as they are elsewhere.
  std::vector<Store> stores;
  std::ranges::copy_if(image.stores, std::back_inserter(stores),
                       [&](const Store& s) { return s.order > gate.order; });
  ASSERT_THAT(stores, SizeIs(testing::Ge(3U)));
  EXPECT_EQ(stores[0].before, gate.header);
  EXPECT_EQ(stores[0].after, zero.header);
  EXPECT_EQ(stores[0].place, zero.place);
  EXPECT_EQ(stores[0].tid, walk.tid);
  EXPECT_EQ(std::ranges::count(image.walks, true, &StepWalk::from_gate), 1);
}

TEST_F(StepsTest, WhatIsTooLongBeforeTheFirstStoreIsWalkedFromThere) {
  const auto& image = record_from_gates("gated-long");
  EXPECT_EQ(first_from_gate(image).ended_because, "too many instructions before the first store");
  EXPECT_THAT(first_from_gate(image).views, SizeIs(1));
  EXPECT_EQ(std::ranges::count(image.walks, true, &StepWalk::from_gate), 1) << "not once more";
  const auto updates = std::ranges::count_if(image.walks, [](const StepWalk& w) {
    return w.whole() && !w.from_gate && abi::is_valid(header_of(w.views.front()));
  });
  EXPECT_EQ(updates, 2);
}

TEST_F(StepsTest, TheFirstStoreOfAnotherThreadBeginsAWalkOfItsOwn) {
  const auto& image = record_from_gates("gated-other");
  const StepWalk walk = first_from_gate(image);
  EXPECT_EQ(walk.ended_because, "another thread stored to the header first");
  const StepWalk& other = image.walks.back();
  EXPECT_NE(other.tid, walk.tid);
  EXPECT_EQ(other.ended_because, "over");
  EXPECT_TRUE(abi::is_valid(header_of(other.views.front())));
  EXPECT_EQ(image.stores.back().tid, other.tid);
}

TEST_F(StepsTest, AHeaderElsewhereEndsTheWalkFromAGate) {
  const auto& image = record_from_gates("gated-elsewhere");
  EXPECT_EQ(first_from_gate(image).ended_because, "the header is another one");
  EXPECT_EQ(image.stores.back().header, image.watches.back().header);
  EXPECT_TRUE(abi::is_valid(header_of(image.walks.back().views.back())));
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

TEST(InstructionDecoderTest, TellsWhatWasLeftAlone) {
  constexpr std::uint64_t kPc = 0x1000;
  constexpr std::uint64_t kRecord = 0x550000011000;
  const InstructionDecoder decoder;
  const auto record = *sys::RemoteRange::from_size(sys::RemoteAddr(kRecord), 64);
  sys::StackCopy after;
  const auto left_alone = [&](std::initializer_list<int> code, std::uint64_t rdi,
                              std::uint64_t behind = 0) {
    std::vector<std::byte> bytes;
    for (const int c : code) bytes.push_back(static_cast<std::byte>(c));
    after.registers = {};
    after.registers[5] = rdi;
    after.registers[sys::StackCopy::kStackPointer] = rdi;
    after.registers[sys::StackCopy::kProgramCounter] = behind == 0 ? kPc + bytes.size() : behind;
    return decoder.left_alone(bytes, kPc, after.registers, record);
  };
  constexpr std::uint64_t kElsewhere = kRecord + 4096;
  EXPECT_TRUE(left_alone({0x48, 0x89, 0x07}, kElsewhere)) << "mov [rdi], rax";
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x07}, kRecord + 24));
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x07}, kRecord - 4)) << "it reaches into it";
  EXPECT_FALSE(left_alone({0x48, 0x89, 0x47, 0xf8}, kRecord + 64)) << "mov [rdi - 8], rax";
  EXPECT_TRUE(left_alone({0x48, 0x89, 0x47, 0xf8}, kRecord + 72));
  EXPECT_TRUE(left_alone({0x48, 0x8b, 0x07}, kRecord)) << "mov rax, [rdi]";
  EXPECT_TRUE(left_alone({0x0f, 0x05}, kRecord)) << "syscall";
  EXPECT_FALSE(left_alone({0x0f, 0x05}, kRecord, kPc + 5)) << "syscall, and one more";
  EXPECT_TRUE(left_alone({0x74, 0x02}, kRecord, kPc + 4)) << "je";
  EXPECT_TRUE(left_alone({0x50}, kElsewhere)) << "push rax";
  EXPECT_FALSE(left_alone({0x50}, kRecord + 8));
  EXPECT_TRUE(left_alone({0xe8, 0x00, 0x01, 0x00, 0x00}, kElsewhere, kPc + 0x105)) << "call";
  EXPECT_FALSE(left_alone({0x48, 0x0f, 0xc1, 0x3f}, kElsewhere)) << "xadd [rdi], rdi";
  EXPECT_FALSE(left_alone({0xf3, 0xa4}, kElsewhere)) << "rep movsb";
  EXPECT_FALSE(left_alone({0x64, 0x48, 0x89, 0x07}, kElsewhere)) << "mov fs:[rdi], rax";
  EXPECT_FALSE(left_alone({0x0f, 0xae, 0x27}, kElsewhere)) << "xsave [rdi]";
  EXPECT_FALSE(left_alone({0x0f}, kElsewhere)) << "half an instruction";
  EXPECT_FALSE(left_alone({}, kElsewhere));
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
