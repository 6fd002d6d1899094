#include "sys/threads_stopper.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "sys/shaking.h"
#include "sys/thread_stop.h"
#include "sys/tracing_thread.h"

namespace ctxconf::sys {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kWorkerStack = 256U << 10U;
// More makes each thread stand still for longer, and saves little.
constexpr std::size_t kAtOnce = 8;
// After so long without any stop, those that are waited for are put off in favour of others.
constexpr milliseconds kPatience{20};
constexpr milliseconds kShortestTick{1};
// How often a thread is tried at least that another tracer has.
constexpr int kFewestTries = 4;

// A thread that is seized and interrupted.
struct Turn {
  std::size_t index = 0;
  pid_t tid = 0;
  bool foreign = false;  // a thread of another process that has the id now
  Clock::time_point begun;
  // Visited, and then killed before we let go of it: its end must be taken, or an exec that kills
  // it waits for us.
  bool told = false;
};

// A thread that another process traces, or did at that moment.
struct Refused {
  std::size_t index = 0;
  Error error;
};

}  // namespace

// One call of visit_each(). Used by the caller and by the worker in turn; the atomic members also
// while the worker works.
struct ThreadsStopper::Pass {
  Pass(pid_t process, std::span<const pid_t> threads, const StopLimits& its_limits, const Visit& to)
      : pid(process), tids(threads), limits(its_limits), visit(to) {
    todo.reserve(tids.size());
    for (std::size_t i = 0; i < tids.size(); ++i) todo.push_back(i);
    in_flight.reserve(tids.size());
  }

  pid_t pid;
  std::span<const pid_t> tids;
  const StopLimits& limits;
  const Visit& visit;
  std::vector<std::size_t> todo;  // indexes; from `next` on they are still to be done
  std::size_t next = 0;
  std::vector<Turn> in_flight;
  std::vector<Refused> refused;  // to be tried again
  int tries = 0;
  Pauses pauses;
  Clock::time_point first_refusal;
  std::size_t at_once = kAtOnce;
  // The worker has to end: something that it traces can be released in no other way.
  bool worker_ends = false;
  std::exception_ptr thrown;
  // For the caller, who ends a worker that waits in vain.
  std::atomic<bool> waiting = false;
  std::atomic<std::uint64_t> events = 0;
  std::atomic<bool> all_begun = false;
  std::atomic<Clock::time_point> last_begun = Clock::time_point::min();

  bool is_done() const { return next == todo.size() && in_flight.empty() && refused.empty(); }
  bool is_over() const { return Clock::now() >= limits.end; }

  // In the worker.
  void work();
  void begin(std::size_t index);
  void refuse(std::size_t index, Error error);
  void take_refused();
  bool take_event();
  void take_stop(const siginfo_t& event);
  bool take_end(const siginfo_t& event);
  Turn take_turn(pid_t tid);
  void report(std::size_t index, const Result<RemoteAddr>& result);
  void report(const Turn& turn, int err, const char* op = "stop thread");
  void report_all(const Error& error);

  // In the caller, after a worker has ended.
  void put_off();
  void give_up(int err, const char* op);
};

void ThreadsStopper::Pass::work() {
  while (!thrown && !is_done()) {
    while (in_flight.size() < at_once && next < todo.size() && !is_over()) begin(todo[next++]);
    all_begun = next == todo.size();
    if (in_flight.empty() && refused.empty()) return;
    if (in_flight.empty()) {
      take_refused();
    } else if (!take_event()) {
      return;
    }
  }
  worker_ends = thrown != nullptr;
}

void ThreadsStopper::Pass::begin(std::size_t index) {
  const pid_t tid = tids[index];
  in_flight.push_back({.index = index, .tid = tid, .begun = Clock::now()});
  last_begun = in_flight.back().begun;
  // An exec of the process keeps this waiting until we have let go of its other threads.
  waiting = true;
  auto seized = seize(tid);
  waiting = false;
  ++events;
  if (!seized) {
    in_flight.pop_back();
    return refuse(index, std::move(seized).error());
  }
  shake();
  in_flight.back().foreign = !is_thread_of(tid, pid);
  // If this fails, the thread has ended, and an event says so.
  ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  shake();
}

void ThreadsStopper::Pass::refuse(std::size_t index, Error error) {
  if (error.err == EPERM && !is_thread_of(tids[index], pid)) error.err = ESRCH;
  if (error.err != EPERM || pid == getpid())
    return report(index, std::unexpected(std::move(error)));
  if (tries == 0 && refused.empty()) first_refusal = Clock::now();
  refused.push_back({index, std::move(error)});
}

// They come again after a pause, or have come often enough. That it is tried several times counts
// as well as the time: it may have passed while nobody ran.
void ThreadsStopper::Pass::take_refused() {
  ++tries;
  const bool patient =
      Clock::now() - first_refusal < limits.tracer_patience || tries < kFewestTries;
  auto those = std::exchange(refused, {});
  if (!patient || is_over()) {
    for (Refused& r : those) report(r.index, std::unexpected(std::move(r.error)));
    return;
  }
  pauses.pause();
  for (const Refused& r : those) todo.push_back(r.index);
}

// False: the worker cannot go on.
bool ThreadsStopper::Pass::take_event() {
  waiting = true;
  const auto event = wait_for_event(0);
  waiting = false;
  ++events;
  if (!event && event.error().err == ECHILD) {  // lost without an event, as by an exec
    report_all({"stop thread", ESRCH, {}});
    return true;
  }
  if (!event) {
    report_all(event.error());
    worker_ends = true;
    return false;
  }
  if (!is_stop(*event)) return take_end(*event);
  take_stop(*event);
  return true;
}

void ThreadsStopper::Pass::take_stop(const siginfo_t& event) {
  Turn turn = take_turn(event.si_pid);
  if (turn.foreign) {
    report(turn, ESRCH);
  } else if (turn.tid != 0 && !turn.told) {
    report(turn.index, stopped_thread_pointer(turn.tid));
  }
  if (let_go(event)) return;
  turn.tid = event.si_pid;
  turn.told = true;
  in_flight.push_back(turn);
}

// The end of a thread other than the leader concerns nobody else: it is taken, so that an exec and
// the end of its process need not wait for us. The end of a process belongs to its parent, which
// may be this process; the worker leaves it there by ending.
bool ThreadsStopper::Pass::take_end(const siginfo_t& event) {
  const Turn turn = take_turn(event.si_pid);
  if (turn.tid != 0) report(turn, ESRCH);
  if (event.si_pid == pid || turn.foreign) {
    worker_ends = true;
    return false;
  }
  siginfo_t taken{};
  waitid(P_PID, static_cast<id_t>(event.si_pid), &taken, WEXITED | WNOHANG | __WALL | __WNOTHREAD);
  return true;
}

// Its turn, which is over; the id is 0 if it has none, as a thread that has become the leader of
// its process by an exec.
Turn ThreadsStopper::Pass::take_turn(pid_t tid) {
  const auto at = std::ranges::find(in_flight, tid, &Turn::tid);
  if (at == in_flight.end()) return {};
  const Turn turn = *at;
  *at = in_flight.back();
  in_flight.pop_back();
  return turn;
}

void ThreadsStopper::Pass::report(std::size_t index, const Result<RemoteAddr>& result) {
  if (thrown) return;
  try {
    visit(index, result);
  } catch (...) {
    thrown = std::current_exception();
  }
}

void ThreadsStopper::Pass::report(const Turn& turn, int err, const char* op) {
  if (!turn.told) report(turn.index, fail(op, err, thread_subject(turn.tid)));
}

void ThreadsStopper::Pass::report_all(const Error& error) {
  for (const Turn& turn : std::exchange(in_flight, {})) {
    report(turn, error.err, error.op);
  }
}

// Those that have not stopped: it was their last chance, or they come again, last and more at once.
void ThreadsStopper::Pass::put_off() {
  const auto now = Clock::now();
  for (const Turn& turn : std::exchange(in_flight, {})) {
    if (turn.told) continue;
    if (now - turn.begun >= limits.deadline || now >= limits.end) {
      report(turn, ETIMEDOUT);
    } else {
      todo.push_back(turn.index);
    }
  }
  all_begun = next == todo.size();
}

void ThreadsStopper::Pass::give_up(int err, const char* op) {
  for (Refused& r : std::exchange(refused, {})) {
    report(r.index, std::unexpected(std::move(r.error)));
  }
  while (next < todo.size()) {
    const std::size_t index = todo[next++];
    report(index, fail(op, err, thread_subject(tids[index])));
  }
}

struct ThreadsStopper::Worker {
  ~Worker() {
    ends = true;
    begin.happen();
    thread.join();
  }

  void run();
  bool finishes(Pass& its);
  bool is_stuck(std::uint64_t events_before, milliseconds quiet) const;

  Event begin;
  Event done;
  Pass* pass = nullptr;
  std::atomic<bool> ends = false;
  TracingThread thread;
};

void ThreadsStopper::Worker::run() {
  while (true) {
    begin.wait();
    if (ends) return;
    ignore_stop_signals();
    pass->work();
    const bool last = pass->worker_ends;
    done.happen();
    if (last) return;
  }
}

// `quiet`: for how long all have been on their way and none has come.
bool ThreadsStopper::Worker::is_stuck(std::uint64_t events_before, milliseconds quiet) const {
  if (!pass->waiting || pass->events != events_before) return false;
  // While others are to come they must not wait; the last ones have their whole time.
  return pass->is_over() || !pass->all_begun || quiet >= pass->limits.deadline;
}

// False: what it waits for does not come.
bool ThreadsStopper::Worker::finishes(Pass& its) {
  its.worker_ends = false;
  its.waiting = false;
  pass = &its;
  begin.happen();
  const auto tick = std::clamp(its.limits.deadline, kShortestTick, kPatience);
  // Counted, not measured: where this thread gets no processor, others get none either.
  milliseconds quiet{0};
  for (auto last_begun = its.last_begun.load();;) {
    const std::uint64_t before = its.events;
    if (done.wait_for(tick)) return true;
    const auto now_begun = its.last_begun.load();
    quiet = now_begun == last_begun ? quiet + tick : milliseconds(0);
    last_begun = now_begun;
    if (is_stuck(before, quiet)) return false;
  }
}

ThreadsStopper::ThreadsStopper() = default;
ThreadsStopper::~ThreadsStopper() = default;

// False: there is no thread to do it.
bool ThreadsStopper::do_part(Pass& pass) {
  if (!worker_) {
    worker_ = std::make_unique<Worker>();
    const int err = worker_->thread.start(kWorkerStack, [w = worker_.get()] { w->run(); });
    if (err != 0) {
      worker_.reset();
      pass.give_up(err, "pthread_create");
      return false;
    }
  }
  const bool finished = worker_->finishes(pass);
  if (finished && !pass.worker_ends) return true;
  if (!finished) worker_->thread.cancel();
  worker_.reset();
  pass.put_off();
  if (!finished) pass.at_once *= 2;
  return true;
}

void ThreadsStopper::visit_each(pid_t pid, std::span<const pid_t> tids, const StopLimits& limits,
                                const Visit& visit) {
  Pass pass(pid, tids, limits, visit);
  while (!pass.is_done() && !pass.thrown && !pass.is_over()) {
    if (!do_part(pass)) break;
  }
  pass.give_up(ETIME, "stop thread");
  if (pass.thrown) std::rethrow_exception(pass.thrown);
}

}  // namespace ctxconf::sys
