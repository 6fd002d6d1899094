#include "conformance/observe/attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/valid_context.h"
#include "sys/child.h"
#include "sys/fd.h"

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// A writer that has published and lives until its input ends.
class Writer {
 public:
  explicit Writer(const std::string& name = "default") {
    sys::ChildOptions o;
    o.argv = {std::string(CTXCONF_BIN_DIR) + "/process_writer",
              "--good",
              name,
              "--hold",
              "eof",
              "--pause",
              "byte"};
    auto started = sys::Child::start(o);
    EXPECT_TRUE(started) << sys::to_string(started.error());
    child_ = std::make_unique<sys::Child>(std::move(*started));
    const auto line = child_->read_line(10s);
    EXPECT_TRUE(line) << sys::to_string(line.error());
    EXPECT_THAT(line.value_or(""), HasSubstr("published pid=" + std::to_string(pid())));
  }
  pid_t pid() const { return child_->pid(); }
  // Ends it and returns its former pid.
  pid_t end() {
    const pid_t was = pid();
    const auto r = child_->wait(10s);
    EXPECT_TRUE(r);
    EXPECT_EQ(r->exit_code, 0);
    return was;
  }

 private:
  std::unique_ptr<sys::Child> child_;
};

// Forks; `body` gets the write end of a pipe, and this keeps the read end.
class PipedChild {
 public:
  template <class Body>
  explicit PipedChild(const Body& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      body(ends[1]);
      while (true) pause();
    }
    close(ends[1]);
    from_ = sys::Fd(ends[0]);
  }
  ~PipedChild() {
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
  }
  PipedChild(const PipedChild&) = delete;
  PipedChild& operator=(const PipedChild&) = delete;
  pid_t pid() const { return pid_; }
  std::string hear() const {
    std::array<char, 4096> text{};
    const auto n = read(from_.get(), text.data(), text.size());
    EXPECT_GT(n, 0);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
  }

 private:
  pid_t pid_ = -1;
  sys::Fd from_;
};

bool say(int to, const std::string& text) {
  return write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

const Process* process_of(const Timeline& t, pid_t pid) {
  for (const auto& p : t.processes) {
    if (p.pid == pid) return &p;
  }
  return nullptr;
}

AttachOptions watching(std::vector<pid_t> pids, std::chrono::milliseconds how_long) {
  AttachOptions o;
  o.pids = std::move(pids);
  o.watch_for = how_long;
  return o;
}

class AttachTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    EXPECT_EQ(errno, ECHILD);
  }
  Timeline timeline_;
};

TEST_F(AttachTest, RecordsOneProcess) {
  const Writer writer;
  const auto begin = std::chrono::steady_clock::now();
  const auto r = record_attach(watching({writer.pid()}, 250ms), timeline_);
  ASSERT_TRUE(r) << sys::to_string(r.error());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 250ms);
  ASSERT_EQ(timeline_.processes.size(), 1U);
  const Process& p = timeline_.processes[0];
  EXPECT_EQ(p.pid, writer.pid());
  EXPECT_EQ(p.parent, getpid());
  EXPECT_EQ(p.exit_code, std::nullopt);
  EXPECT_EQ(p.killed_by, std::nullopt);
  ASSERT_EQ(p.images.size(), 1U);
  const Image& image = p.images[0];
  EXPECT_EQ(image.key, (ImageKey{writer.pid(), 0}));
  EXPECT_THAT(image.executable, HasSubstr("/process_writer"));
  EXPECT_EQ(image.ending, "running");
  EXPECT_THAT(image.notes, IsEmpty());
  EXPECT_THAT(image.calls_unseen, HasSubstr("attach"));
  ASSERT_EQ(image.snapshots.size(), 1U);
  EXPECT_TRUE(has_valid_context(image.snapshots[0]));
  EXPECT_THAT(image.snapshots[0].moments,
              ElementsAre(Moment::kStart, Moment::kPeriodic, Moment::kEnd));
  EXPECT_GE(image.snapshots[0].times, 3U);
  EXPECT_THAT(timeline_.notes, IsEmpty());
}

TEST_F(AttachTest, RecordsTheEntriesOfASplitMapping) {
  const Writer writer("split-by-mprotect");
  ASSERT_TRUE(record_attach(watching({writer.pid()}, 0ms), timeline_));
  ASSERT_EQ(timeline_.processes.size(), 1U);
  const Snapshot& s = timeline_.processes[0].images.at(0).snapshots.at(0);
  EXPECT_THAT(s.moments, ElementsAre(Moment::kStart, Moment::kPeriodic, Moment::kEnd));
  EXPECT_EQ(s.candidates.at(0).entries.size(), 2U);
}

TEST_F(AttachTest, RecordsSeveralProcesses) {
  const Writer first;
  const Writer second("payload-inline");
  const auto r = record_attach(watching({second.pid(), first.pid()}, 0ms), timeline_);
  ASSERT_TRUE(r) << sys::to_string(r.error());
  ASSERT_EQ(timeline_.processes.size(), 2U);
  EXPECT_EQ(timeline_.processes[0].pid, second.pid());
  EXPECT_EQ(timeline_.processes[1].pid, first.pid());
  for (const auto& p : timeline_.processes) {
    EXPECT_TRUE(has_valid_context(p.images.at(0).snapshots.at(0)));
  }
}

TEST_F(AttachTest, FindsEveryProcessThatPublishes) {
  const Writer first;
  const Writer second("payload-inline");
  const Writer third("split-by-madvise");
  const auto r = record_attach(watching({}, 0ms), timeline_);
  ASSERT_TRUE(r) << sys::to_string(r.error());
  for (const auto* w : {&first, &second, &third}) {
    const Process* p = process_of(timeline_, w->pid());
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(has_valid_context(p->images.at(0).snapshots.at(0)));
  }
  EXPECT_EQ(process_of(timeline_, getpid()), nullptr);
  ASSERT_FALSE(timeline_.notes.empty());
  EXPECT_THAT(timeline_.notes[0],
              MatchesRegex("[0-9]+ processes examined, [0-9]+ with a mapping named OTEL_CTX"));
}

TEST_F(AttachTest, LeavesOutProcessesThatDoNotPublish) {
  const PipedChild idle([](int to) { say(to, "ready"); });
  EXPECT_EQ(idle.hear(), "ready");
  const auto all = record_attach(watching({}, 0ms), timeline_);
  ASSERT_TRUE(all);
  EXPECT_GT(all->without_context, 0U);
  EXPECT_EQ(process_of(timeline_, idle.pid()), nullptr);
  // By its pid it is examined, and nothing is found.
  ASSERT_TRUE(record_attach(watching({idle.pid()}, 0ms), timeline_));
  const Process* p = process_of(timeline_, idle.pid());
  ASSERT_NE(p, nullptr);
  EXPECT_THAT(p->images.at(0).snapshots.at(0).candidates, IsEmpty());
}

TEST_F(AttachTest, LeavesOutAProcessThatItIsNotToExamine) {
  const Writer writer;
  auto options = watching({}, 0ms);
  options.unexamined = writer.pid();
  ASSERT_TRUE(record_attach(options, timeline_));
  EXPECT_EQ(process_of(timeline_, writer.pid()), nullptr);
}

TEST_F(AttachTest, KeepsLargePayloadsOfAllProcessesUpToOneLimit) {
  const Writer first;
  const Writer second;
  auto options = watching({first.pid()}, 0ms);
  options.limits.payload_kept = 1;
  ASSERT_TRUE(record_attach(options, timeline_));
  const auto kept = [&] {
    std::size_t bytes = 0;
    for (const Process& p : timeline_.processes) {
      for (const LargePayload& payload : p.images.at(0).payloads) bytes += payload.bytes->size();
    }
    return bytes;
  };
  options.limits.large_payloads = kept();
  ASSERT_GT(options.limits.large_payloads, 0U);

  timeline_ = {};
  options.pids = {first.pid(), second.pid()};
  ASSERT_TRUE(record_attach(options, timeline_));
  EXPECT_GT(kept(), options.limits.large_payloads) << "each named one has a limit of its own";

  timeline_ = {};
  options.pids.clear();
  ASSERT_TRUE(record_attach(options, timeline_));
  EXPECT_GT(kept(), 0U);
  EXPECT_LE(kept(), options.limits.large_payloads);
}

TEST_F(AttachTest, SaysThatThereIsNoSuchProcess) {
  const pid_t gone = Writer().end();
  const auto r = record_attach(watching({gone}, 10s), timeline_);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().err, ESRCH);
  EXPECT_THAT(timeline_.processes, IsEmpty());
}

// "unread: 12 (sshd)". Only of one process, because a host may have more than a pipe holds.
std::string unread_in(const Attached& attached, pid_t pid) {
  std::string out = "unread:";
  for (const UnreadProcess& u : attached.unread) {
    if (u.pid == pid) out += " " + std::to_string(u.pid) + " (" + u.command + ")";
  }
  return out;
}

TEST_F(AttachTest, SaysThatAProcessMayNotBeLookedAt) {
  const PipedChild closed([](int to) {
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) say(to, "ready");
  });
  EXPECT_EQ(closed.hear(), "ready");
  const PipedChild observer([&](int to) {
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
    Timeline t;
    const auto one = record_attach(watching({closed.pid()}, 0ms), t);
    std::string heard = one ? "recorded" : std::strerror(one.error().err);
    const auto all = record_attach(watching({}, 0ms), t);
    for (const auto& n : t.notes) heard += "\n" + n;
    if (all) heard += "\n" + unread_in(*all, closed.pid());
    say(to, all ? heard : "error");
  });
  const auto heard = observer.hear();
  EXPECT_THAT(heard,
              AnyOf(HasSubstr("Permission denied\n"), HasSubstr("Operation not permitted\n")));
  EXPECT_THAT(heard, ContainsRegex("\n[1-9][0-9]* process(es)? could not be examined"));
  EXPECT_THAT(heard, ContainsRegex("\nunread:.* " + std::to_string(closed.pid()) + " [(]"));
}

// What a process says that attaches to all: its notes, and whether it recorded `pid`. A thread of
// it stays where the time was used up.
std::string heard_of(pid_t pid, const AttachOptions& options) {
  const PipedChild observer([&](int to) {
    Timeline t;
    const auto all = record_attach(options, t);
    std::string heard = all && all->left_a_thread ? "left a thread" : "none left";
    for (const auto& n : t.notes) heard += "\n" + n;
    heard += "\nincomplete: " + t.incomplete;
    if (all) heard += "\n" + unread_in(*all, pid);
    if (process_of(t, pid) != nullptr) heard += "\nrecorded";
    say(to, heard);
  });
  return observer.hear();
}

TEST_F(AttachTest, LeavesOutAProcessWhoseCopiesTakeTooLongTogether) {
  const Writer writer;
  auto options = watching({}, 0ms);
  options.memory_budget = 0ms;
  const auto heard = heard_of(writer.pid(), options);
  EXPECT_THAT(heard, StartsWith("left a thread\n"));
  EXPECT_THAT(heard, HasSubstr("\nprocess " + std::to_string(writer.pid()) +
                               " was left out: copies of its memory took 0 ms in all"));
  EXPECT_THAT(heard, ContainsRegex("\nincomplete: process [0-9]+ was left out: copies"));
  EXPECT_THAT(heard, ContainsRegex("\nunread:.* " + std::to_string(writer.pid()) + " [(]"));
  EXPECT_THAT(heard, Not(HasSubstr("\nrecorded")));
}

TEST_F(AttachTest, LeavesOutEachSlowProcessOnceTheTimeForAllIsOver) {
  const Writer first;
  const Writer second;
  auto options = watching({}, 0ms);
  options.time_for_all = 0ms;
  options.late_look = 0ms;
  const auto heard = heard_of(first.pid(), options);
  EXPECT_THAT(heard, StartsWith("left a thread\n"));
  for (const auto* w : {&first, &second}) {
    EXPECT_THAT(heard, HasSubstr("\nprocess " + std::to_string(w->pid()) +
                                 " was left out: a look at its memory took 0 ms after the time "
                                 "for all processes was over"));
  }
  EXPECT_THAT(heard, ContainsRegex("\nincomplete: process [0-9]+ was left out: a look"));
  EXPECT_THAT(heard, Not(HasSubstr("\nrecorded")));
}

TEST_F(AttachTest, RecordsAnyOtherProcessAfterTheTimeForAll) {
  const Writer writer;
  auto options = watching({}, 0ms);
  options.time_for_all = 0ms;
  options.late_look = 1h;
  EXPECT_THAT(heard_of(writer.pid(), options), HasSubstr("\nrecorded"));
}

// Publishes, and returns at the first look: its payload is memory that nobody has touched, and a
// look makes it resident (see mincore(2)).
void publish_until_looked_at(int to) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* payload = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(page)) != 0) _exit(1);
  void* header = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  close(fd);
  const abi::ProcessHeader h{.signature = abi::kSignature,
                             .version = abi::kVersion,
                             .payload_size = 16,
                             .monotonic_published_at_ns = 1,
                             .payload = reinterpret_cast<std::uintptr_t>(payload)};
  std::memcpy(header, &h, sizeof h);
  unsigned char resident = 0;
  if (mincore(payload, page, &resident) != 0 || resident != 0) _exit(1);
  say(to, "ready");
  while ((resident & 1U) == 0) {
    if (mincore(payload, page, &resident) != 0) _exit(1);
    sched_yield();
  }
}

TEST_F(AttachTest, AProcessMayEndWhileItIsObserved) {
  const PipedChild brief([](int to) {
    publish_until_looked_at(to);
    _exit(0);
  });
  EXPECT_EQ(brief.hear(), "ready");
  const auto r = record_attach(watching({brief.pid()}, 300ms), timeline_);
  ASSERT_TRUE(r) << sys::to_string(r.error());
  ASSERT_EQ(timeline_.processes.size(), 1U);
  const Image& image = timeline_.processes[0].images.at(0);
  EXPECT_EQ(image.ending, "ended while it was observed");
  for (const auto& s : image.snapshots) {
    EXPECT_TRUE(has_valid_context(s)) << "the end of a process withdraws nothing";
    EXPECT_THAT(s.moments, Not(Contains(Moment::kEnd)));
  }
}

TEST_F(AttachTest, AnExecBeginsAnotherImage) {
  const PipedChild changing([](int to) {
    publish_until_looked_at(to);
    execl("/bin/sleep", "sleep", "60", nullptr);
    _exit(1);
  });
  EXPECT_EQ(changing.hear(), "ready");
  const auto r = record_attach(watching({changing.pid()}, 300ms), timeline_);
  ASSERT_TRUE(r) << sys::to_string(r.error());
  ASSERT_EQ(timeline_.processes.size(), 1U);
  const auto& images = timeline_.processes[0].images;
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].ending, "replaced by exec");
  EXPECT_EQ(images[1].ending, "running");
  EXPECT_EQ(images[1].key.image, 1U);
  EXPECT_THAT(images[1].executable, HasSubstr("sleep"));
  for (const auto& s : images[1].snapshots) EXPECT_FALSE(has_valid_context(s));
}

}  // namespace
}  // namespace ctxconf::conformance
