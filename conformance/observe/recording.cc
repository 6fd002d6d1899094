#include "conformance/observe/recording.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "conformance/observe/fork_probes.h"
#include "conformance/observe/running_race.h"
#include "conformance/observe/sampler.h"
#include "conformance/observe/stepping_time.h"
#include "conformance/observe/stopped_time.h"
#include "conformance/observe/traced_processes.h"
#include "conformance/observe/watch_registers.h"
#include "sys/access_watchdog.h"
#include "sys/process.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A thread that does not stop within this time sleeps and nothing wakes it. It stops before it runs
// again, but the others have continued by then.
constexpr milliseconds kArming{2000};

// A thread pointer that the program sets explicitly: glibc does this for the first thread of an
// image; all others get theirs from clone.
std::optional<sys::RemoteAddr> thread_pointer_of(const sys::SyscallEntry& e) {
  const auto set = sys::thread_pointer_set_by(e.nr, e.args);
  return set ? std::optional(sys::RemoteAddr(*set)) : std::nullopt;
}

// Receives the events of the tracer, passes them on, and moves the threads.
class RecordingLoop {
 public:
  RecordingLoop(const WrapOptions& options, Timeline& timeline, sys::Tracer tracer)
      : options_(options),
        timeline_(timeline),
        tracer_(std::move(tracer)),
        registers_(
            tracer_, processes_, [this](pid_t pid, pid_t tid) { go_on(pid, tid); },
            std::chrono::duration_cast<Clock::duration>(kArming * options.timeout_scale)) {}

  void begin();
  // Handles one event, or what is due until then. False when nothing is left.
  sys::Result<bool> step(Clock::time_point until);
  sys::Result<> finish();

  sys::Tracer& tracer() { return tracer_; }
  const TracedProcesses& processes() const { return processes_; }
  const Sampler& sampler() const { return sampler_; }
  ForkProber& forks() { return forks_; }
  RunningRace& race() { return race_; }
  bool is_paused() const { return paused_.has_value(); }
  bool was_idle() const { return idle_; }
  bool has_single_stepped() const { return stepping_time_.has_stepped(); }
  const std::string& runaway() const { return runaway_; }
  Clock::time_point begun() const { return begin_; }
  Clock::duration late() const { return stopped_.in_all() + stepping_time_.in_all(); }
  void begin_wait() { stopped_.begin_wait(); }
  void set_ending() { ending_ = true; }
  void set_injecting(bool on) { injecting_ = on; }
  void set_stepping(bool on);

  std::vector<ImageView> look(SnapshotDepth depth, Clock::time_point deadline);
  void look_around(Clock::time_point deadline);
  void last_look();
  void watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline);
  void step_from_gate(pid_t pid, pid_t tid);

 private:
  void on(const sys::NewTask& e);
  void on(const sys::SyscallEntry& e);
  void on(const sys::SyscallExit& e);
  void on(const sys::Execed& e);
  void on(const sys::Exiting& e);
  void on(const sys::SignalStop& e);
  void on(const sys::Interrupted& e);
  void on(const sys::WatchpointHit& e);
  void on(const sys::Stepped& e);
  void on(const sys::Gone& e);

  // Handles events until there is nothing to wait for, or until nothing is left (false). The
  // deadline moves by the time for which threads stood still for us.
  template <class Condition>
  bool step_until(Clock::time_point deadline, Condition is_done) {
    const auto late_before = late();
    const auto may_wait = [&] { return runaway_.empty() && !tracer_.interrupted() && !paused_; };
    while (!is_done() && Clock::now() < deadline + (late() - late_before) && may_wait()) {
      const auto stepped = step(deadline + (late() - late_before));
      if (!stepped || !*stepped) return false;
    }
    return true;
  }

  ImageRecorder* image(pid_t pid) const { return processes_.image(pid); }
  void end_image(Watched& w, const std::string& ending);
  void finish(Watched& w, const std::string& ending);
  bool begin_call(const sys::SyscallEntry& e);  // true: its result is wanted
  bool give(const sys::SyscallEntry& e, const CallAnswer& answer);
  bool may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) const;
  void look_at_filters(pid_t pid, pid_t tid);
  void look_before_handover(pid_t pid, pid_t tid);
  void catch_up(pid_t pid, pid_t tid);
  void probe_fork(pid_t pid, pid_t tid, std::string at);
  void end_steps(pid_t pid, pid_t tid, const std::string& because);
  StoppedAt stopped_at(pid_t pid, pid_t tid) const;
  void await_watches(const ImageRecorder& of, Instrument& instrument, pid_t only,
                     Clock::time_point deadline);
  bool arm(pid_t pid, pid_t caller);
  void settle(pid_t pid, pid_t tid, bool hit_may_wait = false);
  void go_on(pid_t pid, pid_t tid, int signo = 0);
  void move(pid_t pid, pid_t tid, int signo = 0);
  bool is_to_pause(pid_t pid) const;
  // Everything with a deadline gets this additional time.
  void postpone(Clock::duration time);
  void stood_still_for(Clock::duration time);

  const WrapOptions& options_;
  Timeline& timeline_;
  sys::Tracer tracer_;
  TracedProcesses processes_{options_, tracer_};
  Sampler sampler_{options_, tracer_, processes_};
  WatchRegisters registers_;
  ForkProber forks_{options_, tracer_};
  RunningRace race_{options_};
  StoppedTime stopped_;
  SteppingTime stepping_time_{options_};
  std::set<pid_t> naming_;     // threads in a call that gives a context its name
  std::set<pid_t> unmarking_;  // threads in madvise(..., MADV_DOFORK)
  bool ending_ = false;
  bool injecting_ = options_.inject_at_once;
  bool stepping_ = options_.steps_at_once;
  bool idle_ = true;
  std::string runaway_;
  std::optional<std::pair<pid_t, pid_t>> paused_;  // process and thread
  Clock::time_point begin_ = Clock::now();
};

void RecordingLoop::begin() {
  // Its first image begins with its Execed event; until then it is our trampoline.
  processes_.add(tracer_.root(), getpid(), /*shares_memory=*/true);
  processes_.threads()[tracer_.root()].process = tracer_.root();
}

sys::Result<bool> RecordingLoop::step(Clock::time_point until) {
  auto wake = std::min(sampler_.next_tick(), until);
  if (const auto due = registers_.due()) wake = std::min(wake, *due);
  const auto asked = Clock::now();
  stood_still_for(stepping_time_.begin_wait(asked));
  const auto awake_by = std::max(wake, asked);
  auto event = tracer_.next(wake);
  const auto woke = Clock::now();
  const bool stepped = event && *event && std::holds_alternative<sys::Stepped>(**event);
  stood_still_for(stepping_time_.end_wait(woke, stepped));
  postpone(stopped_.woke(awake_by, woke));
  if (!event) {
    if (event.error().err == ECHILD) return false;
    return std::unexpected(std::move(event).error());
  }
  idle_ = !*event;
  if (*event) std::visit([this](const auto& e) { on(e); }, **event);
  registers_.give_up(Clock::now());
  if (tracer_.tasks() > options_.max_tasks || processes_.alive().size() > options_.max_alive ||
      processes_.started() > options_.max_processes) {
    runaway_ = "started " + std::to_string(processes_.started()) + " processes, " +
               std::to_string(tracer_.tasks()) + " threads alive at once";
  }
  if (options_.stepping) stepping_time_.tell(processes_.steps_under_way(), woke);
  // After a single-step, reuse the time instead of reading the clock again.
  if (const auto from = stepped ? woke : Clock::now(); sampler_.tick_if_due(from)) {
    if (options_.progress) {
      options_.progress(std::chrono::duration<double>(from - begin_).count(),
                        processes_.alive().size(), sampler_.contexts());
    }
  }
  return true;
}

void RecordingLoop::postpone(Clock::duration time) {
  if (time == Clock::duration::zero()) return;
  begin_ += time;
  sampler_.postpone(time);
  registers_.postpone(time);
}

// Or nearly: in the middle of a change, avoid additional looks.
void RecordingLoop::stood_still_for(Clock::duration time) {
  postpone(time);
  sampler_.postpone_tick(time);
}

void RecordingLoop::on(const sys::NewTask& e) {
  if (e.tid == e.process && !processes_.alive().contains(e.process))
    processes_.add(e.process, e.maker, e.shares_memory);
  if (ImageRecorder* const maker = image(e.maker); maker != nullptr && e.maker_tid != 0) {
    maker->calls().made_process(e.maker_tid, e.how, e.tid);
  }
  auto& thread = processes_.threads()[e.tid] = {.process = e.process, .pointer = {}, .watches = {}};
  if (const auto pointer = tracer_.thread_pointer(e.tid); pointer && pointer->raw() != 0) {
    thread.pointer = *pointer;
    if (e.tid == e.process && !e.shares_memory) sampler_.look_at_birth(e, *pointer);
  }
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::SyscallEntry& e) {
  const bool execs = e.nr == SYS_execve || e.nr == SYS_execveat;
  if (execs) {
    sampler_.look_at_modules(e.process);
    sampler_.look_at_stopped_thread(e.process, e.tid);
    look_at_filters(e.process, e.tid);
    sampler_.take(e.process, Moment::kExecEntry, SnapshotDepth::kThorough);
    look_before_handover(e.process, e.tid);
  } else if (const auto pointer = thread_pointer_of(e)) {
    processes_.threads()[e.tid].process = e.process;
    processes_.threads()[e.tid].pointer = pointer;
  }
  const bool recorded = begin_call(e);
  const bool unmarks = e.nr == SYS_madvise && static_cast<int>(e.args[2]) == MADV_DOFORK &&
                       may_be_of_context(e.process, e.args[0], e.args[1]);
  if (unmarks) unmarking_.insert(e.tid);
  if (recorded && e.nr == SYS_madvise) probe_fork(e.process, e.tid, "before madvise");
  settle(e.process, e.tid);
  if (execs) processes_.begins_exec(e.process, e.tid);
  if (recorded || unmarks || execs) {
    (void)tracer_.resume_to_exit(e.tid);
  } else {
    move(e.process, e.tid);
  }
}

void RecordingLoop::on(const sys::SyscallExit& e) {
  processes_.ends_exec(e.tid);
  catch_up(e.process, e.tid);
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return go_on(e.process, e.tid);
  const auto name = i->calls().left(e);
  if (!name.empty()) probe_fork(e.process, e.tid, "after " + name);
  const bool reading = name == "clock_gettime";
  i->injector().left(e.tid, e.result, reading ? i->calls().last_reading(e.tid) : std::nullopt);
  if (naming_.erase(e.tid) > 0) {
    if (i->chooses_threads()) sampler_.look_at_modules(e.process);
    sampler_.look_at_stopped_thread(e.process, e.tid);
    for (const auto& instrument : i->instruments()) instrument->named(e.tid);
    sampler_.take(e.process, Moment::kNamed, SnapshotDepth::kQuick);
  }
  // Only VmFlags differ, and a quick look does not read them again.
  if (unmarking_.erase(e.tid) > 0)
    sampler_.take(e.process, Moment::kPeriodic, SnapshotDepth::kThorough);
  for (const auto& instrument : i->instruments()) instrument->call_left(e);
  if (arm(e.process, e.tid)) return;
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::Execed& e) {
  processes_.ends_all_execs(e.process);
  if (const auto it = processes_.alive().find(e.process); it != processes_.alive().end()) {
    if (options_.no_filter && it->second.image) it->second.image->snapshots().replaced_unseen();
    end_image(it->second, "replaced by exec");
    it->second.shares_memory = false;
    processes_.start_image(it->second);
  }
  processes_.forget_threads(e.process);
  sampler_.forget(e.process);
  processes_.threads()[e.process] = {.process = e.process, .pointer = {}, .watches = {}};
  if (options_.hide_vdso) {
    if (const auto hidden = tracer_.hide_vdso(e.process); !hidden && hidden.error().err != ESRCH) {
      timeline_.notes.push_back("the vDSO of process " + std::to_string(e.process) +
                                " was not hidden: " + sys::to_string(hidden.error()));
    }
  }
  // What it has now is inherited.
  if (options_.keep_all) sampler_.take(e.process, Moment::kStart, SnapshotDepth::kThorough);
  (void)tracer_.resume(e.process);
}

void RecordingLoop::on(const sys::Exiting& e) {
  // A process that ends inside execve may have lost its memory already.
  const bool in_exec = processes_.is_thread_in_exec(e.tid);
  // Not an ordinary sample: a destructor may have freed what is still in the slot.
  if (options_.keep_all && !e.whole_process) sampler_.look_at_exit(e);
  processes_.threads().erase(e.tid);
  sampler_.arrived(e.process, e.tid);
  look_at_filters(e.process, e.tid);
  end_steps(e.process, e.tid, "the thread ended");
  if (e.whole_process) {
    sampler_.stop_waiting(e.process);
    if (!in_exec) {
      sampler_.look_at_modules(e.process);
      look_before_handover(e.process, e.tid);
      sampler_.take(e.process, Moment::kExit, SnapshotDepth::kThorough);
    }
  }
  processes_.ends_exec(e.tid);
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::SignalStop& e) {
  constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  const bool fault = std::ranges::find(kFaults, e.signo) != kFaults.end();
  const auto it = processes_.alive().find(e.process);
  // While it is traced, the kernel drops a signal that would end process 1 of a namespace: the
  // process would repeat its fault for ever.
  if (fault && it != processes_.alive().end() && it->second.process.own_pid == 1 &&
      sys::has_default_action(e.tid, e.signo).value_or(false)) {
    it->second.process.killed_by = e.signo;
    kill(e.process, SIGKILL);
  }
  go_on(e.process, e.tid, e.signo);
}

void RecordingLoop::on(const sys::Interrupted& e) {
  sampler_.look_at_stopped_thread(e.process, e.tid);
  sampler_.arrived(e.process, e.tid);
  if (ImageRecorder* const i = image(e.process)) {
    for (const auto& instrument : i->instruments()) instrument->interrupted(e.tid);
  }
  // This stop comes before the trap of a store that the thread has just made.
  settle(e.process, e.tid, /*hit_may_wait=*/true);
  move(e.process, e.tid);
}

void RecordingLoop::on(const sys::Stepped& e) {
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return go_on(e.process, e.tid);
  const StoppedAt at = stopped_at(e.process, e.tid);
  bool is_store = false;
  for (const auto& instrument : i->instruments()) is_store = instrument->stepped(e, at) || is_store;
  if (is_store) return on(sys::WatchpointHit{e.tid, e.process, e.words, e.pc});
  if (arm(e.process, e.tid)) return;
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::WatchpointHit& e) {
  ImageRecorder* const i = image(e.process);
  const auto thread = processes_.threads().find(e.tid);
  if (i == nullptr || thread == processes_.threads().end()) return go_on(e.process, e.tid);
  const auto& watches = thread->second.watches;
  const bool is_wanted = watches && std::ranges::any_of(i->instruments(), [&](const auto& one) {
                           return one->watched(e.tid) == watches;
                         });
  if (is_wanted) {
    const StoppedAt at = stopped_at(e.process, e.tid);
    for (const auto& instrument : i->instruments()) instrument->stored(e, at);
    if (options_.stores) probe_fork(e.process, e.tid, "after a store");
    if (arm(e.process, e.tid)) return;
  }
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::Gone& e) {
  processes_.ends_all_execs(e.process);
  std::erase_if(unmarking_, [&](pid_t tid) {
    const auto thread = processes_.threads().find(tid);
    return thread == processes_.threads().end() || thread->second.process == e.process;
  });
  processes_.forget_threads(e.process);
  sampler_.forget(e.process);
  const auto it = processes_.alive().find(e.process);
  if (it == processes_.alive().end()) return;
  Watched& w = it->second;
  w.process.exit_code = e.exit_code;
  const auto fault = std::exchange(w.process.killed_by, e.killed_by);
  if (fault && e.killed_by == SIGKILL) w.process.killed_by = fault;
  w.process.ended_by_us =
      forks_.is_held_up(e.process) ||
      (ending_ && (e.killed_by == SIGTERM || e.killed_by == SIGKILL)) ||
      // Ctrl-C goes to the whole foreground group; the user meant ctxconf.
      (tracer_.interrupted() &&
       (e.killed_by == SIGINT || e.killed_by == SIGTERM || e.killed_by == SIGHUP));
  finish(w, e.exit_code ? "exited " + std::to_string(*e.exit_code)
                        : "killed by signal " + std::to_string(e.killed_by.value_or(0)));
  processes_.alive().erase(it);
}

bool RecordingLoop::begin_call(const sys::SyscallEntry& e) {
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return false;
  naming_.erase(e.tid);
  auto call = i->calls().describe(e);
  if (!call) return false;
  catch_up(e.process, e.tid);
  for (const auto& instrument : i->instruments()) instrument->call_entered(*call);
  if (e.nr == SYS_prctl && looks_like_the_name(call->text)) {
    call->snapshot = sampler_.take(e.process, Moment::kNaming, SnapshotDepth::kQuick);
    naming_.insert(e.tid);
  }
  call->entered_ns = sys::boottime_now_ns();
  const auto answer = i->injector().entered(*call, injecting_);
  call->injected = answer && give(e, *answer);
  i->calls().entered(*std::move(call), e.short_time);
  return true;
}

bool RecordingLoop::give(const sys::SyscallEntry& e, const CallAnswer& answer) {
  std::int64_t result = answer.result;
  if (answer.clock_ns) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::array<std::uint64_t, 2> wide = {*answer.clock_ns / kSecond,
                                               *answer.clock_ns % kSecond};
    const std::array<std::uint32_t, 2> narrow = {static_cast<std::uint32_t>(wide[0]),
                                                 static_cast<std::uint32_t>(wide[1])};
    const std::span<const std::byte> bytes =
        e.short_time ? std::span<const std::byte>(std::as_bytes(std::span(narrow)))
                     : std::as_bytes(std::span(wide));
    if (!tracer_.write(e.tid, sys::RemoteAddr(e.args[1]), bytes)) result = -EFAULT;
  }
  if (const auto given = tracer_.answer(e.tid, result); !given) {
    timeline_.notes.push_back("a result could not be injected: " + sys::to_string(given.error()));
    return false;
  }
  ++timeline_.injections[answer.spec].times;
  return true;
}

bool RecordingLoop::may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) const {
  ImageRecorder* const i = image(pid);
  return i != nullptr && i->calls().overlaps_context(address, size);
}

void RecordingLoop::look_at_filters(pid_t pid, pid_t tid) {
  if (ImageRecorder* const i = image(pid)) i->calls().look_at_filters(tid);
}

void RecordingLoop::catch_up(pid_t pid, pid_t tid) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) instrument->catch_up(tid);
}

// `tid` stops for the last time before this memory belongs to somebody else alone: a vfork child
// uses its parent's memory.
void RecordingLoop::look_before_handover(pid_t pid, pid_t tid) {
  const auto it = processes_.alive().find(pid);
  if (it == processes_.alive().end()) return;
  catch_up(it->second.shares_memory ? it->second.process.parent : pid, tid);
}

// The thread is stopped after an event of its image.
void RecordingLoop::probe_fork(pid_t pid, pid_t tid, std::string at) {
  ImageRecorder& i = *image(pid);
  const auto time = forks_.probe(i.forks(), pid, tid, i.order().last(), std::move(at));
  stepping_time_.add(time);
  stood_still_for(time);
}

StoppedAt RecordingLoop::stopped_at(pid_t pid, pid_t tid) const {
  return {.alone = processes_.is_alone(pid, tid),
          .may_step = stepping_ && processes_.threads().contains(tid),
          .out_of_time = stepping_time_.is_used_up()};
}

bool RecordingLoop::arm(pid_t pid, pid_t caller) {
  ImageRecorder* const i = image(pid);
  return i != nullptr && registers_.arm(*i, pid, caller);
}

// Call before a stopped thread continues.
void RecordingLoop::settle(pid_t pid, pid_t tid, bool hit_may_wait) {
  if (ImageRecorder* const i = image(pid)) registers_.settle(*i, pid, tid, hit_may_wait);
}

void RecordingLoop::go_on(pid_t pid, pid_t tid, int signo) {
  settle(pid, tid);
  move(pid, tid, signo);
}

bool RecordingLoop::is_to_pause(pid_t pid) const {
  const auto it = processes_.alive().find(pid);
  if (!options_.pause_at || it == processes_.alive().end() || !it->second.image) return false;
  const Image& image = it->second.image->image();
  return it->second.image->order().last() >= options_.pause_at->order &&
         image.key.image == options_.pause_at->image &&
         image.executable == options_.pause_at->executable;
}

// Single-steps the thread if an instrument wants that; otherwise resumes it.
void RecordingLoop::move(pid_t pid, pid_t tid, int signo) {
  if (!paused_ && is_to_pause(pid)) paused_.emplace(pid, tid);
  if (paused_ && paused_->first == pid) return;
  if (signo == SIGTRAP) end_steps(pid, tid, "the program's own SIGTRAP");
  const ImageRecorder* const i = image(pid);
  (void)(i != nullptr && i->steps(tid) ? tracer_.step(tid, signo) : tracer_.resume(tid, signo));
}

void RecordingLoop::end_steps(pid_t pid, pid_t tid, const std::string& because) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) instrument->end_steps(tid, because);
}

void RecordingLoop::end_image(Watched& w, const std::string& ending) {
  if (!w.image) return;
  race_.end_in(*w.image);
  registers_.forget(w.process.pid);
  processes_.end_image(w, ending);
}

void RecordingLoop::finish(Watched& w, const std::string& ending) {
  end_image(w, ending);
  processes_.keep(std::move(w.process));
}

void RecordingLoop::set_stepping(bool on) {
  stepping_ = on;
  if (on) return;
  for (const auto& [pid, w] : processes_.alive()) {
    if (!w.image) continue;
    for (const auto& i : w.image->instruments()) i->stop_stepping();
  }
}

// It stops before it runs again: what it waits for may be sent now.
void RecordingLoop::step_from_gate(pid_t pid, pid_t tid) {
  const auto thread = processes_.threads().find(tid);
  if (!stepping_ || thread == processes_.threads().end() || thread->second.process != pid) return;
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) {
    if (instrument->will_pass_gate(tid)) (void)tracer_.interrupt(tid);
  }
}

std::vector<ImageView> RecordingLoop::look(SnapshotDepth depth, Clock::time_point deadline) {
  sampler_.begin_look();
  (void)step_until(deadline, [&] { return sampler_.is_look_over(); });
  return sampler_.end_look(depth);
}

void RecordingLoop::look_around(Clock::time_point deadline) {
  sampler_.tick();
  (void)step_until(deadline, [&] { return sampler_.is_tick_over(); });
}

void RecordingLoop::last_look() {
  for (const auto& [pid, w] : processes_.alive()) {
    if (processes_.is_in_exec(pid)) continue;
    sampler_.look_at_modules(pid);
    catch_up(pid, pid);
    sampler_.take(pid, Moment::kEnd, SnapshotDepth::kThorough);
  }
}

void RecordingLoop::watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  const auto thread = processes_.threads().find(owner);
  const bool known = thread != processes_.threads().end() && thread->second.process == pid;
  for (const auto& instrument : i->instruments()) {
    const auto rewatched = instrument->select(owner, known ? thread->second.pointer : std::nullopt);
    if (rewatched == Rewatched::kNobody) continue;
    // The image may end meanwhile.
    return await_watches(*i, *instrument, rewatched == Rewatched::kThread ? owner : 0, deadline);
  }
}

// Waits until the thread, or each thread of the image if it is 0, has the words of watched().
void RecordingLoop::await_watches(const ImageRecorder& of, Instrument& instrument, pid_t only,
                                  Clock::time_point deadline) {
  const ImageKey key = of.image().key;
  const auto missing = [&] {
    std::vector<pid_t> out;
    for (const auto& [tid, thread] : processes_.threads()) {
      if (thread.process != key.pid || (only != 0 && tid != only)) continue;
      if (thread.watches != instrument.watched(tid)) out.push_back(tid);
    }
    return out;
  };
  for (const pid_t tid : missing()) (void)tracer_.interrupt(tid);
  const auto has_ended = [&] { return processes_.image_of(key.pid) != key; };
  const auto is_done = [&] { return has_ended() || missing().empty(); };
  if (step_until(deadline, is_done) && !has_ended()) instrument.selected(missing());
}

sys::Result<> RecordingLoop::finish() {
  timeline_.stops += tracer_.stops();
  const auto released = paused_ ? tracer_.release(paused_->first) : sys::Result<>();
  // The recording is valid even if something could not be ended.
  auto ended = tracer_.end();
  if (paused_ && released && options_.paused) options_.paused(paused_->first, paused_->second);
  if (ended && !released) ended = released;
  for (auto& [pid, w] : processes_.alive()) {
    w.process.killed_by = SIGKILL;
    w.process.ended_by_us = true;
    finish(w, "killed by ctxconf at the end of the observation");
  }
  processes_.add_to(timeline_);
  return ended;
}

}  // namespace

struct Recording::State {
  State(const WrapOptions& o, Timeline& timeline, sys::Tracer tracer)
      : options(o), loop(options, timeline, std::move(tracer)), dog(watchdog(options)) {}

  WrapOptions options;
  RecordingLoop loop;
  sys::AccessWatchdog dog;
};

sys::AccessWatchdog watchdog(const WrapOptions& options) {
  return {std::chrono::duration_cast<milliseconds>(options.memory_deadline * options.timeout_scale),
          [unreachable = options.unreachable](pid_t pid) {
            if (unreachable) unreachable(pid);
          }};
}

Recording::Recording(std::unique_ptr<State> state) : state_(std::move(state)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording::~Recording() = default;

sys::Result<Recording> Recording::start(const WrapOptions& options, sys::Launch launch,
                                        Timeline& timeline) {
  launch.argv = options.argv;
  launch.no_filter = options.no_filter;
  launch.pid_namespace = options.pid_namespace;
  launch.boottime_offset = options.boottime_offset;
  launch.extra_calls = {.clock_gettime = options.hide_vdso,
                        .anonymous_mmap = !options.injections.empty()};
  launch.own_session = options.pause_at.has_value();
  CTX_ASSIGN_OR_RETURN(tracer, sys::Tracer::launch(launch, options.trampoline));
  auto state = std::make_unique<State>(options, timeline, std::move(tracer));
  state->loop.begin();
  return Recording(std::move(state));
}

pid_t Recording::root() const { return state_->loop.tracer().root(); }
sys::Result<bool> Recording::step(Clock::time_point until) { return state_->loop.step(until); }
bool Recording::was_idle() const { return state_->loop.was_idle(); }
bool Recording::has_single_stepped() const { return state_->loop.has_single_stepped(); }
bool Recording::interrupted() const {
  return state_->loop.tracer().interrupted() || state_->loop.is_paused();
}
bool Recording::paused() const { return state_->loop.is_paused(); }
const std::string& Recording::runaway() const { return state_->loop.runaway(); }
Clock::time_point Recording::begun() const { return state_->loop.begun(); }
std::optional<Clock::time_point> Recording::published() const {
  return state_->loop.sampler().published();
}
Clock::duration Recording::late() const { return state_->loop.late(); }
void Recording::begin_wait() { state_->loop.begin_wait(); }
void Recording::inject(bool on) { state_->loop.set_injecting(on); }
void Recording::probe_forks(bool on) { state_->loop.forks().set(on); }
std::optional<pid_t> Recording::process_of(std::int64_t number) const {
  return state_->loop.processes().process_of(number);
}
void Recording::step_changes(bool on) { state_->loop.set_stepping(on); }
void Recording::step_from_gate(pid_t pid, pid_t tid) { state_->loop.step_from_gate(pid, tid); }
bool Recording::is_held_up(pid_t pid) const { return state_->loop.forks().is_held_up(pid); }
void Recording::begin_race(pid_t pid) {
  if (ImageRecorder* const image = state_->loop.processes().image(pid)) {
    state_->loop.race().begin(*image);
  }
}
void Recording::end_race() { state_->loop.race().end(); }
void Recording::begins_to_publish(pid_t pid, pid_t tid) {
  if (ImageRecorder* const image = state_->loop.processes().image(pid)) {
    image->calls().begins_to_publish(tid);
  }
}
void Recording::look_around(Clock::time_point deadline) { state_->loop.look_around(deadline); }
std::size_t Recording::threads() const { return state_->loop.processes().threads().size(); }
void Recording::last_look() { state_->loop.last_look(); }
void Recording::terminate(bool politely) {
  state_->loop.set_ending();
  if (politely) state_->loop.tracer().signal_all(SIGTERM);
}
sys::Result<> Recording::wake_for(int fd, short events) {
  return state_->loop.tracer().wake_for(fd, events);
}
std::optional<ImageKey> Recording::image_of(pid_t pid) const {
  return state_->loop.processes().image_of(pid);
}
std::vector<pid_t> Recording::processes() const { return state_->loop.tracer().processes(); }
void Recording::watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline) {
  state_->loop.watch_thread(pid, owner, deadline);
}
std::vector<ImageView> Recording::look(SnapshotDepth depth, Clock::time_point deadline) {
  return state_->loop.look(depth, deadline);
}
sys::Result<> Recording::finish() { return state_->loop.finish(); }

}  // namespace ctxconf::conformance
