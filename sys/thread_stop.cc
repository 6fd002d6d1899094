#include "sys/thread_stop.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sys/all_signals_blocked.h"
#include "sys/arch/registers.h"
#include "sys/fd.h"
#include "sys/proc_text.h"
#include "sys/shaking.h"

namespace ctxconf::sys {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kShortestPauseNs = 50'000;
constexpr long kLongestPauseNs = 1'000'000;
constexpr std::chrono::milliseconds kReleaseDeadline{1000};
constexpr std::size_t kTracerStack = 64U << 10U;
constexpr std::size_t kStatusLimit = 16U << 10U;

std::string thread_subject(pid_t tid) { return "thread " + std::to_string(tid); }

// Sleeps a little longer each time. Yielding instead would let every runnable thread go first.
class Pauses {
 public:
  void pause() {
    const timespec duration{0, next_};
    nanosleep(&duration, nullptr);
    next_ = std::min(2 * next_, kLongestPauseNs);
  }

 private:
  long next_ = kShortestPauseNs;
};

// Happens once. Waits on a futex at once: std::binary_semaphore yields first.
class Event {
 public:
  Event() { sem_init(&semaphore_, 0, 0); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { sem_destroy(&semaphore_); }
  void happen() { sem_post(&semaphore_); }
  void wait() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }

 private:
  sem_t semaphore_;
};

struct Stopped {
  int pending_signal = 0;  // was pending for the thread and must be passed on
  Result<RemoteAddr> thread_pointer = RemoteAddr();
};

// The text of /proc/.../status; ESRCH if there is none.
Result<std::string> read_status(const std::string& path, pid_t tid) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open())
    return fail("open status", errno == ENOENT ? ESRCH : errno, thread_subject(tid));
  std::string text(kStatusLimit, '\0');
  const ssize_t n = read(fd.get(), text.data(), text.size());
  if (n < 0) return fail("read status", errno, thread_subject(tid));
  text.resize(static_cast<std::size_t>(n));
  return text;
}

std::string status_path(pid_t tid) { return "/proc/" + std::to_string(tid) + "/status"; }

// PTRACE_SEIZE says EPERM for a zombie and for a traced thread; the status tells which it is.
std::unexpected<Error> why_not_permitted(pid_t tid) {
  const auto status = read_status(status_path(tid), tid);
  if (!status)
    return fail("PTRACE_SEIZE", status.error().err == ESRCH ? ESRCH : EPERM, thread_subject(tid));
  const auto state = status_field(*status, "State").value_or("");
  if (state.starts_with('Z') || state.starts_with('X')) {
    return fail("PTRACE_SEIZE", ESRCH, thread_subject(tid));
  }
  const std::string tracer(status_field(*status, "TracerPid").value_or("0"));
  if (tracer == "0") return fail("PTRACE_SEIZE", EPERM, thread_subject(tid));
  // Linux names the tracing thread, which need not be the leader.
  const auto its_status = read_status("/proc/" + tracer + "/status", tid);
  const std::string process(its_status ? status_field(*its_status, "Tgid").value_or(tracer)
                                       : tracer);
  return fail("PTRACE_SEIZE", EPERM, thread_subject(tid) + " is traced by process " + process);
}

// The status of the thread's stop, as waitid has it; 0 at the deadline, ESRCH when it ends. If the
// thread is a child of this process, its end is left to whoever waits for it.
Result<int> wait_for_stop(pid_t tid, Clock::time_point deadline) {
  constexpr int kOfThisThread = WNOHANG | __WALL | __WNOTHREAD;
  const auto wait = [&](int what, siginfo_t& event) {
    event = {};
    return waitid(P_PID, static_cast<id_t>(tid), &event, what | kOfThisThread) == 0 ||
           errno == EINTR;
  };
  for (Pauses pauses;; pauses.pause()) {
    siginfo_t event;
    if (!wait(WSTOPPED | WEXITED | WNOWAIT, event)) {
      return fail("waitid", errno == ECHILD ? ESRCH : errno, thread_subject(tid));
    }
    if (event.si_pid == tid) {
      if (event.si_code != CLD_TRAPPED) return fail("stop thread", ESRCH, thread_subject(tid));
      const int status = event.si_status;
      wait(WSTOPPED, event);
      return status;
    }
    if (Clock::now() >= deadline) return 0;
  }
}

// The id of the thread may have been reused by a thread of another process.
bool is_thread_of(pid_t tid, pid_t pid) {
  const std::string task = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid);
  return access(task.c_str(), F_OK) == 0;
}

Result<Stopped> stop_thread(pid_t tid, pid_t pid, std::chrono::milliseconds time) {
  if (tid <= 0) return fail("PTRACE_SEIZE", ESRCH, thread_subject(tid));
  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
    if (errno == EPERM) return why_not_permitted(tid);
    return fail("PTRACE_SEIZE", errno, thread_subject(tid));
  }
  shake();
  if (pid != 0 && !is_thread_of(tid, pid)) {
    return fail("stop thread", ESRCH, thread_subject(tid) + " of process " + std::to_string(pid));
  }
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) {
    return fail("PTRACE_INTERRUPT", errno, thread_subject(tid));
  }
  shake();
  CTX_ASSIGN_OR_RETURN(status, wait_for_stop(tid, Clock::now() + time));
  if (status == 0) return fail("stop thread", ETIMEDOUT, thread_subject(tid));
  Stopped stopped;
  // An event stop, including that of a group-stopped thread, is not a signal.
  if (status >> 8 == 0) stopped.pending_signal = status;
  stopped.thread_pointer = stopped_thread_pointer(tid);
  return stopped;
}

}  // namespace

Result<RemoteAddr> stopped_thread_pointer(pid_t tid) {
  auto pointer = arch::thread_pointer(tid);
  if (!pointer) pointer.error().detail = thread_subject(tid);
  return pointer;
}

// A thread of ours that does all the tracing for one stop. A tracee that does not stop cannot be
// detached; the kernel releases it when the tracing thread ends.
struct ThreadStop::Tracer {
  Tracer(pid_t tracee, pid_t its_process, std::chrono::milliseconds deadline)
      : tid(tracee), pid(its_process), time(deadline) {}

  pid_t tid;
  pid_t pid;  // 0: any
  std::chrono::milliseconds time;
  pthread_t thread{};
  pid_t own_tid = 0;
  Event answered;
  Event let_go;
  Result<Stopped> answer;

  // Returns errno.
  int start();
  void run();
  void end();
  void wait_until_released() const;
};

int ThreadStop::Tracer::start() {
  pthread_attr_t attributes;
  if (const int err = pthread_attr_init(&attributes); err != 0) return err;
  pthread_attr_setstacksize(&attributes, kTracerStack);
  const AllSignalsBlocked blocked;
  const auto body = [](void* tracer) -> void* {
    static_cast<Tracer*>(tracer)->run();
    return nullptr;
  };
  const int err = pthread_create(&thread, &attributes, body, this);
  pthread_attr_destroy(&attributes);
  return err;
}

void ThreadStop::Tracer::run() {
  own_tid = gettid();
  answer = stop_thread(tid, pid, time);
  const bool stopped = answer.has_value();
  const std::uintptr_t signal = stopped ? static_cast<unsigned>(answer->pending_signal) : 0;
  answered.happen();
  if (!stopped) return;
  let_go.wait();
  // ESRCH: killed meanwhile.
  ptrace(PTRACE_DETACH, tid, nullptr, signal);
}

void ThreadStop::Tracer::end() {
  let_go.happen();
  pthread_join(thread, nullptr);
}

// pthread_join returns a little before the kernel has ended the thread and its tracing.
void ThreadStop::Tracer::wait_until_released() const {
  const auto latest = Clock::now() + kReleaseDeadline;
  for (Pauses pauses; syscall(SYS_tgkill, getpid(), own_tid, 0) == 0 && Clock::now() < latest;) {
    pauses.pause();
  }
}

Result<ThreadStop> ThreadStop::stop(pid_t tid, std::chrono::milliseconds deadline, pid_t pid) {
  auto tracer = std::make_unique<Tracer>(tid, pid, deadline);
  if (const int err = tracer->start(); err != 0) {
    return fail("pthread_create", err, thread_subject(tid));
  }
  tracer->answered.wait();
  if (tracer->answer) return ThreadStop(std::move(tracer));
  tracer->end();
  tracer->wait_until_released();
  return std::unexpected(std::move(tracer->answer).error());
}

ThreadStop::ThreadStop(std::unique_ptr<Tracer> tracer) : tracer_(std::move(tracer)) {}
ThreadStop::ThreadStop(ThreadStop&& other) noexcept = default;

ThreadStop& ThreadStop::operator=(ThreadStop&& other) noexcept {
  ThreadStop taken(std::move(other));
  std::swap(tracer_, taken.tracer_);
  return *this;
}

ThreadStop::~ThreadStop() {
  if (tracer_) tracer_->end();
}

pid_t ThreadStop::tid() const { return tracer_->tid; }
Result<RemoteAddr> ThreadStop::thread_pointer() const { return tracer_->answer->thread_pointer; }

namespace {

// Whether the thread left its processor at some moment after this call. A thread that is going to
// sleep already has state S before the kernel counts the switch: by state and count alone, a thread
// that has run since its last sleep can look like one that has not. Linux waits for the switch
// before it fills this file.
bool was_off_processor(pid_t pid, pid_t tid) {
  const Fd fd(
      open(("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/syscall").c_str(),
           O_RDONLY | O_CLOEXEC));
  std::array<char, 8> text{};
  if (!fd.is_open()) return false;
  const ssize_t n = read(fd.get(), text.data(), text.size());
  return n > 0 && text[0] != 'r';  // "running"
}

}  // namespace

Result<ThreadActivity> thread_activity(pid_t pid, pid_t tid) {
  const bool off = was_off_processor(pid, tid);
  CTX_ASSIGN_OR_RETURN(
      text, read_status("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status",
                        tid));
  const auto state = status_field(text, "State");
  if (!state || state->empty()) return fail("parse status", 0, thread_subject(tid));
  ThreadActivity activity;
  activity.sleeping =
      off && std::string_view("SDTt").find(state->front()) != std::string_view::npos;
  for (const auto* key : {"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"}) {
    const auto count = status_number<std::uint64_t>(text, key);
    if (!count) return fail("parse status", 0, thread_subject(tid) + ": " + key);
    activity.switches += *count;
  }
  return activity;
}

}  // namespace ctxconf::sys
