#include "conformance/observe/wrap.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/observe/recording.h"
#include "conformance/observe/valid_context.h"
#include "sys/capabilities.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using std::chrono::steady_clock;

WrapOptions running(std::vector<std::string> argv) {
  WrapOptions o;
  o.argv = std::move(argv);
  o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  return o;
}

std::vector<std::string> writer(const std::string& kind, const std::string& name,
                                std::chrono::milliseconds hold,
                                std::chrono::milliseconds pause = 0ms) {
  return {std::string(CTXCONF_BIN_DIR) + "/process_writer",
          "--" + kind,
          name,
          "--quiet",
          "--hold",
          std::to_string(hold.count()),
          "--pause",
          std::to_string(pause.count())};
}

WrapOptions script(const std::string& text) { return running({"/bin/sh", "-c", text}); }

// Distinct valid headers: on a kernel that names mappings, a name makes a separate state.
std::size_t contexts(const Image& image) {
  std::size_t count = 0;
  std::vector<std::byte> last;
  for (const auto& s : image.snapshots) {
    if (!has_valid_context(s)) continue;
    if (s.candidates.front().memory.front().bytes != last) ++count;
    last = s.candidates.front().memory.front().bytes;
  }
  return count;
}

WrapOptions with_faults(WrapOptions options, std::initializer_list<std::string_view> specs) {
  for (const auto text : specs) {
    auto spec = parse_injection(text);
    EXPECT_TRUE(spec) << sys::to_string(spec.error());
    if (!spec) continue;
    options.hide_vdso = options.hide_vdso || spec->call == "clock_gettime";
    options.injections.push_back(std::move(*spec));
  }
  return options;
}

std::vector<std::string> answered(const Image& image) {
  std::vector<std::string> out;
  for (const auto& c : image.calls) {
    if (c.injected) out.push_back(c.name + " " + std::to_string(c.result.value_or(1)));
  }
  return out;
}

std::vector<Moment> moments_of(const Image& image) {
  std::vector<Moment> out;
  for (const auto& s : image.snapshots) out.insert(out.end(), s.moments.begin(), s.moments.end());
  return out;
}

std::vector<std::string> names_of(const std::vector<SystemCall>& calls) {
  std::vector<std::string> out;
  for (const auto& c : calls) out.push_back(c.name);
  return out;
}

const SystemCall* first_call(const Image& image, std::string_view name) {
  const auto it = std::ranges::find(image.calls, name, &SystemCall::name);
  return it == image.calls.end() ? nullptr : &*it;
}

bool is_zero(const std::vector<std::byte>& bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

bool mentions(const Image& image, std::string_view text) {
  return std::ranges::any_of(image.snapshots, [&](const Snapshot& s) {
    return std::ranges::any_of(s.candidates, [&](const Candidate& c) {
      return std::ranges::any_of(c.memory, [&](const MemoryBlock& b) {
        return std::string_view(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size())
                   .find(text) != std::string_view::npos;
      });
    });
  });
}

// Empty, not executable, removed at the end of the test.
class TemporaryFile {
 public:
  TemporaryFile() {
    const int fd = mkostemp(path_.data(), O_CLOEXEC);
    EXPECT_GE(fd, 0);
    close(fd);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/ctxconf_wrap_test_XXXXXX";
};

class WrapTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    EXPECT_EQ(errno, ECHILD);
    for (const auto& p : timeline_.processes) {
      EXPECT_EQ(kill(p.pid, 0), -1) << p.pid;
      EXPECT_EQ(errno, ESRCH);
    }
  }

  void record(const WrapOptions& options) {
    const auto r = record_wrap(options, timeline_);
    ASSERT_TRUE(r) << sys::to_string(r.error());
    ASSERT_FALSE(timeline_.processes.empty());
  }
  const Process& root() const { return timeline_.processes.at(0); }
  const Image& only_image() const {
    EXPECT_EQ(root().images.size(), 1U);
    return root().images.at(0);
  }

  Timeline timeline_;
};

TEST_F(WrapTest, RecordsALegalWriterFromItsNameToItsEnd) {
  record(running(writer("good", "default", 350ms)));
  ASSERT_EQ(timeline_.processes.size(), 1U);
  EXPECT_EQ(root().parent, getpid());
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(root().killed_by, std::nullopt);
  EXPECT_FALSE(root().ended_by_us);
  EXPECT_EQ(only_image().key, (ImageKey{root().pid, 0}));
  EXPECT_THAT(only_image().executable, EndsWith("/process_writer"));
  EXPECT_EQ(only_image().command_line, writer("good", "default", 350ms));
  EXPECT_EQ(only_image().ending, "exited 0");
  EXPECT_THAT(only_image().notes, IsEmpty());
  EXPECT_THAT(moments_of(only_image()),
              AllOf(Contains(Moment::kNamed), Contains(Moment::kPeriodic), Contains(Moment::kExit),
                    Not(Contains(Moment::kExecEntry)), Not(Contains(Moment::kEnd)),
                    Not(Contains(Moment::kStart))));
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_TRUE(has_valid_context(only_image().snapshots.back()));
  EXPECT_TRUE(mentions(only_image(), "ctxconf-testee"));
  EXPECT_THAT(timeline_.hang, IsEmpty());
  EXPECT_THAT(timeline_.notes, IsEmpty());
  EXPECT_THAT(timeline_.faults, IsEmpty());
}

TEST_F(WrapTest, SeesEachNamingCallOfARapidWriter) {
  record(running(writer("good", "updates", 0ms)));
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(contexts(only_image()), 4U);
}

TEST_F(WrapTest, WithoutFilterItStillLooksAtIntervalsAndAtTheEnd) {
  auto o = running(writer("good", "default", 350ms));
  o.no_filter = true;
  record(o);
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_THAT(moments_of(only_image()),
              AllOf(Contains(Moment::kPeriodic), Contains(Moment::kExit),
                    Not(Contains(Moment::kNamed)), Not(Contains(Moment::kExecEntry))));
  EXPECT_THAT(only_image().calls, IsEmpty());
  EXPECT_THAT(only_image().calls_unseen, HasSubstr("no system call filter"));
}

// memfd_create, ftruncate, mmap, madvise and prctl of one publication.
void expect_publication(const Image& image, std::uint64_t page_size) {
  for (const auto* name : {"memfd_create", "ftruncate", "mmap", "madvise", "prctl"}) {
    ASSERT_NE(first_call(image, name), nullptr) << name;
  }
  const auto& made = *first_call(image, "memfd_create");
  EXPECT_EQ(made.text, "OTEL_CTX");
  ASSERT_TRUE(made.result);
  EXPECT_GE(*made.result, 3);
  const auto& sized = *first_call(image, "ftruncate");
  EXPECT_EQ(sized.args[0], static_cast<std::uint64_t>(*made.result));
  EXPECT_GE(sized.args[1], 32U);
  EXPECT_EQ(sized.result, 0);
  EXPECT_EQ(sized.file, "/memfd:OTEL_CTX (deleted)");
  const auto& mapped = *first_call(image, "mmap");
  EXPECT_EQ(mapped.args[4], sized.args[0]);
  EXPECT_EQ(mapped.file, sized.file);
  ASSERT_TRUE(mapped.result);
  const auto at = static_cast<std::uint64_t>(*mapped.result);
  EXPECT_EQ(at % page_size, 0U);
  const auto& marked = *first_call(image, "madvise");
  EXPECT_EQ(marked.args[0], at);
  EXPECT_EQ(marked.args[2], 10U);  // MADV_DONTFORK
  EXPECT_EQ(marked.result, 0);
  EXPECT_THAT(marked.before, SizeIs(32));
  EXPECT_TRUE(is_zero(marked.before));
  const auto& named = *first_call(image, "prctl");
  EXPECT_EQ(named.args[2], at);
  EXPECT_EQ(named.text, "OTEL_CTX");
  EXPECT_TRUE(named.result == 0 || named.result == -EINVAL || named.result == -EBADF);
  const auto header = abi::decode_process_header(named.before);
  ASSERT_TRUE(header);
  EXPECT_TRUE(abi::is_valid(*header));
  EXPECT_EQ(named.after, named.before);
  ASSERT_TRUE(named.snapshot);
  const Snapshot& state = image.snapshots.at(*named.snapshot);
  EXPECT_THAT(state.moments, Contains(Moment::kNaming));
  EXPECT_LE(state.first_seen_ns, named.entered_ns);
  EXPECT_TRUE(has_valid_context(state));
  EXPECT_TRUE(std::ranges::is_sorted(image.calls, {}, &SystemCall::entered_ns));
  EXPECT_EQ(image.calls_dropped, 0U);
  EXPECT_THAT(image.calls_unseen, IsEmpty());
}

TEST_F(WrapTest, RecordsTheCallsOfThePublicationsInOrder) {
  record(running(writer("good", "updates", 0ms)));
  EXPECT_THAT(names_of(only_image().calls),
              ElementsAre("memfd_create", "ftruncate", "mmap", "madvise", "prctl", "prctl", "prctl",
                          "prctl"));
  expect_publication(only_image(), timeline_.page_size);
  for (const auto& c : only_image().calls) EXPECT_EQ(c.tid, root().pid);
  // Each naming call found a separate state.
  std::vector<std::uint64_t> states;
  for (const auto& c : only_image().calls) {
    if (c.snapshot) states.push_back(*c.snapshot);
  }
  EXPECT_THAT(states, SizeIs(4));
  EXPECT_TRUE(std::ranges::adjacent_find(states, std::ranges::greater_equal()) == states.end());
}

TEST_F(WrapTest, RecordsHowAMappingEnds) {
  record(running(writer("good", "withdrawn-unmap", 0ms)));
  EXPECT_THAT(names_of(only_image().calls),
              ElementsAre("memfd_create", "ftruncate", "mmap", "madvise", "prctl", "munmap"));
  const auto& unmap = only_image().calls.back();
  EXPECT_EQ(unmap.args[0], static_cast<std::uint64_t>(*first_call(only_image(), "mmap")->result));
  EXPECT_EQ(unmap.result, 0);
  EXPECT_THAT(unmap.before, SizeIs(32));
  EXPECT_THAT(unmap.after, IsEmpty());
}

TEST_F(WrapTest, RecordsWhatIsForkedBesideAContext) {
  record(running(writer("good", "fork-child-publishes", 0ms)));
  ASSERT_EQ(timeline_.processes.size(), 2U);
  const auto* fork = first_call(root().images.at(0), "fork");
  ASSERT_NE(fork, nullptr);
  EXPECT_EQ(fork->result, timeline_.processes[1].pid);
  EXPECT_EQ(fork->tid, root().pid);
  EXPECT_EQ(first_call(timeline_.processes[1].images.at(0), "fork"), nullptr);
}

TEST_F(WrapTest, NotesWhatAskedToBeTraced) {
  record(running(writer("good", "traces-itself", 0ms)));
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_THAT(only_image().notes, Contains(HasSubstr("ptrace(PTRACE_TRACEME) failed")));
  expect_publication(only_image(), timeline_.page_size);
}

TEST_F(WrapTest, NotesWhatIsNotDumpable) {
  record(running(writer("good", "not-dumpable", 0ms)));
  EXPECT_THAT(only_image().notes, Contains(HasSubstr("not dumpable")));
}

TEST_F(WrapTest, RecordsTheCallsOfTheReferenceWriter) {
  record(running({std::string(CTXCONF_BIN_DIR) + "/writer_ref", "--quiet", "--hold", "0s"}));
  // It also marks the page of its own bookkeeping.
  EXPECT_THAT(names_of(only_image().calls),
              ElementsAre("memfd_create", "ftruncate", "mmap", "madvise", "madvise", "prctl"));
  expect_publication(only_image(), timeline_.page_size);
  EXPECT_EQ(first_call(only_image(), "memfd_create")->args[1], 0xbU);
}

TEST_F(WrapTest, RecordsTheThreadThatCalls) {
  record(running(writer("good", "publish-from-thread", 0ms)));
  expect_publication(only_image(), timeline_.page_size);
  for (const auto& c : only_image().calls) EXPECT_NE(c.tid, root().pid) << c.name;
}

TEST_F(WrapTest, RecordsTheCallsOfAProcessWithTheSameMemory) {
  record(running(writer("good", "named-in-our-memory", 0ms)));
  const auto named = [](const SystemCall& c) { return c.name == "prctl"; };
  const Image& image = root().images.front();
  ASSERT_EQ(std::ranges::count_if(image.calls, named), 3);
  for (const SystemCall& c : image.calls) {
    if (named(c)) {
      EXPECT_NE(c.tid, root().pid);
    }
  }
}

TEST_F(WrapTest, AWrongNameIsRecordedToo) {
  record(running(writer("bad", "pctx.publish.discoverable", 0ms)));
  ASSERT_NE(first_call(only_image(), "memfd_create"), nullptr);
  EXPECT_NE(first_call(only_image(), "memfd_create")->text, "OTEL_CTX");
  ASSERT_NE(first_call(only_image(), "mmap"), nullptr);
  EXPECT_THAT(first_call(only_image(), "mmap")->file,
              StartsWith("/memfd:" + first_call(only_image(), "memfd_create")->text));
}

TEST_F(WrapTest, CallsThatPublishNothingAreNotKept) {
  record(running({"python3", "-c",
                  "import os, mmap; fd = os.memfd_create('scratch'); os.ftruncate(fd, 4096); "
                  "mmap.mmap(fd, 4096)"}));
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_THAT(root().images.back().calls, IsEmpty());
  EXPECT_THAT(root().images.back().calls_unseen, IsEmpty());
}

TEST_F(WrapTest, AnExecIsTheLastCallOfItsImage) {
  record(running(writer("good", "exec-self", 0ms)));
  ASSERT_EQ(root().images.size(), 2U);
  const auto& calls = root().images[0].calls;
  EXPECT_THAT(names_of(calls),
              ElementsAre("memfd_create", "ftruncate", "mmap", "madvise", "prctl", "execve"));
  EXPECT_FALSE(calls.back().result);
  expect_publication(root().images[1], timeline_.page_size);
}

TEST_F(WrapTest, AFilterOfTheProgramsOwnHidesCalls) {
  record(running(writer("good", "naming-denied", 0ms)));
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_THAT(only_image().calls_unseen, HasSubstr("seccomp filter of its own"));
  EXPECT_THAT(only_image().notes, Contains(HasSubstr("seccomp filter of its own")));
  EXPECT_EQ(first_call(only_image(), "prctl"), nullptr);
}

TEST_F(WrapTest, KeepsSoManyCallsAndCountsTheOthers) {
  record(running({"python3", "-c",
                  "import os\n"
                  "for i in range(4200): os.close(os.memfd_create('OTEL_CTX'))\n"}));
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(root().images.back().calls.size(), kMaxCalls);
  EXPECT_EQ(root().images.back().calls_dropped, 4200 - kMaxCalls);
}

TEST_F(WrapTest, AnExecEndsAnImage) {
  record(running(writer("good", "exec-self", 0ms)));
  ASSERT_EQ(timeline_.processes.size(), 1U);
  EXPECT_EQ(root().exit_code, 0);
  ASSERT_EQ(root().images.size(), 2U);
  const Image& first = root().images[0];
  const Image& second = root().images[1];
  EXPECT_EQ(first.key, (ImageKey{root().pid, 0}));
  EXPECT_EQ(second.key, (ImageKey{root().pid, 1}));
  EXPECT_EQ(first.ending, "replaced by exec");
  EXPECT_EQ(second.ending, "exited 0");
  EXPECT_GT(second.started_ns, first.started_ns);
  ASSERT_FALSE(first.snapshots.empty());
  EXPECT_TRUE(has_valid_context(first.snapshots.back()));
  EXPECT_THAT(first.snapshots.back().moments, Contains(Moment::kExecEntry));
  EXPECT_THAT(moments_of(first), Not(Contains(Moment::kExit)));
  EXPECT_EQ(contexts(second), 1U);
  EXPECT_THAT(moments_of(second), AllOf(Contains(Moment::kNamed), Contains(Moment::kExit),
                                        Not(Contains(Moment::kExecEntry))));
}

// Each look finds the program at a stop that was not reported yet: also at the stop of an exec,
// where its memory is that of the next image. Returns the number of looks.
std::size_t look_at_each_stop(Recording& recording) {
  const auto state = [&] {
    const auto facts = sys::process_facts(recording.root());
    return facts ? facts->state : 'Z';
  };
  std::size_t looks = 0;
  while (recording.step(steady_clock::now() + 10s).value_or(false)) {
    while (state() != 't' && state() != 'Z') usleep(1000);
    if (state() == 't') ++looks;
    recording.look_around(steady_clock::now());
  }
  return looks;
}

TEST_F(WrapTest, NoLookAtTheNextImageIsOneAtTheImageBefore) {
  auto options = running(writer("good", "exec-self", 0ms));
  options.looks_by_itself = false;
  auto recording = Recording::start(options, {}, timeline_);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  look_at_each_stop(*recording);
  ASSERT_TRUE(recording->finish());
  ASSERT_EQ(root().images.size(), 2U);
  const Image& first = root().images[0];
  ASSERT_FALSE(first.snapshots.empty());
  EXPECT_EQ(contexts(first), 1U);
  EXPECT_TRUE(has_valid_context(first.snapshots.back()));
  EXPECT_THAT(first.snapshots.back().moments, Contains(Moment::kExecEntry));
  EXPECT_THAT(first.notes, IsEmpty());
}

// Nothing says when an exec begins.
TEST_F(WrapTest, NoLookAtTheNextImageIsOneAtTheImageBeforeWithoutAFilter) {
  auto options = running(writer("good", "exec-self", 0ms));
  options.argv.back() = "byte";
  options.looks_by_itself = false;
  options.no_filter = true;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const sys::Fd theirs(ends[0]);
  const sys::Fd ours(ends[1]);
  sys::Launch launch;
  launch.stdio[0] = theirs.get();
  auto recording = Recording::start(options, launch, timeline_);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  ASSERT_TRUE(recording->step(steady_clock::now() + 10s).value_or(false));  // its first exec
  const auto deadline = steady_clock::now() + 10s;
  while (!recording->published() && steady_clock::now() < deadline) {
    recording->look_around(steady_clock::now());
  }
  ASSERT_TRUE(recording->published());
  ASSERT_EQ(write(ours.get(), "....", 4), 4);
  while (sys::process_facts(recording->root())->state != 't') usleep(1000);
  recording->look_around(steady_clock::now());
  look_at_each_stop(*recording);
  ASSERT_TRUE(recording->finish());
  ASSERT_EQ(root().images.size(), 2U);
  const Image& first = root().images[0];
  ASSERT_FALSE(first.snapshots.empty());
  EXPECT_TRUE(has_valid_context(first.snapshots.back()));
}

TEST_F(WrapTest, LooksGoOnBehindAnExecThatFails) {
  auto options = running(
      {"/bin/bash", "-c", "shopt -s execfail; exec /nonexistent/program 2>/dev/null; exit 3"});
  options.looks_by_itself = false;
  options.keep_all = true;
  auto recording = Recording::start(options, {}, timeline_);
  ASSERT_TRUE(recording) << sys::to_string(recording.error());
  const auto looks = look_at_each_stop(*recording);
  ASSERT_TRUE(recording->finish());
  EXPECT_EQ(root().exit_code, 3);
  ASSERT_THAT(only_image().snapshots, SizeIs(1));
  const Snapshot& state = only_image().snapshots.front();
  EXPECT_THAT(state.moments, AllOf(Contains(Moment::kStart), Contains(Moment::kExecEntry),
                                   Contains(Moment::kPeriodic), Contains(Moment::kExit)));
  // All looks: at the start, the exec and the end, and none while the result of the exec was
  // unknown.
  EXPECT_EQ(state.times, looks + 3 - 1);
}

TEST_F(WrapTest, ALauncherLeavesItsContextBehind) {
  record(running(writer("good", "launcher", 0ms)));
  EXPECT_EQ(root().exit_code, 0);
  ASSERT_EQ(root().images.size(), 2U);
  EXPECT_EQ(contexts(root().images[0]), 1U);
  EXPECT_THAT(root().images[1].snapshots, IsEmpty());
  EXPECT_THAT(root().images[1].command_line, Contains("sleep"));
}

TEST_F(WrapTest, AFailingExecEndsNothing) {
  record(script("(exec /nonexistent/program) 2>/dev/null; exit 3"));
  EXPECT_EQ(root().exit_code, 3);
  EXPECT_EQ(root().images.size(), 1U);
}

TEST_F(WrapTest, AForkedChildThatPublishesIsAProcess) {
  record(running(writer("good", "fork-child-publishes", 0ms)));
  ASSERT_EQ(timeline_.processes.size(), 2U);
  const Process& child = timeline_.processes[1];
  EXPECT_EQ(child.parent, root().pid);
  EXPECT_EQ(child.exit_code, 0);
  ASSERT_EQ(child.images.size(), 1U);
  EXPECT_EQ(child.images[0].key, (ImageKey{child.pid, 0}));
  EXPECT_EQ(contexts(child.images[0]), 1U);
  EXPECT_TRUE(mentions(child.images[0], "ctxconf.child"));
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_FALSE(mentions(only_image(), "ctxconf.child"));
}

TEST_F(WrapTest, AForkedChildInheritsNoContext) {
  record(running(writer("good", "fork-idle-child", 150ms)));
  ASSERT_EQ(timeline_.processes.size(), 2U);
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_THAT(timeline_.processes[1].images.at(0).snapshots, IsEmpty());
}

TEST_F(WrapTest, ChildrenThatExecHaveImagesOfTheirOwn) {
  std::string command;
  for (const auto& word : writer("good", "default", 0ms)) command += word + " ";
  record(script(command + "& wait; exit 7"));
  EXPECT_EQ(root().exit_code, 7);
  EXPECT_EQ(root().images.size(), 1U);
  ASSERT_EQ(timeline_.processes.size(), 2U);
  const Process& child = timeline_.processes[1];
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(contexts(child.images.back()), 1U);
}

TEST_F(WrapTest, ThreadsAreNoProcesses) {
  record(running(writer("good", "publish-from-thread", 150ms)));
  ASSERT_EQ(timeline_.processes.size(), 1U);
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_THAT(moments_of(only_image()), AllOf(Contains(Moment::kNamed), Contains(Moment::kExit)));
}

TEST_F(WrapTest, AProgramThatEndsAtOnceLeavesNoSnapshot) {
  record(running({"false"}));
  ASSERT_EQ(timeline_.processes.size(), 1U);
  EXPECT_EQ(root().exit_code, 1);
  EXPECT_EQ(only_image().ending, "exited 1");
  EXPECT_THAT(only_image().command_line, ElementsAre("false"));
  EXPECT_THAT(only_image().snapshots, IsEmpty());
  EXPECT_THAT(timeline_.notes, IsEmpty());
}

TEST_F(WrapTest, ACrashIsTheProgramsOwn) {
  record(script("ulimit -c 0; kill -SEGV $$"));
  EXPECT_EQ(root().exit_code, std::nullopt);
  EXPECT_EQ(root().killed_by, SIGSEGV);
  EXPECT_FALSE(root().ended_by_us);
  EXPECT_EQ(only_image().ending, "killed by signal " + std::to_string(SIGSEGV));
}

TEST_F(WrapTest, EndsWhatRunsTooLong) {
  auto o = running({"sleep", "60"});
  o.run_for = 200ms;
  const auto begin = steady_clock::now();
  record(o);
  EXPECT_GE(steady_clock::now() - begin, 200ms);
  EXPECT_LT(steady_clock::now() - begin, 10s);
  EXPECT_EQ(root().killed_by, SIGTERM);
  EXPECT_TRUE(root().ended_by_us);
  EXPECT_EQ(only_image().ending, "killed by signal " + std::to_string(SIGTERM));
  EXPECT_THAT(timeline_.notes, ElementsAre(StartsWith("the program still ran after ")));
  EXPECT_THAT(timeline_.hang, IsEmpty());
}

TEST_F(WrapTest, WhatPublishedIsEndedSomeTimeAfterwards) {
  auto o = running(writer("good", "default", 60s));
  o.timeout_scale = 0.02;  // 200 ms after the publication, 600 ms without one
  record(o);
  EXPECT_TRUE(root().ended_by_us);
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_THAT(moments_of(only_image()), AllOf(Contains(Moment::kNamed), Contains(Moment::kEnd)));
  EXPECT_THAT(timeline_.notes, SizeIs(1));
}

TEST_F(WrapTest, WhatPublishesNothingIsEndedToo) {
  auto o = running({"sleep", "60"});
  o.timeout_scale = 0.01;
  const auto begin = steady_clock::now();
  record(o);
  EXPECT_GE(steady_clock::now() - begin, 300ms);
  EXPECT_TRUE(root().ended_by_us);
}

TEST_F(WrapTest, KillsWhatIgnoresTheRequest) {
  auto argv = writer("good", "default", 60s);
  argv.insert(argv.begin(), {"env", "--ignore-signal=TERM"});
  auto o = running(std::move(argv));
  o.timeout_scale =
      0.05;  // its time begins when it publishes; by then it already ignores the signal
  record(o);
  EXPECT_EQ(root().killed_by, SIGKILL);
  EXPECT_TRUE(root().ended_by_us);
  ASSERT_EQ(root().images.size(), 2U);
  EXPECT_EQ(root().images[1].ending, "killed by ctxconf at the end of the observation");
  EXPECT_THAT(moments_of(root().images[1]), Contains(Moment::kEnd));
  EXPECT_THAT(timeline_.hang, IsEmpty());
}

TEST_F(WrapTest, AProgramMayAnswerTheRequestInItsOwnWay) {
  std::string command;
  for (const auto& word : writer("good", "default", 60s)) command += word + " ";
  auto o = script("trap 'exit 9' TERM; " + command + "& wait");
  o.run_for = 1500ms;  // the full two seconds remain for its answer
  record(o);
  EXPECT_EQ(root().exit_code, 9);
  EXPECT_FALSE(root().ended_by_us);
}

TEST_F(WrapTest, TooManyTasksAreARunaway) {
  auto o = script("while :; do sleep 60 & done");
  o.max_tasks = 10;
  record(o);
  EXPECT_THAT(timeline_.hang, AllOf(StartsWith("started "), HasSubstr(" threads alive at once")));
  EXPECT_EQ(root().killed_by, SIGKILL);
  EXPECT_TRUE(root().ended_by_us);
  EXPECT_GE(timeline_.processes.size(), 10U);
  EXPECT_THAT(timeline_.notes, Not(Contains(HasSubstr("still ran"))));
}

TEST_F(WrapTest, TooManyProcessesAreARunaway) {
  // Each process ends before the next one is made.
  auto o = script("while :; do (:); done");
  o.max_processes = 30;
  record(o);
  EXPECT_THAT(timeline_.hang, StartsWith("started 31 processes"));
  EXPECT_TRUE(root().ended_by_us);
}

TEST_F(WrapTest, ListsOnlySoManyProcesses) {
  auto o = script("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (:); done");
  o.max_recorded = 5;
  record(o);
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(root().parent, getpid());
  EXPECT_EQ(root().images.at(0).command_line.at(0), "/bin/sh");
  EXPECT_EQ(timeline_.processes.size(), 6U);
  EXPECT_THAT(timeline_.notes, Contains("7 more processes ran and are not listed"));
  EXPECT_THAT(timeline_.incomplete, IsEmpty());
  EXPECT_THAT(timeline_.hang, IsEmpty());
}

TEST_F(WrapTest, ContextsThatAreNotKeptWereNotJudged) {
  std::string text = "for i in 1 2 3 4; do";
  for (const auto& word : writer("good", "default", 0ms)) text += " " + word;
  auto o = script(text + "; done");
  o.max_recorded = 2;
  record(o);
  EXPECT_EQ(root().exit_code, 0);
  EXPECT_EQ(timeline_.processes.size(), 3U);
  EXPECT_THAT(timeline_.notes, Contains("2 more processes ran and are not listed; 2 of them had a "
                                        "context and were not judged"));
  EXPECT_EQ(timeline_.incomplete,
            "2 more processes had a context and were not judged: at most 2 are");
}

TEST_F(WrapTest, EvidenceComesBeforeProcessesWithoutAny) {
  std::string text = "i=0; while [ $i -lt 80 ]; do (:); i=$((i+1)); done;";
  for (const auto& word : writer("good", "default", 0ms)) text += " " + word;
  record(script(text + "; exit 0"));
  ASSERT_EQ(timeline_.processes.size(), 66U);
  EXPECT_EQ(std::ranges::count_if(timeline_.processes,
                                  [](const Process& p) {
                                    return !p.images.empty() && contexts(p.images.back()) == 1;
                                  }),
            1);
  EXPECT_THAT(timeline_.notes, Contains("16 more processes ran and are not listed"));
}

TEST_F(WrapTest, SaysHowFarItIs) {
  auto o = running(writer("good", "default", 2000ms));
  std::vector<double> times;
  std::vector<std::size_t> processes;
  std::size_t seen = 0;
  o.progress = [&](double s, std::size_t alive, std::size_t found) {
    times.push_back(s);
    processes.push_back(alive);
    seen = found;
  };
  record(o);
  ASSERT_GE(times.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_GT(times.front(), 0.05);
  EXPECT_THAT(processes, Each(1U)) << "also while it ends";
  EXPECT_EQ(seen, 1U);
}

TEST_F(WrapTest, AnInterruptEndsTheObservation) {
  auto o = running(writer("good", "default", 60s));
  o.progress = [](double, std::size_t, std::size_t) { kill(getpid(), SIGINT); };
  // A shell starts background jobs with SIGINT ignored.
  const auto old = std::signal(SIGINT, SIG_DFL);
  record(o);
  std::signal(SIGINT, old);
  EXPECT_TRUE(root().ended_by_us);
  EXPECT_EQ(contexts(only_image()), 1U);
  EXPECT_THAT(timeline_.notes, Contains("the observation was interrupted"));
}

TEST_F(WrapTest, SaysWhyTheProgramDidNotStart) {
  const TemporaryFile not_executable;
  for (const auto& [name, err] : {std::pair<std::string, int>{"ctxconf-no-such-program", ENOENT},
                                  {"/nonexistent/program", ENOENT},
                                  {not_executable.path(), EACCES}}) {
    const auto r = record_wrap(running({name}), timeline_);
    ASSERT_FALSE(r) << name;
    EXPECT_EQ(r.error().err, err) << name;
    EXPECT_EQ(r.error().detail, name);
    EXPECT_FALSE(r.error().was_started) << name;
    const auto limited = run_with_file_size_limit(running({name}));
    ASSERT_FALSE(limited) << name;
    EXPECT_EQ(limited.error().err, err) << name;
  }
  EXPECT_THAT(timeline_.processes, IsEmpty());
}

TEST_F(WrapTest, AnswersCallsInsteadOfTheKernel) {
  record(
      with_faults(running(writer("good", "default", 0ms)),
                  {"memfd_create(MFD_NOEXEC_SEAL):error=EINVAL", "prctl(PR_SET_VMA):error=EBADF"}));
  const Image& image = only_image();
  EXPECT_THAT(answered(image), ElementsAre("memfd_create -22", "prctl -9"));
  EXPECT_EQ(contexts(image), 1U);
  ASSERT_THAT(timeline_.injections, SizeIs(2));
  EXPECT_EQ(timeline_.injections[0].times, 1U);
  EXPECT_EQ(timeline_.injections[1].times, 1U);
  EXPECT_FALSE(timeline_.clock_calls);
}

TEST_F(WrapTest, EachImageCountsItsCallsAnew) {
  record(
      with_faults(running(writer("good", "exec-self", 0ms)), {"memfd_create:error=EINVAL:when=1"}));
  ASSERT_THAT(root().images, SizeIs(2));
  for (const Image& image : root().images) {
    EXPECT_THAT(answered(image), ElementsAre("memfd_create -22"));
  }
  EXPECT_EQ(timeline_.injections.front().times, 2U);
}

TEST_F(WrapTest, LeavesOtherMemfdsAndAdviceAlone) {
  record(with_faults(running({"python3", "-c",
                              "import ctypes, mmap, os\n"
                              "libc = ctypes.CDLL(None)\n"
                              "os.ftruncate(os.memfd_create('buffer'), 4096)\n"
                              "m = mmap.mmap(-1, 4096)\n"
                              "m.madvise(mmap.MADV_DONTFORK)\n"}),
                     {"memfd_create:error=EPERM", "ftruncate:error=EIO", "madvise:error=EINVAL",
                      "mmap(MAP_ANONYMOUS):error=ENOMEM"}));
  EXPECT_EQ(root().exit_code, 0);
  for (const auto& i : timeline_.injections) EXPECT_EQ(i.times, 0U) << i.spec;
}

TEST_F(WrapTest, ListsAMemfdThatIsLeftOpenWithoutAContext) {
  record(with_faults(running({"python3", "-c",
                              "import os\n"
                              "fd = os.memfd_create('OTEL_CTX')\n"
                              "try: os.ftruncate(fd, 4096)\n"
                              "except OSError as e: assert e.errno == 28\n"
                              "else: raise SystemExit(1)\n"}),
                     {"ftruncate:error=ENOSPC"}));
  EXPECT_EQ(root().exit_code, 0);
  const Image& image = root().images.back();
  ASSERT_FALSE(image.snapshots.empty());
  EXPECT_THAT(image.snapshots.back().descriptors, SizeIs(1));
}

TEST_F(WrapTest, AClockCanStandStill) {
  record(with_faults(running(writer("good", "updates", 0ms)), {"clock_gettime:value=frozen"}));
  EXPECT_TRUE(timeline_.clock_calls);
  const Image& image = only_image();
  std::vector<std::uint64_t> times;
  for (const auto& c : image.calls) {
    if (c.name == "clock_gettime" && c.args[0] == CLOCK_BOOTTIME) {
      times.push_back(c.clock_ns.value_or(0));
    }
  }
  ASSERT_THAT(times, SizeIs(4));
  EXPECT_THAT(times, Each(times.front()));
  EXPECT_EQ(contexts(image), 4U);
}

TEST_F(WrapTest, OfManyReadingsOfAClockFewAreKept) {
  WrapOptions options = running({"python3", "-c",
                                 "import os, time\n"
                                 "for i in range(2000): time.clock_gettime(time.CLOCK_BOOTTIME)\n"
                                 "os.memfd_create('OTEL_CTX')\n"});
  options.hide_vdso = true;
  record(options);
  const Image& image = root().images.back();
  EXPECT_EQ(std::ranges::count_if(image.calls,
                                  [](const SystemCall& c) {
                                    return c.name == "clock_gettime" && c.args[0] == CLOCK_BOOTTIME;
                                  }),
            4);
  EXPECT_EQ(image.calls_dropped, 0U);
}

TEST_F(WrapTest, AFileSizeLimitStrikesAWriterThatIgnoresIt) {
  const auto run = run_with_file_size_limit(
      running(writer("bad", "pctx.publish.survives-file-size-limit", 0ms)));
  ASSERT_TRUE(run) << sys::to_string(run.error());
  EXPECT_EQ(run->fault, "RLIMIT_FSIZE=0");
  EXPECT_EQ(run->killed_by, SIGXFSZ);
  EXPECT_EQ(run->exit_code, std::nullopt);
  EXPECT_FALSE(run->ended_by_us);
  EXPECT_EQ(run->last_syscall, "ftruncate");
  EXPECT_THAT(run->last_file, StartsWith("/memfd:OTEL_CTX"));
  EXPECT_FALSE(run->published);
}

TEST_F(WrapTest, AFileSizeLimitStrikesInAChildToo) {
  std::string command;
  for (const auto& word : writer("bad", "pctx.publish.survives-file-size-limit", 0ms)) {
    command += word + " ";
  }
  const auto run = run_with_file_size_limit(script(command + "; exit 0"));
  ASSERT_TRUE(run) << sys::to_string(run.error());
  EXPECT_EQ(run->killed_by, SIGXFSZ);
  EXPECT_EQ(run->exit_code, std::nullopt);
  EXPECT_EQ(run->last_syscall, "ftruncate");
  EXPECT_THAT(run->last_file, StartsWith("/memfd:OTEL_CTX"));
}

TEST_F(WrapTest, AFileSizeLimitSparesAWriterThatHeedsIt) {
  const auto run = run_with_file_size_limit(running(writer("good", "default", 0ms)));
  ASSERT_TRUE(run) << sys::to_string(run.error());
  EXPECT_EQ(run->exit_code, 0);
  EXPECT_EQ(run->killed_by, std::nullopt);
  EXPECT_FALSE(run->ended_by_us);
  EXPECT_EQ(run->last_syscall, "");
  EXPECT_EQ(run->last_file, "");
  // It falls back to anonymous memory if that can have a name.
  EXPECT_EQ(run->published, sys::Capabilities::of_this_host().has(sys::kHostAnonVmaName));
}

TEST_F(WrapTest, AFileSizeLimitMayStrikeSomethingElse) {
  const TemporaryFile file;
  const auto run =
      run_with_file_size_limit(running({"dd", "if=/dev/zero", "of=" + file.path(), "count=1"}));
  ASSERT_TRUE(run) << sys::to_string(run.error());
  EXPECT_EQ(run->killed_by, SIGXFSZ);
  EXPECT_THAT(run->last_syscall, StartsWith("system call "));
  EXPECT_EQ(run->last_file, file.path());
}

TEST_F(WrapTest, ARunUnderALimitEndsInTime) {
  auto o = running({"sleep", "60"});
  o.run_for = 2s;
  o.timeout_scale = 0.1;
  const auto begin = steady_clock::now();
  const auto run = run_with_file_size_limit(o);
  EXPECT_LT(steady_clock::now() - begin, 10s);
  ASSERT_TRUE(run) << sys::to_string(run.error());
  EXPECT_TRUE(run->ended_by_us);
  EXPECT_EQ(run->exit_code, std::nullopt);
  EXPECT_EQ(run->killed_by, std::nullopt);
}

TEST(Wrap, IdsInWhatItPrintsAreRecordedAndAllIsPassedOn) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string parent = "00-1" + trace.substr(1) + "-b7ad6b7169203331-01";
  auto options = script("echo id " + trace + "; echo " + parent + " >&2; yes | head -50000");
  options.ids_from_output = true;
  Timeline timeline;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto ran = record_wrap(options, timeline);
  const auto output = testing::internal::GetCapturedStdout();
  const auto errors = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(ran);
  EXPECT_THAT(output, StartsWith("id " + trace + "\ny\n"));
  EXPECT_EQ(std::ranges::count(output, '\n'), 50001);
  EXPECT_EQ(errors, parent + "\n");
  EXPECT_THAT(timeline.printed_trace_ids, ElementsAre(trace, "1" + trace.substr(1)));
  EXPECT_THAT(timeline.printed_span_ids, ElementsAre("b7ad6b7169203331"));
}

TEST(Wrap, NobodyReadsWhatItPrints) {
  auto options = script("yes; echo $? >&2");
  options.ids_from_output = true;
  const int old = dup(STDOUT_FILENO);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  dup2(ends[1], STDOUT_FILENO);
  close(ends[1]);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  Timeline timeline;
  testing::internal::CaptureStderr();
  const auto ran = record_wrap(options, timeline);
  const auto errors = testing::internal::GetCapturedStderr();
  std::signal(SIGPIPE, handler);
  dup2(old, STDOUT_FILENO);
  close(old);
  ASSERT_TRUE(ran);
  EXPECT_FALSE(ran->timed_out);
  EXPECT_THAT(errors, Not(IsEmpty()));
}

TEST(Wrap, WhatItWasTold) {
  const char* parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  Timeline timeline;
  ASSERT_TRUE(
      record_wrap(running({"env", std::string("TRACEPARENT=") + parent, "true"}), timeline));
  ASSERT_THAT(timeline.processes, SizeIs(1));
  EXPECT_EQ(timeline.processes.front().images.back().traceparent, parent);
  Timeline other;
  ASSERT_TRUE(record_wrap(running({"env", "TRACEPARENT=secret", "true"}), other));
  EXPECT_EQ(other.processes.front().images.back().traceparent, "");
}

std::vector<std::string> thread_writer(const std::string& kind, const std::string& name) {
  auto out = writer(kind, name, 1500ms);
  out.front() = std::string(CTXCONF_BIN_DIR) + "/thread_writer";
  return out;
}

class PickedSlots : public testing::Test {
 protected:
  void SetUp() override {
    if (!sys::Capabilities::of_this_host().has(sys::kHostWatchpoints)) {
      GTEST_SKIP() << "no watchpoints here";
    }
  }
  const Image& record(WrapOptions options) {
    options.slot_steps = options.picks_slots = true;
    EXPECT_TRUE(record_wrap(options, timeline_));
    static const Image none;
    if (timeline_.processes.empty() || timeline_.processes[0].images.empty()) return none;
    return timeline_.processes[0].images[0];
  }
  Timeline timeline_;
};

TEST_F(PickedSlots, AreOfOneThreadAfterTheOther) {
  const Image& image = record(running(thread_writer("good", "default")));
  EXPECT_EQ(timeline_.processes.front().exit_code, 0);
  ASSERT_FALSE(image.slot_step_traces.empty());
  // It publishes, and then attaches.
  const SlotStepTrace& first = image.slot_step_traces.front();
  EXPECT_EQ(first.tid, timeline_.processes.front().pid);
  EXPECT_EQ(first.ended_because, "over");
  EXPECT_EQ(first.views.front().value, 0U);
  EXPECT_NE(first.views.back().value, 0U);
}

TEST_F(PickedSlots, AreFoundInARunningThread) {
  const Image& image = record(running(thread_writer("good", "toggled")));
  const auto& step_traces = image.slot_step_traces;
  EXPECT_TRUE(std::ranges::any_of(step_traces, [&](const SlotStepTrace& w) {
    return w.tid != timeline_.processes.front().pid;
  }));
  EXPECT_TRUE(
      std::ranges::all_of(step_traces, [](const SlotStepTrace& w) { return w.steps <= 10'000; }));
}

// Threads that never use the variable, and threads that use it all the time, until this number of
// step traces has begun.
class SlotThreads {
 public:
  SlotThreads(int idle, int busy, int step_traces)
      : step_traces_(step_traces),
        options_(running({std::string(CTXCONF_BIN_DIR) + "/slot_threads",
                          std::string(CTXCONF_BIN_DIR) + "/slot_general_dynamic.so",
                          std::to_string(idle), std::to_string(busy), file_.path()})) {
    options_.run_for = 100s;
    options_.timeout_scale = 10;  // with sanitizers, on a busy machine, steps are slow
    options_.stepping = [this](std::uint64_t steps, double) { progress(steps); };
  }
  const WrapOptions& options() const { return options_; }

 private:
  void progress(std::uint64_t steps) {
    if (steps > 0 && (steps < steps_ || steps_ == 0)) ++begun_;
    steps_ = steps;
    if (begun_ > step_traces_) std::ofstream(file_.path()) << "done";
  }

  TemporaryFile file_;
  int step_traces_;
  int begun_ = 0;
  std::uint64_t steps_ = 0;
  WrapOptions options_;
};

std::set<std::int32_t> stepped_threads(const Image& image) {
  std::set<std::int32_t> out;
  for (const SlotStepTrace& w : image.slot_step_traces) out.insert(w.tid);
  return out;
}

TEST_F(PickedSlots, GoOnBehindAThreadThatHasNoVariable) {
  const SlotThreads program(/*idle=*/2, /*busy=*/1, /*step_traces=*/1);
  const Image& image = record(program.options());
  EXPECT_EQ(timeline_.processes.front().exit_code, 0);
  EXPECT_THAT(stepped_threads(image), SizeIs(1)) << image.slot_steps_unseen;
}

TEST_F(PickedSlots, OneThreadLeavesInstructionsForTheOthers) {
  // A turn has four.
  const SlotThreads program(/*idle=*/0, /*busy=*/6, /*step_traces=*/5);
  const Image& image = record(program.options());
  EXPECT_EQ(timeline_.processes.front().exit_code, 0);
  EXPECT_THAT(stepped_threads(image), SizeIs(testing::Ge(2)));
  std::uint64_t steps = 0;
  for (const SlotStepTrace& w : image.slot_step_traces) steps += w.steps;
  EXPECT_LE(steps, 100'000U);
}

// The kernel's count for this thread; nothing: it does not count.
std::optional<std::uint64_t> calls_of_read() {
  std::ifstream file("/proc/thread-self/io");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "syscr:") return value;
  }
  return std::nullopt;
}

TEST_F(PickedSlots, WhatItPrintsIsNotReadAtEachInstruction) {
  const SlotThreads program(/*idle=*/0, /*busy=*/1, /*step_traces=*/2);
  auto options = program.options();
  options.slot_steps = options.picks_slots = true;
  options.ids_from_output = true;
  const auto before = calls_of_read();
  ASSERT_TRUE(record_wrap(options, timeline_));
  const auto after = calls_of_read();
  if (!before || !after) GTEST_SKIP() << "this kernel does not count calls of read()";
  ASSERT_FALSE(timeline_.processes.empty());
  std::uint64_t steps = 0;
  for (const SlotStepTrace& w : timeline_.processes[0].images.at(0).slot_step_traces)
    steps += w.steps;
  ASSERT_GT(steps, 1000U);
  EXPECT_LT(*after - *before, steps) << "one for each descriptor would be twice as many";
}

TEST_F(PickedSlots, NobodyHasAny) {
  EXPECT_THAT(record(running({"true"})).slot_steps_unseen, HasSubstr("no thread stored"));
}

TEST_F(PickedSlots, SigtrapIsTheProgramsOwn) {
  record(script("trap '' TRAP; exec " + thread_writer("good", "default").front() +
                " --good default --quiet --hold 350"));
  const Image& last = timeline_.processes.front().images.back();
  EXPECT_THAT(last.slot_step_traces, IsEmpty());
  EXPECT_THAT(last.slot_steps_unseen, HasSubstr("SIGTRAP"));
}

}  // namespace
}  // namespace ctxconf::conformance
