#include "sys/kept_terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "sys/ending_signals.h"

namespace ctxconf::sys {
namespace {

constexpr int kHighestSignal = 64;

// By default it ends the process, and a handler may come first.
bool is_handled(int signo) {
  constexpr std::array kOthers = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
                                  SIGCHLD, SIGCONT, SIGURG,  SIGWINCH};
  return std::ranges::find(kOthers, signo) == kOthers.end() && !is_ending_signal(signo);
}

struct Kept {
  int terminal = -1;
  pid_t group = 0;
  termios modes{};
  std::array<struct sigaction, kHighestSignal + 1> before{};
};
Kept kept;

// Whether this process may set the foreground: it is its own group, that of a child that leads a
// group, or a group that no longer exists.
bool may_restore(pid_t foreground) {
  if (foreground == kept.group) return true;
  siginfo_t unused{};
  const auto id = static_cast<id_t>(foreground);
  if (foreground > 0 && waitid(P_PID, id, &unused, WEXITED | WNOHANG | WNOWAIT) == 0) return true;
  return foreground > 0 && kill(-foreground, 0) != 0 && errno == ESRCH;
}

template <class More>
void take_back(const More& more) {
  if (kept.terminal < 0) return;
  // If SIGTTOU is blocked, it does not stop a background process for this call.
  sigset_t stops;
  sigset_t mask;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &stops, &mask);
  const pid_t foreground = tcgetpgrp(kept.terminal);
  if (may_restore(foreground)) {
    if (foreground != kept.group) tcsetpgrp(kept.terminal, kept.group);
    more();
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void restore_and_raise(int signo) {
  KeptTerminal::restore();
  sigaction(signo, &kept.before[signo], nullptr);
  raise(signo);
}

}  // namespace

KeptTerminal::KeptTerminal() {
  Kept now;
  now.terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  now.group = getpgrp();
  if (now.terminal < 0) return;
  if (tcgetpgrp(now.terminal) != now.group || tcgetattr(now.terminal, &now.modes) != 0) {
    close(now.terminal);
    return;
  }
  kept = now;
  struct sigaction action{};
  action.sa_handler = restore_and_raise;
  sigemptyset(&action.sa_mask);
  for (int signo = 1; signo <= kHighestSignal; ++signo) {
    // Two signals are for libc alone.
    if (!is_handled(signo) || sigaction(signo, nullptr, &kept.before[signo]) != 0) continue;
    if (kept.before[signo].sa_handler != SIG_IGN) sigaction(signo, &action, nullptr);
  }
}

KeptTerminal::~KeptTerminal() {
  if (kept.terminal < 0) return;
  restore();
  for (int signo = 1; signo <= kHighestSignal; ++signo) {
    if (is_handled(signo)) sigaction(signo, &kept.before[signo], nullptr);
  }
  close(kept.terminal);
  kept = Kept();
}

void KeptTerminal::restore() {
  take_back([] { tcsetattr(kept.terminal, TCSANOW, &kept.modes); });
}

void KeptTerminal::retake_foreground() {
  take_back([] {});
}

}  // namespace ctxconf::sys
