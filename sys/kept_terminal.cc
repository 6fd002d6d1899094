#include "sys/kept_terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace ctxconf::sys {
namespace {

constexpr std::array kSignals = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

struct Kept {
  int terminal = -1;
  pid_t group = 0;
  termios modes{};
  std::array<struct sigaction, kSignals.size()> before{};
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
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signo) sigaction(signo, &kept.before[i], nullptr);
  }
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
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &kept.before[i]);
    if (kept.before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

KeptTerminal::~KeptTerminal() {
  if (kept.terminal < 0) return;
  restore();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &kept.before[i], nullptr);
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
