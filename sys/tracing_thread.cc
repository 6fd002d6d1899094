#include "sys/tracing_thread.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "sys/all_signals_blocked.h"
#include "sys/proc_dir.h"
#include "sys/proc_text.h"

namespace ctxconf::sys {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kLongestPause = std::chrono::milliseconds(1);
constexpr std::chrono::milliseconds kReleaseDeadline{1000};
constexpr std::size_t kTraceeStatusLimit = 16U << 10U;
constexpr long kNsPerSecond = 1'000'000'000;

Result<std::string> read_status(pid_t tid) {
  CTX_ASSIGN_OR_RETURN(dir, ProcDir::open(tid));
  return dir.read_file("status", kTraceeStatusLimit);
}

// PTRACE_SEIZE says EPERM for a zombie and for a traced thread; the status tells which it is.
std::unexpected<Error> why_not_permitted(pid_t tid) {
  const auto refused = [&](int err, std::string more = {}) {
    return fail("PTRACE_SEIZE", err, thread_subject(tid) + more);
  };
  const auto status = read_status(tid);
  if (!status) return refused(status.error().err == ESRCH ? ESRCH : EPERM);
  const auto state = status_field(*status, "State").value_or("");
  if (state.starts_with('Z') || state.starts_with('X')) return refused(ESRCH);
  const auto tracer = status_number<pid_t>(*status, "TracerPid").value_or(0);
  if (tracer == 0) return refused(EPERM);
  // Linux names the tracing thread, which need not be the leader.
  const auto its_status = read_status(tracer);
  const auto process = its_status ? status_number<pid_t>(*its_status, "Tgid") : std::nullopt;
  return refused(EPERM, " is traced by process " + std::to_string(process.value_or(tracer)));
}

}  // namespace

std::string thread_subject(pid_t tid) { return "thread " + std::to_string(tid); }

void Pauses::pause() {
  const timespec duration{0, static_cast<long>(next_.count())};
  nanosleep(&duration, nullptr);
  next_ = std::min(2 * next_, kLongestPause);
}

void Event::wait() {
  while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
  }
}

bool Event::wait_for(std::chrono::nanoseconds time) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const auto ns = until.tv_nsec + std::max<long long>(time.count(), 0);
  until.tv_sec += ns / kNsPerSecond;
  until.tv_nsec = ns % kNsPerSecond;
  int failed = 0;
  do {
    failed = sem_clockwait(&semaphore_, CLOCK_MONOTONIC, &until);
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

int TracingThread::start(std::size_t stack_bytes, std::function<void()> body) {
  body_ = std::move(body);
  pthread_attr_t attributes;
  if (const int err = pthread_attr_init(&attributes); err != 0) return err;
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const AllSignalsBlocked blocked;
  const auto entry = [](void* self) -> void* {
    static_cast<TracingThread*>(self)->run();
    return nullptr;
  };
  const int err = pthread_create(&thread_, &attributes, entry, this);
  pthread_attr_destroy(&attributes);
  started_ = err == 0;
  return err;
}

void TracingThread::run() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  own_tid_ = gettid();
  body_();
}

void TracingThread::cancel() const {
  if (started_) pthread_cancel(thread_);
}

void TracingThread::join() {
  if (!std::exchange(started_, false)) return;
  pthread_join(thread_, nullptr);
  // pthread_join returns a little before the kernel has ended the thread and its tracing.
  const auto latest = Clock::now() + kReleaseDeadline;
  for (Pauses pauses; syscall(SYS_tgkill, getpid(), own_tid_, 0) == 0 && Clock::now() < latest;) {
    pauses.pause();
  }
}

void ignore_stop_signals() {
  struct sigaction action{};
  if (sigaction(SIGCHLD, nullptr, &action) != 0) return;
  const bool handled = (action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  pthread_sigmask(handled ? SIG_BLOCK : SIG_UNBLOCK, &child, nullptr);
}

Result<siginfo_t> wait_for_event(pid_t tid) {
  constexpr int kEvents = WSTOPPED | WEXITED | WNOWAIT;
  siginfo_t event{};
  int failed = 0;
  do {
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    failed = waitid(tid == 0 ? P_ALL : P_PID, static_cast<id_t>(tid), &event,
                    kEvents | __WALL | __WNOTHREAD);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return fail("waitid", errno, tid == 0 ? std::string() : thread_subject(tid));
  return event;
}

bool is_stop(const siginfo_t& event) { return event.si_code == CLD_TRAPPED; }

Result<> seize(pid_t tid) {
  if (tid <= 0) return fail("PTRACE_SEIZE", ESRCH, thread_subject(tid));
  // The thread may be cancelled at any instruction of the call, which by itself is not a place for
  // that: it waits as long as the process is in an exec.
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  const bool seized = ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, nullptr);
  if (seized) return {};
  if (errno == EPERM) return why_not_permitted(tid);
  return fail("PTRACE_SEIZE", errno, thread_subject(tid));
}

bool is_thread_of(pid_t tid, pid_t pid) {
  return syscall(SYS_tgkill, pid, tid, 0) == 0 || errno != ESRCH;
}

bool let_go(const siginfo_t& stop) {
  // An event stop, including that of a group-stopped thread, is not a signal.
  const auto status = static_cast<unsigned>(stop.si_status);
  const std::uintptr_t signal = status >> 8U == 0 ? status : 0;
  return ptrace(PTRACE_DETACH, stop.si_pid, nullptr, signal) == 0;
}

}  // namespace ctxconf::sys
