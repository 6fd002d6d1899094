// A directory of /proc, for a process or one of its threads. It stays with that process: when the
// process is gone, every name in it gives ESRCH, even if the id is used again.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "sys/proc_text.h"
#include "sys/result.h"

namespace ctxconf::sys {

inline constexpr std::size_t kMostListed = 65536;  // threads or descriptors

// "pid 17"
std::string process_subject(pid_t pid);

class ProcDir {
 public:
  // ESRCH: no such process. EPERM: hidepid= hides it.
  static Result<ProcDir> open(pid_t pid);
  // The process itself, or its first live thread if only the leader has ended.
  static Result<ProcDir> open_living(pid_t pid);
  // /proc itself.
  static Result<ProcDir> open_root();

  pid_t id() const { return id_; }
  int fd() const { return fd_.get(); }

  // ENOENT when the process exists and the file does not.
  Result<Fd> open_file(const char* name) const;
  // The first `limit` bytes of a file.
  Result<std::string> read_file(const char* name, std::size_t limit) const;
  Result<std::string> read_link(const char* name) const;
  // The names in a directory that are numbers, ascending.
  Result<std::vector<int>> numbers_in(const char* name, std::size_t limit) const;
  Result<ProcessStat> read_stat() const;

 private:
  ProcDir(Fd fd, pid_t id) : fd_(std::move(fd)), id_(id) {}
  int error_of(int err) const;

  Fd fd_;
  pid_t id_ = 0;
};

bool has_ended(const ProcessStat& stat);
bool is_kernel_thread(const ProcessStat& stat);

// The names in an open directory, from where it stands, that are numbers; ascending.
Result<std::vector<int>> numbers_in(DIR* list, std::size_t limit, pid_t id);
// All bytes from /proc come through here. 0 is the end.
Result<std::size_t> read_piece(const Fd& fd, std::span<char> out);
// The first `limit` bytes of a file.
Result<std::string> read_start(const Fd& fd, std::size_t limit);

}  // namespace ctxconf::sys
