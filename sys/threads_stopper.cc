#include "sys/threads_stopper.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <numeric>
#include <optional>
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

// What most threads have: the callbacks run on it.
constexpr std::size_t kWorkerStack = 8U << 20U;
// More makes each thread stand still for longer, and saves little.
constexpr std::size_t kAtOnce = 8;
// After this time without any stop, those that are waited for are put off in favour of others.
constexpr milliseconds kPatience{20};
constexpr milliseconds kShortestTick{1};
constexpr milliseconds kSignalsStay{100};
// How often a thread is tried at least that another tracer has.
constexpr int kFewestTries = 4;

// A thread that is seized and interrupted.
struct Turn {
  std::size_t index = 0;
  pid_t tid = 0;
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

// One call of visit_while(). Used by the caller and by the worker in turn; the atomic members also
// while the worker works.
struct ThreadsStopper::Passes {
  Passes(const NextPass& give, const Visit& to) : next_pass(give), visit(to) {}

  const NextPass& next_pass;
  const Visit& visit;
  bool ended = false;
  std::exception_ptr thrown;
  // The worker has to end: something that it traces can be released in no other way.
  bool worker_ends = false;

  // The current pass.
  StopPass pass{};
  std::vector<std::size_t> todo;  // indexes; from `next` on they are still to be done
  std::size_t next = 0;
  std::vector<Turn> in_flight;
  std::vector<Refused> refused;  // to be tried again
  int tries = 0;
  Pauses pauses;
  Clock::time_point first_refusal;
  std::size_t at_once = kAtOnce;

  // The caller reads these, to end a worker that waits in vain.
  std::atomic<std::uint64_t> waits = 0;  // begun and ended: odd while it waits
  std::atomic<bool> all_begun = false;
  std::atomic<Clock::time_point> last_begun = Clock::time_point::min();
  std::atomic<milliseconds> deadline = kPatience;
  std::atomic<Clock::time_point> end = Clock::time_point::max();

  bool is_over() const { return Clock::now() >= pass.limits.end; }
  bool is_finished() const;
  void go_on();
  void begin_pass(const StopPass& given);

  // These run in the worker.
  void work();
  void work_on_pass();
  void begin(std::size_t index);
  void refuse(std::size_t index, Error error);
  void take_refused();
  bool take_event();
  void take_stop(const siginfo_t& event);
  bool take_end(const siginfo_t& event);
  Turn take_turn(pid_t tid);
  bool is_foreign(const Turn& turn) const;
  void report(std::size_t index, const Result<RemoteAddr>& result);
  void report(const Turn& turn, int err, const char* op = "stop thread");
  void report_all(const Error& error);

  // This runs in the caller, after a worker has ended.
  void put_off();

  void give_up(int err, const char* op);
};

// Nothing is left to be done in this pass, or no time.
bool ThreadsStopper::Passes::is_finished() const {
  if (!in_flight.empty()) return false;
  return thrown || (next == todo.size() && refused.empty()) || is_over();
}

// Goes from a finished pass to the next one.
void ThreadsStopper::Passes::go_on() {
  give_up(ETIME, "stop thread");
  ended = true;
  if (thrown) return;
  try {
    const auto given = next_pass();
    if (given) begin_pass(*given);
    ended = !given;
  } catch (...) {
    thrown = std::current_exception();
  }
}

void ThreadsStopper::Passes::begin_pass(const StopPass& given) {
  pass = given;
  todo.resize(pass.tids.size());
  std::iota(todo.begin(), todo.end(), std::size_t{0});
  in_flight.reserve(todo.size());
  next = 0;
  tries = 0;
  pauses = {};
  at_once = kAtOnce;
  deadline = pass.limits.deadline;
  end = pass.limits.end;
  all_begun = todo.empty();
}

void ThreadsStopper::Passes::work() {
  while (true) {
    ignore_stop_signals();
    // A handler may be installed meanwhile, but to ask in each pass costs too much.
    const auto ask_again = Clock::now() + kSignalsStay;
    do {
      work_on_pass();
      if (worker_ends) return;
      go_on();
      if (ended) return;
    } while (Clock::now() < ask_again);
  }
}

// Works until the pass is finished, or the worker has to end.
void ThreadsStopper::Passes::work_on_pass() {
  while (!thrown) {
    while (!thrown && in_flight.size() < at_once && next < todo.size() && !is_over()) {
      begin(todo[next++]);
    }
    all_begun = next == todo.size();
    if (in_flight.empty() && refused.empty()) break;
    if (in_flight.empty()) {
      take_refused();
    } else if (!take_event()) {
      return;
    }
  }
  worker_ends = thrown != nullptr;
}

void ThreadsStopper::Passes::begin(std::size_t index) {
  const pid_t tid = pass.tids[index];
  in_flight.push_back({.index = index, .tid = tid, .begun = Clock::now()});
  last_begun = in_flight.back().begun;
  // An exec of the process keeps this waiting until we have let go of its other threads.
  ++waits;
  auto seized = seize(tid);
  ++waits;
  if (!seized) {
    in_flight.pop_back();
    return refuse(index, std::move(seized).error());
  }
  shake();
  // If this fails, the thread has ended, and an event says so.
  ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  shake();
}

void ThreadsStopper::Passes::refuse(std::size_t index, Error error) {
  if (error.err == EPERM && !is_thread_of(pass.tids[index], pass.pid)) error.err = ESRCH;
  if (error.err != EPERM || pass.pid == getpid())
    return report(index, std::unexpected(std::move(error)));
  if (tries == 0 && refused.empty()) first_refusal = Clock::now();
  refused.push_back({index, std::move(error)});
}

// They come again after a pause, or have come often enough. Both the number of tries and the time
// count: the time may have passed while nobody ran.
void ThreadsStopper::Passes::take_refused() {
  ++tries;
  const bool patient =
      Clock::now() - first_refusal < pass.limits.tracer_patience || tries < kFewestTries;
  auto those = std::exchange(refused, {});
  if (!patient || is_over()) {
    for (Refused& r : those) report(r.index, std::unexpected(std::move(r.error)));
    return;
  }
  pauses.pause();
  for (const Refused& r : those) todo.push_back(r.index);
}

// False: the worker cannot go on.
bool ThreadsStopper::Passes::take_event() {
  ++waits;
  const auto event = wait_for_event(0);
  ++waits;
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

void ThreadsStopper::Passes::take_stop(const siginfo_t& event) {
  Turn turn = take_turn(event.si_pid);
  if (turn.tid != 0 && !turn.told) {
    if (is_foreign(turn)) {
      report(turn, ESRCH);
    } else {
      report(turn.index, stopped_thread_pointer(turn.tid));
    }
  }
  if (let_go(event)) return;
  turn.tid = event.si_pid;
  turn.told = true;
  in_flight.push_back(turn);
}

// The end of a thread other than the leader concerns nobody else: it is taken, so that an exec and
// the end of its process need not wait for us. The end of a process belongs to its parent, which
// may be this process; the worker leaves it there by ending.
bool ThreadsStopper::Passes::take_end(const siginfo_t& event) {
  const Turn turn = take_turn(event.si_pid);
  if (turn.tid != 0) report(turn, ESRCH);
  if (event.si_pid == pass.pid || is_foreign(turn)) {
    worker_ends = true;
    return false;
  }
  siginfo_t taken{};
  waitid(P_PID, static_cast<id_t>(event.si_pid), &taken, WEXITED | WNOHANG | __WALL | __WNOTHREAD);
  return true;
}

// Its turn, which is over; the id is 0 if it has none, as a thread that has become the leader of
// its process by an exec.
Turn ThreadsStopper::Passes::take_turn(pid_t tid) {
  const auto at = std::ranges::find(in_flight, tid, &Turn::tid);
  if (at == in_flight.end()) return {};
  const Turn turn = *at;
  *at = in_flight.back();
  in_flight.pop_back();
  return turn;
}

// Another process has the id now. Ask about a tracee, and not before it has come: the less lies
// between two stops of a thread, the less they cost.
bool ThreadsStopper::Passes::is_foreign(const Turn& turn) const {
  return turn.tid != 0 && !is_thread_of(turn.tid, pass.pid);
}

void ThreadsStopper::Passes::report(std::size_t index, const Result<RemoteAddr>& result) {
  if (thrown) return;
  try {
    visit(index, result);
  } catch (...) {
    thrown = std::current_exception();
  }
}

void ThreadsStopper::Passes::report(const Turn& turn, int err, const char* op) {
  if (!turn.told) report(turn.index, fail(op, err, thread_subject(turn.tid)));
}

void ThreadsStopper::Passes::report_all(const Error& error) {
  for (const Turn& turn : std::exchange(in_flight, {})) {
    report(turn, error.err, error.op);
  }
}

// Those that have not stopped: it was their last chance, or they come again, last and more at once.
void ThreadsStopper::Passes::put_off() {
  const auto now = Clock::now();
  for (const Turn& turn : std::exchange(in_flight, {})) {
    if (turn.told) continue;
    if (now - turn.begun >= pass.limits.deadline || now >= pass.limits.end) {
      report(turn, ETIMEDOUT);
    } else {
      todo.push_back(turn.index);
    }
  }
  all_begun = next == todo.size();
}

void ThreadsStopper::Passes::give_up(int err, const char* op) {
  for (Refused& r : std::exchange(refused, {})) {
    report(r.index, std::unexpected(std::move(r.error)));
  }
  while (next < todo.size()) {
    const std::size_t index = todo[next++];
    report(index, fail(op, err, thread_subject(pass.tids[index])));
  }
}

struct ThreadsStopper::Worker {
  ~Worker() {
    ends = true;
    begin.happen();
    thread.join();
  }

  void run();
  bool finishes(Passes& its);
  bool is_stuck(std::uint64_t waits_before, milliseconds quiet) const;

  Event begin;
  Event done;
  Passes* passes = nullptr;
  std::atomic<bool> ends = false;
  TracingThread thread;
};

void ThreadsStopper::Worker::run() {
  while (true) {
    begin.wait();
    if (ends) return;
    passes->work();
    const bool last = passes->worker_ends;
    done.happen();
    if (last) return;
  }
}

// `quiet`: for how long all have been on their way and none has come.
bool ThreadsStopper::Worker::is_stuck(std::uint64_t waits_before, milliseconds quiet) const {
  const bool waited_all_the_time = waits_before % 2 == 1 && passes->waits == waits_before;
  if (!waited_all_the_time) return false;
  // While others are to come they must not wait; the last ones have their whole time.
  return Clock::now() >= passes->end.load() || !passes->all_begun ||
         quiet >= passes->deadline.load();
}

// False: what it waits for does not come.
bool ThreadsStopper::Worker::finishes(Passes& its) {
  its.worker_ends = false;
  its.waits = 0;
  passes = &its;
  begin.happen();
  // Counted, not measured: where this thread gets no processor, others get none either.
  milliseconds quiet{0};
  for (auto last_begun = its.last_begun.load();;) {
    const auto tick = std::clamp(its.deadline.load(), kShortestTick, kPatience);
    const std::uint64_t before = its.waits;
    if (done.wait_for(tick)) return true;
    const auto now_begun = its.last_begun.load();
    quiet = now_begun == last_begun ? quiet + tick : milliseconds(0);
    last_begun = now_begun;
    if (is_stuck(before, quiet)) return false;
  }
}

ThreadsStopper::ThreadsStopper() = default;
ThreadsStopper::~ThreadsStopper() = default;

// Works on this pass and the following ones, until a worker has ended.
void ThreadsStopper::do_part(Passes& passes) {
  if (!worker_) {
    worker_ = std::make_unique<Worker>();
    const int err = worker_->thread.start(kWorkerStack, [w = worker_.get()] { w->run(); });
    if (err != 0) {
      worker_.reset();
      passes.give_up(err, "pthread_create");
      return;
    }
  }
  const bool finished = worker_->finishes(passes);
  if (finished && !passes.worker_ends) return;
  if (!finished) worker_->thread.cancel();
  worker_.reset();
  passes.put_off();
  if (!finished) passes.at_once *= 2;
}

void ThreadsStopper::visit_while(const NextPass& next, const Visit& visit) {
  Passes passes(next, visit);
  for (passes.go_on(); !passes.ended;) {
    if (passes.is_finished()) {
      passes.go_on();
    } else {
      do_part(passes);
    }
  }
  if (passes.thrown) std::rethrow_exception(passes.thrown);
}

void ThreadsStopper::visit_each(pid_t pid, std::span<const pid_t> tids, const StopLimits& limits,
                                const Visit& visit) {
  std::optional<StopPass> pass({pid, tids, limits});
  visit_while([&] { return std::exchange(pass, std::nullopt); }, visit);
}

}  // namespace ctxconf::sys
