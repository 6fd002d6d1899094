#include "sys/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "sys/fd.h"
#include "sys/memory_reader.h"

namespace ctxconf::sys {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<std::string> kPrefixes = {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]",
                                            "/memfd:OTEL_CTX"};
constexpr int kSetVma = 0x53564d41;  // PR_SET_VMA
constexpr int kDepth = 300;  // of 250 characters each: longer than PATH_MAX and kMaxMapsLine
constexpr const char* kShownName = "/memfd:OTEL_CTX (deleted)";

// A fork of this test. It runs the body, reports what it returned, waits until the parent hangs up,
// and exits; unless the body never returns.
class Forked {
 public:
  explicit Forked(const std::function<std::uint64_t()>& body) {
    std::array<int, 2> go{};
    std::array<int, 2> answer{};
    if (pipe2(go.data(), O_CLOEXEC) != 0 || pipe2(answer.data(), O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(go[1]);
      close(answer[0]);
      go_ = Fd(go[0]);
      answer_ = Fd(answer[1]);
      const std::uint64_t value = body();
      if (write(answer_.get(), &value, sizeof value) != sizeof value) _exit(99);
      wait_for_parent();
      _exit(0);
    }
    close(go[0]);
    close(answer[1]);
    go_ = Fd(go[1]);
    answer_ = Fd(answer[0]);
    if (read(answer_.get(), &value_, sizeof value_) == sizeof value_) return;
    value_ = 0;  // it has executed a program or ended
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    if (pid_ <= 0) return;
    if (expect_kill_) kill(pid_, SIGKILL);
    go_.reset();
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    if (expect_kill_) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
  }

  pid_t pid() const { return pid_; }
  std::uint64_t value() const { return value_; }
  void will_be_killed() { expect_kill_ = true; }
  void let_go() {
    const char c = 'g';
    EXPECT_EQ(write(go_.get(), &c, 1), 1);
  }

 private:
  void wait_for_parent() const {
    char c = 0;
    while (read(go_.get(), &c, 1) < 0 && errno == EINTR) {
    }
  }

  pid_t pid_ = 0;
  Fd go_;
  Fd answer_;
  std::uint64_t value_ = 0;
  bool expect_kill_ = false;
};

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::uint64_t map_memfd(const char* name, int protection) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(page_size())) != 0) _exit(98);
  void* memory = mmap(nullptr, page_size(), protection, MAP_PRIVATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) _exit(97);
  return reinterpret_cast<std::uintptr_t>(memory);
}

std::uint64_t publish() { return map_memfd("OTEL_CTX", PROT_READ | PROT_WRITE); }

// A pid that has just been reaped.
pid_t gone_pid() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  return pid;
}

std::vector<MapEntry> found(Result<std::vector<MapEntry>> result) {
  EXPECT_TRUE(result) << to_string(result.error());
  return std::move(result).value_or(std::vector<MapEntry>{});
}

std::vector<std::string> lines(const std::vector<MapEntry>& entries) {
  std::vector<std::string> out;
  for (const auto& e : entries) out.push_back(to_maps_line(e));
  return out;
}

template <class T>
int error_of(const Result<T>& result) {
  return result ? 0 : result.error().err;
}

TEST(FindMappings, FindsAMemfdEitherWay) {
  const Forked child([] {
    map_memfd("OTEL", PROT_READ | PROT_WRITE);
    map_memfd("OTEL_CTX", PROT_READ);
    return publish();
  });
  const auto by_query = found(find_memfd_mappings(child.pid(), kPrefixes, MapSearch::kQuery));
  ASSERT_EQ(by_query.size(), 1U);
  EXPECT_EQ(by_query[0].range, RemoteRange::from_size(RemoteAddr(child.value()), page_size()));
  EXPECT_EQ(by_query[0].name, kShownName);
  EXPECT_EQ(permissions(by_query[0]), "rw-p");
  EXPECT_NE(by_query[0].inode, 0U);
  EXPECT_EQ(by_query, found(find_memfd_mappings(child.pid(), kPrefixes, MapSearch::kText)));
  // The complete scan also has the read-only one.
  EXPECT_EQ(found(find_all_mappings(child.pid(), kPrefixes)).size(), 2U);
}

TEST(FindMappings, GivesTheSameEntriesEitherWay) {
  const Forked child([] {
    map_memfd("with\nnewline", PROT_READ | PROT_WRITE);
    map_memfd("with space \t\r", PROT_READ | PROT_WRITE | PROT_EXEC);
    mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int fd = memfd_create("offset", MFD_CLOEXEC);
    if (ftruncate(fd, 1 << 20) != 0) _exit(98);
    mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x8000);
    return 1;
  });
  const auto by_query = found(find_memfd_mappings(child.pid(), {""}, MapSearch::kQuery));
  const auto by_text = found(find_memfd_mappings(child.pid(), {""}, MapSearch::kText));
  EXPECT_EQ(lines(by_query), lines(by_text));
  EXPECT_EQ(by_query, by_text);
  EXPECT_THAT(lines(by_query), Contains(HasSubstr("/memfd:with\\012newline (deleted)")));
  EXPECT_THAT(lines(by_query), Contains(HasSubstr("rwxp")));
  EXPECT_THAT(lines(by_query), Contains(HasSubstr("rw-s 00008000")));
  EXPECT_THAT(lines(by_query), Contains(HasSubstr("/dev/zero (deleted)")));
}

TEST(FindMappings, FindsNamedAnonymousMemoryOnlyInTheCompleteScan) {
  const Forked child([] {
    void* memory =
        mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    return prctl(kSetVma, 0UL, at, page_size(), "OTEL_CTX") == 0 ? at : 0;
  });
  EXPECT_TRUE(found(find_memfd_mappings(child.pid(), kPrefixes, MapSearch::kQuery)).empty());
  EXPECT_TRUE(found(find_memfd_mappings(child.pid(), kPrefixes, MapSearch::kText)).empty());
  if (child.value() == 0) GTEST_SKIP() << "this kernel names no anonymous memory";
  const auto all = found(find_all_mappings(child.pid(), kPrefixes));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "[anon:OTEL_CTX]");
}

TEST(FindMappings, FindsOneBehindAPathLongerThanAnyBuffer) {
  const Forked child([]() -> std::uint64_t {
    char scratch[] = "/tmp/ctxconf-deep-XXXXXX";
    if (mkdtemp(scratch) == nullptr || chdir(scratch) != 0) _exit(96);
    const std::string part(250, 'd');
    for (int i = 0; i < kDepth; ++i) {
      if (mkdir(part.c_str(), 0700) != 0 || chdir(part.c_str()) != 0) _exit(95);
    }
    const int fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) _exit(94);
    // Below the memfd, so that both ways see it first.
    void* area = mmap(nullptr, 4 * page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mmap(area, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != area) {
      _exit(93);
    }
    const int context = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    void* at = static_cast<char*>(area) + 2 * page_size();
    if (ftruncate(context, 4096) != 0 ||
        mmap(at, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, context, 0) != at) {
      _exit(92);
    }
    unlink("file");
    for (int i = 0; i < kDepth; ++i) {
      if (chdir("..") != 0 || rmdir(part.c_str()) != 0) _exit(91);
    }
    if (rmdir(scratch) != 0) _exit(90);
    return reinterpret_cast<std::uintptr_t>(at);
  });
  const auto text = read_maps_text(child.pid());
  ASSERT_TRUE(text);
  std::size_t longest = 0;
  for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
    end = text->find('\n', at);
    longest = std::max(longest, std::min(end, text->size()) - at);
  }
  EXPECT_GT(longest, kMaxMapsLine);
  const auto by_query = found(find_memfd_mappings(child.pid(), kPrefixes, MapSearch::kQuery));
  ASSERT_EQ(by_query.size(), 1U);
  EXPECT_EQ(by_query[0].range.begin().raw(), child.value());
  EXPECT_EQ(by_query, found(find_all_mappings(child.pid(), kPrefixes)));
}

TEST(ReadMapsText, IsParsedAndPrintedAgainForEveryProcessThatMayBeRead) {
  const auto processes = process_list();
  ASSERT_TRUE(processes);
  int read = 0;
  for (const pid_t pid : *processes) {
    const auto text = read_maps_text(pid);
    if (!text) continue;
    ++read;
    for_each_mapping(*text, [&](Result<MapEntry> entry) {
      EXPECT_TRUE(entry) << to_string(entry.error());
      return entry.has_value();
    });
    const auto table = MapTable::parse(*text);
    ASSERT_TRUE(table);
    std::string again;
    for (const auto& entry : table->entries()) again += to_maps_line(entry) + "\n";
    EXPECT_EQ(again, *text);
  }
  EXPECT_GT(read, 0);
}

TEST(MappingAt, IsTheOneThatHoldsTheAddress) {
  const int here = 0;
  const RemoteAddr at(reinterpret_cast<std::uint64_t>(&here));
  const auto mapping = mapping_at(getpid(), at);
  ASSERT_TRUE(mapping);
  EXPECT_TRUE(mapping->range.contains(at));
  EXPECT_TRUE(mapping->writable);
  EXPECT_FALSE(mapping_at(getpid(), RemoteAddr(8)));
}

TEST(ReadMapsText, AgreesWithSmaps) {
  const Forked child(publish);
  std::ifstream smaps("/proc/" + std::to_string(child.pid()) + "/smaps");
  std::string headers;
  for (std::string line; std::getline(smaps, line);) {
    const std::string word = line.substr(0, line.find(' '));
    if (word.find('-') != std::string::npos && !word.ends_with(':')) headers += line + "\n";
  }
  EXPECT_EQ(read_maps_text(child.pid()).value(), headers);
  EXPECT_THAT(headers, HasSubstr(kShownName));
}

TEST(VmFlags, ShowMadvDontfork) {
  const Forked child([] {
    const std::uint64_t at = publish();
    map_memfd("OTEL_CTX_2", PROT_READ | PROT_WRITE);
    madvise(reinterpret_cast<void*>(at), page_size(), MADV_DONTFORK);  // NOLINT
    return at;
  });
  auto entries = found(find_all_mappings(child.pid(), kPrefixes));
  ASSERT_EQ(entries.size(), 2U);
  MapEntry nowhere = entries[0];
  nowhere.range = RemoteRange::from_size(RemoteAddr(0x1000), 0x1000).value();
  entries.insert(entries.begin(), nowhere);
  const auto flags = vm_flags(child.pid(), entries);
  ASSERT_TRUE(flags);
  ASSERT_EQ(flags->size(), 3U);
  EXPECT_FALSE((*flags)[0]);
  if (!(*flags)[1]) GTEST_SKIP() << "smaps has no VmFlags here";
  ASSERT_TRUE((*flags)[2]);
  for (std::size_t i = 1; i < 3; ++i) {
    const bool is_published = entries[i].range.begin().raw() == child.value();
    EXPECT_EQ((" " + *(*flags)[i] + " ").find(" dc ") != std::string::npos, is_published);
    EXPECT_TRUE((*flags)[i]->starts_with("rd wr mr mw me")) << *(*flags)[i];
    EXPECT_FALSE((*flags)[i]->ends_with(' '));
  }
  EXPECT_TRUE(vm_flags(child.pid(), {}).value().empty());
}

TEST(ParseVmFlags, AnswersInTheOrderOfTheEntries) {
  constexpr std::string_view smaps =
      "1000-2000 rw-p 00000000 00:01 5 /memfd:a (deleted)\n"
      "Size:                  4 kB\n"
      "VmFlags: rd wr mr mw me dc ac \n"
      "2000-3000 r--p 00000000 00:00 0 \n"
      "Rss:                   0 kB\n"
      "3000-4000 rw-p 00000000 00:01 6 /memfd:b (deleted)\n"
      "VmFlags:\n"
      "4000-nonsense\n"
      "VmFlags: no entry\n"
      "5000-6000 rw-p 00000000 00:01 7 /memfd:c (deleted)\n"
      "VmFlags: rd";
  const auto entry = [](const char* line) { return parse_maps_line(line).value(); };
  const auto a = entry("1000-2000 rw-p 00000000 00:01 5 /memfd:a (deleted)");
  const auto plain = entry("2000-3000 r--p 00000000 00:00 0 ");
  const auto b = entry("3000-4000 rw-p 00000000 00:01 6 /memfd:b (deleted)");
  const auto c = entry("5000-6000 rw-p 00000000 00:01 7 /memfd:c (deleted)");
  const auto longer = entry("1000-2800 rw-p 00000000 00:01 5 /memfd:a (deleted)");
  const auto replaced = entry("1000-2000 rw-p 00000000 00:01 9 /memfd:a (deleted)");
  const auto flags = parse_vm_flags(smaps, {c, longer, a, replaced, b, plain, a});
  ASSERT_EQ(flags.size(), 7U);
  EXPECT_EQ(flags[0], "rd");
  EXPECT_FALSE(flags[1]);
  EXPECT_EQ(flags[2], "rd wr mr mw me dc ac");
  EXPECT_FALSE(flags[3]);
  EXPECT_EQ(flags[4], "");
  EXPECT_FALSE(flags[5]);
  EXPECT_EQ(flags[6], flags[2]);
  EXPECT_FALSE(parse_vm_flags("VmFlags: rd\n", {a})[0]);
  EXPECT_FALSE(parse_vm_flags("", {a})[0]);
  EXPECT_TRUE(parse_vm_flags(smaps, {}).empty());
}

// What every function returns for a pid.
std::vector<int> errors_about(pid_t pid) {
  return {error_of(process_facts(pid)),
          error_of(read_maps_text(pid)),
          error_of(find_memfd_mappings(pid, kPrefixes, MapSearch::kQuery)),
          error_of(find_memfd_mappings(pid, kPrefixes, MapSearch::kText)),
          error_of(find_all_mappings(pid, kPrefixes)),
          error_of(vm_flags(pid, {})),
          error_of(descriptors_to(pid, "")),
          error_of(descriptor_link(pid, 0)),
          error_of(thread_list(pid))};
}

TEST(NoSuchProcess, IsEsrch) {
  EXPECT_THAT(errors_about(gone_pid()), ::testing::Each(ESRCH));
  EXPECT_THAT(errors_about(0), ::testing::Each(ESRCH));
  EXPECT_THAT(errors_about(-1), ::testing::Each(ESRCH));
  EXPECT_THAT(errors_about(INT32_MAX), ::testing::Each(ESRCH));
}

TEST(NoPermission, IsEaccesOrEperm) {
  const pid_t root_process = geteuid() == 0 ? getpid() : 1;
  const Forked child([&]() -> std::uint64_t {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 100;
    const auto errors = errors_about(root_process);
    std::uint64_t refused = 0;
    for (const int e : errors) refused += e == EACCES || e == EPERM ? 1 : 0;
    // Anyone may list the threads of a process, unless hidepid= hides it.
    return refused == errors.size() - (errors.back() == 0 ? 1 : 0) ? 1 : 200 + refused;
  });
  EXPECT_EQ(child.value(), 1U);
}

constexpr std::uint64_t kManyMemfds = 3000;

std::uint64_t publish_often() {
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(page_size())) != 0) _exit(98);
  for (std::uint64_t i = 0; i < kManyMemfds; ++i) {
    // Page 0 each time, so that neighbours do not merge.
    if (mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
      _exit(97);
    }
  }
  return kManyMemfds;
}

Result<std::size_t> count_in_text(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(text, read_maps_text(pid));
  std::vector<MapEntry> entries;
  MappingFinder(kPrefixes).find_in(text, entries);
  return entries.size();
}

// However far reading came when the kill arrives, it never returns a partial result.
TEST(DyingProcess, IsSeenWholeOrNotAtAll) {
  const std::vector<std::function<Result<std::size_t>(pid_t)>> ways = {
      [](pid_t pid) -> Result<std::size_t> {
        CTX_ASSIGN_OR_RETURN(entries, find_memfd_mappings(pid, kPrefixes, MapSearch::kQuery));
        return entries.size();
      },
      [](pid_t pid) -> Result<std::size_t> {
        CTX_ASSIGN_OR_RETURN(entries, find_all_mappings(pid, kPrefixes));
        return entries.size();
      },
      count_in_text};
  for (const auto& way : ways) {
    for (int round = 0; round < 8; ++round) {
      Forked child(publish_often);
      ASSERT_EQ(child.value(), kManyMemfds);
      child.will_be_killed();
      ASSERT_EQ(way(child.pid()).value_or(0), kManyMemfds);
      std::atomic<bool> started = false;
      std::thread killer([&] {
        while (!started) {
        }
        for (int i = 0; i < round * 2000; ++i) syscall(SYS_getppid);
        kill(child.pid(), SIGKILL);
      });
      started = true;
      while (true) {
        const auto count = way(child.pid());
        if (!count) {
          EXPECT_EQ(count.error().err, ESRCH);
          break;
        }
        if (*count == 0) break;  // already a zombie
        ASSERT_EQ(*count, kManyMemfds);
      }
      killer.join();
    }
  }
}

TEST(ProcessThatExecs, IsSeenBeforeOrAfter) {
  for (int round = 0; round < 5; ++round) {
    Forked child([] {
      publish_often();
      signal(SIGUSR1, [](int) {
        execl("/bin/sleep", "sleep", "1000", nullptr);
        _exit(96);
      });
      return 1;
    });
    ASSERT_EQ(child.value(), 1U);
    child.will_be_killed();
    ASSERT_EQ(count_in_text(child.pid()).value_or(0), kManyMemfds);
    ASSERT_EQ(kill(child.pid(), SIGUSR1), 0);
    while (true) {
      const auto count = found(find_all_mappings(child.pid(), kPrefixes)).size();
      if (count == 0) break;
      ASSERT_EQ(count, kManyMemfds);
    }
  }
}

TEST(Zombie, HasFactsAndNoMemory) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  const auto facts = process_facts(pid);
  ASSERT_TRUE(facts) << to_string(facts.error());
  EXPECT_EQ(facts->state, 'Z');
  EXPECT_EQ(facts->parent, getpid());
  EXPECT_EQ(facts->executable, "");
  EXPECT_TRUE(facts->command_line.empty());
  EXPECT_EQ(read_maps_text(pid).value(), "");
  EXPECT_TRUE(found(find_memfd_mappings(pid, kPrefixes, MapSearch::kQuery)).empty());
  EXPECT_TRUE(found(find_memfd_mappings(pid, kPrefixes, MapSearch::kText)).empty());
  EXPECT_TRUE(descriptors_to(pid, "").value().empty());
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(ProcessWithoutItsFirstThread, IsSeenThroughAnother) {
  std::array<int, 2> answer{};
  ASSERT_EQ(pipe2(answer.data(), O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([write_end = answer[1]] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::uint64_t at = publish();
      *reinterpret_cast<std::uint64_t*>(at) = 4711;  // NOLINT(performance-no-int-to-ptr)
      if (memfd_create("left open", 0) < 0) _exit(98);
      std::string stat;
      while (stat.find(") Z ") == std::string::npos) {
        std::getline(std::ifstream("/proc/self/stat"), stat);
      }
      if (write(write_end, &at, sizeof at) != sizeof at) _exit(97);
      while (true) pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  close(answer[1]);
  std::uint64_t at = 0;
  ASSERT_EQ(read(answer[0], &at, sizeof at), static_cast<ssize_t>(sizeof at));
  close(answer[0]);
  const auto facts = process_facts(pid);
  ASSERT_TRUE(facts) << to_string(facts.error());
  EXPECT_NE(facts->state, 'Z');
  EXPECT_NE(facts->executable, "");
  EXPECT_EQ(facts->pid, pid);
  EXPECT_EQ(facts->parent, getpid());
  for (const auto how : {MapSearch::kQuery, MapSearch::kText}) {
    const auto entries = found(find_memfd_mappings(pid, kPrefixes, how));
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_EQ(entries[0].range.begin().raw(), at);
  }
  EXPECT_THAT(read_maps_text(pid).value(), HasSubstr(kShownName));
  EXPECT_EQ(descriptors_to(pid, "/memfd:left open").value().size(), 1U);
  EXPECT_EQ(ProcessMemory(pid).read(RemotePtr<std::uint64_t>{RemoteAddr(at)}).value_or(0), 4711U);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(KernelThread, HasNoMemory) {
  const auto facts = process_facts(2);
  if (!facts || facts->parent != 0 || !facts->command_line.empty()) {
    GTEST_SKIP() << "pid 2 is not a kernel thread, or may not be inspected here";
  }
  EXPECT_EQ(facts->executable, "");
  EXPECT_EQ(read_maps_text(2).value(), "");
  EXPECT_TRUE(found(find_memfd_mappings(2, kPrefixes, MapSearch::kQuery)).empty());
  EXPECT_TRUE(found(find_all_mappings(2, kPrefixes)).empty());
}

TEST(ProcessFacts, DescribeAForkOfThisTest) {
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  const auto ticks = [&] {
    return boottime_now_ns() / (1'000'000'000 / static_cast<std::uint64_t>(ticks_per_second));
  };
  const std::uint64_t before = ticks();
  const Forked child([] {
    prctl(PR_SET_NAME, ") Z 1 (\n");
    personality(READ_IMPLIES_EXEC);
    return 1;
  });
  const std::uint64_t after = ticks();
  const auto facts = process_facts(child.pid());
  ASSERT_TRUE(facts) << to_string(facts.error());
  EXPECT_EQ(facts->pid, child.pid());
  EXPECT_EQ(facts->parent, getpid());
  EXPECT_GE(facts->start_ticks + 1, before);
  EXPECT_LE(facts->start_ticks, after);
  std::array<char, 4096> link{};
  ASSERT_GT(readlink("/proc/self/exe", link.data(), link.size() - 1), 0);
  EXPECT_EQ(facts->executable, link.data());
  ASSERT_FALSE(facts->command_line.empty());
  EXPECT_THAT(facts->command_line[0], HasSubstr("process_test"));
  EXPECT_TRUE(facts->elf64);
  EXPECT_TRUE(facts->little_endian);
  EXPECT_EQ(facts->personality, static_cast<std::uint32_t>(READ_IMPLIES_EXEC));
  EXPECT_EQ(personality_of(child.pid()), facts->personality);
  EXPECT_EQ(facts->boottime_offset_ns, 0);
  EXPECT_THAT("RS", HasSubstr(std::string(1, facts->state)));
}

TEST(ThreadState, IsThatOfStat) {
  EXPECT_EQ(thread_state(static_cast<pid_t>(syscall(SYS_gettid))), 'R');
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, ") Z 1 (\n");
    raise(SIGSTOP);
    _exit(0);
  }
  ASSERT_EQ(waitpid(pid, nullptr, WUNTRACED), pid);
  EXPECT_EQ(thread_state(pid), 'T');
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(thread_state(pid), 'Z');
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(thread_state(pid), '?');
}

TEST(ProcessFacts, CutTheCommandLineAt64KiB) {
  Forked child([] {
    const std::string big(100'000, 'x');
    execl("/bin/sh", "sh", "-c", "kill -STOP $$", "", big.c_str(), nullptr);
    _exit(96);
    return 0;
  });
  child.will_be_killed();
  const auto facts = process_facts(child.pid());
  ASSERT_TRUE(facts);
  ASSERT_EQ(facts->command_line.size(), 5U);
  EXPECT_EQ(facts->command_line[1], "-c");
  EXPECT_EQ(facts->command_line[3], "");
  EXPECT_EQ(facts->command_line[4], std::string((64 * 1024) - 21, 'x'));
}

TEST(ProcessFacts, TellA32BitProgram) {
  const std::string program = CTXCONF_BIN_DIR "/waits_32bit";
  if (access(program.c_str(), X_OK) != 0) GTEST_SKIP() << "no 32-bit libraries to build with";
  Forked child([&] {
    execl(program.c_str(), "waits_32bit", nullptr);
    _exit(96);
    return 0;
  });
  child.will_be_killed();
  const auto facts = process_facts(child.pid());
  ASSERT_TRUE(facts);
  if (!facts->executable.ends_with("waits_32bit")) GTEST_SKIP() << "runs no 32-bit programs";
  EXPECT_FALSE(facts->elf64);
  EXPECT_TRUE(facts->little_endian);
  for (const auto how : {MapSearch::kQuery, MapSearch::kText}) {
    const auto entries = found(find_memfd_mappings(child.pid(), {"/"}, how));
    ASSERT_FALSE(entries.empty());
    EXPECT_LT(entries.front().range.end().raw(), 1ULL << 32U);
  }
}

// A grandchild in the namespaces that `enter` creates; the value is its pid as seen here.
class InNamespace {
 public:
  InNamespace(const std::function<bool()>& enter, const std::function<void()>& body)
      : outer_([&]() -> std::uint64_t {
          if (!enter()) return 0;
          std::array<int, 2> ready{};
          if (pipe(ready.data()) != 0) _exit(98);
          const pid_t inner = fork();
          if (inner == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            body();
            if (write(ready[1], "r", 1) != 1) _exit(97);
            while (true) pause();
          }
          char c = 0;
          if (read(ready[0], &c, 1) != 1) _exit(96);
          return static_cast<std::uint64_t>(inner);
        }) {}
  bool entered() const { return outer_.value() != 0; }
  pid_t pid() const { return static_cast<pid_t>(outer_.value()); }

 private:
  Forked outer_;
};

TEST(OtherNamespace, OfPidsAndMountsIsSeenThrough) {
  const InNamespace inside([] { return unshare(CLONE_NEWPID | CLONE_NEWNS) == 0; },
                           [] {
                             mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
                             mount("none", "/tmp", "tmpfs", 0, nullptr);
                             mount("none", "/proc", "tmpfs", 0, nullptr);
                             publish();
                           });
  if (!inside.entered()) GTEST_SKIP() << "may not make pid and mount namespaces";
  const auto facts = process_facts(inside.pid());
  ASSERT_TRUE(facts) << to_string(facts.error());
  EXPECT_NE(facts->executable, "");
  EXPECT_TRUE(facts->elf64);
  for (const auto how : {MapSearch::kQuery, MapSearch::kText}) {
    EXPECT_EQ(found(find_memfd_mappings(inside.pid(), kPrefixes, how)).size(), 1U);
  }
}

TEST(OtherNamespace, OfTimeShiftsBoottimeByTheOffset) {
  struct Seen {
    std::uint64_t boottime;
    std::int64_t offset_of_outside;
    bool known;
  };
  auto* seen = static_cast<Seen*>(
      mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const std::uint64_t before = boottime_now_ns();
  const InNamespace inside(
      [] {
        if (unshare(CLONE_NEWTIME) != 0) return false;
        std::ofstream offsets("/proc/self/timens_offsets");
        offsets << "boottime 100000 5\n" << std::flush;
        return offsets.good();
      },
      [&, outside = getpid()] {
        seen->boottime = boottime_now_ns();
        const auto facts = process_facts(outside);
        seen->known = facts.has_value();
        seen->offset_of_outside = facts ? facts->boottime_offset_ns : 0;
      });
  if (!inside.entered()) GTEST_SKIP() << "may not make a time namespace";
  const std::uint64_t after = boottime_now_ns();
  const auto facts = process_facts(inside.pid());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->boottime_offset_ns, 100'000'000'000'005);
  // Their clock is ours plus the offset.
  const std::uint64_t theirs_as_ours =
      seen->boottime - static_cast<std::uint64_t>(facts->boottime_offset_ns);
  EXPECT_GE(theirs_as_ours, before);
  EXPECT_LE(theirs_as_ours, after);
  EXPECT_TRUE(seen->known);
  EXPECT_EQ(seen->offset_of_outside, -100'000'000'000'005);
  munmap(seen, page_size());
}

TEST(DescriptorsTo, ListWhatBeginsWithThePrefix) {
  const Forked child([] {
    const int a = memfd_create("OTEL_CTX", 0);
    const int b = memfd_create("other", 0);
    return static_cast<std::uint64_t>(a) << 32U | static_cast<std::uint64_t>(b);
  });
  const auto to_context = descriptors_to(child.pid(), "/memfd:OTEL_CTX");
  ASSERT_TRUE(to_context);
  ASSERT_EQ(to_context->size(), 1U);
  EXPECT_EQ(to_context->front().fd, static_cast<int>(child.value() >> 32U));
  EXPECT_EQ(to_context->front().link, kShownName);
  const auto all = descriptors_to(child.pid(), "").value();
  EXPECT_GE(all.size(), 4U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const FdLink& x, const FdLink& y) { return x.fd < y.fd; }));
}

TEST(DescriptorLink, IsThatOfOneDescriptor) {
  const int memfd = memfd_create("one of many", MFD_CLOEXEC);
  ASSERT_GE(memfd, 0);
  EXPECT_EQ(descriptor_link(getpid(), memfd).value(), "/memfd:one of many (deleted)");
  EXPECT_EQ(descriptor_link(gettid(), memfd).value(), "/memfd:one of many (deleted)");
  close(memfd);
  EXPECT_EQ(error_of(descriptor_link(getpid(), 1'000'000)), ENOENT);
  EXPECT_EQ(error_of(descriptor_link(getpid(), -1)), ENOENT);
}

TEST(SeccompFilters, AreCountedForEachThread) {
  const auto before = seccomp_filters(getpid());
  if (!before) GTEST_SKIP() << to_string(before.error());
  std::thread([&] {
    sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog program{1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), 0);
    EXPECT_EQ(seccomp_filters(gettid()).value(), *before + 1);
  }).join();
  EXPECT_EQ(seccomp_filters(getpid()).value(), *before);
  EXPECT_EQ(error_of(seccomp_filters(gone_pid())), ESRCH);
}

TEST(SignalActions, AreThoseOfTheProcess) {
  const Forked plain([] { return 1; });
  EXPECT_EQ(has_default_action(plain.pid(), SIGTRAP).value(), true);
  const Forked other([] {
    signal(SIGTRAP, SIG_IGN);
    signal(SIGRTMAX, [](int) {});
    return 1;
  });
  EXPECT_EQ(has_default_action(other.pid(), SIGTRAP).value(), false);
  EXPECT_EQ(has_default_action(other.pid(), SIGRTMAX).value(), false);
  EXPECT_EQ(has_default_action(other.pid(), SIGUSR1).value(), true);
  EXPECT_EQ(error_of(has_default_action(gone_pid(), SIGTRAP)), ESRCH);
}

TEST(Lists, AreAscending) {
  const Forked child([] {
    for (int i = 0; i < 3; ++i) {
      std::thread([] {
        while (true) pause();
      }).detach();
    }
    return 1;
  });
  const auto threads = thread_list(child.pid()).value();
  EXPECT_EQ(threads.size(), 4U);
  EXPECT_EQ(thread_count(child.pid()), 4U);
  EXPECT_EQ(thread_count(threads.back()), 4U);
  EXPECT_EQ(error_of(thread_count(gone_pid())), ESRCH);
  EXPECT_EQ(error_of(thread_count(0)), ESRCH);
  EXPECT_EQ(threads.front(), child.pid());
  EXPECT_TRUE(std::is_sorted(threads.begin(), threads.end()));
  const auto processes = process_list().value();
  EXPECT_THAT(processes, Contains(getpid()));
  EXPECT_THAT(processes, Contains(child.pid()));
  EXPECT_TRUE(std::is_sorted(processes.begin(), processes.end()));
}

TEST(Clocks, AreThoseOfTheKernel) {
  timespec boot{};
  timespec real{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_REALTIME, &real);
  const auto ns = [](const timespec& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
  };
  EXPECT_GE(boottime_now_ns(), ns(boot));
  EXPECT_LT(boottime_now_ns(), ns(boot) + 60'000'000'000);
  EXPECT_GT(realtime_now_ns(), ns(real) - 60'000'000'000);
  EXPECT_LT(realtime_now_ns(), ns(real) + 60'000'000'000);
}

}  // namespace
}  // namespace ctxconf::sys
