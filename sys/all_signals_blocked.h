// For threads of our own: a signal is for the program that uses them, not for them.
#pragma once

#include <signal.h>

namespace ctxconf::sys {

// While it lives all signals are blocked in this thread, and in the threads that it makes they stay
// so.
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
