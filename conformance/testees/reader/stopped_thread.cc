#include "conformance/testees/reader/stopped_thread.h"

#include <elf.h>
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

namespace ctxconf::testees {
namespace {

using std::chrono::steady_clock;

// A thread that has not stopped by then stays traced: only the end of the tracer would release it.
constexpr std::chrono::seconds kStopLimit{5};
constexpr std::chrono::microseconds kBetweenLooks{200};

}  // namespace

std::unique_ptr<StoppedThread> StoppedThread::stop(pid_t tid) {
  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) return nullptr;
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) return nullptr;
  const auto end = steady_clock::now() + kStopLimit;
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
    if (got == tid && WIFSTOPPED(status)) {
      const bool by_us = status >> 16 == PTRACE_EVENT_STOP;
      return std::unique_ptr<StoppedThread>(new StoppedThread(tid, by_us ? 0 : WSTOPSIG(status)));
    }
    if (got != 0 && !(got < 0 && errno == EINTR)) return nullptr;
    if (steady_clock::now() > end) {
      errno = ETIMEDOUT;
      return nullptr;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

StoppedThread::~StoppedThread() {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel takes a number
  ptrace(PTRACE_DETACH, tid_, nullptr,
         reinterpret_cast<void*>(static_cast<std::intptr_t>(signal_)));
}

std::optional<std::uint64_t> StoppedThread::thread_pointer() const {
#if defined(__x86_64__)
  user_regs_struct registers{};
  iovec into{&registers, sizeof registers};
  if (ptrace(PTRACE_GETREGSET, tid_, NT_PRSTATUS, &into) != 0) return std::nullopt;
  return registers.fs_base;
#elif defined(__aarch64__)
  std::uint64_t pointer = 0;
  iovec into{&pointer, sizeof pointer};
  if (ptrace(PTRACE_GETREGSET, tid_, NT_ARM_TLS, &into) != 0) return std::nullopt;
  return pointer;
#else
  return std::nullopt;
#endif
}

}  // namespace ctxconf::testees
