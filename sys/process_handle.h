// Stays with one process although its id may be used again: tells whether what was read under the
// id was read from that process.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sys/fd.h"
#include "sys/proc_dir.h"
#include "sys/result.h"

namespace ctxconf::sys {

class ProcessHandle {
 public:
  // ESRCH: no such process. EPERM: hidden.
  static Result<ProcessHandle> open(pid_t pid);

  pid_t pid() const { return dir_.id(); }
  // Field 22 of stat. It tells two processes of one id apart, for people and in records.
  std::uint64_t start_ticks() const { return start_ticks_; }

  // True: the id has belonged to this process until now, so what was read under it before this call
  // is of this process. False: it has ended. A process whose leader has ended lives on with its
  // other threads. One system call, whose cost does not grow with the process: the kernel makes
  // /proc/PID/stat from all threads, which takes milliseconds for ten thousand.
  //
  // Before Linux 5.3 and where pidfd_open is refused, a zombie still counts as alive: it ends when
  // its parent has waited for it.
  bool lives() const;

  // The link /proc/PID/exe, without opening a file; hostile. Empty for a kernel thread and
  // for a path that is too long. ESRCH: it has ended, or is ending and has lost its memory.
  Result<std::string> executable() const;

  // Thread ids, ascending; about 65536 at most. None is missing that has existed all the time, even
  // if others end meanwhile; some may have ended. Keeps the directory open for the next call.
  Result<std::vector<pid_t>> threads();

 private:
  ProcessHandle(ProcDir dir, Fd pidfd, std::uint64_t start_ticks)
      : dir_(std::move(dir)), pidfd_(std::move(pidfd)), start_ticks_(start_ticks) {}

  ProcDir dir_;
  Fd pidfd_;  // none: before Linux 5.3, or refused
  std::uint64_t start_ticks_ = 0;
  std::unique_ptr<DIR, int (*)(DIR*)> tasks_{nullptr, nullptr};
};

}  // namespace ctxconf::sys
