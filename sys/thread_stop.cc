#include "sys/thread_stop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "sys/arch/registers.h"
#include "sys/fd.h"
#include "sys/proc_dir.h"
#include "sys/proc_text.h"
#include "sys/shaking.h"
#include "sys/tracing_thread.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kTracerStack = 64U << 10U;
constexpr std::size_t kStatusLimit = 16U << 10U;

struct Stopped {
  siginfo_t stop{};
  Result<RemoteAddr> thread_pointer = RemoteAddr();
};

Result<Stopped> stop_thread(pid_t tid, pid_t pid) {
  CTX_RETURN_IF_ERROR(seize(tid));
  shake();
  if (pid != 0 && !is_thread_of(tid, pid)) {
    return fail("stop thread", ESRCH, thread_subject(tid) + " of process " + std::to_string(pid));
  }
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) {
    return fail("PTRACE_INTERRUPT", errno, thread_subject(tid));
  }
  shake();
  CTX_ASSIGN_OR_RETURN(event, wait_for_event(tid));
  if (!is_stop(event)) return fail("stop thread", ESRCH, thread_subject(tid));
  return Stopped{event, stopped_thread_pointer(tid)};
}

}  // namespace

Result<RemoteAddr> stopped_thread_pointer(pid_t tid) {
  auto pointer = arch::thread_pointer(tid);
  if (!pointer) pointer.error().detail = thread_subject(tid);
  return pointer;
}

// A thread that does all the tracing for one stop.
struct ThreadStop::Tracer {
  pid_t tid = 0;
  pid_t pid = 0;  // 0: any
  Event answered;
  Event let_go;
  Result<Stopped> answer;
  TracingThread thread;

  void run();
  void end();
};

void ThreadStop::Tracer::run() {
  answer = stop_thread(tid, pid);
  const bool stopped = answer.has_value();
  const siginfo_t stop = stopped ? answer->stop : siginfo_t();
  answered.happen();
  if (!stopped) return;
  let_go.wait();
  sys::let_go(stop);
}

void ThreadStop::Tracer::end() {
  let_go.happen();
  thread.join();
}

Result<ThreadStop> ThreadStop::stop(pid_t tid, std::chrono::milliseconds deadline, pid_t pid) {
  auto tracer = std::make_unique<Tracer>();
  tracer->tid = tid;
  tracer->pid = pid;
  if (const int err = tracer->thread.start(kTracerStack, [t = tracer.get()] { t->run(); });
      err != 0) {
    return fail("pthread_create", err, thread_subject(tid));
  }
  if (!tracer->answered.wait_for(deadline)) {
    tracer->thread.cancel();
    tracer->end();
    return fail("stop thread", ETIMEDOUT, thread_subject(tid));
  }
  if (tracer->answer) return ThreadStop(std::move(tracer));
  tracer->end();
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

// ESRCH: the process has no such thread.
Result<std::string> read_status(pid_t pid, pid_t tid) {
  const Fd fd(
      open(("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/status").c_str(),
           O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) {
    return fail("open status", errno == ENOENT ? ESRCH : errno, thread_subject(tid));
  }
  return read_start(fd, kStatusLimit);
}

}  // namespace

Result<ThreadActivity> thread_activity(pid_t pid, pid_t tid) {
  const bool off = was_off_processor(pid, tid);
  CTX_ASSIGN_OR_RETURN(text, read_status(pid, tid));
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
