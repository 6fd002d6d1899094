#include "conformance/puppet/record_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <string>

#include "abi/process_header.h"
#include "sys/capabilities.h"
#include "sys/process.h"

namespace ctxconf::conformance::puppet {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kRw = PROT_READ | PROT_WRITE;

struct Recorded {
  Played played;
  Timeline timeline;

  const Step& step(std::size_t operation) const {
    const auto it = std::ranges::find(played.steps, operation, &Step::operation);
    EXPECT_NE(it, played.steps.end()) << operation;
    static const Step kNone;
    return it == played.steps.end() ? kNone : *it;
  }
  std::string problem() const { return played.problem ? played.problem->text : "none"; }
  const Process& root() const { return timeline.processes.front(); }
};

PuppetOptions options() {
  PuppetOptions o;
  o.player.programs = CTXCONF_BIN_DIR;
  o.wrap.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  o.wrap.stores = sys::Capabilities::of_this_host().has(sys::kHostWatchpoints);
  return o;
}

Recorded run(const Script& script, const PuppetOptions& how = options()) {
  EXPECT_EQ(check(script).value_or(ScriptProblem{}).text, "");
  Recorded out;
  auto played = record_script(script, how, out.timeline);
  EXPECT_TRUE(played) << sys::to_string(played.error());
  if (played) out.played = *std::move(played);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1) << "a process is left";
  EXPECT_FALSE(out.timeline.processes.empty());
  return out;
}

// Publishes with one attribute: service.name=x.
Value publish(Builder& b) {
  const Value fd = b.memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  b.truncate(fd, 4096);
  const Value header = b.map_file(fd, 4096, kRw, MAP_PRIVATE);
  b.close(fd);
  b.advise(header, 4096, MADV_DONTFORK);
  const std::string payload =
      std::string("\x0a\x17\x0a\x15\x0a\x0cservice.name\x12\x05\x0a\x03") + "one";
  b.write(header + 32, bytes_of(payload));
  b.write(header, bytes_of("OTEL_CTX"));
  b.store(header + 8, 4, 2);
  b.store(header + 12, 4, payload.size());
  b.store(header + 24, 8, header + 32);
  b.fence();
  b.store(header + 16, 8, b.clock());
  b.may_fail().name(header, 4096, "OTEL_CTX");
  return header;
}

TEST(RecordScriptTest, APublicationIsRecordedLikeThatOfAnyProgram) {
  Builder b;
  const Value header = publish(b);
  b.look();
  b.store(header + 16, 8, 0);
  b.look();
  b.exit(3);
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  EXPECT_THAT(r.played.steps, SizeIs(b.size()));
  ASSERT_THAT(r.root().images, SizeIs(1));
  EXPECT_EQ(r.root().exit_code, 3);
  const Image& image = r.root().images.front();
  EXPECT_THAT(image.executable, HasSubstr("ctxconf-puppet"));
  std::vector<std::string> calls;
  for (const auto& c : image.calls) calls.push_back(c.name);
  for (const char* name : {"memfd_create", "ftruncate", "mmap", "madvise", "prctl"}) {
    EXPECT_THAT(calls, Contains(std::string(name)));
  }
  std::size_t valid = 0;
  std::size_t zero = 0;
  for (const auto& s : image.snapshots) {
    for (const auto& c : s.candidates) {
      const auto h = abi::decode_process_header(c.memory.front().bytes);
      if (h && abi::is_valid(*h)) ++valid;
      if (h && h->version == 2 && h->monotonic_published_at_ns == 0) ++zero;
      EXPECT_TRUE(c.stable);
    }
  }
  EXPECT_GE(valid, 1U);
  EXPECT_GE(zero, 1U);
  if (options().wrap.stores) {
    EXPECT_GE(image.stores.size(), 2U);
  }
}

TEST(RecordScriptTest, NoLookIsTakenUnlessItIsAskedFor) {
  Builder b;
  publish(b);
  b.sleep(350'000'000);
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  for (const auto& s : r.root().images.front().snapshots) {
    EXPECT_THAT(s.moments, testing::Not(Contains(Moment::kPeriodic)));
  }
}

TEST(RecordScriptTest, EveryWidthAndWayOfCopyingStoresWhatWasSaid) {
  Builder b;
  const Value at = b.map_anonymous(4 * 4096, kRw, MAP_PRIVATE);
  std::vector<std::pair<std::size_t, std::string>> expected;
  const auto check_there = [&](const Value& where, const std::string& bytes) {
    expected.emplace_back(b.size(), bytes);
    b.read_back(where, bytes.size());
  };
  for (const std::uint32_t width : {1U, 2U, 4U, 8U, 16U}) {
    for (const auto order : {StoreOrder::kPlain, StoreOrder::kRelease, StoreOrder::kSeqCst}) {
      const std::string bytes = std::string("0123456789abcdef").substr(0, width);
      b.fill(at, 64, bytes_of("."));
      b.store_bytes(at + 16, bytes_of(bytes), order);
      check_there(at + 15, "." + bytes + ".");
    }
  }
  std::string text;
  for (int i = 0; i < 9000; ++i) text += static_cast<char>('a' + i % 23);
  for (const auto how : {CopyHow::kBytes, CopyHow::kWords, CopyHow::kRepBytes, CopyHow::kRepWords,
                         CopyHow::kVector, CopyHow::kPipe, CopyHow::kProcessVm}) {
    const std::string part = text.substr(static_cast<std::size_t>(how), 35);
    b.fill(at, 3 * 4096, bytes_of("xyz"), how);
    check_there(at + 4095, std::string("xyzxyz"));
    b.write(at + 1, bytes_of(part), how);
    b.copy(at + 101, at + 1, 35, how);
    check_there(at + 100, "y" + part + "y");
  }
  b.write(at, bytes_of(text), CopyHow::kRepBytes);
  check_there(at, text);
  b.store(at, 8, -1);
  const Value all_ones = b.load(at, 8);
  b.store(at + 8, 8, all_ones - 1);
  check_there(at + 8, "\xfe\xff\xff\xff\xff\xff\xff\xff");
  b.may_fail().store_bytes(at + 64, bytes_of("0123456789abcdef0123456789abcdef"));
  b.fill(at, 64, bytes_of("first..."));
  b.fill(at + 64, 64, bytes_of("second.."));
  b.alternate(at + 128, at, at + 64, 8, 3, CopyHow::kWords);
  check_there(at + 128, "second..");
  const Value other = b.thread();
  b.by(other).later().alternate(at + 128, at + 64, at, 8, 5, CopyHow::kVector);
  b.join();
  b.by_first();
  check_there(at + 128, "first...");
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  for (const auto& [operation, bytes] : expected) {
    EXPECT_EQ(r.step(operation).bytes, bytes_of(bytes)) << operation;
  }
}

TEST(RecordScriptTest, ARoundOfStoresIsRepeatedWithGrowingNumbers) {
  Builder b;
  const Value at = b.map_anonymous(8 * 4096, kRw, MAP_PRIVATE);
  b.repeat(3, {at, 8, 10, 2, at + 8, 2, 0x1ffff, 0});
  b.load(at, 8);
  b.load(at + 8, 8);
  b.split(at, 8 * 4096);
  b.store(at + 4096, 8, 1);
  b.store(at, 8, 1);
  const Recorded r = run(b.script());
  EXPECT_THAT(r.problem(), HasSubstr("ended before it answered"));
  EXPECT_EQ(r.step(1).outcome, StepOutcome::kDone);
  EXPECT_EQ(r.step(2).result, 14);
  EXPECT_EQ(r.step(3).result, 0xffff);
  EXPECT_EQ(r.step(5).outcome, StepOutcome::kDone);
  EXPECT_EQ(r.root().killed_by, SIGSEGV);
}

TEST(RecordScriptTest, ACrowdHasARecordForEachThread) {
  Builder b(Program::kSlot);
  const Value records = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const Value tids = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const Value stacks = b.map_anonymous(5 * 4096, kRw, MAP_PRIVATE);
  b.crowd({.count = 5, .records = records, .stride = 64, .tids = tids, .stacks = stacks});
  std::vector<std::size_t> loads;
  for (std::uint64_t i = 0; i < 5; ++i) {
    loads.push_back(b.size());
    b.load(tids + 4 * i, 4);
  }
  b.look();
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  std::map<std::int64_t, std::uint64_t> values;
  for (const auto& t : r.root().images.front().threads) values[t.tid] = t.value;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const std::int64_t tid = r.step(loads[i]).result;
    ASSERT_TRUE(values.contains(tid)) << i;
    EXPECT_EQ(values[tid], static_cast<std::uint64_t>(r.step(0).result) + 64 * i);
  }
}

TEST(RecordScriptTest, TheReaderFindsTheSlotOfEachThread) {
  Builder b(Program::kSlot);
  const Value record = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const std::string ids = "0123456789abcdefABCDEFGH";
  b.write(record, bytes_of(ids + std::string("\1\1\0\0", 4)));
  b.write(record + 64, bytes_of(ids + std::string("\1\0\0\0", 4)));
  const Value one = b.thread();
  const Value two = b.thread();
  b.by(one).slot(record);
  b.by(two).slot(record + 64, StoreOrder::kSeqCst);
  const std::size_t asked = b.size();
  const Value slot = b.slot_address();
  b.by_first().load(slot, 8);
  b.look();
  b.by(two).store(slot, 8, 0);
  b.look();
  b.exit_thread();
  b.by_first().exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  const Image& image = r.root().images.front();
  const auto tid_one = static_cast<std::int32_t>(r.step(3).result);
  const auto tid_two = static_cast<std::int32_t>(r.step(4).result);
  const auto at = static_cast<std::uint64_t>(r.step(0).result);
  std::vector<std::pair<std::int32_t, std::uint64_t>> seen;
  for (const auto& t : image.threads) seen.emplace_back(t.tid, t.value);
  EXPECT_THAT(seen, Contains(std::pair(tid_one, at)));
  EXPECT_THAT(seen, Contains(std::pair(tid_two, at + 64)));
  EXPECT_THAT(seen, Contains(std::pair(tid_two, std::uint64_t{0})));
  const auto two_s = std::ranges::find(image.threads, tid_two, &ThreadSample::tid);
  ASSERT_NE(two_s, image.threads.end());
  EXPECT_EQ(two_s->slot, static_cast<std::uint64_t>(r.step(asked).result));
  EXPECT_EQ(static_cast<std::uint64_t>(r.step(asked + 1).result), at + 64);
}

// What a reader of the recording finds in a thread.
struct Found {
  std::uint64_t slot = 0;
  std::uint64_t value = 0;
  friend bool operator==(const Found&, const Found&) = default;
};
std::vector<Found> found_in(const Recorded& r, std::int64_t tid) {
  std::vector<Found> out;
  for (const auto& t : r.root().images.back().threads) {
    if (t.tid == tid) out.push_back({t.slot, t.value});
  }
  return out;
}

TEST(RecordScriptTest, TheReaderFindsTheSlotInEachProgramOfTheCLibrary) {
  for (const Program program : {Program::kLibcSlot, Program::kLibcNoPie, Program::kLibcAligned,
                                Program::kLibcAligned64, Program::kLibcStaticPie}) {
    SCOPED_TRACE(file_of(program));
    Builder b(program);
    const Value record = b.map_anonymous(4096, kRw, MAP_PRIVATE);
    const Value thread = b.thread();
    b.slot(record);
    b.slot_address();
    b.by(thread).slot(record + 64);
    b.slot_address();
    b.look();
    b.by_first().exit();
    const Recorded r = run(b.script());
    ASSERT_EQ(r.problem(), "none");
    const auto at = static_cast<std::uint64_t>(r.step(0).result);
    EXPECT_THAT(found_in(r, r.root().pid),
                Contains(Found{static_cast<std::uint64_t>(r.step(3).result), at}));
    EXPECT_THAT(found_in(r, r.step(1).result),
                Contains(Found{static_cast<std::uint64_t>(r.step(5).result), at + 64}));
  }
}

TEST(RecordScriptTest, LibrariesAreLoadedAtStartAndLater) {
  struct Case {
    std::string preload;
    std::string file;
    LoadCopy copy = LoadCopy::kNone;
    std::string to = {};
  };
  const Case cases[] = {
      {"slot_tlsdesc.so", ""},
      {"slot_general_dynamic.so", ""},
      {"slot_initial_exec.so", ""},
      {"", "slot_tlsdesc.so"},
      {"", "slot_tlsdesc_large.so"},
      {"", "slot_general_dynamic_large.so"},
      {"", "slot_tlsdesc.so", LoadCopy::kMemfd, "a \xc3\xbc"},
      {"", "slot_tlsdesc.so", LoadCopy::kRemoved, "/tmp"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.preload + c.file + c.to);
    Builder b(Program::kLibc);
    if (!c.preload.empty()) b.preload(c.preload);
    const Value record = b.map_anonymous(4096, kRw, MAP_PRIVATE);
    const Value thread = b.thread();
    const Value library = c.file.empty() ? Value(0) : b.load_library(c.file, c.copy, c.to);
    b.by(thread).slot(record, StoreOrder::kPlain, library);
    const std::size_t asked = b.size();
    b.slot_address(library);
    b.look();
    b.by_first().exit();
    const Recorded r = run(b.script());
    ASSERT_EQ(r.problem(), "none");
    EXPECT_THAT(found_in(r, r.step(1).result),
                Contains(Found{static_cast<std::uint64_t>(r.step(asked).result),
                               static_cast<std::uint64_t>(r.step(0).result)}));
  }
}

TEST(RecordScriptTest, EachCopyOfALibraryIsALibraryOfItsOwn) {
  Builder b(Program::kLibc);
  const Value one = b.load_library("slot_tlsdesc.so", LoadCopy::kMemfd, "one");
  const Value two = b.load_library("slot_tlsdesc.so", LoadCopy::kMemfd, "one");
  const Value three = b.load_library("slot_tlsdesc.so", LoadCopy::kRemoved, "/tmp");
  for (const Value& library : {one, two, three}) b.slot_address(library);
  b.unload_library(two);
  const std::size_t missing = b.size();
  b.may_fail().load_library("slot_of_nobody.so");
  b.exit();
  const Recorded r = run(b.script());
  ASSERT_EQ(r.problem(), "none");
  EXPECT_NE(r.step(0).result, r.step(1).result);
  EXPECT_NE(r.step(3).result, r.step(4).result);
  EXPECT_NE(r.step(4).result, r.step(5).result);
  EXPECT_EQ(r.step(missing).outcome, StepOutcome::kRefused);
}

TEST(RecordScriptTest, AFileOfALibraryIsNotWrittenOver) {
  const std::string path = testing::TempDir() + "ctxconf_copy of a library.so";
  (void)unlink(path.c_str());
  Builder b(Program::kLibc);
  b.slot_address(b.load_library("slot_tlsdesc.so", LoadCopy::kFile, path));
  b.may_fail().load_library("slot_tlsdesc.so", LoadCopy::kFile, path);
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(r.problem(), "none");
  EXPECT_EQ(r.step(2).result, -EEXIST);
}

TEST(RecordScriptTest, ChildrenAreMovedByTheirNames) {
  Builder b;
  const Value at = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  b.store(at, 8, 1);
  const Value child = b.fork();
  b.by(child).store(at, 8, 2);
  const Value grandchild = b.fork(ForkHow::kClone, 0);
  const Value worker = b.thread();
  b.by(worker).store(at + 8, 8, 5);
  b.by(grandchild).exit(7);
  b.by(child).wait(grandchild);
  const std::size_t status = b.size() - 1;
  const std::size_t theirs = b.size();
  b.load(at, 8);
  b.load(at + 8, 8);
  b.by_first().load(at, 8);
  b.signal(SIGKILL, child, /*process=*/true);
  b.wait(child);
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  EXPECT_EQ(WEXITSTATUS(r.step(status).result), 7);
  EXPECT_EQ(r.step(theirs).result, 2);
  EXPECT_EQ(r.step(theirs + 1).result, 5);
  EXPECT_EQ(r.step(theirs + 2).result, 1);
  EXPECT_EQ(WTERMSIG(r.step(theirs + 4).result), SIGKILL);
}

TEST(RecordScriptTest, AVforkedChildComesBeforeItsParentGoesOn) {
  Builder b;
  const Value at = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const Value child = b.fork(ForkHow::kVfork);
  b.by(child).store(at, 8, 9);  // in its parent's memory
  b.exec();
  const Value own = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  b.store(own, 8, 3);
  b.by_first().load(at, 8);
  const std::size_t loaded = b.size() - 1;
  b.by(child).exit(4);
  b.by_first().wait(child);
  const std::size_t status = b.size() - 1;
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  EXPECT_EQ(r.step(loaded).result, 9);
  EXPECT_EQ(WEXITSTATUS(r.step(status).result), 4);
}

TEST(RecordScriptTest, ExecGoesOnAsTheFirstThreadOfItsProcess) {
  Builder b;
  const Value worker = b.thread();
  b.by(worker).exec("slot");
  b.by_first().slot(0);
  b.exec("libc");
  b.slot(0, StoreOrder::kPlain, b.load_library("slot_tlsdesc.so"));
  b.exec("plain");
  const Value fd = b.memfd("OTEL_CTX", 0);
  b.exec("/bin/sh", {"-c", "exit 6"});
  const Recorded r = run(b.script());
  (void)fd;
  EXPECT_EQ(r.problem(), "none");
  EXPECT_EQ(r.root().exit_code, 6);
}

TEST(RecordScriptTest, SignalsAndHandlers) {
  Builder b;
  const Value at = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const Value worker = b.thread();
  b.handle(SIGUSR1, SignalAction::kServe);
  // While it is idle, and in the middle of an operation.
  b.signal(SIGUSR1, worker);
  b.by(worker).store(at, 8, 1);
  b.return_from_handler();
  const std::size_t awaited = b.size();
  b.later().await(at + 8, 8, 5);
  b.by_first().signal(SIGUSR1, worker);
  b.by(worker).store(at + 8, 8, 5);
  b.return_from_handler();
  b.join();
  b.by_first().mask(SIGUSR1, true);
  b.handle(SIGUSR2, SignalAction::kIgnore);
  b.signal(SIGUSR2, worker);
  b.handle(SIGUSR2, SignalAction::kReturn);
  b.signal(SIGUSR2, worker);
  b.by(worker).load(at, 8);
  const std::size_t loaded = b.size() - 1;
  b.by_first().exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  EXPECT_EQ(r.step(awaited).outcome, StepOutcome::kDone);
  EXPECT_EQ(r.step(loaded).result, 1);
}

TEST(RecordScriptTest, AThreadWaitsForAPageThatIsWithheld) {
  Builder b;
  const Value at = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  const Value held = b.may_fail().withhold(at, 4096);
  const Value worker = b.thread();
  b.if_set(held).by(worker).later().load(at, 8);
  const std::size_t load = b.size() - 1;
  b.if_set(held).by_first().give(held, at, 4096);
  b.by(worker).join();
  b.by_first().exit();
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  if (r.step(1).outcome == StepOutcome::kRefused) GTEST_SKIP() << to_string(r.step(1));
  EXPECT_EQ(r.step(load).outcome, StepOutcome::kDone);
}

TEST(RecordScriptTest, WhatIsRefusedEndsTheScriptUnlessItMayFail) {
  Builder b;
  const Value at = b.may_fail().map_anonymous(0, kRw, MAP_PRIVATE);
  b.if_set(at).print("not printed");
  b.may_fail().unmap(at, 4096);
  const Value other = b.unless_set(at).map_anonymous(4096, kRw, MAP_PRIVATE);
  b.protect(other + 1, 4096, 0);
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_THAT(r.problem(), HasSubstr("protect: Invalid argument"));
  ASSERT_TRUE(r.played.problem);
  EXPECT_EQ(r.played.problem->line, 4U);
  EXPECT_EQ(r.step(0).outcome, StepOutcome::kRefused);
  EXPECT_EQ(r.step(0).result, -EINVAL);
  EXPECT_EQ(to_string(r.step(0)), "= -1 EINVAL (Invalid argument)");
  EXPECT_EQ(r.step(1).outcome, StepOutcome::kSkipped);
  EXPECT_EQ(r.step(2).outcome, StepOutcome::kSkipped);
  EXPECT_EQ(r.step(3).outcome, StepOutcome::kDone);
  EXPECT_TRUE(r.root().ended_by_us);
}

TEST(RecordScriptTest, AProcessThatDiesIsRecordedToItsEnd) {
  Builder b;
  publish(b);
  b.store(8, 8, 1);
  b.look();
  const Recorded r = run(b.script());
  EXPECT_THAT(r.problem(), HasSubstr("the process ended before it answered"));
  EXPECT_EQ(r.root().killed_by, SIGSEGV);
  EXPECT_FALSE(r.root().images.front().snapshots.empty());

  Builder legal;
  const Value child = legal.fork();
  legal.by(child).may_fail().store(8, 8, 1);
  legal.may_fail().store(16, 8, 1);
  legal.by_first().wait(child);
  legal.exit();
  const Recorded same = run(legal.script());
  EXPECT_EQ(same.problem(), "none");
  EXPECT_EQ(WTERMSIG(same.step(3).result), SIGSEGV);

  Builder gone;
  gone.exit();
  gone.look();
  gone.fence();
  EXPECT_THAT(run(gone.script()).problem(), HasSubstr("fence: the process has ended"));
}

TEST(RecordScriptTest, NothingIsWaitedForLongerThanItsDeadline) {
  PuppetOptions soon = options();
  soon.player.operation_within = 300ms;
  soon.player.others_within = 300ms;
  Builder b;
  const Value at = b.map_anonymous(4096, kRw, MAP_PRIVATE);
  b.await(at, 8, 1);
  EXPECT_THAT(run(b.script(), soon).problem(), HasSubstr("await: no answer in 300 ms"));

  // It closes its channel.
  Builder deaf;
  deaf.may_fail().syscall(3, {900});
  deaf.fence();
  EXPECT_NE(run(deaf.script(), soon).problem(), "none");

  Builder stopped;
  const Value child = stopped.fork();
  stopped.signal(SIGSTOP, child, true);
  stopped.by(child).fence();
  EXPECT_THAT(run(stopped.script(), soon).problem(), HasSubstr("fence: no answer"));

  // Becomes a program that does not end.
  Builder other;
  other.exec("/bin/sleep", {"1000"});
  const Recorded r = run(other.script(), soon);
  EXPECT_EQ(r.problem(), "none");
  EXPECT_TRUE(r.root().ended_by_us);
}

TEST(RecordScriptTest, ThereAreAsManyThreadsAsThereAreStacks) {
  Builder b;
  for (int i = 0; i < 70; ++i) b.thread();
  b.exit();
  const Recorded r = run(b.script());
  EXPECT_THAT(r.problem(), HasSubstr("at most 63 threads"));
}

TEST(RecordScriptTest, AScriptMayEndBeforeItsProcess) {
  Builder b;
  publish(b);
  const Recorded r = run(b.script());
  EXPECT_EQ(r.problem(), "none");
  EXPECT_TRUE(r.root().ended_by_us);
  EXPECT_FALSE(r.root().images.front().snapshots.empty());
}

TEST(RecordScriptTest, WhatIsMissingIsAnError) {
  PuppetOptions o = options();
  o.player.programs = "/nowhere";
  Timeline timeline;
  const auto played = record_script(Builder().script(), o, timeline);
  ASSERT_FALSE(played);
  EXPECT_EQ(played.error().err, ENOENT);
}

}  // namespace
}  // namespace ctxconf::conformance::puppet
