// A thread of another process that stands still while this object exists.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace ctxconf::testees {

// Only for the thread that made it. A thread that did not stop in time stays traced until the
// thread that tried has ended.
class StoppedThread {
 public:
  // Null: it is gone, may not be stopped, or does not stop; errno says why.
  static std::unique_ptr<StoppedThread> stop(pid_t tid);
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;
  ~StoppedThread();

  std::optional<std::uint64_t> thread_pointer() const;

 private:
  StoppedThread(pid_t tid, int signal) : tid_(tid), signal_(signal) {}

  pid_t tid_;
  int signal_;  // that it was about to get; 0: none
};

}  // namespace ctxconf::testees
