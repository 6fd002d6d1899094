#include "sys/process_handle.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace ctxconf::sys {
namespace {

// Linux cuts a list of threads off where a thread ends at that moment. The number of links of the
// directory tells how many there were before: with fewer, a list is made again.
constexpr int kMostLists = 4;
constexpr std::size_t kOwnLinks = 2;

}  // namespace

Result<ProcessHandle> ProcessHandle::open(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(dir, ProcDir::open(pid));
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // What shows that the directory and the descriptor are of one process: it is read after both.
  CTX_ASSIGN_OR_RETURN(stat, dir.read_stat());
  return ProcessHandle(std::move(dir), std::move(pidfd), stat.start_ticks);
}

bool ProcessHandle::lives() const {
  if (!pidfd_.is_open()) return faccessat(dir_.fd(), "stat", F_OK, 0) == 0;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 0;
}

Result<std::string> ProcessHandle::executable() const {
  auto link = dir_.read_link("exe");
  if (!link && link.error().err == ENAMETOOLONG) return std::string();
  if (link || link.error().err != ENOENT) return link;
  // Without a link: a kernel thread, a process whose leader has ended, or one that is ending.
  CTX_ASSIGN_OR_RETURN(living, ProcDir::open_living(pid()));
  CTX_ASSIGN_OR_RETURN(stat, living.read_stat());
  if (is_kernel_thread(stat)) return std::string();
  link = living.read_link("exe");
  if (!link && link.error().err == ENOENT) link.error().err = ESRCH;
  return link;
}

Result<std::vector<pid_t>> ProcessHandle::threads() {
  if (!tasks_) {
    const int fd = openat(dir_.fd(), "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const tasks = fd < 0 ? nullptr : fdopendir(fd);
    if (tasks == nullptr) {
      const int err = errno;
      if (fd >= 0) close(fd);
      return fail("list threads", err == ENOENT ? ESRCH : err, process_subject(pid()));
    }
    tasks_ = {tasks, [](DIR* d) { return closedir(d); }};
  }
  std::vector<pid_t> all;
  for (int i = 0; i < kMostLists; ++i) {
    struct stat facts{};
    const bool is_known = fstat(dirfd(tasks_.get()), &facts) == 0;
    rewinddir(tasks_.get());
    CTX_ASSIGN_OR_RETURN(listed, numbers_in(tasks_.get(), kMostListed, pid()));
    std::vector<pid_t> both;
    std::ranges::set_union(all, listed, std::back_inserter(both));
    all = std::move(both);
    const bool is_full = all.size() >= kMostListed;
    if (!is_known || is_full || listed.size() + kOwnLinks >= facts.st_nlink) break;
  }
  return all;
}

}  // namespace ctxconf::sys
