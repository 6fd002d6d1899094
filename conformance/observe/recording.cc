#include "conformance/observe/recording.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "conformance/observe/image_recorder.h"
#include "conformance/observe/running_race.h"
#include "conformance/observe/slot_turns.h"
#include "conformance/observe/snapshot_pace.h"
#include "conformance/observe/stopped_time.h"
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
// For all copies of an image together: copies of a large process take long.
constexpr milliseconds kProbing{2000};
// For all step traces together. With more running threads than processors, a stepped thread waits
// for its processor at each instruction.
constexpr milliseconds kStepping{30000};

// A thread pointer that the program sets explicitly: glibc does this for the first thread of an
// image; all others get theirs from clone.
std::optional<sys::RemoteAddr> thread_pointer_of(const sys::SyscallEntry& e) {
  const auto set = sys::thread_pointer_set_by(e.nr, e.args);
  return set ? std::optional(sys::RemoteAddr(*set)) : std::nullopt;
}

struct Watched {
  Process process;
  std::unique_ptr<ImageRecorder> image;  // null: not recorded
  std::uint32_t next_image = 0;
  bool shares_memory = false;  // a vfork child sees its parent's memory until it execs
};

class Live {
 public:
  Live(const WrapOptions& options, Timeline& timeline, sys::Tracer tracer)
      : options_(options),
        timeline_(timeline),
        tracer_(std::move(tracer)),
        registers_(
            tracer_, threads_, [this](pid_t pid) { return image(pid); },
            [this](pid_t pid, pid_t tid) { go_on(pid, tid); }, scaled(kArming)),
        slot_turns_{.tracer = tracer_, .threads = threads_},
        race_(options) {}

  void begin();
  sys::Result<bool> step(Clock::time_point wake);
  void last_look();
  sys::Result<> finish();
  std::vector<ImageView> look(SnapshotDepth depth, Clock::time_point deadline);
  void look_around(Clock::time_point deadline) {
    tick();
    (void)step_until(deadline, [&] { return interrupted_.empty(); });
  }
  std::size_t threads() const { return threads_.size(); }
  bool is_paused() const { return paused_.has_value(); }
  bool was_idle() const { return idle_; }
  bool has_single_stepped() const { return stepped_.has_value(); }
  bool may_wait() const { return runaway_.empty() && !tracer_.interrupted() && !is_paused(); }

  sys::Tracer& tracer() { return tracer_; }
  const std::string& runaway() const { return runaway_; }
  Clock::time_point begun() const { return begin_; }
  std::optional<Clock::time_point> published() const { return published_; }
  Clock::duration late() const { return stopped_.in_all() + stepping_time_; }
  void begin_wait() { stopped_.begin_wait(); }
  void set_ending() { ending_ = true; }
  void set_injecting(bool on) { injecting_ = on; }
  void set_probing(bool on) { probing_ = on; }
  std::optional<pid_t> process_of(std::int64_t number) const;
  void set_stepping(bool on) {
    stepping_ = on;
    if (on) return;
    for (const auto& [pid, w] : alive_) {
      if (!w.image) continue;
      for (const auto& i : w.image->instruments()) i->stop_stepping();
    }
  }
  // Handles events until there is nothing to wait for, or until nothing is left (false). The
  // deadline moves by the time for which threads stood still for us.
  template <class Condition>
  bool step_until(Clock::time_point deadline, Condition is_done) {
    const auto late_before = late();
    while (!is_done() && Clock::now() < deadline + (late() - late_before) && may_wait()) {
      const auto stepped = step(deadline + (late() - late_before));
      if (!stepped || !*stepped) return false;
    }
    return true;
  }
  void step_from_gate(pid_t pid, pid_t tid);
  void begins_to_publish(pid_t pid, pid_t tid) {
    if (ImageRecorder* const i = image(pid)) i->calls().begins_to_publish(tid);
  }
  std::optional<ImageKey> image_of(pid_t pid) const;
  bool is_held_up(pid_t pid) const { return held_up_.contains(pid); }
  ImageRecorder* image(pid_t pid);
  RunningRace& race() { return race_; }
  void watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline);

 private:
  void await_watches(const ImageRecorder& of, Instrument& instrument, pid_t only,
                     Clock::time_point deadline);
  void add(pid_t pid, pid_t parent, bool shares_memory);
  void start_image(Watched& w);
  void end_image(Watched& w, const std::string& ending);
  std::optional<std::uint64_t> take(pid_t pid, Moment moment, SnapshotDepth depth);
  void tick();
  void look_at_modules(pid_t pid);
  void look_at_threads(const Watched& w);
  void look_at_stopped_thread(pid_t pid, pid_t tid);
  void not_running(pid_t pid, pid_t tid);
  void look_at_birth(const sys::NewTask& e, sys::RemoteAddr pointer);
  void look_at_exit(const sys::Exiting& e);
  void look_at_filters(pid_t pid, pid_t tid);
  bool is_in_exec(pid_t pid) const;
  bool begin_call(const sys::SyscallEntry& e);  // true: its result is wanted
  void catch_up(pid_t pid, pid_t tid);
  void look_before_handover(pid_t pid, pid_t tid);
  bool is_alone(pid_t pid, pid_t tid) const;
  StoppedAt stopped_at(pid_t pid, pid_t tid) const;
  bool arm(pid_t pid, pid_t caller);
  void settle(pid_t pid, pid_t tid, bool hit_may_wait = false);
  void go_on(pid_t pid, pid_t tid, int signo = 0);
  void move(pid_t pid, pid_t tid, int signo = 0);
  void end_steps(pid_t pid, pid_t tid, const std::string& because);
  bool is_to_pause(pid_t pid) const;
  bool may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size);
  bool give(const sys::SyscallEntry& e, const CallAnswer& answer);
  void probe_fork(pid_t pid, pid_t tid, std::string at);
  void finish(Watched& w, const std::string& ending);

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

  // Everything with a deadline gets this additional time.
  void move_times(Clock::duration time) {
    begin_ += time;
    if (published_) *published_ += time;
    registers_.postpone(time);
  }
  void tell_of_stepping(Clock::time_point now);
  // Or nearly: in the middle of a change, avoid additional looks.
  void stood_still_for(Clock::duration time) {
    stepping_time_ += time;
    move_times(time);
    if (options_.looks_by_itself) next_tick_ += time;
  }
  Clock::duration scaled(milliseconds d) const {
    return std::chrono::duration_cast<Clock::duration>(d * options_.timeout_scale);
  }

  const WrapOptions& options_;
  Timeline& timeline_;
  sys::Tracer tracer_;
  std::map<pid_t, Watched> alive_;
  std::set<pid_t> naming_;     // threads in a call that gives a context its name
  std::set<pid_t> unmarking_;  // threads in madvise(..., MADV_DOFORK)
  // Threads in execve, and their processes. During that call the memory becomes that of the next
  // image: until the image is known, nobody looks.
  std::map<pid_t, pid_t> in_exec_;
  WatchedThreads threads_;
  std::map<pid_t, std::set<pid_t>> interrupted_;  // threads of a process that must still stop
  std::shared_ptr<KnownFiles> known_files_ =
      options_.known_files ? options_.known_files : std::make_shared<KnownFiles>();
  std::vector<Process> done_;
  CodeFiles code_files_{{}, &known_files_->locations};
  std::shared_ptr<CopyBudget> copies_ = std::make_shared<CopyBudget>();
  std::optional<unsigned> filters_;  // seccomp filters at the program's first instruction
  std::size_t started_ = 0;
  std::size_t not_kept_ = 0;
  std::size_t not_judged_ = 0;  // the ones of them with a context
  std::size_t contexts_ = 0;
  std::uint64_t stored_ = 0;  // bytes of memory in ended images
  bool ending_ = false;
  bool injecting_ = options_.inject_at_once;
  bool probing_ = false;
  bool stepping_ = options_.steps_at_once;
  bool idle_ = true;
  std::string runaway_;
  std::optional<std::pair<pid_t, pid_t>> paused_;  // process and thread
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_tick_ =
      options_.looks_by_itself ? begin_ + SnapshotPace::kTick : Clock::time_point::max();
  SnapshotPace pace_;
  StoppedTime stopped_;
  WatchRegisters registers_;
  SharedBySlotTurns slot_turns_;
  Clock::duration stepping_time_{};           // in single-steps and in our forks
  std::optional<Clock::time_point> stepped_;  // set if the last event was a step; its time
  // The step trace last reported to options_.stepping; 0: it is over, or there was none.
  std::uint64_t trace_steps_ = 0;
  Clock::time_point trace_begun_;
  Clock::time_point trace_told_;
  // Threads that must still stop for a look, and what was seen in the others.
  std::map<pid_t, std::map<pid_t, std::vector<ThreadView>>> looked_;
  std::set<pid_t> awaited_;
  std::optional<Clock::time_point> published_;
  std::set<pid_t> held_up_;  // ended by us, because a fork in it did not finish
  RunningRace race_;
};

void Live::start_image(Watched& w) {
  // The running images share the limit for stored memory.
  SnapshotLimits limits = options_.limits;
  limits.descriptors_always = options_.keep_all || !options_.injections.empty();
  const auto left = options_.max_stored - std::min(options_.max_stored, stored_);
  limits.image_bytes =
      std::min(limits.image_bytes,
               std::max<std::uint64_t>(left / (alive_.size() + 1), std::uint64_t{64} << 10U));
  if (!filters_ && !options_.no_filter) {
    if (const auto count = sys::seccomp_filters(w.process.pid)) filters_ = *count;
  }
  w.image = std::make_unique<ImageRecorder>(
      ImageKey{w.process.pid, w.next_image++, options_.session}, options_, limits, filters_,
      SharedByImages{*known_files_, code_files_, copies_, slot_turns_});
}

ImageRecorder* Live::image(pid_t pid) {
  const auto it = alive_.find(pid);
  return it == alive_.end() ? nullptr : it->second.image.get();
}

void Live::end_image(Watched& w, const std::string& ending) {
  if (!w.image) return;
  race_.end_in(*w.image);
  registers_.forget(w.process.pid);
  stored_ += w.image->stored_bytes();
  w.process.images.push_back(std::move(*w.image).finish(ending));
  w.image.reset();
}

void Live::add(pid_t pid, pid_t parent, bool shares_memory) {
  ++started_;
  Watched& w = alive_[pid];
  w.process.pid = pid;
  w.process.parent = parent;
  w.process.session = options_.session;
  if (options_.pid_namespace) w.process.own_pid = sys::own_number(pid).value_or(0);
  w.shares_memory = shares_memory;
  if (!shares_memory) start_image(w);
}

std::optional<std::uint64_t> Live::take(pid_t pid, Moment moment, SnapshotDepth depth) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return std::nullopt;
  // At all other moments some thread is stopped, and an exec would have ended it.
  const bool any_time =
      moment == Moment::kPeriodic || moment == Moment::kOperation || moment == Moment::kEnd;
  if (any_time && is_in_exec(pid)) return std::nullopt;
  SnapshotRecorder& r = i->snapshots();
  const auto before = r.last_publication_ns();
  const auto state = r.take(moment, depth);
  if (r.last_publication_ns() != before) {
    published_ = Clock::now();
    ++contexts_;
  }
  return state;
}

void Live::tick() {
  // Threads first: a key map that is seen after a record must name its indexes. If some threads are
  // running, the last one that stops takes the snapshot.
  const auto late = std::exchange(interrupted_, {});
  for (const auto& [pid, tids] : late) take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
  for (auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (w.image) {
      if (w.image->threads().wants_threads()) look_at_threads(w);
      for (const auto& instrument : w.image->instruments()) instrument->ticked();
    }
    if (!interrupted_.contains(pid)) take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
  }
}

void Live::not_running(pid_t pid, pid_t tid) {
  const auto it = interrupted_.find(pid);
  if (it == interrupted_.end()) return;
  it->second.erase(tid);
  if (!it->second.empty()) return;
  interrupted_.erase(it);
  take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
}

void Live::look_at_modules(pid_t pid) {
  if (ImageRecorder* const i = image(pid)) i->threads().look_at_modules();
}

// Reads a sleeping thread where it sleeps; interrupts a running one, which gives an Interrupted
// soon.
void Live::look_at_threads(const Watched& w) {
  const pid_t pid = w.process.pid;
  for (const auto& [tid, thread] : threads_) {
    if (thread.process != pid) continue;
    // A step trace has seen the thread more closely, and short moments last long while it is
    // single-stepped.
    if (w.image->steps(tid)) continue;
    if (thread.pointer && w.image->threads().sample_if_asleep(tid, *thread.pointer)) continue;
    if (tracer_.interrupt(tid)) interrupted_[pid].insert(tid);
  }
}

void Live::look_at_stopped_thread(pid_t pid, pid_t tid) {
  ImageRecorder* const i = image(pid);
  const auto thread = threads_.find(tid);
  if (i == nullptr || thread == threads_.end() || !i->threads().wants_threads()) return;
  if (const auto pointer = tracer_.thread_pointer(tid)) {
    if (pointer->raw() == 0) return;  // too early
    thread->second.pointer = *pointer;
    auto views = i->threads().sample(tid, *pointer);
    if (awaited_.contains(tid)) looked_[pid][tid] = std::move(views);
  } else if (pointer.error().err != ESRCH) {
    i->threads().unread(sys::to_string(pointer.error()));
  }
}

void Live::look_at_exit(const sys::Exiting& e) {
  ImageRecorder* const i = image(e.process);
  if (i == nullptr || !i->threads().wants_threads()) return;
  const auto pointer = tracer_.thread_pointer(e.tid);
  if (pointer && pointer->raw() != 0) i->threads().sample_at_exit(e.tid, *pointer);
}

bool Live::is_in_exec(pid_t pid) const {
  return std::ranges::any_of(in_exec_, [&](const auto& e) { return e.second == pid; });
}

void Live::look_at_filters(pid_t pid, pid_t tid) {
  if (ImageRecorder* const i = image(pid)) i->calls().look_at_filters(tid);
}

bool Live::begin_call(const sys::SyscallEntry& e) {
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return false;
  naming_.erase(e.tid);
  auto call = i->calls().describe(e);
  if (!call) return false;
  catch_up(e.process, e.tid);
  for (const auto& instrument : i->instruments()) instrument->call_entered(*call);
  if (e.nr == SYS_prctl && looks_like_the_name(call->text)) {
    call->snapshot = take(e.process, Moment::kNaming, SnapshotDepth::kQuick);
    naming_.insert(e.tid);
  }
  call->entered_ns = sys::boottime_now_ns();
  const auto answer = i->injector().entered(*call, injecting_);
  call->injected = answer && give(e, *answer);
  i->calls().entered(*std::move(call), e.short_time);
  return true;
}

bool Live::give(const sys::SyscallEntry& e, const CallAnswer& answer) {
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

// The thread is stopped after an event of its image.
void Live::probe_fork(pid_t pid, pid_t tid, std::string at) {
  if (!options_.forks || !probing_) return;
  ImageRecorder& i = *image(pid);
  // The copy would be a child of another process, so the program would notice it.
  if (pid != tracer_.root())
    return i.forks().unseen("the copy would be a child of another process");
  const auto took =
      i.forks().probe(tracer_, tid, i.order().last(), std::move(at), filters_, scaled(kProbing));
  if (took != Clock::duration::zero()) stood_still_for(took);
  if (i.forks().is_held_up()) held_up_.insert(pid);
}

std::optional<pid_t> Live::process_of(std::int64_t number) const {
  for (const auto& [pid, w] : alive_) {
    if ((options_.pid_namespace ? w.process.own_pid : pid) == number && w.image) return pid;
  }
  return std::nullopt;
}

void Live::catch_up(pid_t pid, pid_t tid) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) instrument->catch_up(tid);
}

// `tid` stops for the last time before this memory belongs to somebody else alone: a vfork child
// uses its parent's memory.
void Live::look_before_handover(pid_t pid, pid_t tid) {
  const auto it = alive_.find(pid);
  if (it == alive_.end()) return;
  catch_up(it->second.shares_memory ? it->second.process.parent : pid, tid);
}

// Whether no other task runs in the memory of this thread.
bool Live::is_alone(pid_t pid, pid_t tid) const {
  return std::ranges::none_of(
             threads_, [&](const auto& t) { return t.second.process == pid && t.first != tid; }) &&
         std::ranges::none_of(alive_, [&](const auto& p) {
           return p.second.shares_memory && p.second.process.parent == pid;
         });
}

StoppedAt Live::stopped_at(pid_t pid, pid_t tid) const {
  return {.alone = is_alone(pid, tid),
          .may_step = stepping_ && threads_.contains(tid),
          .out_of_time = stepping_time_ > scaled(kStepping)};
}

bool Live::arm(pid_t pid, pid_t caller) {
  ImageRecorder* const i = image(pid);
  return i != nullptr && registers_.arm(*i, pid, caller);
}

// Call before a stopped thread continues.
void Live::settle(pid_t pid, pid_t tid, bool hit_may_wait) {
  if (ImageRecorder* const i = image(pid)) registers_.settle(*i, pid, tid, hit_may_wait);
}

void Live::go_on(pid_t pid, pid_t tid, int signo) {
  settle(pid, tid);
  move(pid, tid, signo);
}

bool Live::is_to_pause(pid_t pid) const {
  const auto it = alive_.find(pid);
  if (!options_.pause_at || it == alive_.end() || !it->second.image) return false;
  const Image& image = it->second.image->image();
  return it->second.image->order().last() >= options_.pause_at->order &&
         image.key.image == options_.pause_at->image &&
         image.executable == options_.pause_at->executable;
}

// Single-steps the thread if an instrument wants that; otherwise resumes it.
void Live::move(pid_t pid, pid_t tid, int signo) {
  if (!paused_ && is_to_pause(pid)) paused_.emplace(pid, tid);
  if (paused_ && paused_->first == pid) return;
  if (signo == SIGTRAP) end_steps(pid, tid, "the program's own SIGTRAP");
  const ImageRecorder* const i = image(pid);
  (void)(i != nullptr && i->steps(tid) ? tracer_.step(tid, signo) : tracer_.resume(tid, signo));
}

void Live::end_steps(pid_t pid, pid_t tid, const std::string& because) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) instrument->end_steps(tid, because);
}

void Live::finish(Watched& w, const std::string& ending) {
  end_image(w, ending);
  const bool evidence = std::ranges::any_of(w.process.images, [](const Image& i) {
    return !i.snapshots.empty() || !i.notes.empty() || !i.modules.empty() || !i.calls.empty() ||
           !i.stores.empty();
  });
  const bool root = w.process.pid == tracer_.root();
  if (root || ((evidence || done_.size() < 64) && done_.size() < options_.max_recorded)) {
    done_.push_back(std::move(w.process));
  } else {
    ++not_kept_;
    const bool has_context = std::ranges::any_of(w.process.images, [](const Image& i) {
      return !i.threads.empty() || std::ranges::any_of(i.snapshots, [](const Snapshot& s) {
        return !s.candidates.empty();
      });
    });
    if (has_context) ++not_judged_;
  }
}

// A forked process starts with a copy of what its maker had.
void Live::look_at_birth(const sys::NewTask& e, sys::RemoteAddr pointer) {
  ImageRecorder* const child = image(e.process);
  ImageRecorder* const maker = image(e.maker);
  if (child == nullptr) return;
  ThreadRecorder* parent = maker == nullptr ? nullptr : &maker->threads();
  if (parent != nullptr) {
    parent->look_at_modules();
    if (parent->knows_modules() && !parent->wants_threads()) return;
    if (!parent->knows_modules()) parent = nullptr;  // it ended before it could be examined
  }
  child->threads().look_at_birth(parent, pointer);
}

void Live::on(const sys::NewTask& e) {
  if (e.tid == e.process && !alive_.contains(e.process)) add(e.process, e.maker, e.shares_memory);
  if (ImageRecorder* const maker = image(e.maker); maker != nullptr && e.maker_tid != 0) {
    maker->calls().made_process(e.maker_tid, e.how, e.tid);
  }
  auto& thread = threads_[e.tid] = {.process = e.process, .pointer = {}, .watches = {}};
  if (const auto pointer = tracer_.thread_pointer(e.tid); pointer && pointer->raw() != 0) {
    thread.pointer = *pointer;
    if (e.tid == e.process && !e.shares_memory) look_at_birth(e, *pointer);
  }
  go_on(e.process, e.tid);
}

bool Live::may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) {
  ImageRecorder* const i = image(pid);
  return i != nullptr && i->calls().overlaps_context(address, size);
}

void Live::on(const sys::SyscallEntry& e) {
  const bool execs = e.nr == SYS_execve || e.nr == SYS_execveat;
  if (execs) {
    look_at_modules(e.process);
    look_at_stopped_thread(e.process, e.tid);
    look_at_filters(e.process, e.tid);
    take(e.process, Moment::kExecEntry, SnapshotDepth::kThorough);
    look_before_handover(e.process, e.tid);
  } else if (const auto pointer = thread_pointer_of(e)) {
    threads_[e.tid].process = e.process;
    threads_[e.tid].pointer = pointer;
  }
  const bool recorded = begin_call(e);
  const bool unmarks = e.nr == SYS_madvise && static_cast<int>(e.args[2]) == MADV_DOFORK &&
                       may_be_of_context(e.process, e.args[0], e.args[1]);
  if (unmarks) unmarking_.insert(e.tid);
  if (recorded && e.nr == SYS_madvise) probe_fork(e.process, e.tid, "before madvise");
  settle(e.process, e.tid);
  if (execs) in_exec_[e.tid] = e.process;
  if (recorded || unmarks || execs) {
    (void)tracer_.resume_to_exit(e.tid);
  } else {
    move(e.process, e.tid);
  }
}

void Live::on(const sys::SyscallExit& e) {
  in_exec_.erase(e.tid);
  catch_up(e.process, e.tid);
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return go_on(e.process, e.tid);
  const auto name = i->calls().left(e);
  if (!name.empty()) probe_fork(e.process, e.tid, "after " + name);
  const bool reading = name == "clock_gettime";
  i->injector().left(e.tid, e.result, reading ? i->calls().last_reading(e.tid) : std::nullopt);
  if (naming_.erase(e.tid) > 0) {
    if (i->chooses_threads()) look_at_modules(e.process);
    look_at_stopped_thread(e.process, e.tid);
    for (const auto& instrument : i->instruments()) instrument->named(e.tid);
    take(e.process, Moment::kNamed, SnapshotDepth::kQuick);
  }
  // Only VmFlags differ, and a quick look does not read them again.
  if (unmarking_.erase(e.tid) > 0) take(e.process, Moment::kPeriodic, SnapshotDepth::kThorough);
  for (const auto& instrument : i->instruments()) instrument->call_left(e);
  if (arm(e.process, e.tid)) return;
  go_on(e.process, e.tid);
}

void Live::on(const sys::Execed& e) {
  std::erase_if(in_exec_, [&](const auto& in) { return in.second == e.process; });
  if (const auto it = alive_.find(e.process); it != alive_.end()) {
    if (options_.no_filter && it->second.image) it->second.image->snapshots().replaced_unseen();
    end_image(it->second, "replaced by exec");
    it->second.shares_memory = false;
    start_image(it->second);
  }
  std::erase_if(threads_, [&](const auto& t) { return t.second.process == e.process; });
  threads_[e.process] = {.process = e.process, .pointer = {}, .watches = {}};
  std::erase_if(awaited_, [&](pid_t tid) { return !threads_.contains(tid) || tid == e.process; });
  looked_.erase(e.process);
  interrupted_.erase(e.process);
  if (options_.hide_vdso) {
    if (const auto hidden = tracer_.hide_vdso(e.process); !hidden && hidden.error().err != ESRCH) {
      timeline_.notes.push_back("the vDSO of process " + std::to_string(e.process) +
                                " was not hidden: " + sys::to_string(hidden.error()));
    }
  }
  // What it has now is inherited.
  if (options_.keep_all) take(e.process, Moment::kStart, SnapshotDepth::kThorough);
  (void)tracer_.resume(e.process);
}

void Live::on(const sys::Exiting& e) {
  // A process that ends inside execve may have lost its memory already.
  const bool in_exec = in_exec_.contains(e.tid);
  // Not an ordinary sample: a destructor may have freed what is still in the slot.
  if (options_.keep_all && !e.whole_process) look_at_exit(e);
  threads_.erase(e.tid);
  awaited_.erase(e.tid);
  not_running(e.process, e.tid);
  look_at_filters(e.process, e.tid);
  end_steps(e.process, e.tid, "the thread ended");
  if (e.whole_process) {
    interrupted_.erase(e.process);
    if (!in_exec) {
      look_at_modules(e.process);
      look_before_handover(e.process, e.tid);
      take(e.process, Moment::kExit, SnapshotDepth::kThorough);
    }
  }
  in_exec_.erase(e.tid);
  go_on(e.process, e.tid);
}

void Live::on(const sys::SignalStop& e) {
  constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  const bool fault = std::ranges::find(kFaults, e.signo) != kFaults.end();
  const auto it = alive_.find(e.process);
  // While it is traced, the kernel drops a signal that would end process 1 of a namespace: the
  // process would repeat its fault for ever.
  if (fault && it != alive_.end() && it->second.process.own_pid == 1 &&
      sys::has_default_action(e.tid, e.signo).value_or(false)) {
    it->second.process.killed_by = e.signo;
    kill(e.process, SIGKILL);
  }
  go_on(e.process, e.tid, e.signo);
}

void Live::on(const sys::Interrupted& e) {
  look_at_stopped_thread(e.process, e.tid);
  awaited_.erase(e.tid);
  not_running(e.process, e.tid);
  if (ImageRecorder* const i = image(e.process)) {
    for (const auto& instrument : i->instruments()) instrument->interrupted(e.tid);
  }
  // This stop comes before the trap of a store that the thread has just made.
  settle(e.process, e.tid, /*hit_may_wait=*/true);
  move(e.process, e.tid);
}

// It stops before it runs again: what it waits for may be sent now.
void Live::step_from_gate(pid_t pid, pid_t tid) {
  const auto thread = threads_.find(tid);
  if (!stepping_ || thread == threads_.end() || thread->second.process != pid) return;
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  for (const auto& instrument : i->instruments()) {
    if (instrument->will_pass_gate(tid)) (void)tracer_.interrupt(tid);
  }
}

void Live::on(const sys::Stepped& e) {
  ImageRecorder* const i = image(e.process);
  if (i == nullptr) return go_on(e.process, e.tid);
  const StoppedAt at = stopped_at(e.process, e.tid);
  bool is_store = false;
  for (const auto& instrument : i->instruments()) is_store = instrument->stepped(e, at) || is_store;
  if (is_store) return on(sys::WatchpointHit{e.tid, e.process, e.words, e.pc});
  if (arm(e.process, e.tid)) return;
  go_on(e.process, e.tid);
}

void Live::tell_of_stepping(Clock::time_point now) {
  std::uint64_t steps = 0;
  for (const auto& [pid, w] : alive_) {
    if (!w.image) continue;
    for (const auto& i : w.image->instruments()) steps = std::max(steps, i->steps_under_way());
  }
  if (steps < trace_steps_ || trace_steps_ == 0) {  // another step trace, or none
    trace_begun_ = now;
  } else if (now - trace_told_ < SnapshotPace::kTick) {
    return;
  }
  if (steps == 0 && trace_steps_ == 0) return;
  trace_told_ = now;
  trace_steps_ = steps;
  options_.stepping(steps, std::chrono::duration<double>(now - trace_begun_).count());
}

void Live::on(const sys::WatchpointHit& e) {
  ImageRecorder* const i = image(e.process);
  const auto thread = threads_.find(e.tid);
  if (i == nullptr || thread == threads_.end()) return go_on(e.process, e.tid);
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

void Live::on(const sys::Gone& e) {
  interrupted_.erase(e.process);
  std::erase_if(in_exec_, [&](const auto& in) { return in.second == e.process; });
  std::erase_if(unmarking_, [&](pid_t tid) {
    const auto thread = threads_.find(tid);
    return thread == threads_.end() || thread->second.process == e.process;
  });
  std::erase_if(threads_, [&](const auto& t) { return t.second.process == e.process; });
  std::erase_if(awaited_, [&](pid_t tid) { return !threads_.contains(tid); });
  const auto it = alive_.find(e.process);
  if (it == alive_.end()) return;
  Watched& w = it->second;
  w.process.exit_code = e.exit_code;
  const auto fault = std::exchange(w.process.killed_by, e.killed_by);
  if (fault && e.killed_by == SIGKILL) w.process.killed_by = fault;
  w.process.ended_by_us =
      held_up_.contains(e.process) ||
      (ending_ && (e.killed_by == SIGTERM || e.killed_by == SIGKILL)) ||
      // Ctrl-C goes to the whole foreground group; the user meant ctxconf.
      (tracer_.interrupted() &&
       (e.killed_by == SIGINT || e.killed_by == SIGTERM || e.killed_by == SIGHUP));
  finish(w, e.exit_code ? "exited " + std::to_string(*e.exit_code)
                        : "killed by signal " + std::to_string(e.killed_by.value_or(0)));
  alive_.erase(it);
}

void Live::begin() {
  // Its first image begins with its Execed event; until then it is our trampoline.
  add(tracer_.root(), getpid(), /*shares_memory=*/true);
  threads_[tracer_.root()].process = tracer_.root();
}

// Handles one event, or what is due until then. False when nothing is left.
sys::Result<bool> Live::step(Clock::time_point until) {
  auto wake = std::min(next_tick_, until);
  if (const auto due = registers_.due()) wake = std::min(wake, *due);
  const auto asked = Clock::now();
  if (stepped_) stood_still_for(asked - *std::exchange(stepped_, std::nullopt));
  const auto awake_by = std::max(wake, asked);
  auto event = tracer_.next(wake);
  const auto woke = Clock::now();
  const bool stepped = event && *event && std::holds_alternative<sys::Stepped>(**event);
  if (stepped) {
    stood_still_for(woke - asked);
    stepped_ = woke;
  }
  if (const auto late = stopped_.woke(awake_by, woke); late > Clock::duration::zero()) {
    move_times(late);
  }
  if (!event) {
    if (event.error().err == ECHILD) return false;
    return std::unexpected(std::move(event).error());
  }
  idle_ = !*event;
  if (*event) std::visit([this](const auto& e) { on(e); }, **event);
  registers_.give_up(Clock::now());
  if (tracer_.tasks() > options_.max_tasks || alive_.size() > options_.max_alive ||
      started_ > options_.max_processes) {
    runaway_ = "started " + std::to_string(started_) + " processes, " +
               std::to_string(tracer_.tasks()) + " threads alive at once";
  }
  if (options_.stepping) tell_of_stepping(woke);
  // After a single-step, reuse the time instead of reading the clock again.
  if (const auto from = stepped ? woke : Clock::now(); from >= next_tick_) {
    tick();
    const auto now = Clock::now();
    next_tick_ = now + pace_.wait_after(now - from);
    if (options_.progress) {
      options_.progress(std::chrono::duration<double>(from - begin_).count(), alive_.size(),
                        contexts_);
    }
  }
  return true;
}

void Live::last_look() {
  for (const auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    catch_up(pid, pid);
    take(pid, Moment::kEnd, SnapshotDepth::kThorough);
  }
}

std::optional<ImageKey> Live::image_of(pid_t pid) const {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.image) return std::nullopt;
  return it->second.image->image().key;
}

void Live::watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline) {
  ImageRecorder* const i = image(pid);
  if (i == nullptr) return;
  const auto thread = threads_.find(owner);
  const bool known = thread != threads_.end() && thread->second.process == pid;
  for (const auto& instrument : i->instruments()) {
    const auto rewatched = instrument->select(owner, known ? thread->second.pointer : std::nullopt);
    if (rewatched == Rewatched::kNobody) continue;
    // The image may end meanwhile.
    return await_watches(*i, *instrument, rewatched == Rewatched::kThread ? owner : 0, deadline);
  }
}

// Waits until the thread, or each thread of the image if it is 0, has the words of watched().
void Live::await_watches(const ImageRecorder& of, Instrument& instrument, pid_t only,
                         Clock::time_point deadline) {
  const ImageKey key = of.image().key;
  const auto missing = [&] {
    std::vector<pid_t> out;
    for (const auto& [tid, thread] : threads_) {
      if (thread.process != key.pid || (only != 0 && tid != only)) continue;
      if (thread.watches != instrument.watched(tid)) out.push_back(tid);
    }
    return out;
  };
  for (const pid_t tid : missing()) (void)tracer_.interrupt(tid);
  const auto has_ended = [&] { return image_of(key.pid) != key; };
  const auto is_done = [&] { return has_ended() || missing().empty(); };
  if (step_until(deadline, is_done) && !has_ended()) instrument.selected(missing());
}

std::vector<ImageView> Live::look(SnapshotDepth depth, Clock::time_point deadline) {
  looked_.clear();
  awaited_.clear();
  for (const auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (!w.image || !w.image->threads().wants_threads()) continue;
    for (const auto& [tid, thread] : threads_) {
      if (thread.process != pid) continue;
      if (thread.pointer) {
        if (auto views = w.image->threads().sample_if_asleep(tid, *thread.pointer)) {
          looked_[pid][tid] = std::move(*views);
          continue;
        }
      }
      if (tracer_.interrupt(tid)) awaited_.insert(tid);
    }
  }
  (void)step_until(deadline, [&] { return awaited_.empty(); });
  std::vector<ImageView> out;
  std::vector<pid_t> pids;
  for (const auto& [pid, w] : alive_) {
    if (w.image) pids.push_back(pid);
  }
  for (const pid_t pid : pids) {
    auto& view = out.emplace_back();
    view.snapshot = take(pid, Moment::kOperation, depth);
    const Watched& w = alive_.at(pid);
    view.image = w.image->image().key;
    view.order = w.image->order().last();
    for (auto& [tid, views] : looked_[pid]) {
      view.threads.insert(view.threads.end(), views.begin(), views.end());
    }
    for (const pid_t tid : awaited_) {
      const auto thread = threads_.find(tid);
      if (thread != threads_.end() && thread->second.process == pid) view.unseen.push_back(tid);
    }
  }
  looked_.clear();
  awaited_.clear();
  return out;
}

sys::Result<> Live::finish() {
  timeline_.stops += tracer_.stops();
  const auto released = paused_ ? tracer_.release(paused_->first) : sys::Result<>();
  // The recording is valid even if something could not be ended.
  auto ended = tracer_.end();
  if (paused_ && released && options_.paused) options_.paused(paused_->first, paused_->second);
  if (ended && !released) ended = released;
  for (auto& [pid, w] : alive_) {
    w.process.killed_by = SIGKILL;
    w.process.ended_by_us = true;
    finish(w, "killed by ctxconf at the end of the observation");
  }
  if (not_judged_ > 0 && timeline_.incomplete.empty()) {
    timeline_.incomplete = std::to_string(not_judged_) +
                           " more processes had a context and were not judged: at most " +
                           std::to_string(options_.max_recorded) + " are";
  }
  if (not_kept_ > 0) {
    timeline_.notes.push_back(std::to_string(not_kept_) + " more processes ran and are not listed" +
                              (not_judged_ == 0 ? ""
                                                : ", of which " + std::to_string(not_judged_) +
                                                      " had a context and were not judged"));
  }
  std::ranges::sort(done_, {}, [this](const Process& p) {
    return std::pair(p.pid == tracer_.root() ? 0 : 1, p.pid);
  });
  for (auto& problem : code_files_.name_locations(done_)) {
    timeline_.notes.push_back(std::move(problem));
  }
  for (auto& p : done_) timeline_.processes.push_back(std::move(p));
  return ended;
}

}  // namespace

struct Recording::State {
  State(const WrapOptions& o, Timeline& timeline, sys::Tracer tracer)
      : options(o), live(options, timeline, std::move(tracer)), dog(watchdog(options)) {}

  WrapOptions options;
  Live live;
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
  state->live.begin();
  return Recording(std::move(state));
}

pid_t Recording::root() const { return state_->live.tracer().root(); }
sys::Result<bool> Recording::step(Clock::time_point until) { return state_->live.step(until); }
bool Recording::was_idle() const { return state_->live.was_idle(); }
bool Recording::has_single_stepped() const { return state_->live.has_single_stepped(); }
bool Recording::interrupted() const {
  return state_->live.tracer().interrupted() || state_->live.is_paused();
}
bool Recording::paused() const { return state_->live.is_paused(); }
const std::string& Recording::runaway() const { return state_->live.runaway(); }
Clock::time_point Recording::begun() const { return state_->live.begun(); }
std::optional<Clock::time_point> Recording::published() const { return state_->live.published(); }
Clock::duration Recording::late() const { return state_->live.late(); }
void Recording::begin_wait() { state_->live.begin_wait(); }
void Recording::inject(bool on) { state_->live.set_injecting(on); }
void Recording::probe_forks(bool on) { state_->live.set_probing(on); }
std::optional<pid_t> Recording::process_of(std::int64_t number) const {
  return state_->live.process_of(number);
}
void Recording::step_changes(bool on) { state_->live.set_stepping(on); }
void Recording::step_from_gate(pid_t pid, pid_t tid) { state_->live.step_from_gate(pid, tid); }
bool Recording::is_held_up(pid_t pid) const { return state_->live.is_held_up(pid); }
void Recording::begin_race(pid_t pid) {
  if (ImageRecorder* const image = state_->live.image(pid)) state_->live.race().begin(*image);
}
void Recording::end_race() { state_->live.race().end(); }
void Recording::begins_to_publish(pid_t pid, pid_t tid) {
  state_->live.begins_to_publish(pid, tid);
}
void Recording::look_around(Clock::time_point deadline) { state_->live.look_around(deadline); }
std::size_t Recording::threads() const { return state_->live.threads(); }
void Recording::last_look() { state_->live.last_look(); }
void Recording::terminate(bool politely) {
  state_->live.set_ending();
  if (politely) state_->live.tracer().signal_all(SIGTERM);
}
sys::Result<> Recording::wake_for(int fd, short events) {
  return state_->live.tracer().wake_for(fd, events);
}
std::optional<ImageKey> Recording::image_of(pid_t pid) const { return state_->live.image_of(pid); }
std::vector<pid_t> Recording::processes() const { return state_->live.tracer().processes(); }
void Recording::watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline) {
  state_->live.watch_thread(pid, owner, deadline);
}
std::vector<ImageView> Recording::look(SnapshotDepth depth, Clock::time_point deadline) {
  return state_->live.look(depth, deadline);
}
sys::Result<> Recording::finish() { return state_->live.finish(); }

}  // namespace ctxconf::conformance
