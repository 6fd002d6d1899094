#include "sys/ending_signals.h"

#include <pthread.h>
#include <time.h>

#include <initializer_list>

namespace ctxconf::sys {

EndingSignals::EndingSignals() {
  sigemptyset(&set_);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (sigaction(signo, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&set_, signo);
    }
  }
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
}

EndingSignals::~EndingSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool EndingSignals::take() const {
  const timespec none{};
  return sigtimedwait(&set_, nullptr, &none) > 0;
}

int EndingSignals::pending() const {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) {
    if (sigismember(&set_, signo) == 1 && sigismember(&waiting, signo) == 1) return signo;
  }
  return 0;
}

}  // namespace ctxconf::sys
