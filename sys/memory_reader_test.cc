#include "sys/memory_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ctxconf::sys {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

// The readable bytes among `size` bytes at `at`.
std::vector<std::byte> readable(const MemoryReader& memory, std::uint64_t at, std::size_t size) {
  std::vector<std::byte> out(size);
  const auto n = memory.read_some(RemoteAddr(at), out);
  EXPECT_TRUE(n) << to_string(n.error());
  out.resize(n.value_or(0));
  return out;
}

TEST(SnapshotMemory, HasOnlyWhatWasPut) {
  SnapshotMemory m;
  EXPECT_EQ(readable(m, 0x1000, 4), bytes({}));
  m.put(RemoteAddr(0x1000), bytes({1, 2, 3}));
  EXPECT_EQ(readable(m, 0x1000, 4), bytes({1, 2, 3}));
  EXPECT_EQ(readable(m, 0x1001, 1), bytes({2}));
  EXPECT_EQ(readable(m, 0xfff, 4), bytes({}));
  EXPECT_EQ(readable(m, 0x1003, 4), bytes({}));
  EXPECT_EQ(readable(m, 0x1000, 0), bytes({}));
}

TEST(SnapshotMemory, ReadsAcrossBlocksThatTouchAndStopsAtAGap) {
  SnapshotMemory m;
  m.put(RemoteAddr(0x1002), bytes({3, 4}));
  m.put(RemoteAddr(0x1000), bytes({1, 2}));
  m.put(RemoteAddr(0x1005), bytes({6}));
  EXPECT_EQ(readable(m, 0x1000, 9), bytes({1, 2, 3, 4}));
  EXPECT_EQ(readable(m, 0x1003, 1), bytes({4}));
}

TEST(SnapshotMemory, KeepsTheBlockThatWasPutLast) {
  SnapshotMemory m;
  m.put(RemoteAddr(0x1000), bytes({1, 1, 1, 1, 1, 1}));
  m.put(RemoteAddr(0x1002), bytes({2, 2}));  // inside
  EXPECT_EQ(readable(m, 0x1000, 9), bytes({1, 1, 2, 2, 1, 1}));
  m.put(RemoteAddr(0x0fff), bytes({3, 3}));  // over the start
  EXPECT_EQ(readable(m, 0x0fff, 9), bytes({3, 3, 1, 2, 2, 1, 1}));
  m.put(RemoteAddr(0x1005), bytes({4, 4}));  // over the end
  EXPECT_EQ(readable(m, 0x0fff, 9), bytes({3, 3, 1, 2, 2, 1, 4, 4}));
  m.put(RemoteAddr(0x0ffe), bytes({5, 5, 5, 5, 5, 5, 5, 5, 5, 5}));  // over all
  EXPECT_EQ(readable(m, 0x0ffe, 99), bytes({5, 5, 5, 5, 5, 5, 5, 5, 5, 5}));
  m.put(RemoteAddr(0x1000), bytes({}));
  EXPECT_EQ(readable(m, 0x1000, 1), bytes({5}));
}

TEST(SnapshotMemory, EndsWhereAddressesEnd) {
  SnapshotMemory m;
  m.put(RemoteAddr(UINT64_MAX - 2), bytes({1, 2, 3, 4, 5}));
  EXPECT_EQ(readable(m, UINT64_MAX - 2, 9), bytes({1, 2}));
  EXPECT_EQ(readable(m, UINT64_MAX, 9), bytes({}));
  EXPECT_EQ(readable(m, 0, 9), bytes({}));
}

TEST(ReadExact, NamesTheFirstUnreadableAddress) {
  SnapshotMemory m;
  m.put(RemoteAddr(0x1000), bytes({1, 0, 0, 0, 9}));
  EXPECT_EQ(m.read(RemotePtr<std::uint32_t>{RemoteAddr(0x1000)}).value(), 1U);
  const auto failed = m.read(RemotePtr<std::uint32_t>{RemoteAddr(0x1002)});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().err, EFAULT);
  EXPECT_EQ(failed.error().detail, "0x1005");
}

TEST(InterruptedMemory, CanChangeBytesBetweenTwoReads) {
  SnapshotMemory m;
  m.put(RemoteAddr(0x1000), bytes({1}));
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr at) -> Result<> {
    EXPECT_EQ(at, RemoteAddr(0x1000));
    if (nth == 2) m.put(RemoteAddr(0x1000), bytes({2}));
    return {};
  });
  EXPECT_EQ(readable(racing, 0x1000, 1), bytes({1}));
  EXPECT_EQ(readable(racing, 0x1000, 1), bytes({2}));
}

TEST(InterruptedMemory, FailsWithTheErrorOfItsHook) {
  SnapshotMemory m;
  m.put(RemoteAddr(0x1000), bytes({1}));
  const InterruptedMemory dying(m, [](int nth, RemoteAddr) -> Result<> {
    if (nth == 2) return fail("process_vm_readv", ESRCH, "pid 7");
    return {};
  });
  std::byte out{};
  EXPECT_TRUE(dying.read_exact(RemoteAddr(0x1000), std::span(&out, 1)));
  const auto failed = dying.read_exact(RemoteAddr(0x1000), std::span(&out, 1));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().err, ESRCH);
}

// Pages of this process: some readable ones, then one that is not.
class Pages {
 public:
  explicit Pages(std::size_t readable) : readable_(readable * page_size()) {
    memory_ = mmap(nullptr, readable_ + page_size(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (std::size_t i = 0; i < readable_; ++i)
      data()[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    mprotect(data() + readable_, page_size(), PROT_NONE);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(memory_, readable_ + page_size()); }
  static std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }
  std::uint64_t begin() const { return reinterpret_cast<std::uintptr_t>(memory_); }
  std::uint64_t end() const { return begin() + readable_; }

 private:
  std::size_t readable_;
  void* memory_;
};

TEST(ProcessMemory, StopsAtTheFirstUnreadablePage) {
  const Pages pages(2);
  const ProcessMemory self(getpid());
  EXPECT_EQ(readable(self, pages.end() - 10, 100).size(), 10U);
  EXPECT_EQ(readable(self, pages.begin() + 5, 1U << 20U).size(), pages.end() - pages.begin() - 5);
  EXPECT_EQ(readable(self, pages.end(), 100).size(), 0U);
  EXPECT_EQ(readable(self, pages.begin(), 0).size(), 0U);
  EXPECT_EQ(readable(self, 0, 100).size(), 0U);

  std::uint64_t out = 0;
  const auto failed =
      self.read_exact(RemoteAddr(pages.end() - 4), std::as_writable_bytes(std::span(&out, 1)));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().err, EFAULT);
  char expected[32];
  snprintf(expected, sizeof expected, "0x%llx", static_cast<unsigned long long>(pages.end()));
  EXPECT_EQ(failed.error().detail, expected);
}

TEST(ProcessMemory, ReadsTwoPartsAndWhatCanBeReadOfEach) {
  const Pages pages(2);
  const ProcessMemory self(getpid());
  std::array<std::byte, 8> first{};
  std::array<std::byte, 8> second{};
  const auto read = [&](std::uint64_t a, std::uint64_t b) {
    first = second = {};
    return self.read_two({RemoteAddr(a), first}, {RemoteAddr(b), second}).value();
  };
  const auto bytes_at = [](std::uint64_t at) {
    std::array<std::byte, 8> out{};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the pages above
    std::memcpy(out.data(), reinterpret_cast<const void*>(at), out.size());
    return out;
  };
  // The first read crosses a page boundary.
  const auto edge = pages.begin() + Pages::page_size() - 4;
  EXPECT_THAT(read(edge, pages.begin()), testing::ElementsAre(8, 8));
  EXPECT_EQ(first, bytes_at(edge));
  EXPECT_EQ(second, bytes_at(pages.begin()));
  EXPECT_THAT(read(pages.begin(), pages.end() - 3), testing::ElementsAre(8, 3));
  EXPECT_EQ(first, bytes_at(pages.begin()));
  EXPECT_THAT(read(pages.end() - 3, pages.begin()), testing::ElementsAre(3, 8));
  EXPECT_EQ(second, bytes_at(pages.begin()));
  EXPECT_THAT(read(pages.end(), pages.end()), testing::ElementsAre(0, 0));
}

// What a filter refuses, as in a container.
enum class Refused { kReadCall, kWriteCall, kWriteCallAndWritableFiles };

bool refuse(Refused what) {
  const bool files = what == Refused::kWriteCallAndWritableFiles;
  const std::uint32_t mode = files ? O_WRONLY : O_ACCMODE;  // which nobody uses
  const std::uint32_t call =
      what == Refused::kReadCall ? SYS_process_vm_readv : SYS_process_vm_writev;
  std::array<sock_filter, 8> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mode, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  }};
  const sock_fprog program{code.size(), code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs `body` in a child with such a filter. Returns 0, or the number of the wrong claim.
template <class Body>
int claims_while_refused(Refused what, const Body& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(refuse(what) ? body() : 100);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

TEST(ProcessMemory, ReadsTheSameWhereTheCallIsRefused) {
  const Pages pages(300);
  const auto wrong = claims_while_refused(Refused::kReadCall, [&] {
    const ProcessMemory self(getpid());
    if (readable(self, pages.end() - 10, 100).size() != 10) return 1;
    if (!readable(self, pages.end(), 100).empty()) return 2;
    if (!readable(self, 0, 100).empty()) return 3;
    for (const std::uint64_t at : {0x8000000000000000U, 0xfffffffffffff000U, 0xffffffffffffffffU}) {
      if (!readable(self, at, 8192).empty()) return 4;
    }
    const auto all = readable(self, pages.begin() + 1, 1U << 21U);
    if (all.size() != pages.end() - pages.begin() - 1) return 5;
    if (std::memcmp(all.data(), pages.data() + 1, all.size()) != 0) return 6;
    std::array<std::byte, 8> first{};
    std::array<std::byte, 8> second{};
    const auto two =
        self.read_two({RemoteAddr(pages.begin()), first}, {RemoteAddr(pages.end() - 3), second});
    if (!two || *two != std::array<std::size_t, 2>{8, 3}) return 7;
    const auto mapped = self.read_mapped(RemoteAddr(pages.begin()), first);
    return mapped && *mapped == 8 ? 0 : 8;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ProcessMemory, FailsForAProcessThatIsGoneAlsoWhereTheCallIsRefused) {
  const auto wrong = claims_while_refused(Refused::kReadCall, [] {
    std::byte out{};
    const auto of = [&](pid_t pid) {
      const auto read = ProcessMemory(pid).read_some(
          RemoteAddr(reinterpret_cast<std::uintptr_t>(&out)), std::span(&out, 1));
      return read ? 0 : read.error().err;
    };
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0) return 1;
    if (of(pid) != ESRCH) return 2;
    waitpid(pid, nullptr, 0);
    return of(pid) == ESRCH ? 0 : 3;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ProcessMemory, ReadsMoreThanOneCallTakes) {
  const Pages pages(300);
  const auto all = readable(ProcessMemory(getpid()), pages.begin() + 1, 1U << 21U);
  ASSERT_EQ(all.size(), pages.end() - pages.begin() - 1);
  EXPECT_EQ(std::memcmp(all.data(), pages.data() + 1, all.size()), 0);
}

TEST(ProcessMemory, HasNothingAtAddressesThatNobodyHas) {
  const ProcessMemory self(getpid());
  for (const std::uint64_t at : {0x8000000000000000U, 0xffff800000000000U, 0xfffffffffffff000U,
                                 0xfffffffffffffffeU, 0xffffffffffffffffU}) {
    EXPECT_EQ(readable(self, at, 8192).size(), 0U) << at;
  }
}

TEST(ProcessMemory, FailsForAProcessThatIsGone) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  const std::uint64_t here = 0;
  const auto at = RemoteAddr(reinterpret_cast<std::uintptr_t>(&here));
  std::uint64_t out = 0;
  const auto into = std::as_writable_bytes(std::span(&out, 1));

  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  const auto of_zombie = ProcessMemory(pid).read_some(at, into);
  ASSERT_FALSE(of_zombie);
  EXPECT_EQ(of_zombie.error().err, ESRCH);

  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  const auto of_nobody = ProcessMemory(pid).read_some(at, into);
  ASSERT_FALSE(of_nobody);
  EXPECT_EQ(of_nobody.error().err, ESRCH);
}

TEST(ProcessMemory, FailsWithoutPermission) {
  const pid_t root_process = geteuid() == 0 ? getpid() : 1;
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(100);
    std::byte out{};
    const auto n =
        ProcessMemory(root_process)
            .read_some(RemoteAddr(reinterpret_cast<std::uintptr_t>(&out)), std::span(&out, 1));
    _exit(n ? 101 : n.error().err);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EPERM);
}

// Writes into a stopped child that this process traces.
int claims_of_writes(const Pages& pages) {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::size_t page = Pages::page_size();
    // Two mappings that touch, and one that may not be written.
    if (madvise(pages.data(), page, MADV_DONTDUMP) != 0) _exit(1);
    if (mprotect(pages.data() + 2 * page, page, PROT_READ) != 0) _exit(1);
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 1;
  const auto claims = [&] {
    const ProcessMemory memory(pid);
    std::vector<std::byte> text;
    for (int i = 0; i < 45; ++i) text.push_back(static_cast<std::byte>(200 - i));
    const std::uint64_t middle = pages.begin() + Pages::page_size() - 21;
    for (const std::uint64_t at : {pages.begin(), pages.begin() + 3, middle}) {
      for (const std::size_t size : {0, 1, 5, 8, 13, 45}) {
        auto wanted = readable(memory, pages.begin(), 2 * Pages::page_size());
        if (wanted.size() != 2 * Pages::page_size()) return 2;
        std::memcpy(wanted.data() + (at - pages.begin()), text.data(), size);
        if (!write_memory(pid, RemoteAddr(at), std::span(text).first(size))) return 3;
        if (readable(memory, pages.begin(), wanted.size()) != wanted) return 4;
        for (std::byte& b : text) b ^= std::byte{0x5a};
      }
    }
    const auto error_at = [&](std::uint64_t at) {
      const auto wrote = write_memory(pid, RemoteAddr(at), text);
      return wrote ? 0 : wrote.error().err;
    };
    const std::uint64_t read_only = pages.begin() + 2 * Pages::page_size();
    const auto before = readable(memory, read_only, 45);
    for (const std::uint64_t at : {read_only, std::uint64_t{0}, 0xffffffffffffff00U}) {
      if (error_at(at) != EFAULT) return 5;
    }
    if (error_at(read_only - 10) != EFAULT) return 6;
    return readable(memory, read_only, 45) == before ? 0 : 7;
  };
  const int wrong = claims();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return wrong;
}

TEST(WriteMemory, WritesTheSameWhereTheCallOrItsSubstituteIsRefused) {
  const Pages pages(4);
  EXPECT_EQ(claims_of_writes(pages), 0);
  EXPECT_EQ(claims_while_refused(Refused::kWriteCall, [&] { return claims_of_writes(pages); }), 0);
  EXPECT_EQ(claims_while_refused(Refused::kWriteCallAndWritableFiles,
                                 [&] { return claims_of_writes(pages); }),
            0);
}

}  // namespace
}  // namespace ctxconf::sys
