// The terminal of this process, put back however the process ends: what it starts may change the
// modes, or take the foreground, and leave both so.
#pragma once

namespace ctxconf::sys {

// One at a time. While it lives, SIGQUIT and what a crash raises restore the terminal before they
// do what they did; SIGINT, SIGTERM and SIGHUP are for EndingSignals. Nothing is kept where there
// is no terminal, or this process is not in the foreground; nothing is restored where another job
// has it.
class KeptTerminal {
 public:
  KeptTerminal();
  ~KeptTerminal();
  KeptTerminal(const KeptTerminal&) = delete;
  KeptTerminal& operator=(const KeptTerminal&) = delete;

  // For an end without destructors. Safe in a signal handler.
  static void restore();
  // The foreground alone, where a child has taken it: this process may read again.
  static void retake_foreground();
};

}  // namespace ctxconf::sys
