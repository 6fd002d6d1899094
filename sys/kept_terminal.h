// Restores the terminal of this process when the process ends, unless SIGKILL ends it: a program
// that it starts may change the modes or take the foreground, and not restore them.
#pragma once

namespace ctxconf::sys {

// Create one at a time. While it exists, signals that end a process restore the terminal before
// their usual effect. The signals that ask to end are for EndingSignals, and no handler can come
// before SIGKILL. It saves nothing if this process has no terminal or is not in the foreground. It
// restores nothing if another job has taken the foreground.
class KeptTerminal {
 public:
  KeptTerminal();
  ~KeptTerminal();
  KeptTerminal(const KeptTerminal&) = delete;
  KeptTerminal& operator=(const KeptTerminal&) = delete;

  // Call it before an exit without destructors. It is safe in a signal handler.
  static void restore();
  // Restores only the foreground, after a child has taken it: this process may read again.
  static void retake_foreground();
};

}  // namespace ctxconf::sys
