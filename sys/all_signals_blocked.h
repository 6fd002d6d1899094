// For threads of our own, whose signals are meant for the program that uses them, and for a child
// that shares our memory, in which no handler of ours may run.
#pragma once

#include <signal.h>

namespace ctxconf::sys {

// While it exists, all signals are blocked in this thread. Threads and processes that are created
// meanwhile keep them blocked.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace ctxconf::sys
