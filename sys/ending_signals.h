// The signals that ask a program to end: SIGINT, SIGTERM and SIGHUP.
#pragma once

#include <signal.h>

namespace ctxconf::sys {

// While it lives they are blocked in this thread, and wait until they are taken. Those that this
// process ignores (nohup) are left alone: blocked, they would wait as well.
class EndingSignals {
 public:
  EndingSignals();
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  const sigset_t& set() const { return set_; }
  bool take() const;    // true: one was pending
  int pending() const;  // of this process, and stays so; 0: none

 private:
  sigset_t set_{};
  sigset_t before_{};
};

}  // namespace ctxconf::sys
