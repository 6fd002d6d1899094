#include "sys/proc_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <memory>
#include <string_view>
#include <utility>

namespace ctxconf::sys {
namespace {

constexpr std::size_t kStatLimit = 64U << 10U;
constexpr std::size_t kReadStep = 64U << 10U;
constexpr std::uint64_t kKernelThread = 0x200000;  // PF_KTHREAD, which no user-space header has

std::unexpected<Error> process_error(const char* op, int err, pid_t pid) {
  return fail(op, err == ENOENT ? ESRCH : err, process_subject(pid));
}

// Finds the errno for a process that /proc does not show. hidepid= hides processes; a signal still
// tells whether it exists, and reaches those of the same user that must not be inspected.
int error_of_absent(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM ? EPERM : ESRCH; }

// The number that is the whole text.
bool is_number(std::string_view text, int& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string process_subject(pid_t pid) { return "pid " + std::to_string(pid); }

bool has_ended(const ProcessStat& stat) { return stat.state == 'Z' || stat.state == 'X'; }
bool is_kernel_thread(const ProcessStat& stat) { return (stat.flags & kKernelThread) != 0; }

Result<std::size_t> read_piece(const Fd& fd, std::span<char> out) {
  while (true) {
    const ssize_t n = read(fd.get(), out.data(), out.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return fail("read /proc/PID", errno == ENOENT ? ESRCH : errno, "");
  }
}

Result<std::string> read_start(const Fd& fd, std::size_t limit) {
  std::string out;
  while (out.size() < limit) {
    const std::size_t had = out.size();
    Result<std::size_t> n = 0;
    out.resize_and_overwrite(had + std::min(kReadStep, limit - had),
                             [&](char* text, std::size_t size) {
                               n = read_piece(fd, std::span(text, size).subspan(had));
                               return had + n.value_or(0);
                             });
    if (!n) return std::unexpected(std::move(n).error());
    if (*n == 0) break;
  }
  return out;
}

Result<std::vector<int>> numbers_in(DIR* list, std::size_t limit, pid_t id) {
  std::vector<int> out;
  while (out.size() < limit) {
    errno = 0;
    const dirent* entry = readdir(list);
    if (entry == nullptr) {
      if (errno != 0) return process_error("list in /proc/PID", errno, id);
      break;
    }
    int number = 0;
    if (is_number(entry->d_name, number)) out.push_back(number);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<ProcDir> ProcDir::open(pid_t pid) {
  if (pid <= 0) return fail("open /proc/PID", ESRCH, process_subject(pid));
  const std::string path = "/proc/" + std::to_string(pid);
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (fd.is_open()) return ProcDir(std::move(fd), pid);
  int err = errno;
  if (err == ENOENT) {
    if (access("/proc/self/stat", F_OK) != 0) return fail("open /proc", ENOENT, "is it mounted?");
    err = error_of_absent(pid);
  }
  return process_error("open /proc/PID", err, pid);
}

Result<ProcDir> ProcDir::open_root() {
  Fd fd(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return fail("open /proc", errno, "");
  return ProcDir(std::move(fd), 0);
}

Result<ProcDir> ProcDir::open_living(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(process, open(pid));
  CTX_ASSIGN_OR_RETURN(stat, process.read_stat());
  if (!has_ended(stat)) return std::move(process);
  CTX_ASSIGN_OR_RETURN(threads, process.numbers_in("task", kMostListed));
  for (const pid_t tid : threads) {
    const std::string name = "task/" + std::to_string(tid);
    Fd fd(openat(process.fd(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!fd.is_open()) continue;
    ProcDir thread(std::move(fd), tid);
    const auto thread_stat = thread.read_stat();
    if (thread_stat && !has_ended(*thread_stat)) return thread;
  }
  return std::move(process);
}

// A hidden directory can still be opened with O_PATH.
int ProcDir::error_of(int err) const {
  return err == ENOENT && faccessat(fd(), "stat", F_OK, 0) != 0 ? error_of_absent(id_) : err;
}

Result<Fd> ProcDir::open_file(const char* name) const {
  // O_NONBLOCK: the executable of a process may be any file.
  Fd file(openat(fd(), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.is_open()) return file;
  return fail("open in /proc/PID", error_of(errno), process_subject(id_) + ": " + name);
}

Result<std::string> ProcDir::read_file(const char* name, std::size_t limit) const {
  CTX_ASSIGN_OR_RETURN(file, open_file(name));
  return read_start(file, limit);
}

Result<std::string> ProcDir::read_link(const char* name) const {
  std::array<char, PATH_MAX> buffer;
  const ssize_t n = readlinkat(fd(), name, buffer.data(), buffer.size());
  if (n < 0) return fail("readlink in /proc/PID", errno, process_subject(id_));
  return std::string(buffer.data(), static_cast<std::size_t>(n));
}

Result<std::vector<int>> ProcDir::numbers_in(const char* name, std::size_t limit) const {
  const int folder = openat(fd(), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return process_error("list in /proc/PID", errno, id_);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(folder), closedir);
  if (!list) {
    const int err = errno;
    close(folder);
    return process_error("list in /proc/PID", err, id_);
  }
  return sys::numbers_in(list.get(), limit, id_);
}

Result<ProcessStat> ProcDir::read_stat() const {
  CTX_ASSIGN_OR_RETURN(text, read_file("stat", kStatLimit));
  const auto stat = parse_stat(text);
  if (!stat) return fail("parse /proc/PID/stat", 0, process_subject(id_));
  return *stat;
}

}  // namespace ctxconf::sys
