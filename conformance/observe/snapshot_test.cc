#include "conformance/observe/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <sstream>
#include <utility>

#include "abi/process_header.h"
#include "conformance/rules/state_rules.h"
#include "sys/fd.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using std::chrono::steady_clock;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// ---- In the child: a failing call ends it.

void need(bool what) {
  if (!what) _exit(99);
}

// One end of a socket pair: numbers in both directions.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  void say(std::uint64_t value) const {
    need(send(fd_, &value, sizeof value, MSG_NOSIGNAL) == sizeof value);
  }
  std::uint64_t hear() const {
    std::uint64_t value = 0;
    need(recv(fd_, &value, sizeof value, MSG_WAITALL) == sizeof value);
    return value;
  }
  bool was_told() const {
    pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&p, 1, 0) == 1;
  }

 private:
  int fd_;
};

char* map_pages(std::size_t pages, int protection = PROT_READ | PROT_WRITE) {
  void* p =
      mmap(nullptr, pages * page(), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  need(p != MAP_FAILED);
  return static_cast<char*>(p);
}

// The usual way to get memory for a header; `at` and `keep` are for tests that need them.
char* map_memfd(std::size_t pages, const char* name = "OTEL_CTX", char* at = nullptr,
                int* keep = nullptr) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  need(fd >= 0 && ftruncate(fd, static_cast<off_t>(pages * page())) == 0);
  void* p = mmap(at, pages * page(), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | (at != nullptr ? MAP_FIXED : 0), fd, 0);
  need(p != MAP_FAILED);
  if (keep != nullptr) {
    *keep = fd;
  } else {
    close(fd);
  }
  need(madvise(p, pages * page(), MADV_DONTFORK) == 0);
  return static_cast<char*>(p);
}

void set_timestamp(char* header, std::uint64_t value) {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(
                       header + offsetof(abi::ProcessHeader, monotonic_published_at_ns)),
                   value, __ATOMIC_SEQ_CST);
}

void fill_header(char* header, std::uint64_t payload, std::uint64_t size,
                 std::uint64_t timestamp = 1) {
  const abi::ProcessHeader h{.signature = abi::kSignature,
                             .version = abi::kVersion,
                             .payload_size = static_cast<std::uint32_t>(size),
                             .monotonic_published_at_ns = 0,
                             .payload = payload};
  std::memcpy(header, &h, sizeof h);
  set_timestamp(header, timestamp);
}

// ---- In the test

constexpr std::string_view kPayloadText = "what a writer has to say";

// A forked process that runs `body`, then waits for its end.
class Forked {
 public:
  explicit Forked(const std::function<void(const Talk&)>& body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      need(getppid() == parent);
      close(ends[0]);
      const Talk talk(ends[1]);
      body(talk);
      while (true) pause();
    }
    close(ends[1]);
    fd_ = sys::Fd(ends[0]);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    EXPECT_EQ(setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  }
  ~Forked() { end(); }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  pid_t pid() const { return pid_; }
  std::uint64_t hear() const {
    std::uint64_t value = 0;
    EXPECT_EQ(recv(fd_.get(), &value, sizeof value, MSG_WAITALL),
              static_cast<ssize_t>(sizeof value))
        << "the child failed or is silent";
    return value;
  }
  // Lets it take its next step and waits for the end of that step.
  std::uint64_t step() const {
    tell();
    return hear();
  }
  void tell() const {
    const std::uint64_t value = 0;
    EXPECT_EQ(send(fd_.get(), &value, sizeof value, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof value));
  }
  void kill_only() const {
    siginfo_t info{};
    EXPECT_EQ(kill(pid_, SIGKILL), 0);
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  sys::Fd fd_;
};

SnapshotRecorder recorder_of(const Forked& child, SnapshotLimits limits = {}) {
  limits.judge = &state_judge();
  return {ImageKey{child.pid(), 0}, limits};
}

const Snapshot& last_of(const SnapshotRecorder& r) {
  static const Snapshot nothing;
  EXPECT_FALSE(r.image().snapshots.empty());
  return r.image().snapshots.empty() ? nothing : r.image().snapshots.back();
}

const Candidate& only_candidate(const SnapshotRecorder& r) {
  static const Candidate nothing = [] {
    Candidate c;
    c.entries.resize(1);
    c.memory.resize(1);
    return c;
  }();
  const auto& all = last_of(r).candidates;
  EXPECT_EQ(all.size(), 1U);
  return all.size() == 1 ? all.front() : nothing;
}

const MemoryBlock& block_at(const Candidate& c, std::uint64_t at, std::uint64_t wanted) {
  static const MemoryBlock nothing;
  for (const auto& b : c.memory) {
    if (b.at.raw() == at && b.wanted == wanted) return b;
  }
  ADD_FAILURE() << "no block of " << wanted << " bytes at " << at;
  return nothing;
}

abi::ProcessHeader header_of(const Candidate& c) {
  return abi::decode_process_header(c.memory.front().bytes).value_or(abi::ProcessHeader{});
}

std::string text_of(const MemoryBlock& b) {
  return {reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()};
}

bool has_flag(const std::optional<std::string>& flags, const std::string& wanted) {
  std::istringstream words(flags.value_or(""));
  for (std::string word; words >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

bool covers(const std::vector<sys::MapEntry>& entries, std::uint64_t address) {
  return std::ranges::any_of(
      entries, [&](const sys::MapEntry& e) { return e.range.contains(sys::RemoteAddr(address)); });
}

std::uint64_t expected_hash(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return hash;
}

std::size_t bytes_kept(const Image& image) {
  std::size_t sum = 0;
  for (const auto& s : image.snapshots) {
    for (const auto& c : s.candidates) {
      for (const auto& b : c.memory) sum += b.bytes.size();
    }
  }
  return sum;
}

class SnapshotTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
    EXPECT_EQ(errno, ECHILD);
  }
};

// Publishes kPayloadText in a page of its own; reports header and payload.
void publish(const Talk& talk) {
  char* payload = map_pages(1);
  std::memcpy(payload, kPayloadText.data(), kPayloadText.size());
  char* header = map_memfd(1);
  fill_header(header, address_of(payload), kPayloadText.size());
  talk.say(address_of(header));
  talk.say(address_of(payload));
}

TEST_F(SnapshotTest, RecordsALegalContextWhole) {
  const Forked child(publish);
  const auto header = child.hear();
  const auto payload = child.hear();
  const auto before = sys::boottime_now_ns();
  auto r = recorder_of(child);
  EXPECT_FALSE(r.saw_candidate());
  EXPECT_EQ(r.last_publication_ns(), 0U);
  r.take(Moment::kStart, SnapshotDepth::kThorough);
  const auto after = sys::boottime_now_ns();

  EXPECT_TRUE(r.saw_candidate());
  EXPECT_GE(r.last_publication_ns(), before);
  EXPECT_LE(r.last_publication_ns(), after);
  ASSERT_EQ(r.image().snapshots.size(), 1U);
  const Snapshot& s = last_of(r);
  EXPECT_EQ(s.moment, Moment::kStart);
  EXPECT_THAT(s.moments, ElementsAre(Moment::kStart));
  EXPECT_GE(s.first_seen_ns, before);
  EXPECT_LE(s.first_seen_ns, s.last_seen_ns);
  EXPECT_LE(s.last_seen_ns, after);
  EXPECT_EQ(s.times, 1U);
  EXPECT_THAT(s.descriptors, IsEmpty());

  const Candidate& c = only_candidate(r);
  EXPECT_TRUE(c.named);
  EXPECT_TRUE(c.stable);
  EXPECT_EQ(c.found_at, std::nullopt);
  ASSERT_EQ(c.entries.size(), 1U);
  EXPECT_EQ(c.entries[0].range.begin().raw(), header);
  EXPECT_EQ(c.entries[0].range.size(), page());
  EXPECT_EQ(sys::permissions(c.entries[0]), "rw-p");
  EXPECT_EQ(c.memory.front().at.raw(), header);
  EXPECT_TRUE(abi::is_valid(header_of(c)));
  EXPECT_EQ(header_of(c).payload, payload);
  const auto& block = block_at(c, payload, kPayloadText.size());
  EXPECT_EQ(block.readable, kPayloadText.size());
  EXPECT_EQ(text_of(block), kPayloadText);
  EXPECT_EQ(block.hash, expected_hash(kPayloadText));
  // The bytes after header and payload, in case a size is too small.
  EXPECT_EQ(block_at(c, header + sizeof(abi::ProcessHeader), 64).bytes.size(), 64U);
  EXPECT_EQ(block_at(c, payload + kPayloadText.size(), 64).bytes.size(), 64U);
  ASSERT_EQ(c.vm_flags.size(), 1U);
  EXPECT_TRUE(has_flag(c.vm_flags[0], "dc")) << c.vm_flags[0].value_or("none");
  EXPECT_TRUE(has_flag(c.vm_flags[0], "wr")) << c.vm_flags[0].value_or("none");
  EXPECT_TRUE(covers(c.neighbours, header));
  EXPECT_TRUE(covers(c.neighbours, payload));

  const Image image = std::move(r).finish("done");
  EXPECT_EQ(image.key, (ImageKey{child.pid(), 0}));
  EXPECT_EQ(image.ending, "done");
  EXPECT_EQ(image.executable, sys::process_facts(getpid())->executable);
  EXPECT_EQ(image.command_line, sys::process_facts(getpid())->command_line);
  EXPECT_EQ(image.elf64, sizeof(void*) == 8);
  EXPECT_GE(image.started_ns, before);
  EXPECT_EQ(image.snapshots_dropped, 0U);
  EXPECT_THAT(image.notes, IsEmpty());
}

TEST_F(SnapshotTest, AProcessWithoutContextHasASnapshotThatSaysSo) {
  const Forked child([](const Talk& talk) { talk.say(0); });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kExit, SnapshotDepth::kThorough);
  ASSERT_EQ(r.image().snapshots.size(), 1U);
  EXPECT_EQ(last_of(r).times, 2U);
  EXPECT_THAT(last_of(r).candidates, IsEmpty());
  EXPECT_FALSE(r.saw_candidate());
  EXPECT_THAT(r.image().notes, IsEmpty());
}

TEST_F(SnapshotTest, EqualStatesAreOneSnapshot) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1);
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size(), 1);
    talk.say(0);
    talk.hear();
    header[100] = 'x';  // neither header nor payload
    talk.say(0);
    talk.hear();
    set_timestamp(header, 2);
    talk.say(0);
    talk.hear();
    set_timestamp(header, 0);
    talk.say(0);
    talk.hear();
    set_timestamp(header, 3);
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kNamed, SnapshotDepth::kQuick);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  ASSERT_EQ(r.image().snapshots.size(), 1U);
  const auto first_end = last_of(r).last_seen_ns;
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().snapshots.size(), 1U);
  EXPECT_EQ(last_of(r).times, 4U);
  EXPECT_EQ(last_of(r).moment, Moment::kPeriodic);
  EXPECT_THAT(last_of(r).moments, ElementsAre(Moment::kPeriodic, Moment::kNamed));
  EXPECT_GT(last_of(r).last_seen_ns, first_end);
  EXPECT_LT(last_of(r).first_seen_ns, first_end);
  const auto published = r.last_publication_ns();

  child.step();
  r.take(Moment::kNamed, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().snapshots.size(), 2U);
  EXPECT_EQ(header_of(only_candidate(r)).monotonic_published_at_ns, 2U);
  EXPECT_EQ(last_of(r).times, 1U);
  EXPECT_EQ(last_of(r).moment, Moment::kNamed);
  // A change is examined in full, even in a quick look.
  EXPECT_TRUE(has_flag(only_candidate(r).vm_flags.at(0), "dc"));
  EXPECT_TRUE(covers(only_candidate(r).neighbours, address_of(kPayloadText.data())));
  EXPECT_EQ(r.last_publication_ns(), published) << "an update is not a publication";

  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(r.image().snapshots.size(), 3U);
  EXPECT_EQ(r.last_publication_ns(), published);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(r.image().snapshots.size(), 4U);
  EXPECT_GT(r.last_publication_ns(), published);
}

TEST_F(SnapshotTest, TheLimitKeepsTheLastState) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1);
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size(), 1);
    talk.say(0);
    for (std::uint64_t i = 2;; ++i) {
      talk.hear();
      set_timestamp(header, i);
      talk.say(0);
    }
  });
  child.hear();
  auto r = recorder_of(child, {.snapshots = 3, .broken = 0});
  for (int i = 0; i < 7; ++i) {
    r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
    child.step();
  }
  ASSERT_EQ(r.image().snapshots.size(), 3U);
  EXPECT_EQ(r.image().snapshots_dropped, 4U);
  std::vector<std::uint64_t> seen;
  for (const auto& s : r.image().snapshots) {
    seen.push_back(header_of(s.candidates.at(0)).monotonic_published_at_ns);
  }
  EXPECT_THAT(seen, ElementsAre(1, 2, 7));
  EXPECT_EQ(r.image().snapshots_judged, 0U);
}

// A Resource with the attribute "a" of one byte.
std::array<char, 12> payload_with(char value) {
  return {0x0a, 10, 0x0a, 8, 0x0a, 1, 'a', 0x12, 3, 0x0a, 1, value};
}

std::vector<std::uint64_t> timestamps(const Image& image) {
  std::vector<std::uint64_t> out;
  for (const auto& s : image.snapshots) {
    out.push_back(header_of(s.candidates.at(0)).monotonic_published_at_ns);
  }
  return out;
}

// A sequence of states, each with its own timestamp: the state `odd` has invalid text.
class ManyStates {
 public:
  explicit ManyStates(std::uint64_t odd)
      : child_([odd](const Talk& talk) {
          char* header = map_memfd(1);
          auto payload = payload_with('x');
          const auto put = [&](std::uint64_t i) {
            set_timestamp(header, 0);
            payload = payload_with(i == odd ? '\xff' : 'x');
            set_timestamp(header, i);
          };
          fill_header(header, address_of(payload.data()), payload.size(), 1);
          put(1);
          talk.say(0);
          for (std::uint64_t i = 2;; ++i) {
            talk.hear();
            put(i);
            talk.say(0);
          }
        }) {
    child_.hear();
  }
  const Image& see(SnapshotRecorder& r, int states, Moment moment) {
    for (int i = 0; i < states; ++i) {
      r.take(moment, SnapshotDepth::kQuick);
      r.take(moment, SnapshotDepth::kQuick);
      child_.step();
    }
    return r.image();
  }
  Forked& child() { return child_; }

 private:
  Forked child_;
};

TEST_F(SnapshotTest, AStateBeyondTheLimitIsKeptWhereItBreaksARow) {
  ManyStates states(6);
  auto r = recorder_of(states.child(), {.snapshots = 3});
  const Image& image = states.see(r, 9, Moment::kPeriodic);
  EXPECT_THAT(timestamps(image), ElementsAre(1, 2, 6, 9));
  EXPECT_EQ(image.snapshots_dropped, 5U);
  EXPECT_EQ(image.snapshots_judged, 5U);
}

TEST_F(SnapshotTest, AStateOfAnOperationBeyondTheLimitIsKeptWhereItBreaksARow) {
  ManyStates states(6);
  auto r = recorder_of(states.child(), {.snapshots = 3});
  const Image& image = states.see(r, 9, Moment::kOperation);
  EXPECT_THAT(timestamps(image), ElementsAre(1, 2, 3, 6));
  EXPECT_EQ(image.snapshots_dropped, 5U);
  EXPECT_EQ(image.snapshots_judged, 5U);
}

TEST_F(SnapshotTest, OnlySoManyStatesAreJudgedBeforeTheyGo) {
  ManyStates states(6);
  auto r = recorder_of(states.child(), {.snapshots = 3, .judged = 2});
  const Image& image = states.see(r, 9, Moment::kPeriodic);
  EXPECT_THAT(timestamps(image), ElementsAre(1, 2, 9));
  EXPECT_EQ(image.snapshots_dropped, 6U);
  EXPECT_EQ(image.snapshots_judged, 2U);
}

TEST_F(SnapshotTest, ASplitMappingIsOneCandidate) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(2);
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size());
    need(mprotect(header + page(), page(), PROT_READ) == 0);
    talk.say(address_of(header));
  });
  const auto header = child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  const Candidate& c = only_candidate(r);
  ASSERT_EQ(c.entries.size(), 2U);
  EXPECT_EQ(c.entries[0].range.begin().raw(), header);
  EXPECT_EQ(c.entries[1].range.begin().raw(), header + page());
  EXPECT_EQ(sys::permissions(c.entries[1]), "r--p");
  ASSERT_EQ(c.vm_flags.size(), 2U);
  EXPECT_TRUE(has_flag(c.vm_flags[0], "wr"));
  EXPECT_FALSE(has_flag(c.vm_flags[1], "wr"));
  EXPECT_TRUE(has_flag(c.vm_flags[1], "dc"));
}

TEST_F(SnapshotTest, AdjacentMappingsOfTwoFilesAreTwoCandidates) {
  const Forked child([](const Talk& talk) {
    char* both = map_pages(2);
    for (int i = 0; i < 2; ++i) {
      char* header = map_memfd(1, "OTEL_CTX", both + static_cast<std::size_t>(i) * page());
      fill_header(header, address_of(kPayloadText.data()), kPayloadText.size());
    }
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_EQ(last_of(r).candidates.size(), 2U);
}

TEST_F(SnapshotTest, MoreCandidatesThanTheLimitAreNoted) {
  const Forked child([](const Talk& talk) {
    for (int i = 0; i < 5; ++i) {
      fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    }
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child, {.candidates = 3});
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(last_of(r).candidates.size(), 3U);
  EXPECT_THAT(r.image().notes, ElementsAre(HasSubstr("5 mappings named OTEL_CTX; 3 are examined")));
  EXPECT_EQ(r.image().unexamined, 2U);
}

TEST_F(SnapshotTest, BlankMappingsHideNoContext) {
  const Forked child([](const Talk& talk) {
    fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    for (int i = 0; i < 4; ++i) map_memfd(1);
    fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    for (int i = 0; i < 4; ++i) map_memfd(1);
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child, {.candidates = 3});
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(last_of(r).candidates.size(), 3U);
  const auto is_blank = [](const Candidate& c) {
    return c.memory.front().bytes.front() == std::byte{0};
  };
  EXPECT_EQ(std::ranges::count_if(last_of(r).candidates, is_blank), 1);
  EXPECT_EQ(r.image().unexamined, 0U);
}

TEST_F(SnapshotTest, WithVeryManyCandidatesNoLookIsTakenForEachCall) {
  const Forked child([](const Talk& talk) {
    for (int i = 0; i < 5; ++i) {
      fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    }
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child, {.candidates = 3, .crowded_looks = 4});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(r.take(Moment::kNaming, SnapshotDepth::kQuick));
    EXPECT_TRUE(r.take(Moment::kNamed, SnapshotDepth::kQuick));
  }
  EXPECT_FALSE(r.take(Moment::kNaming, SnapshotDepth::kQuick));
  EXPECT_FALSE(r.take(Moment::kNamed, SnapshotDepth::kQuick));
  EXPECT_EQ(r.image().looks_skipped, 2U);
  EXPECT_EQ(r.image().snapshots_dropped, 0U);
  EXPECT_EQ(r.image().snapshots_judged, 0U);
  EXPECT_TRUE(r.take(Moment::kPeriodic, SnapshotDepth::kQuick));
  EXPECT_TRUE(r.take(Moment::kExit, SnapshotDepth::kThorough));
}

TEST_F(SnapshotTest, AHeaderFurtherInIsFound) {
  const Forked child([](const Talk& talk) {
    char* region = map_memfd(40);
    talk.say(address_of(region));
    // Searches 16 pages, in steps of eight bytes.
    for (const std::size_t at :
         {std::size_t{64}, (std::size_t{1} << 16U) - 32, std::size_t{68}, std::size_t{1} << 16U}) {
      talk.hear();
      std::memset(region, 0, 40 * page());
      fill_header(region + at, address_of(kPayloadText.data()), kPayloadText.size());
      talk.say(0);
    }
  });
  child.hear();
  auto r = recorder_of(child);
  for (const auto& wanted : {std::optional<std::uint64_t>(64), {0x10000 - 32}, {}, {}}) {
    child.step();
    r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
    EXPECT_EQ(only_candidate(r).found_at, wanted);
    EXPECT_EQ(only_candidate(r).memory.front().readable, sizeof(abi::ProcessHeader));
  }
  EXPECT_EQ(r.last_publication_ns(), 0U);
}

TEST_F(SnapshotTest, AHiddenHeaderIsFoundByAThoroughLook) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1, "otel");
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(address_of(header));
    talk.hear();
    char* named = map_memfd(1);
    talk.say(address_of(named));
    talk.hear();
    munmap(named, page());
    talk.say(0);
  });
  const auto hidden = child.hear();
  auto quick = recorder_of(child);
  quick.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_THAT(last_of(quick).candidates, IsEmpty());

  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_FALSE(only_candidate(r).named);
  EXPECT_EQ(only_candidate(r).entries.at(0).range.begin().raw(), hidden);
  EXPECT_THAT(only_candidate(r).entries.at(0).name, HasSubstr("/memfd:otel"));
  EXPECT_EQ(
      text_of(block_at(only_candidate(r), address_of(kPayloadText.data()), kPayloadText.size())),
      kPayloadText);
  EXPECT_FALSE(r.saw_candidate());

  // When a reader can find something, what it cannot find does not matter.
  const auto named = child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_TRUE(only_candidate(r).named);
  EXPECT_EQ(only_candidate(r).entries.at(0).range.begin().raw(), named);
  EXPECT_TRUE(r.saw_candidate());
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_THAT(last_of(r).candidates, IsEmpty());
}

TEST_F(SnapshotTest, AHiddenHeaderInAnonymousMemoryIsFound) {
  const Forked child([](const Talk& talk) {
    // Guard pages keep it from being merged with its neighbours.
    char* middle = map_pages(3, PROT_NONE) + page();
    need(mprotect(middle, page(), PROT_READ | PROT_WRITE) == 0);
    fill_header(middle, address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(address_of(middle));
  });
  const auto hidden = child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_FALSE(only_candidate(r).named);
  EXPECT_EQ(only_candidate(r).entries.at(0).range.begin().raw(), hidden);
}

TEST_F(SnapshotTest, AnUnreadablePayloadIsRecordedAsFarAsItGoes) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1);
    char* two = map_pages(2);
    std::memset(two, 'p', page());
    need(munmap(two + page(), page()) == 0);
    const auto end = address_of(two) + page();
    for (const auto& [at, size] : {std::pair<std::uint64_t, std::uint64_t>{end - 100, 200},
                                   {end, 200},
                                   {UINT64_MAX - 10, 200}}) {
      fill_header(header, at, size);
      talk.say(at);
      talk.hear();
    }
  });
  const auto crossing = child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  const auto& part = block_at(only_candidate(r), crossing, 200);
  EXPECT_EQ(part.readable, 100U);
  EXPECT_EQ(text_of(part), std::string(100, 'p'));
  EXPECT_EQ(part.hash, expected_hash(std::string(100, 'p')));
  EXPECT_TRUE(covers(only_candidate(r).neighbours, crossing));
  for (const char* what : {"a hole", "the end of the address space"}) {
    SCOPED_TRACE(what);
    const auto at = child.step();
    r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
    const auto& none = block_at(only_candidate(r), at, 200);
    EXPECT_EQ(none.readable, 0U);
    EXPECT_THAT(none.bytes, IsEmpty());
    EXPECT_FALSE(covers(only_candidate(r).neighbours, at));
  }
  EXPECT_THAT(r.image().notes, IsEmpty());
}

TEST_F(SnapshotTest, AHeaderThatCannotBeReadIsStillACandidate) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1);
    need(mprotect(header, page(), PROT_NONE) == 0);
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_EQ(only_candidate(r).memory.front().readable, 0U);
  EXPECT_EQ(only_candidate(r).found_at, std::nullopt);
  EXPECT_EQ(r.last_publication_ns(), 0U);
}

TEST_F(SnapshotTest, AClaimOfFourGigabytesIsBounded) {
  const Forked child([](const Talk& talk) {
    const std::size_t pages = (std::size_t{1} << 32U) / page();
    char* payload = map_pages(pages);
    std::memset(payload, 'p', 10000);
    fill_header(map_memfd(1), address_of(payload), UINT32_MAX);
    talk.say(address_of(payload));
  });
  const auto payload = child.hear();
  auto r = recorder_of(child, {.payload_kept = 5000, .payload_read = 4U << 20U});
  const auto begin = steady_clock::now();
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_LT(steady_clock::now() - begin, 10s);
  const auto& block = block_at(only_candidate(r), payload, UINT32_MAX);
  EXPECT_EQ(block.readable, 4U << 20U);
  EXPECT_EQ(text_of(block), std::string(5000, 'p'));
  EXPECT_EQ(r.image().snapshots.size(), 1U);
  EXPECT_LT(bytes_kept(r.image()), 50000U);
}

TEST_F(SnapshotTest, ALargePayloadIsKeptInPartAndHashedWhole) {
  constexpr std::size_t kBytes = 200'000;
  const Forked child([](const Talk& talk) {
    char* payload = map_pages(kBytes / page() + 1);
    std::memset(payload, 'p', kBytes);
    fill_header(map_memfd(1), address_of(payload), kBytes);
    talk.say(address_of(payload));
    talk.hear();
    payload[kBytes - 1] = 'q';
    talk.say(0);
  });
  const auto payload = child.hear();
  auto r = recorder_of(child, {.payload_kept = 1000});
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().snapshots.size(), 1U);
  std::string whole(kBytes, 'p');
  EXPECT_EQ(block_at(only_candidate(r), payload, kBytes).readable, kBytes);
  EXPECT_EQ(text_of(block_at(only_candidate(r), payload, kBytes)), whole.substr(0, 1000));
  EXPECT_EQ(block_at(only_candidate(r), payload, kBytes).hash, expected_hash(whole));
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().snapshots.size(), 2U)
      << "a change without a new timestamp, after the kept bytes";
  whole.back() = 'q';
  EXPECT_EQ(block_at(only_candidate(r), payload, kBytes).hash, expected_hash(whole));
  // Each is stored once, whatever announces it.
  ASSERT_EQ(r.image().payloads.size(), 2U);
  const auto kept = kept_bytes(r.image(), block_at(only_candidate(r), payload, kBytes));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(kept.data()), kept.size()), whole);
  EXPECT_EQ(r.stored_bytes() / kBytes, 2U);
}

TEST_F(SnapshotTest, LargePayloadsHaveALimitTogether) {
  constexpr std::size_t kBytes = 200'000;
  const Forked child([](const Talk& talk) {
    char* payload = map_pages(kBytes / page() + 1);
    std::memset(payload, 'p', kBytes);
    fill_header(map_memfd(1), address_of(payload), kBytes);
    talk.say(address_of(payload));
    talk.hear();
    payload[kBytes - 1] = 'q';
    talk.say(0);
  });
  const auto payload = child.hear();
  auto r = recorder_of(child, {.payload_kept = 1000, .large_payloads = kBytes});
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().payloads.size(), 1U);
  EXPECT_EQ(kept_bytes(r.image(), block_at(only_candidate(r), payload, kBytes)).size(), 1000U);
}

TEST_F(SnapshotTest, AnOpenDescriptorIsListedWhileItIsOpen) {
  const Forked child([](const Talk& talk) {
    int fd = -1;
    char* header = map_memfd(1, "OTEL_CTX", nullptr, &fd);
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(static_cast<std::uint64_t>(fd));
    talk.hear();
    close(fd);
    talk.say(0);
  });
  const auto fd = static_cast<int>(child.hear());
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_THAT(last_of(r).descriptors, ElementsAre(DescriptorLink{fd, "/memfd:OTEL_CTX (deleted)"}));
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(r.image().snapshots.size(), 1U);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(r.image().snapshots.size(), 2U);
  EXPECT_THAT(last_of(r).descriptors, IsEmpty());
}

TEST_F(SnapshotTest, ALateDescriptorIsSeenByAThoroughLook) {
  const Forked child([](const Talk& talk) {
    fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(0);
    talk.hear();
    need(memfd_create("OTEL_CTX", MFD_CLOEXEC) >= 0);
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  child.step();
  r.take(Moment::kEnd, SnapshotDepth::kThorough);
  EXPECT_EQ(last_of(r).descriptors.size(), 1U);
  EXPECT_EQ(r.image().snapshots.size(), 2U);
}

TEST_F(SnapshotTest, AWithdrawnContextIsAStateOfItsOwn) {
  const Forked child([](const Talk& talk) {
    char* header = map_memfd(1);
    fill_header(header, address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(0);
    talk.hear();
    need(munmap(header, page()) == 0);
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  ASSERT_EQ(r.image().snapshots.size(), 2U);
  EXPECT_THAT(last_of(r).candidates, IsEmpty());
}

TEST_F(SnapshotTest, AProcessThatIsGoneAddsNothing) {
  Forked child(publish);
  child.hear();
  child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  const auto pid = child.pid();
  // First a zombie, which has no memory but has withdrawn nothing, then not even a zombie.
  child.kill_only();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kEnd, SnapshotDepth::kThorough);
  EXPECT_EQ(r.image().snapshots.size(), 1U);
  EXPECT_EQ(last_of(r).times, 1U);
  child.end();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  r.take(Moment::kEnd, SnapshotDepth::kThorough);
  EXPECT_EQ(r.image().snapshots.size(), 1U);
  EXPECT_THAT(r.image().notes, IsEmpty());

  SnapshotRecorder never({pid, 0}, {});
  never.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_THAT(never.image().snapshots, IsEmpty());
  EXPECT_THAT(never.image().notes, IsEmpty());
  EXPECT_FALSE(never.saw_candidate());
}

TEST_F(SnapshotTest, AProcessWhoseLeaderHasEndedIsLookedAt) {
  const Forked child([](const Talk& talk) {
    static Talk to_parent = talk;
    pthread_t thread{};
    const auto run = [](void*) -> void* {
      // The leader is a zombie from here on; the process is not.
      for (char state = 0; state != 'Z';) {
        std::FILE* stat = std::fopen("/proc/self/stat", "re");
        need(stat != nullptr && std::fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
        std::fclose(stat);
      }
      publish(to_parent);
      while (true) pause();
    };
    need(pthread_create(&thread, nullptr, run, nullptr) == 0);
    syscall(SYS_exit, 0);
  });
  child.hear();
  const auto payload = child.hear();
  auto r = recorder_of(child);
  r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
  EXPECT_TRUE(abi::is_valid(header_of(only_candidate(r))));
  EXPECT_EQ(text_of(block_at(only_candidate(r), payload, kPayloadText.size())), kPayloadText);
  EXPECT_THAT(r.image().notes, IsEmpty());
}

TEST_F(SnapshotTest, AProcessThatMayNotBeLookedAtLeavesANote) {
  const Forked child([](const Talk& talk) {
    publish(talk);
    need(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    talk.say(0);
  });
  for (int i = 0; i < 3; ++i) child.hear();
  const Forked observer([&](const Talk& talk) {
    if (getuid() == 0) need(setgid(65534) == 0 && setuid(65534) == 0);
    auto r = recorder_of(child);
    for (int i = 0; i < 20; ++i) r.take(Moment::kPeriodic, SnapshotDepth::kThorough);
    const auto& notes = r.image().notes;
    talk.say(r.image().snapshots.size());
    talk.say(notes.size());
    talk.say(static_cast<std::uint64_t>(std::ranges::count_if(notes, [](const auto& n) {
      return n.find("mappings cannot be read: ") == 0 && n.find("denied") != std::string::npos;
    })));
  });
  EXPECT_EQ(observer.hear(), 0U);
  const auto notes = observer.hear();
  EXPECT_GE(notes, 1U);
  EXPECT_LE(notes, 2U) << "each text once";
  EXPECT_EQ(observer.hear(), 1U);
}

TEST_F(SnapshotTest, APersonalityIsReadAgain) {
  const Forked child([](const Talk& talk) {
    talk.say(0);
    talk.hear();
    need(personality(READ_IMPLIES_EXEC) >= 0);
    fill_header(map_memfd(1), address_of(kPayloadText.data()), kPayloadText.size());
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child);
  EXPECT_EQ(r.image().personality & READ_IMPLIES_EXEC, 0U);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_EQ(r.image().personality & READ_IMPLIES_EXEC, 0U + READ_IMPLIES_EXEC);
}

TEST_F(SnapshotTest, AContextThatDoesNotHoldStillIsNotSettled) {
  const Forked child([](const Talk& talk) {
    // A reader needs longer to copy this than a busy host lets the writer wait.
    constexpr std::size_t kBytes = 32U << 20U;
    char* payload = map_pages(kBytes / page());
    char* header = map_memfd(1);
    fill_header(header, address_of(payload), kBytes);
    talk.say(0);
    for (std::uint64_t i = 2; !talk.was_told(); ++i) {
      for (int n = 0; n < 10000; ++n) set_timestamp(header, (i << 32U) + static_cast<unsigned>(n));
    }
    talk.say(0);
  });
  child.hear();
  auto r = recorder_of(child, {.payload_kept = 100});
  const auto enough = steady_clock::now() + 20s;
  bool unstable = false;
  while (!unstable && steady_clock::now() < enough) {
    r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
    unstable = !only_candidate(r).stable;
  }
  EXPECT_TRUE(unstable);
  child.step();
  r.take(Moment::kPeriodic, SnapshotDepth::kQuick);
  EXPECT_TRUE(only_candidate(r).stable);
}

TEST_F(SnapshotTest, ASettledSnapshotIsNeverAMixture) {
  constexpr std::size_t kBytes = 20'000;
  constexpr std::uint64_t kUpdates = 10'000;
  const Forked child([](const Talk& talk) {
    char* payload = map_pages(kBytes / page() + 1);
    char* header = map_memfd(1);
    fill_header(header, address_of(payload), kBytes, 0);
    std::uint64_t i = 0;
    const auto update = [&] {
      ++i;
      set_timestamp(header, 0);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      std::memset(payload, static_cast<int>(i & 0xffU), kBytes);
      set_timestamp(header, i);
    };
    update();
    talk.say(address_of(payload));
    while (i < kUpdates || !talk.was_told()) update();
    talk.say(i);
  });
  const auto payload = child.hear();
  auto r = recorder_of(child, {.payload_kept = kBytes, .snapshots = 64, .broken = 0});
  std::size_t checked = 0;
  const auto enough = steady_clock::now() + 20s;
  const auto seen_enough = [&] { return checked > 0 && r.image().snapshots_dropped > 0; };
  for (int i = 0; i < 200 || (!seen_enough() && steady_clock::now() < enough); ++i) {
    r.take(Moment::kPeriodic, i % 16 == 0 ? SnapshotDepth::kThorough : SnapshotDepth::kQuick);
    const Candidate& c = only_candidate(r);
    const auto header = header_of(c);
    if (!c.stable || header.monotonic_published_at_ns == 0) continue;
    const auto& block = block_at(c, payload, kBytes);
    ASSERT_EQ(block.bytes.size(), kBytes);
    ASSERT_THAT(block.bytes, Each(static_cast<std::byte>(header.monotonic_published_at_ns)));
    ++checked;
  }
  child.tell();
  const auto updates = child.hear();
  EXPECT_GE(updates, kUpdates);
  r.take(Moment::kEnd, SnapshotDepth::kThorough);
  EXPECT_TRUE(only_candidate(r).stable);
  EXPECT_EQ(header_of(only_candidate(r)).monotonic_published_at_ns, updates);
  EXPECT_GT(checked, 0U);
  EXPECT_LE(r.image().snapshots.size(), 64U);
  EXPECT_GT(r.image().snapshots_dropped, 0U);
  EXPECT_LT(bytes_kept(r.image()), 128 * (kBytes + 1000));
}

}  // namespace
}  // namespace ctxconf::conformance
