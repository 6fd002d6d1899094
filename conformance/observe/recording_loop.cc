#include "conformance/observe/recording_loop.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>

#include "sys/ending_signals.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// A thread that does not stop within this time sleeps and nothing wakes it. It stops before it runs
// again, but the others have continued by then.
constexpr std::chrono::milliseconds kArming{2000};

// A thread pointer that the program sets explicitly: glibc does this for the first thread of an
// image; all others get theirs from clone.
std::optional<sys::RemoteAddr> thread_pointer_of(const sys::SyscallEntry& e) {
  const auto set = sys::thread_pointer_set_by(e.nr, e.args);
  return set ? std::optional(sys::RemoteAddr(*set)) : std::nullopt;
}

// Nothing: not a call that the filter selects for its buffer.
std::optional<StoringCall> storing_call(const sys::SyscallEntry& e) {
  const char* const name = e.nr == SYS_read       ? "read"
                           : e.nr == SYS_pread64  ? "pread64"
                           : e.nr == SYS_recvfrom ? "recvfrom"
                                                  : nullptr;
  if (name == nullptr) return std::nullopt;
  return StoringCall{name, sys::RemoteAddr(e.args[1]), e.args[2]};
}

// Bit i: `size` bytes at `at` have some of word i.
std::uint8_t words_in(const sys::WatchedWords& words, sys::RemoteAddr at, std::uint64_t size) {
  std::uint8_t out = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto word = words[i].raw();
    const bool overlaps =
        word < at.raw() ? at.raw() - word < sys::kWordBytes && size > 0 : word - at.raw() < size;
    if (overlaps) out |= static_cast<std::uint8_t>(1U << i);
  }
  return out;
}

}  // namespace

RecordingLoop::RecordingLoop(const WrapOptions& options, Timeline& timeline, sys::Tracer tracer)
    : options_(options),
      timeline_(timeline),
      tracer_(std::move(tracer)),
      registers_(
          tracer_, processes_, [this](pid_t pid, pid_t tid) { go_on(pid, tid); },
          std::chrono::duration_cast<Clock::duration>(kArming * options.timeout_scale)) {
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
    if (const std::size_t alive = processes_.alive().size(); options_.progress && alive > 0) {
      options_.progress(std::chrono::duration<double>(from - begin_).count(), alive,
                        sampler_.contexts());
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

// Postpones all deadlines and the next tick, because a look in the middle of a change costs time.
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
  auto& thread = processes_.threads()[e.tid] = {
      .process = e.process, .pointer = {}, .watches = {}, .call = {}};
  if (const auto pointer = tracer_.thread_pointer(e.tid); pointer && pointer->raw() != 0) {
    thread.pointer = *pointer;
    if (e.tid == e.process && !e.shares_memory) sampler_.look_at_birth(e, *pointer);
  }
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::SyscallEntry& e) {
  const bool execs = e.nr == SYS_execve || e.nr == SYS_execveat;
  if (options_.observer && !execs) {
    const bool wants_exit = options_.observer->entered(e);
    (void)(wants_exit ? tracer_.resume_to_exit(e.tid) : tracer_.resume(e.tid));
    return;
  }
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
  if (!execs && begin_call_in_lent_memory(e)) {
    (void)tracer_.resume_to_exit(e.tid);
    return;
  }
  const bool recorded = begin_call(e);
  const bool unmarks = e.nr == SYS_madvise && static_cast<int>(e.args[2]) == MADV_DOFORK &&
                       may_be_of_context(e.process, e.args[0], e.args[1]);
  if (unmarks) unmarking_.insert(e.tid);
  if (recorded && e.nr == SYS_madvise) probe_fork(e.process, e.tid, "before madvise");
  begin_storing_call(e);
  settle(e.process, e.tid);
  if (execs) processes_.begins_exec(e.process, e.tid);
  const auto thread = processes_.threads().find(e.tid);
  const bool stores = thread != processes_.threads().end() && thread->second.call;
  const ImageRecorder* const i = image(e.process);
  // A step over the call shows what was stored.
  const bool steps = i != nullptr && i->steps(e.tid);
  if (recorded || unmarks || execs || (stores && !steps)) {
    (void)tracer_.resume_to_exit(e.tid);
  } else {
    move(e.process, e.tid);
  }
}

void RecordingLoop::on(const sys::SyscallExit& e) {
  const bool in_exec = processes_.ends_exec(e.tid);
  if (options_.observer && !in_exec) {
    options_.observer->left(e);
    (void)tracer_.resume(e.tid);
    return;
  }
  const auto thread = processes_.threads().find(e.tid);
  if (const auto call = end_storing_call(e.tid); call && e.result > 0 && thread->second.watches) {
    const auto size = std::min(static_cast<std::uint64_t>(e.result), call->size);
    const auto words = words_in(*thread->second.watches, call->buffer, size);
    if (words != 0) return stored({e.tid, e.process, words, e.pc}, call->name);
  }
  catch_up(e.process, e.tid);
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) {
    if (ImageRecorder* const lender = processes_.lender(e.process)) lender->calls().left(e);
    return go_on(e.process, e.tid);
  }
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
    it->second.memory_of.reset();
    processes_.start_image(it->second);
  }
  processes_.forget_threads(e.process);
  sampler_.forget(e.process);
  processes_.threads()[e.process] = {
      .process = e.process, .pointer = {}, .watches = {}, .call = {}};
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
  // This is not an ordinary sample: a destructor may have freed what is still in the slot.
  if (options_.keep_all && !e.whole_process) sampler_.look_at_exit(e);
  processes_.threads().erase(e.tid);
  sampler_.arrived(e.process, e.tid);
  look_at_filters(e.process, e.tid);
  if (ImageRecorder* const lender = processes_.lender(e.process)) {
    lender->calls().look_at_filters(e.tid);
  }
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
  StoppedAt at = stopped_at(e.process, e.tid);
  if (const auto call = end_storing_call(e.tid)) {
    at.call = call->name;
    const auto& watches = processes_.threads().find(e.tid)->second.watches;
    if (watches) at.call_words = words_in(*watches, call->buffer, call->size);
  }
  bool is_store = false;
  for (const auto& instrument : i->instruments()) is_store = instrument->stepped(e, at) || is_store;
  if (is_store) return on(sys::WatchpointHit{e.tid, e.process, e.words, e.pc});
  if (arm(e.process, e.tid)) return;
  go_on(e.process, e.tid);
}

void RecordingLoop::on(const sys::WatchpointHit& e) { stored(e, ""); }

void RecordingLoop::stored(const sys::WatchpointHit& e, const char* call) {
  ImageRecorder* const i = image(e.process);
  const auto thread = processes_.threads().find(e.tid);
  if (i == nullptr || thread == processes_.threads().end()) return go_on(e.process, e.tid);
  const auto& watches = thread->second.watches;
  const bool is_wanted = watches && std::ranges::any_of(i->instruments(), [&](const auto& one) {
                           return one->watched(e.tid) == watches;
                         });
  if (is_wanted) {
    StoppedAt at = stopped_at(e.process, e.tid);
    at.call = call;
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
  TracedProcess& w = it->second;
  w.process.exit_code = e.exit_code;
  const auto fault = std::exchange(w.process.killed_by, e.killed_by);
  if (fault && e.killed_by == SIGKILL) w.process.killed_by = fault;
  w.process.ended_by_us =
      forks_.is_held_up(e.process) ||
      (ending_ && (e.killed_by == SIGTERM || e.killed_by == SIGKILL)) ||
      // Ctrl-C goes to the whole foreground group; the user meant ctxconf.
      (tracer_.interrupted() && e.killed_by && sys::is_ending_signal(*e.killed_by));
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

// A vfork child, or another process with the same memory, works on the context of the image to
// which that belongs. Its calls are recorded there; none is made to fail.
bool RecordingLoop::begin_call_in_lent_memory(const sys::SyscallEntry& e) {
  ImageRecorder* const lender = processes_.lender(e.process);
  if (lender == nullptr || e.nr == SYS_ptrace) return false;
  auto call = lender->calls().describe(e);
  if (!call) return false;
  catch_up(lender->image().key.pid, e.tid);
  lender->calls().entered(*std::move(call), e.short_time);
  return true;
}

void RecordingLoop::begin_storing_call(const sys::SyscallEntry& e) {
  const auto call = storing_call(e);
  const auto thread = processes_.threads().find(e.tid);
  ImageRecorder* const i = image(e.process);
  if (!call || i == nullptr || thread == processes_.threads().end()) return;
  for (const auto& instrument : i->instruments()) {
    const auto words = instrument->watched(e.tid);
    if (!instrument->watches_all_threads() || !words) continue;
    if (words_in(*words, call->buffer, call->size) == 0) continue;
    // What changed before the call.
    catch_up(e.process, e.tid);
    thread->second.call = call;
    return;
  }
}

std::optional<StoringCall> RecordingLoop::end_storing_call(pid_t tid) {
  const auto thread = processes_.threads().find(tid);
  if (thread == processes_.threads().end()) return std::nullopt;
  return std::exchange(thread->second.call, std::nullopt);
}

bool RecordingLoop::give(const sys::SyscallEntry& e, const InjectResult& answer) {
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
  if (i != nullptr && i->steps(tid)) {
    (void)tracer_.step(tid, signo);
    return;
  }
  end_storing_call(tid);
  (void)tracer_.resume(tid, signo);
}

void RecordingLoop::end_steps(pid_t pid, pid_t tid, const std::string& because) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) instrument->end_steps(tid, because);
}

void RecordingLoop::end_image(TracedProcess& w, const std::string& ending) {
  if (!w.image) return;
  race_.end_in(*w.image);
  registers_.forget(w.process.pid);
  processes_.end_image(w, ending);
}

void RecordingLoop::finish(TracedProcess& w, const std::string& ending) {
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

template <class Condition>
bool RecordingLoop::step_until(Clock::time_point deadline, Condition is_done) {
  const auto late_before = late();
  const auto may_wait = [&] { return runaway_.empty() && !tracer_.interrupted() && !paused_; };
  while (!is_done() && Clock::now() < deadline + (late() - late_before) && may_wait()) {
    const auto stepped = step(deadline + (late() - late_before));
    if (!stepped || !*stepped) return false;
  }
  return may_wait();
}

template <class Condition>
bool RecordingLoop::poll_until(Clock::time_point deadline, Clock::duration interval,
                               Condition is_done) {
  const auto late_before = late();
  while (!is_done()) {
    const auto end = deadline + (late() - late_before);
    const auto now = Clock::now();
    if (now >= end || !step_until(std::min(end, now + interval), is_done)) return false;
  }
  return true;
}

void RecordingLoop::await_new_threads(Clock::time_point deadline) {
  // One that ends goes without an event, if its exit was reported before.
  constexpr std::chrono::milliseconds kBetweenChecks{2};
  constexpr std::chrono::seconds kMost{5};  // it has its first stop as soon as it gets a processor
  auto unreported = sampler_.unreported_threads();
  if (unreported.empty()) return;
  poll_until(std::min(deadline, Clock::now() + kMost), kBetweenChecks, [&] {
    sampler_.leave_out_reported(unreported);
    return unreported.empty();
  });
}

std::vector<ImageView> RecordingLoop::look(SnapshotDepth depth, Clock::time_point deadline) {
  // A thread may be in the middle of an update that nobody asked for. A reader tries again, too.
  constexpr std::chrono::milliseconds kUpdate{100};
  constexpr std::chrono::milliseconds kBetweenChecks{1};
  await_new_threads(deadline);
  const auto late_before = late();
  const auto latest = std::min(deadline, Clock::now() + kUpdate);
  while (true) {
    sampler_.begin_look();
    step_until(deadline, [&] { return sampler_.is_look_over(); });
    const auto end = latest + (late() - late_before);
    const auto is_over = [&] { return !sampler_.meets_update(); };
    if (is_over() || Clock::now() >= end || !poll_until(end, kBetweenChecks, is_over)) {
      return sampler_.end_look(depth);
    }
  }
}

void RecordingLoop::look_around(Clock::time_point deadline) {
  await_new_threads(deadline);
  sampler_.tick();
  step_until(deadline, [&] { return sampler_.is_tick_over(); });
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
  registers_.select(*i, owner);
  step_until(deadline, [&] { return registers_.is_selection_over(); });
  registers_.end_selection();
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

}  // namespace ctxconf::conformance
