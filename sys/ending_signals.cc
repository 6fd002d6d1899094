#include "sys/ending_signals.h"

#include <pthread.h>
#include <sys/signalfd.h>
#include <time.h>

#include <algorithm>
#include <array>

namespace ctxconf::sys {
namespace {

constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

bool is_ending_signal(int signo) { return std::ranges::find(kEnding, signo) != kEnding.end(); }

EndingSignals::EndingSignals() {
  sigemptyset(&set_);
  for (const int signo : kEnding) {
    struct sigaction action{};
    if (sigaction(signo, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&set_, signo);
    }
  }
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

EndingSignals::~EndingSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int EndingSignals::pending() const {
  sigset_t pending;
  sigpending(&pending);
  for (const int signo : kEnding) {
    if (sigismember(&set_, signo) == 1 && sigismember(&pending, signo) == 1) return signo;
  }
  return 0;
}

Fd EndingSignals::descriptor() const { return Fd(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK)); }

bool EndingSignals::take() const {
  const timespec none{};
  return sigtimedwait(&set_, nullptr, &none) > 0;
}

}  // namespace ctxconf::sys
