// A child process that does the reading, because a read may never return: the memory of a process
// may be in a page that its owner does not fill (userfaultfd, FUSE). Then the child is killed,
// which also releases a thread that it had stopped.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "sys/fd.h"
#include "sys/result.h"

namespace ctxconf::reader {

class ReadingChild {
 public:
  using Work = std::function<std::string(pid_t)>;

  // `work` runs in the child and keeps its state there between processes. The caller must have one
  // thread.
  ReadingChild(Work work, std::chrono::milliseconds deadline);
  ReadingChild(const ReadingChild&) = delete;
  ReadingChild& operator=(const ReadingChild&) = delete;
  ~ReadingChild();

  // What `work` returns for `pid`. ETIMEDOUT: it did not return, and the next call starts a new
  // child. EPIPE: the child has crashed.
  sys::Result<std::string> ask(pid_t pid);

 private:
  sys::Result<> start();
  void end();
  sys::Result<> receive(void* to, std::size_t size,
                        std::chrono::steady_clock::time_point end) const;

  Work work_;
  std::chrono::milliseconds deadline_;
  pid_t child_ = 0;  // 0: none
  sys::Fd socket_;
};

}  // namespace ctxconf::reader
