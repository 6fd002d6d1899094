// Tests the library in real processes: what a reader finds in them, and what forks do.
#include "writer_ref/otel_ctx.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "abi/process_header.h"
#include "writer_ref/linux_kernel.h"
#include "writer_ref/publisher.h"

namespace ctxconf::writer {
namespace {

// Inside children: the line number of the failure is the result.
#define REQUIRE(condition)             \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)

constexpr int kCannotTry = -1;

// Waits for a child that reports its line through a pipe; 0 is good.
int line_of(pid_t child, int pipe_end) {
  int line = -2;
  if (read(pipe_end, &line, sizeof line) != sizeof line) line = -2;
  close(pipe_end);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return -1000 - WTERMSIG(status);
  return line;
}

template <class Body>
[[noreturn]] void be_child(int pipe_end, Body body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(30);
  const int line = body();
  if (write(pipe_end, &line, sizeof line) != sizeof line) _exit(1);
  _exit(0);
}

// 0, or the failed line in `body`, or -1000 - the signal that ended it.
template <class Body>
int in_child(Body body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -3;
  const pid_t child = fork();
  if (child < 0) return -4;
  if (child == 0) be_child(ends[1], body);
  close(ends[1]);
  return line_of(child, ends[0]);
}

// The same without libc's fork, so that pthread_atfork handlers do not run.
template <class Body>
int in_bare_clone(Body body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return -3;
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child < 0) return -4;
  if (child == 0) be_child(ends[1], body);
  close(ends[1]);
  return line_of(static_cast<pid_t>(child), ends[0]);
}

struct Seen {
  int contexts = 0;
  int named = 0;
  std::uint64_t header = 0;
  std::string perms;
  abi::ProcessHeader fields{};
  std::string payload;
};

// What a reader finds in our own memory.
Seen look() {
  Seen seen;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find_first_of("[/");
    if (name == std::string::npos || !abi::is_candidate_name(std::string_view(line).substr(name))) {
      continue;
    }
    ++seen.named;
    const std::uint64_t start = std::strtoull(line.c_str(), nullptr, 16);
    abi::ProcessHeader h;
    std::memcpy(&h, std::bit_cast<const void*>(start), sizeof h);
    if (!abi::is_valid(h)) continue;
    ++seen.contexts;
    seen.header = start;
    seen.perms = line.substr(line.find(' ') + 1, 4);
    seen.fields = h;
    seen.payload.assign(std::bit_cast<const char*>(h.payload), h.payload_size);
  }
  return seen;
}

bool has_memfd_open() {
  DIR* const dir = opendir("/proc/self/fd");
  bool found = false;
  while (const dirent* entry = readdir(dir)) {
    std::array<char, 256> target{};
    if (readlinkat(dirfd(dir), entry->d_name, target.data(), target.size() - 1) > 0) {
      found = found || std::string_view(target.data()).starts_with("/memfd:OTEL_CTX");
    }
  }
  closedir(dir);
  return found;
}

std::string vm_flags(std::uint64_t start) {
  std::array<char, 32> prefix{};
  std::snprintf(prefix.data(), prefix.size(), "%08llx-", static_cast<unsigned long long>(start));
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(prefix.data())) here = true;
    if (here && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

int publish(std::string_view text) { return otel_ctx_publish(text.data(), text.size(), nullptr); }
int update(std::string_view text) { return otel_ctx_update(text.data(), text.size(), nullptr); }

TEST(OtelCtx, PublishesWhatAReaderFinds) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish("hello") == OTEL_CTX_OK);
              const Seen seen = look();
              REQUIRE(seen.contexts == 1 && seen.named == 1);
              REQUIRE(seen.perms == "rw-p");
              REQUIRE(seen.payload == "hello");
              REQUIRE(seen.fields.payload_size == 5);
              REQUIRE(!has_memfd_open());
              REQUIRE(vm_flags(seen.header).find(" dc") != std::string::npos);
              otel_ctx_info info;
              otel_ctx_get_info(&info);
              REQUIRE(info.published == 1 && info.memfd == 1);
              REQUIRE(info.header == seen.header && info.payload == seen.fields.payload);
              REQUIRE(info.last_timestamp == seen.fields.monotonic_published_at_ns);
              timespec now{};
              clock_gettime(CLOCK_BOOTTIME, &now);
              const auto ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
                              static_cast<std::uint64_t>(now.tv_nsec);
              REQUIRE(info.last_timestamp <= ns && ns - info.last_timestamp < 20'000'000'000U);
              std::ifstream maps("/proc/self/maps");
              bool named_so = false;
              for (std::string line; std::getline(maps, line);) {
                named_so = named_so || line.find(info.name_in_maps) != std::string::npos;
              }
              REQUIRE(named_so);
              return 0;
            }),
            0);
}

TEST(OtelCtx, UpdatesInPlaceAndDropsAll) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish("one") == OTEL_CTX_OK);
              const Seen first = look();
              std::set<std::uint64_t> timestamps{first.fields.monotonic_published_at_ns};
              for (int i = 0; i < 10000; ++i) {
                const std::string text(static_cast<std::size_t>(1 + i * 7 % 9000), 'x');
                REQUIRE((i % 2 != 0 ? publish(text) : update(text)) == OTEL_CTX_OK);
                otel_ctx_info info;
                otel_ctx_get_info(&info);
                REQUIRE(info.header == first.header);
                REQUIRE(info.last_timestamp > *timestamps.rbegin());
                timestamps.insert(info.last_timestamp);
              }
              REQUIRE(update("last") == OTEL_CTX_OK);
              REQUIRE(look().payload == "last");
              REQUIRE(otel_ctx_drop(nullptr) == OTEL_CTX_OK);
              REQUIRE(look().named == 0);
              REQUIRE(update("gone") == OTEL_CTX_NOT_PUBLISHED);
              REQUIRE(publish("back") == OTEL_CTX_OK);
              const Seen again = look();
              REQUIRE(again.payload == "back");
              REQUIRE(again.fields.monotonic_published_at_ns > *timestamps.rbegin());
              return 0;
            }),
            0);
}

TEST(OtelCtx, KeepsErrnoAndDescribesErrors) {
  EXPECT_EQ(in_child([] {
              errno = 77;
              otel_ctx_error error;
              REQUIRE(otel_ctx_update("x", 1, &error) == OTEL_CTX_NOT_PUBLISHED);
              REQUIRE(errno == 77);
              std::array<char, 128> text{};
              const std::string_view expected =
                  "not published: there is no context in this process";
              REQUIRE(otel_ctx_describe(&error, text.data(), text.size()) == expected.size());
              REQUIRE(text.data() == expected);
              REQUIRE(otel_ctx_describe(&error, text.data(), 4) == expected.size());
              REQUIRE(std::string_view(text.data()) == "not");
              REQUIRE(otel_ctx_describe(&error, nullptr, 0) == expected.size());
              REQUIRE(otel_ctx_publish(nullptr, 3, &error) == OTEL_CTX_BAD_PAYLOAD);
              otel_ctx_describe(&error, text.data(), text.size());
              REQUIRE(std::string_view(text.data()) ==
                      "bad payload: payload without bytes: Invalid argument");
              REQUIRE(publish("x") == OTEL_CTX_OK);
              REQUIRE(otel_ctx_publish("x", 1, &error) == OTEL_CTX_OK);
              otel_ctx_describe(&error, text.data(), text.size());
              REQUIRE(std::string_view(text.data()) == "ok");
              REQUIRE(errno == 77);
              return 0;
            }),
            0);
}

long mapped_pages() {
  std::array<char, 64> text{};
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  const auto n = read(fd, text.data(), text.size() - 1);
  close(fd);
  return n > 0 ? std::strtol(text.data(), nullptr, 10) : -1;
}

// Sizing a memfd beyond RLIMIT_FSIZE sends SIGXFSZ, whose default action kills the process.
TEST(OtelCtx, SurvivesAFileSizeLimit) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{0, 0};
              REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
              REQUIRE(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
              const long before = mapped_pages();
              otel_ctx_error error;
              const int status = otel_ctx_publish("x", 1, &error);
              sigset_t set;
              REQUIRE(sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 0);
              REQUIRE(sigprocmask(SIG_BLOCK, nullptr, &set) == 0);
              REQUIRE(sigismember(&set, SIGXFSZ) == 0);
              REQUIRE(!has_memfd_open());
              if (status == OTEL_CTX_OK) {  // this kernel can name anonymous memory
                REQUIRE(look().contexts == 1);
                return 0;
              }
              REQUIRE(status == OTEL_CTX_NO_NAME && error.sys_errno == EINVAL);
              REQUIRE(look().named == 0);
              REQUIRE(mapped_pages() == before);
              return 0;
            }),
            0);
}

TEST(OtelCtx, LeavesAPendingFileSizeSignalToItsOwner) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{0, 0};
              REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
              sigset_t set;
              sigemptyset(&set);
              sigaddset(&set, SIGXFSZ);
              REQUIRE(sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
              REQUIRE(raise(SIGXFSZ) == 0);
              publish("x");
              REQUIRE(sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 1);
              return 0;
            }),
            0);
}

int child_publishes_its_own() {
  REQUIRE(look().named == 0);
  REQUIRE(update("child") == OTEL_CTX_NOT_PUBLISHED);
  REQUIRE(otel_ctx_drop(nullptr) == OTEL_CTX_OK);
  REQUIRE(publish("child") == OTEL_CTX_OK);
  REQUIRE(update("child 2") == OTEL_CTX_OK);
  const Seen seen = look();
  REQUIRE(seen.contexts == 1 && seen.payload == "child 2");
  return 0;
}

TEST(Fork, TheChildHasNoneAndPublishesItsOwn) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish("parent") == OTEL_CTX_OK);
              const Seen before = look();
              REQUIRE(in_child(child_publishes_its_own) == 0);
              REQUIRE(in_bare_clone(child_publishes_its_own) == 0);
              const Seen after = look();
              REQUIRE(after.contexts == 1 && after.payload == "parent");
              REQUIRE(std::memcmp(&after.fields, &before.fields, sizeof after.fields) == 0);
              REQUIRE(update("parent 2") == OTEL_CTX_OK);
              return 0;
            }),
            0);
}

TEST(Fork, TheChildHasNothingOfThePayloadEither) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish("parent") == OTEL_CTX_OK);
              const auto payload = std::bit_cast<void*>(look().fields.payload);
              REQUIRE(in_child([payload] {
                        unsigned char resident = 0;
                        REQUIRE(mincore(payload, 1, &resident) == -1 && errno == ENOMEM);
                        return 0;
                      }) == 0);
              return 0;
            }),
            0);
}

template <class MakeChild>
int fork_while_others_update(MakeChild make_child) {
  REQUIRE(publish("parent") == OTEL_CTX_OK);
  std::atomic<bool> stop = false;
  std::atomic<int> bad = 0;
  std::vector<std::thread> writers;
  writers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&] {
      const std::string large(20'000, 'x');
      while (!stop) {
        if (update("small") != OTEL_CTX_OK || update(large) != OTEL_CTX_OK) ++bad;
      }
    });
  }
  int line = 0;
  for (int i = 0; i < 100 && line == 0; ++i) line = make_child();
  stop = true;
  for (auto& writer : writers) writer.join();
  REQUIRE(bad == 0);
  REQUIRE(look().contexts == 1);
  return line;
}

// Only calls that are safe in the child of a process with threads: no allocation.
int quiet_child() {
  REQUIRE(otel_ctx_update("child", 5, nullptr) == OTEL_CTX_NOT_PUBLISHED);
  REQUIRE(otel_ctx_publish("child", 5, nullptr) == OTEL_CTX_OK);
  REQUIRE(otel_ctx_update("child", 5, nullptr) == OTEL_CTX_OK);
  return 0;
}

TEST(Fork, DoesNotDeadlockWhileOthersUpdate) {
  EXPECT_EQ(in_child([] { return fork_while_others_update([] { return in_child(quiet_child); }); }),
            0);
}

TEST(Fork, NeitherDoesABareClone) {
  EXPECT_EQ(
      in_child([] { return fork_while_others_update([] { return in_bare_clone(quiet_child); }); }),
      0);
}

int shared_child(void*) { return update("from the child") == OTEL_CTX_OK ? 0 : 1; }

// With CLONE_VM there is one memory, so there is one context.
TEST(Fork, AChildInTheSameMemoryHasTheSameContext) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish("parent") == OTEL_CTX_OK);
              const Seen before = look();
              std::vector<char> stack(256 * 1024);
              const int child = clone(shared_child, stack.data() + stack.size(),
                                      CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
              REQUIRE(child > 0);
              int status = 0;
              REQUIRE(waitpid(child, &status, 0) == child && status == 0);
              const Seen after = look();
              REQUIRE(after.contexts == 1 && after.header == before.header);
              REQUIRE(after.payload == "from the child");
              REQUIRE(update("parent again") == OTEL_CTX_OK);
              return 0;
            }),
            0);
}

// The first process of a namespace, whose child is the first process of another one.
template <class Parent, class Child>
int with_the_same_number(Parent parent, Child child) {
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return kCannotTry;
  return in_child([=] {
    REQUIRE(getpid() == 1);
    const int line = parent();
    if (line != 0) return line;
    if (unshare(CLONE_NEWPID) != 0) return kCannotTry;
    return in_child([=] {
      REQUIRE(getpid() == 1);
      return child();
    });
  });
}

TEST(Fork, AChildWithTheNumberOfItsParentIsAChild) {
  const int line = in_child([] {
    return with_the_same_number([] { return publish("parent"); }, child_publishes_its_own);
  });
  if (line == kCannotTry) GTEST_SKIP() << "unshare(CLONE_NEWPID) is not allowed here";
  EXPECT_EQ(line, 0);
}

// The library on a kernel before 4.14.
class OldKernel : public LinuxKernel {
 public:
  static long wipe_on_fork(void*, std::size_t) { return -EINVAL; }
};
State old_state;
OldKernel old_kernel;
void old_forked() {
  old_state.owner = 0;
  wipe(old_state);
}
Publisher<OldKernel> old_publisher() { return {old_kernel, old_state, true, old_forked}; }
int old_publish(std::string_view text) {
  return old_publisher().publish(std::as_bytes(std::span(text))).status;
}
int old_update(std::string_view text) {
  return old_publisher().update(std::as_bytes(std::span(text))).status;
}
int old_child() {
  REQUIRE(look().named == 0);
  REQUIRE(old_update("child") == OTEL_CTX_NOT_PUBLISHED);
  REQUIRE(old_publish("child") == OTEL_CTX_OK);
  REQUIRE(old_update("child 2") == OTEL_CTX_OK);
  REQUIRE(look().payload == "child 2");
  return 0;
}

TEST(OldKernelFork, IsNoticedByLibcAndByTheProcessNumber) {
  EXPECT_EQ(in_child([] {
              REQUIRE(old_publish("parent") == OTEL_CTX_OK);
              REQUIRE(in_child(old_child) == 0);
              REQUIRE(in_bare_clone(old_child) == 0);
              REQUIRE(in_child([] {
                        REQUIRE(old_child() == 0);
                        return in_child(old_child);
                      }) == 0);
              REQUIRE(look().payload == "parent");
              REQUIRE(old_update("parent 2") == OTEL_CTX_OK);
              return 0;
            }),
            0);
}

TEST(OldKernelFork, IsNoticedWithTheSameProcessNumber) {
  const int line = in_child(
      [] { return with_the_same_number([] { return old_publish("parent"); }, old_child); });
  if (line == kCannotTry) GTEST_SKIP() << "unshare(CLONE_NEWPID) is not allowed here";
  EXPECT_EQ(line, 0);
}

// Eight threads in the child of a bare clone reach a lock at once that a thread of the parent held.
TEST(OldKernelFork, OneThreadClaimsTheStateForAll) {
  EXPECT_EQ(in_child([] {
              REQUIRE(old_publish("parent") == OTEL_CTX_OK);
              pthread_mutex_lock(&old_state.lock);
              return in_bare_clone([] {
                std::atomic<int> bad = 0;
                std::vector<std::thread> threads;
                threads.reserve(8);
                for (int i = 0; i < 8; ++i) {
                  threads.emplace_back([&] {
                    if (old_publish("child") != OTEL_CTX_OK) ++bad;
                  });
                }
                for (auto& thread : threads) thread.join();
                REQUIRE(bad == 0);
                REQUIRE(look().contexts == 1);
                return 0;
              });
            }),
            0);
}

TEST(Threads, PublishOneContextTogether) {
  EXPECT_EQ(in_child([] {
              for (int round = 0; round < 50; ++round) {
                std::atomic<int> ready = 0;
                std::atomic<int> bad = 0;
                std::vector<std::thread> threads;
                threads.reserve(8);
                for (int i = 0; i < 8; ++i) {
                  threads.emplace_back([&] {
                    ++ready;
                    while (ready < 8) std::this_thread::yield();
                    if (publish("together") != OTEL_CTX_OK) ++bad;
                  });
                }
                for (auto& thread : threads) thread.join();
                REQUIRE(bad == 0);
                REQUIRE(look().contexts == 1 && look().named == 1);
                REQUIRE(otel_ctx_drop(nullptr) == OTEL_CTX_OK);
                REQUIRE(look().named == 0);
              }
              return 0;
            }),
            0);
}

// A reader in the same process that follows the reading protocol, with two concurrent writers.
TEST(Threads, AReaderNeverSeesAMixture) {
  EXPECT_EQ(in_child([] {
              REQUIRE(publish(std::string(100, 'a')) == OTEL_CTX_OK);
              const auto& h = *std::bit_cast<const abi::ProcessHeader*>(look().header);
              std::atomic<bool> stop = false;
              std::vector<std::thread> writers;
              writers.reserve(3);
              for (int i = 0; i < 2; ++i) {
                writers.emplace_back([&, i] {
                  for (std::size_t n = 1; !stop; ++n) {
                    // Within a page, so that nothing is unmapped during a read.
                    update(std::string(1 + n % 4000, static_cast<char>('a' + (n + i) % 26)));
                  }
                });
              }
              const auto timestamp = [&] {
                return __atomic_load_n(&h.monotonic_published_at_ns, __ATOMIC_ACQUIRE);
              };
              int good = 0;
              int line = 0;
              std::string copy;
              while (good < 20'000 && line == 0) {
                const auto before = timestamp();
                if (before == 0) continue;
                std::atomic_thread_fence(std::memory_order_seq_cst);
                copy.resize(__atomic_load_n(&h.payload_size, __ATOMIC_RELAXED));
                const auto* from =
                    std::bit_cast<const char*>(__atomic_load_n(&h.payload, __ATOMIC_RELAXED));
                for (std::size_t i = 0; i < copy.size(); ++i) {
                  copy[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
                }
                std::atomic_thread_fence(std::memory_order_seq_cst);
                if (timestamp() != before) continue;
                ++good;
                if (copy.empty() || copy.find_first_not_of(copy[0]) != std::string::npos)
                  line = __LINE__;
              }
              stop = true;
              for (auto& writer : writers) writer.join();
              return line;
            }),
            0);
}

}  // namespace
}  // namespace ctxconf::writer
