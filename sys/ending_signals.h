// The signals that ask a program to end: SIGINT, SIGTERM, SIGHUP and SIGQUIT.
#pragma once

#include <signal.h>

#include "sys/fd.h"

namespace ctxconf::sys {

bool is_ending_signal(int signo);

// While it exists, they are blocked in this thread and stay pending until taken. Signals that this
// process ignores (nohup) stay ignored: if blocked, they would become pending as well.
class EndingSignals {
 public:
  EndingSignals();
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  const sigset_t& set() const { return set_; }
  bool take() const;    // true: one was pending
  int pending() const;  // a signal of this process, which stays pending; 0: none
  // Readable while a signal is pending; check is_open().
  Fd descriptor() const;

 private:
  sigset_t set_{};
  sigset_t before_{};
};

}  // namespace ctxconf::sys
