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

#include "abi/process_header.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/known_files.h"
#include "conformance/observe/look_pace.h"
#include "conformance/observe/race.h"
#include "conformance/observe/record_stores.h"
#include "conformance/observe/slot_steps.h"
#include "conformance/observe/steps.h"
#include "conformance/observe/stopped_time.h"
#include "conformance/observe/stores.h"
#include "conformance/observe/threads.h"
#include "sys/access_watchdog.h"
#include "sys/process.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A thread that does not stop for so long sleeps where nothing wakes it. It stops before it runs
// again, but then the others have gone on.
constexpr milliseconds kArming{2000};
// All copies of an image together: those of a large process take long.
constexpr milliseconds kProbing{2000};
// The turn of a thread whose slot is watched: one tick, or more as long as it stores.
constexpr int kTurnTicks = 3;
constexpr std::size_t kTurnWalks = 4;
// Its instructions: a share of those that are left, within these bounds.
constexpr std::uint64_t kTurnSteps = 10'000;
constexpr std::uint64_t kLeastTurnSteps = 2000;
// So many are for threads that had no turn yet, which may begin late.
constexpr std::uint64_t kKeptSteps = 50'000;
constexpr std::size_t kSteppedImages = 16;
// All walks together. Where more threads run than there are processors, one that is stepped waits
// for its own at each instruction.
constexpr milliseconds kWalking{30000};

// A thread pointer that the program sets by hand: glibc does for the first thread of an
// image, all others get theirs from clone.
std::optional<sys::RemoteAddr> thread_pointer_of(const sys::SyscallEntry& e) {
#if defined(__x86_64__)
  if (e.nr == SYS_arch_prctl) return sys::RemoteAddr(e.args[1]);
#endif
  (void)e;
  return std::nullopt;
}

// That a reader would accept, in the last state that was seen.
std::optional<sys::RemoteAddr> header_in(const Image& image) {
  if (image.snapshots.empty()) return std::nullopt;
  for (const Candidate& c : image.snapshots.back().candidates) {
    if (!c.named || c.memory.empty()) continue;
    const auto h = abi::decode_process_header(c.memory.front().bytes);
    if (h && abi::is_valid(*h)) return c.memory.front().at;
  }
  return std::nullopt;
}

// All threads of a process are to carry the watchpoints before one of them goes on.
struct Arming {
  pid_t caller = 0;  // made the call that showed the mapping, and stands behind it
  sys::RemoteAddr header;
  std::set<pid_t> missing;
  std::set<pid_t> stuck;  // nobody waits for these
  Clock::time_point give_up;
};

// Which thread's slot is watched, with options.picks_slots.
struct SlotTurn {
  bool begun = false;   // a thread of this image was chosen
  pid_t last = 0;       // was chosen last, whether it could be watched or not
  pid_t next = 0;       // is to be watched when it stops; 0: none
  int ticks = 0;        // since the last choice
  std::set<pid_t> had;  // threads that were watched
};

struct Watched {
  Process process;
  std::unique_ptr<SnapshotRecorder> recorder;
  std::unique_ptr<ThreadRecorder> threads;       // beside each recorder
  std::unique_ptr<CallRecorder> calls;           // the same
  std::unique_ptr<StoreRecorder> stores;         // the same, where they are asked for
  std::unique_ptr<StepRecorder> steps;           // beside `stores`, where they are asked for
  std::unique_ptr<RecordStoreRecorder> records;  // the same
  std::unique_ptr<SlotStepRecorder> slot_steps;  // the same
  std::vector<Race> races;                       // of its image
  std::string races_unseen;
  std::vector<ForkProbe> forks;       // of its image
  std::string forks_unseen;           // the same
  Clock::duration probed{};           // the same: time spent on them
  std::shared_ptr<EventOrder> order;  // of its image
  std::optional<Arming> arming;
  std::set<pid_t> stuck;               // threads that did not stop for an arming, nor since
  bool watches = false;                // a thread may carry watchpoints
  SlotTurn turn;                       // of its image, with options.picks_slots
  std::unique_ptr<Injector> injector;  // the same
  std::uint32_t next_image = 0;
  bool shares_memory = false;  // a vfork child sees its parent's memory until it execs
};

struct WatchedThread {
  pid_t process = 0;
  std::optional<sys::RemoteAddr> pointer;         // its TLS, once it is known
  std::optional<sys::RemoteAddr> watches;         // the header that it has watchpoints on
  std::optional<sys::WatchedWords> slot_watches;  // beside a SlotStepRecorder: the same
};

class Live {
 public:
  Live(const WrapOptions& options, Timeline& timeline, sys::Tracee tracee)
      : options_(options), timeline_(timeline), tracee_(std::move(tracee)) {}

  void begin();
  sys::Result<bool> step(Clock::time_point wake);
  void last_look();
  sys::Result<> finish();
  std::vector<ImageView> look(Look look, Clock::time_point deadline);
  void look_around(Clock::time_point deadline) {
    tick();
    (void)step_until(deadline, [&] { return interrupted_.empty(); });
  }
  std::size_t threads() const { return threads_.size(); }
  bool is_paused() const { return paused_.has_value(); }
  bool was_idle() const { return idle_; }
  bool may_wait() const { return runaway_.empty() && !tracee_.interrupted() && !is_paused(); }

  sys::Tracee& tracee() { return tracee_; }
  const std::string& runaway() const { return runaway_; }
  Clock::time_point begun() const { return begin_; }
  std::optional<Clock::time_point> published() const { return published_; }
  Clock::duration late() const { return stopped_.in_all() + walked_; }
  void begin_wait() { stopped_.begin_wait(); }
  void set_ending() { ending_ = true; }
  void set_injecting(bool on) { injecting_ = on; }
  void set_probing(bool on) { probing_ = on; }
  std::optional<pid_t> process_of(std::int64_t number) const;
  void set_stepping(bool on) {
    stepping_ = on;
    gated_ = 0;
    if (on) return;
    for (const auto& [pid, w] : alive_) {
      if (w.steps) w.steps->end_now("the operation was answered");
      if (w.slot_steps) w.slot_steps->end("over");
    }
  }
  // One event after the other, until there is nothing to wait for, or nothing left: then it is
  // false. Time that threads stood still for us is not the deadline's.
  template <class Condition>
  bool step_until(Clock::time_point deadline, Condition is_done) {
    const auto late_before = late();
    while (!is_done() && Clock::now() < deadline + (late() - late_before) && may_wait()) {
      const auto stepped = step(deadline + (late() - late_before));
      if (!stepped || !*stepped) return false;
    }
    return true;
  }
  void watch_slot(pid_t pid, pid_t owner, Clock::time_point deadline);
  void step_from_gate(pid_t pid, pid_t tid);
  void begins_to_publish(pid_t pid, pid_t tid) {
    const auto it = alive_.find(pid);
    if (it != alive_.end() && it->second.calls) it->second.calls->begins_to_publish(tid);
  }
  std::optional<ImageKey> image_of(pid_t pid) const;
  bool is_held_up(pid_t pid) const { return held_up_.contains(pid); }
  void begin_race(pid_t pid);
  void end_race();
  void end_race(Watched& w);
  void watch_record(pid_t pid, pid_t owner, Clock::time_point deadline);

 private:
  void add(pid_t pid, pid_t parent, bool shares_memory);
  void start_image(Watched& w);
  void end_image(Watched& w, const std::string& ending);
  std::optional<std::uint64_t> take(pid_t pid, Moment moment, Look look);
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
  StoreRecorder* stores_of(pid_t pid);
  void look_at_header(pid_t pid, pid_t tid);
  bool is_alone(pid_t pid, pid_t tid) const;
  void set_watchpoints(Watched& w, pid_t tid);
  bool arm(Watched& w, pid_t caller);
  void finish_arming(Watched& w);
  void give_up_arming();
  void disarm(Watched& w);
  void settle(pid_t pid, pid_t tid, bool hit_may_wait = false);
  void go_on(pid_t pid, pid_t tid, int signo = 0);
  void move(pid_t pid, pid_t tid, int signo = 0);
  void end_walk(pid_t pid, pid_t tid, const std::string& because);
  bool is_to_pause(pid_t pid) const;
  void look_at_store(Watched& w, const sys::WatchpointHit& e);
  bool may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) const;
  std::optional<sys::RemoteAddr> slot_in(const Watched& w, pid_t tid) const;
  void choose_slot(Watched& w);
  static std::uint64_t steps_for(const Watched& w, bool had_a_turn);
  std::uint64_t steps_for_turn(const Watched& w, pid_t tid) const;
  void watch_slot_here(Watched& w, pid_t tid);
  void begin_slot_walk(SlotStepRecorder& slot_steps, const sys::WatchpointHit& e);
  void begin_at_gate(const sys::Interrupted& e);
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

  // What has a deadline gains this.
  void move_times(Clock::duration time) {
    begin_ += time;
    if (published_) *published_ += time;
    for (const pid_t pid : arming_) {
      const auto w = alive_.find(pid);
      if (w != alive_.end() && w->second.arming) w->second.arming->give_up += time;
    }
  }
  void tell_of_walk(Clock::time_point now);
  // Or nearly: what the program shows in the middle of a change is not looked at more often for it.
  void stood_still_for(Clock::duration time) {
    walked_ += time;
    move_times(time);
    if (options_.looks_by_itself) next_tick_ += time;
  }
  Clock::duration scaled(milliseconds d) const {
    return std::chrono::duration_cast<Clock::duration>(d * options_.timeout_scale);
  }

  const WrapOptions& options_;
  Timeline& timeline_;
  sys::Tracee tracee_;
  std::map<pid_t, Watched> alive_;
  std::set<pid_t> naming_;     // threads in a call that gives a context its name
  std::set<pid_t> unmarking_;  // threads in madvise(..., MADV_DOFORK)
  // Threads in execve, and their processes. Somewhere in that call the memory becomes that of the
  // next image: until it is known which image is there, nobody looks.
  std::map<pid_t, pid_t> in_exec_;
  std::map<pid_t, WatchedThread> threads_;
  std::map<pid_t, std::set<pid_t>> interrupted_;  // threads of a process that are to stop
  std::shared_ptr<KnownFiles> known_files_ =
      options_.known_files ? options_.known_files : std::make_shared<KnownFiles>();
  std::vector<Process> done_;
  CodeFiles code_files_{{}, &known_files_->places};
  std::shared_ptr<CopyBudget> copies_ = std::make_shared<CopyBudget>();
  std::set<pid_t> arming_;           // processes with an `arming`
  std::optional<unsigned> filters_;  // seccomp filters at the program's first instruction
  std::size_t started_ = 0;
  std::size_t stepped_images_ = 0;  // with options_.picks_slots: of which a thread was chosen
  std::size_t not_kept_ = 0;
  std::size_t not_judged_ = 0;  // of these, with a context
  std::size_t contexts_ = 0;
  std::uint64_t stored_ = 0;  // bytes of memory in the images that have ended
  bool ending_ = false;
  bool injecting_ = options_.inject_at_once;
  bool probing_ = false;
  bool stepping_ = options_.steps_at_once;
  pid_t gated_ = 0;  // not 0: a thread whose next stop is where a walk from a gate begins
  bool idle_ = true;
  std::string runaway_;
  std::optional<std::pair<pid_t, pid_t>> paused_;  // process and thread
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_tick_ =
      options_.looks_by_itself ? begin_ + LookPace::kTick : Clock::time_point::max();
  LookPace pace_;
  StoppedTime stopped_;
  Clock::duration walked_{};  // in steps of single instructions, and in forks of ours
  std::optional<Clock::time_point> stepped_;  // the last event was that of a step, which came then
  // Of the walk that options_.walked was told of last: 0: it is over, or there was none.
  std::uint64_t walk_steps_ = 0;
  Clock::time_point walk_begun_;
  Clock::time_point walk_told_;
  // Threads of a look that are still to stop for it, and what was seen of the others.
  std::map<pid_t, std::map<pid_t, std::vector<ThreadView>>> looked_;
  std::set<pid_t> awaited_;
  std::optional<Clock::time_point> published_;
  std::set<pid_t> held_up_;  // ended by us, since a fork in it did not come to an end
  std::unique_ptr<RacingReader> racer_;
  ImageKey raced_;  // whose context it reads
  Clock::time_point race_begun_;
};

void Live::start_image(Watched& w) {
  // What all images may store together is shared out among those that run.
  SnapshotLimits limits = options_.limits;
  limits.descriptors_always = options_.keep_all || !options_.injections.empty();
  const auto left = options_.max_stored - std::min(options_.max_stored, stored_);
  limits.image_bytes =
      std::min(limits.image_bytes,
               std::max<std::uint64_t>(left / (alive_.size() + 1), std::uint64_t{64} << 10U));
  w.recorder = std::make_unique<SnapshotRecorder>(
      ImageKey{w.process.pid, w.next_image++, options_.session}, limits);
  w.threads = std::make_unique<ThreadRecorder>(w.process.pid, known_files_->modules, *w.recorder);
  CallLimits call_limits;
  call_limits.bytes = std::min(call_limits.bytes, limits.image_bytes / 2);
  if (!filters_ && !options_.no_filter) {
    if (const auto count = sys::seccomp_filters(w.process.pid)) filters_ = *count;
  }
  const auto order = w.order = std::make_shared<EventOrder>();
  w.calls = std::make_unique<CallRecorder>(filters_, order, call_limits);
  if (options_.stores) {
    StoreLimits store_limits;
    store_limits.bytes = std::min(store_limits.bytes, limits.image_bytes / 4);
    w.stores = std::make_unique<StoreRecorder>(w.recorder->image().elf64, options_.watch_lifetime,
                                               order, copies_, code_files_, store_limits);
    if (options_.steps) {
      w.steps =
          std::make_unique<StepRecorder>(w.recorder->image().elf64, order, w.stores->places());
    }
  }
  if (options_.record_stores) {
    w.records = std::make_unique<RecordStoreRecorder>(order, code_files_);
  }
  if (options_.slot_steps) {
    w.slot_steps = std::make_unique<SlotStepRecorder>(order, code_files_);
  }
  w.injector = std::make_unique<Injector>(options_.injections);
}

void Live::end_image(Watched& w, const std::string& ending) {
  if (!w.recorder) return;
  end_race(w);
  stored_ += w.recorder->stored_bytes() + w.threads->stored_bytes() + w.calls->stored_bytes();
  Image image = std::move(*w.recorder).finish(ending);
  w.recorder.reset();
  // Snapshots without a candidate say only that nothing was there.
  const auto seen = [](const Snapshot& s) {
    return !s.candidates.empty() || !s.descriptors.empty();
  };
  const bool any = std::ranges::any_of(image.snapshots, seen);
  if (!any && !options_.keep_all) image.snapshots.clear();
  std::move(*w.threads).add_to(image);
  w.threads.reset();
  std::move(*w.calls).add_to(image, any);
  if (options_.no_filter) image.calls_unseen = options_.no_calls;
  w.calls.reset();
  if (w.steps) {
    std::move(*w.steps).add_to(image);
    w.steps.reset();
  }
  if (w.stores) {
    stored_ += w.stores->stored_bytes();
    std::move(*w.stores).add_to(image, any);
    w.stores.reset();
  } else {
    image.stores_unseen = options_.no_stores;
  }
  if (w.records) {
    std::move(*w.records).add_to(image);
    w.records.reset();
  }
  if (w.slot_steps) {
    std::move(*w.slot_steps).add_to(image);
    w.slot_steps.reset();
    w.turn = {};
    if (options_.picks_slots && image.slot_walks.empty() && image.slot_walks_unseen.empty()) {
      image.slot_walks_unseen = "no thread stored to its variable or record while it was watched";
    }
  }
  if (!options_.slot_steps) image.slot_walks_unseen = options_.no_slot_steps;
  image.races = std::exchange(w.races, {});
  image.races_unseen = std::exchange(w.races_unseen, {});
  image.forks = std::exchange(w.forks, {});
  image.forks_unseen = std::exchange(w.forks_unseen, {});
  w.probed = {};
  w.injector.reset();
  w.process.images.push_back(std::move(image));
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

std::optional<std::uint64_t> Live::take(pid_t pid, Moment moment, Look look) {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.recorder) return std::nullopt;
  // At all other moments a thread stands still that an exec would have ended.
  const bool any_time =
      moment == Moment::kPeriodic || moment == Moment::kOperation || moment == Moment::kEnd;
  if (any_time && is_in_exec(pid)) return std::nullopt;
  SnapshotRecorder& r = *it->second.recorder;
  const auto before = r.last_publication_ns();
  const auto state = r.take(moment, look);
  if (r.last_publication_ns() != before) {
    published_ = Clock::now();
    ++contexts_;
  }
  return state;
}

void Live::tick() {
  // Threads first: the key map that is seen after a record must name its indexes. Where some
  // run, the last one that stops for it brings the snapshot.
  const auto late = std::exchange(interrupted_, {});
  for (const auto& [pid, tids] : late) take(pid, Moment::kPeriodic, Look::kQuick);
  for (auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (w.threads && w.threads->wants_threads()) {
      look_at_threads(w);
      choose_slot(w);
    }
    if (!interrupted_.contains(pid)) take(pid, Moment::kPeriodic, Look::kQuick);
  }
}

void Live::not_running(pid_t pid, pid_t tid) {
  const auto it = interrupted_.find(pid);
  if (it == interrupted_.end()) return;
  it->second.erase(tid);
  if (!it->second.empty()) return;
  interrupted_.erase(it);
  take(pid, Moment::kPeriodic, Look::kQuick);
}

void Live::look_at_modules(pid_t pid) {
  const auto it = alive_.find(pid);
  if (it != alive_.end() && it->second.threads) it->second.threads->look_at_modules();
}

// A thread that sleeps is read where it sleeps; one that runs is stopped for it, which is
// an Interrupted soon.
void Live::look_at_threads(const Watched& w) {
  const pid_t pid = w.process.pid;
  for (const auto& [tid, thread] : threads_) {
    if (thread.process != pid) continue;
    // It has been seen more closely, and moments that are nothing elsewhere last long in a walk.
    if (w.slot_steps && w.slot_steps->is_walking(tid)) continue;
    if (thread.pointer && w.threads->sample_if_asleep(tid, *thread.pointer)) continue;
    if (tracee_.interrupt(tid)) interrupted_[pid].insert(tid);
  }
}

void Live::look_at_stopped_thread(pid_t pid, pid_t tid) {
  const auto process = alive_.find(pid);
  const auto thread = threads_.find(tid);
  if (process == alive_.end() || thread == threads_.end() || !process->second.threads) return;
  if (!process->second.threads->wants_threads()) return;
  if (const auto pointer = tracee_.thread_pointer(tid)) {
    if (pointer->raw() == 0) return;  // too early
    thread->second.pointer = *pointer;
    auto views = process->second.threads->sample(tid, *pointer);
    if (awaited_.contains(tid)) looked_[pid][tid] = std::move(views);
  } else if (pointer.error().err != ESRCH) {
    process->second.threads->unread(sys::to_string(pointer.error()));
  }
}

// Its variable, where it has one.
std::optional<sys::RemoteAddr> Live::slot_in(const Watched& w, pid_t tid) const {
  const auto thread = threads_.find(tid);
  if (thread == threads_.end() || thread->second.process != w.process.pid) return std::nullopt;
  if (!thread->second.pointer || !w.threads || !w.threads->wants_threads()) return std::nullopt;
  const auto used = w.threads->slot_of(tid);
  return used ? std::optional(used->at) : w.threads->variable_of(tid, *thread->second.pointer);
}

// One thread after the other has its turn, in the order of their numbers. The next one is counted
// from the last that was chosen, not from the one that is watched: the one that was chosen may have
// ended before it stopped, or never stop.
void Live::choose_slot(Watched& w) {
  if (!options_.picks_slots || !w.slot_steps || w.slot_steps->gave_up()) return;
  SlotStepRecorder& slot_steps = *w.slot_steps;
  const pid_t now = slot_steps.watched_thread();
  if (slot_steps.is_walking(now)) return;
  const bool awaits = w.turn.next != 0;
  const bool stores = now != 0 && slot_steps.walks_of_turn() > 0 && !slot_steps.turn_is_over();
  if ((awaits || stores) && ++w.turn.ticks < kTurnTicks) return;
  w.turn.ticks = 0;
  w.turn.next = 0;
  if (steps_for(w, /*had_a_turn=*/true) == 0) {
    slot_steps.unseen(
        "of later operations not every instruction was looked at: there were too many");
  }
  const auto may_be_next = [&](const auto& thread) {
    return steps_for(w, w.turn.had.contains(thread.first)) > 0 &&
           slot_in(w, thread.first).has_value();
  };
  auto next = std::find_if(threads_.upper_bound(w.turn.last), threads_.end(), may_be_next);
  if (next == threads_.end()) next = std::ranges::find_if(threads_, may_be_next);
  if (next == threads_.end()) return;
  w.turn.last = next->first;
  // Where it sleeps, its call would end for nothing.
  if (next->first == now && !slot_steps.turn_is_over()) return;
  if (tracee_.interrupt(next->first)) w.turn.next = next->first;
}

// Instructions that are left for threads which had a turn, or for those which had none; 0: not even
// for one turn.
std::uint64_t Live::steps_for(const Watched& w, bool had_a_turn) {
  const std::uint64_t left = w.slot_steps->steps_left();
  const std::uint64_t free = left - std::min(left, had_a_turn ? kKeptSteps : 0);
  return free < kLeastTurnSteps ? 0 : free;
}

// A share of these; 0: none.
std::uint64_t Live::steps_for_turn(const Watched& w, pid_t tid) const {
  const bool had = w.turn.had.contains(tid);
  const auto shares = std::ranges::count_if(threads_, [&](const auto& t) {
    return t.second.process == w.process.pid && (had || !w.turn.had.contains(t.first));
  });
  const std::uint64_t free = steps_for(w, had);
  if (free == 0) return 0;
  return std::clamp(free / static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(shares, 1)),
                    kLeastTurnSteps, kTurnSteps);
}

// The thread is stopped.
void Live::watch_slot_here(Watched& w, pid_t tid) {
  w.turn.next = 0;
  w.turn.ticks = 0;
  w.turn.last = tid;  // who publishes was not chosen
  SlotStepRecorder& slot_steps = *w.slot_steps;
  const pid_t before = slot_steps.watched_thread();
  if (slot_steps.gave_up() || slot_steps.is_walking(before)) return;
  const auto slot = slot_in(w, tid);
  if (!slot) return;
  const Image& image = w.recorder->image();
  if (!image.elf64) return slot_steps.give_up("the program is not a 64-bit one");
  if (!sys::has_default_action(tid, SIGTRAP).value_or(false)) {
    return slot_steps.give_up("the program has an action of its own for SIGTRAP");
  }
  if (!std::exchange(w.turn.begun, true) && ++stepped_images_ > kSteppedImages) {
    return slot_steps.give_up("there were too many processes");
  }
  const std::uint64_t steps = steps_for_turn(w, tid);
  if (steps == 0) return;
  w.turn.had.insert(tid);
  slot_steps.watch(tid, *slot, header_in(image), {.steps = steps, .walks = kTurnWalks});
  if (before != 0 && before != tid) (void)tracee_.interrupt(before);
}

void Live::look_at_exit(const sys::Exiting& e) {
  const auto process = alive_.find(e.process);
  if (process == alive_.end() || !process->second.threads) return;
  if (!process->second.threads->wants_threads()) return;
  const auto pointer = tracee_.thread_pointer(e.tid);
  if (pointer && pointer->raw() != 0) process->second.threads->sample_at_exit(e.tid, *pointer);
}

bool Live::is_in_exec(pid_t pid) const {
  return std::ranges::any_of(in_exec_, [&](const auto& e) { return e.second == pid; });
}

void Live::look_at_filters(pid_t pid, pid_t tid) {
  const auto it = alive_.find(pid);
  if (it != alive_.end() && it->second.calls) it->second.calls->look_at_filters(tid);
}

bool Live::begin_call(const sys::SyscallEntry& e) {
  const auto it = alive_.find(e.process);
  if (it == alive_.end() || !it->second.calls) return false;
  naming_.erase(e.tid);
  auto call = it->second.calls->describe(e);
  if (!call) return false;
  if (it->second.stores) {
    it->second.stores->look(e.tid);
    it->second.stores->entered(*call);
  }
  if (e.nr == SYS_prctl && looks_like_the_name(call->text)) {
    call->snapshot = take(e.process, Moment::kNaming, Look::kQuick);
    naming_.insert(e.tid);
  }
  call->entered_ns = sys::boottime_now_ns();
  const auto answer = it->second.injector->entered(*call, injecting_);
  call->injected = answer && give(e, *answer);
  it->second.calls->entered(*std::move(call), e.short_time);
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
    if (!tracee_.write(e.tid, sys::RemoteAddr(e.args[1]), bytes)) result = -EFAULT;
  }
  if (const auto given = tracee_.answer(e.tid, result); !given) {
    timeline_.notes.push_back("a call was not answered: " + sys::to_string(given.error()));
    return false;
  }
  ++timeline_.injections[answer.spec].times;
  return true;
}

// The thread stands behind an event of its image.
void Live::probe_fork(pid_t pid, pid_t tid, std::string at) {
  if (!options_.forks || !probing_) return;
  Watched& w = alive_.at(pid);
  const auto unseen = [&](std::string why) {
    if (w.forks_unseen.empty()) w.forks_unseen = std::move(why);
  };
  if (pid != tracee_.root()) return unseen("it would have been another process's child");
  if (w.forks.size() >= kMaxForkProbes) return unseen("there were too many steps");
  if (w.probed > scaled(kProbing)) return unseen("to copy and to search this process takes long");
  // Its own filter may kill what clones.
  if (!filters_ || sys::seccomp_filters(tid).value_or(*filters_ + 1) != *filters_) {
    return unseen("the program has a system call filter of its own");
  }
  ForkProbe probe{.tid = tid, .order = w.order->last(), .at = std::move(at), .candidates = {}};
  const auto look = [&](pid_t copy) {
    SnapshotRecorder recorder(ImageKey{copy, 0, options_.session}, {});
    recorder.take(Moment::kPeriodic, Look::kThorough);
    Image image = std::move(recorder).finish("");
    if (image.snapshots.empty()) return;
    probe.candidates = std::move(image.snapshots.front().candidates);
  };
  const auto from = Clock::now();
  const auto made = tracee_.with_copy(tid, look);
  const auto took = Clock::now() - from;
  w.probed += took;
  stood_still_for(took);
  if (!made && made.error().err == ETIMEDOUT) {
    held_up_.insert(pid);
    return unseen("the kernel held up a fork that was made in it, so it was ended (userfaultfd?)");
  }
  if (!made) return unseen(sys::to_string(made.error()));
  for (Candidate& c : probe.candidates) {
    std::vector<MemoryBlock> head;
    for (MemoryBlock& b : c.memory) {
      if (b.at.raw() != c.entries.front().range.begin().raw() || !head.empty()) continue;
      if (b.bytes.size() > sizeof(abi::ProcessHeader)) b.bytes.resize(sizeof(abi::ProcessHeader));
      head.push_back(std::move(b));
    }
    c.memory = std::move(head);
  }
  w.forks.push_back(std::move(probe));
}

std::optional<pid_t> Live::process_of(std::int64_t number) const {
  for (const auto& [pid, w] : alive_) {
    if ((options_.pid_namespace ? w.process.own_pid : pid) == number && w.recorder) return pid;
  }
  return std::nullopt;
}

StoreRecorder* Live::stores_of(pid_t pid) {
  const auto it = alive_.find(pid);
  return it == alive_.end() ? nullptr : it->second.stores.get();
}

// `tid` stops for the last time before this memory is somebody else's alone: a vfork child's
// is its parent's.
void Live::look_at_header(pid_t pid, pid_t tid) {
  const auto it = alive_.find(pid);
  if (it == alive_.end()) return;
  auto* stores =
      it->second.shares_memory ? stores_of(it->second.process.parent) : it->second.stores.get();
  if (stores != nullptr) stores->look(tid);
}

// No other task runs in the memory of this thread.
bool Live::is_alone(pid_t pid, pid_t tid) const {
  return std::ranges::none_of(
             threads_, [&](const auto& t) { return t.second.process == pid && t.first != tid; }) &&
         std::ranges::none_of(alive_, [&](const auto& p) {
           return p.second.shares_memory && p.second.process.parent == pid;
         });
}

// `tid` is stopped: what its registers watch becomes what they are to watch.
void Live::set_watchpoints(Watched& w, pid_t tid) {
  const auto thread = threads_.find(tid);
  if (thread == threads_.end()) return;
  if (w.slot_steps) {
    const auto wanted = w.slot_steps->watched(tid);
    if (thread->second.slot_watches == wanted) return;
    const auto set = wanted ? tracee_.watch(tid, *wanted) : tracee_.unwatch(tid);
    if (set) thread->second.slot_watches = wanted;
    if (!set) w.slot_steps->give_up(sys::to_string(set.error()));
    return;
  }
  if (w.records) {
    const auto wanted = w.records->watched();
    if (thread->second.watches == wanted) return;
    const auto set = wanted ? tracee_.watch(tid, *wanted) : tracee_.unwatch(tid);
    if (set) thread->second.watches = wanted;
    return;
  }
  if (!w.stores) return;
  // A walk sees what it stores, and armed registers would cost it a tenth of its steps.
  const bool walks = w.steps && w.steps->is_walking(tid) && !w.steps->is_early();
  const auto wanted = walks ? std::nullopt : w.stores->header();
  if (thread->second.watches == wanted) return;
  if (const auto set = wanted ? tracee_.watch(tid, *wanted) : tracee_.unwatch(tid); !set) {
    w.stores->unseen(sys::to_string(set.error()));
    (void)tracee_.unwatch(tid);
    thread->second.watches.reset();
    return;
  }
  thread->second.watches = wanted;
}

// Threads whose registers watch in vain pay for it; they are told so at their next stop.
void Live::disarm(Watched& w) {
  for (const auto& [tid, thread] : threads_) {
    if (thread.process == w.process.pid && thread.watches) (void)tracee_.interrupt(tid);
  }
}

// Where there is a new header: true when the thread that showed it has to wait.
bool Live::arm(Watched& w, pid_t caller) {
  const auto header = w.stores->header();
  if (!header || w.stores->is_armed() || (w.arming && w.arming->header == header)) return false;
  if (w.arming) finish_arming(w);
  Arming arming;
  arming.caller = caller;
  arming.header = *header;
  for (const auto& [tid, thread] : threads_) {
    if (thread.process != w.process.pid || tid == caller) continue;
    if (thread.watches == arming.header || !tracee_.interrupt(tid)) continue;
    (w.stuck.contains(tid) ? arming.stuck : arming.missing).insert(tid);
  }
  arming.give_up = Clock::now() + scaled(kArming);
  set_watchpoints(w, caller);
  if (arming.missing.empty() || w.stores->header() != arming.header) {
    w.stores->armed(caller, {arming.stuck.begin(), arming.stuck.end()});
    return false;
  }
  w.arming = std::move(arming);
  arming_.insert(w.process.pid);
  return true;
}

void Live::finish_arming(Watched& w) {
  Arming arming = *std::exchange(w.arming, std::nullopt);
  arming_.erase(w.process.pid);
  arming.missing.merge(arming.stuck);
  if (w.stores->header() == arming.header) {
    w.stores->armed(arming.caller, {arming.missing.begin(), arming.missing.end()});
  }
  go_on(w.process.pid, arming.caller);
}

void Live::give_up_arming() {
  if (arming_.empty()) return;
  const auto now = Clock::now();
  for (const pid_t pid : std::set(arming_)) {
    const auto it = alive_.find(pid);
    if (it == alive_.end() || !it->second.arming) {
      arming_.erase(pid);
    } else if (now >= it->second.arming->give_up || tracee_.is_ending(it->second.arming->caller)) {
      it->second.stuck.merge(std::set(it->second.arming->missing));
      finish_arming(it->second);
    }
  }
}

// Before a stopped thread goes on: it gets the watchpoints that it is to have.
void Live::settle(pid_t pid, pid_t tid, bool hit_may_wait) {
  const auto it = alive_.find(pid);
  if (it == alive_.end()) return;
  if (!it->second.stores && !it->second.records && !it->second.slot_steps) return;
  Watched& w = it->second;
  set_watchpoints(w, tid);
  if (!w.stores) return;
  if (!threads_.contains(tid)) {
    w.stores->ended(tid);
  } else if (!hit_may_wait) {
    w.stores->resumed(tid);
  }
  const bool watches = w.stores->header().has_value();
  if (std::exchange(w.watches, watches) && !watches) disarm(w);
  w.stuck.erase(tid);
  if (!w.arming) return;
  w.arming->stuck.erase(tid);
  w.arming->missing.erase(tid);
  if (w.arming->missing.empty() || w.stores->header() != w.arming->header) finish_arming(w);
}

void Live::go_on(pid_t pid, pid_t tid, int signo) {
  settle(pid, tid);
  move(pid, tid, signo);
}

bool Live::is_to_pause(pid_t pid) const {
  const auto it = alive_.find(pid);
  if (!options_.pause_at || it == alive_.end() || !it->second.recorder) return false;
  const Image& image = it->second.recorder->image();
  return it->second.order->last() >= options_.pause_at->order &&
         image.key.image == options_.pause_at->image &&
         image.executable == options_.pause_at->executable;
}

// By an instruction where the thread is watched so closely, freely elsewhere.
void Live::move(pid_t pid, pid_t tid, int signo) {
  if (!paused_ && is_to_pause(pid)) paused_.emplace(pid, tid);
  if (paused_ && paused_->first == pid) return;
  if (signo == SIGTRAP) end_walk(pid, tid, "the program's own SIGTRAP");
  const auto it = alive_.find(pid);
  const bool walks =
      it != alive_.end() && ((it->second.steps && it->second.steps->is_walking(tid)) ||
                             (it->second.slot_steps && it->second.slot_steps->is_walking(tid)));
  (void)(walks ? tracee_.step(tid, signo) : tracee_.resume(tid, signo));
}

void Live::end_walk(pid_t pid, pid_t tid, const std::string& because) {
  const auto it = alive_.find(pid);
  if (it == alive_.end()) return;
  const Watched& w = it->second;
  if (w.steps && w.steps->is_walking(tid)) w.steps->end(because);
  if (w.slot_steps && w.slot_steps->is_walking(tid)) w.slot_steps->end(because);
}

void Live::finish(Watched& w, const std::string& ending) {
  end_image(w, ending);
  const bool evidence = std::ranges::any_of(w.process.images, [](const Image& i) {
    return !i.snapshots.empty() || !i.notes.empty() || !i.modules.empty() || !i.calls.empty() ||
           !i.stores.empty();
  });
  const bool root = w.process.pid == tracee_.root();
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

// What a forked process has before it runs was copied with it.
void Live::look_at_birth(const sys::NewTask& e, sys::RemoteAddr pointer) {
  const auto child = alive_.find(e.process);
  const auto maker = alive_.find(e.maker);
  if (child == alive_.end() || !child->second.threads) return;
  ThreadRecorder* parent = maker == alive_.end() ? nullptr : maker->second.threads.get();
  if (parent != nullptr) {
    parent->look_at_modules();
    if (parent->knows_modules() && !parent->wants_threads()) return;
    if (!parent->knows_modules()) parent = nullptr;  // it ended before it could be looked at
  }
  child->second.threads->look_at_birth(parent, pointer);
}

void Live::on(const sys::NewTask& e) {
  if (e.tid == e.process && !alive_.contains(e.process)) add(e.process, e.maker, e.shares_memory);
  if (const auto maker = alive_.find(e.maker); maker != alive_.end() && e.maker_tid != 0) {
    if (auto& calls = maker->second.calls) calls->made_process(e.maker_tid, e.how, e.tid);
  }
  auto& thread =
      threads_[e.tid] = {.process = e.process, .pointer = {}, .watches = {}, .slot_watches = {}};
  if (const auto pointer = tracee_.thread_pointer(e.tid); pointer && pointer->raw() != 0) {
    thread.pointer = *pointer;
    if (e.tid == e.process && !e.shares_memory) look_at_birth(e, *pointer);
  }
  go_on(e.process, e.tid);
}

bool Live::may_be_of_context(pid_t pid, std::uint64_t address, std::uint64_t size) const {
  const auto it = alive_.find(pid);
  return it != alive_.end() && it->second.calls &&
         it->second.calls->overlaps_context(address, size);
}

void Live::on(const sys::SyscallEntry& e) {
  const bool execs = e.nr == SYS_execve || e.nr == SYS_execveat;
  if (execs) {
    look_at_modules(e.process);
    look_at_stopped_thread(e.process, e.tid);
    look_at_filters(e.process, e.tid);
    take(e.process, Moment::kExecEntry, Look::kThorough);
    look_at_header(e.process, e.tid);
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
    (void)tracee_.resume_to_exit(e.tid);
  } else {
    move(e.process, e.tid);
  }
}

void Live::on(const sys::SyscallExit& e) {
  in_exec_.erase(e.tid);
  const auto it = alive_.find(e.process);
  StoreRecorder* const stores = stores_of(e.process);
  if (stores != nullptr) stores->look(e.tid);
  if (it != alive_.end() && it->second.calls) {
    const auto name = it->second.calls->left(e);
    if (!name.empty()) probe_fork(e.process, e.tid, "after " + name);
    const bool reading = name == "clock_gettime";
    it->second.injector->left(e.tid, e.result,
                              reading ? it->second.calls->last_reading(e.tid) : std::nullopt);
    if (naming_.erase(e.tid) > 0) {
      // A thread that publishes may attach next.
      const bool picks = options_.picks_slots && it->second.slot_steps &&
                         it->second.slot_steps->watched_thread() == 0;
      if (picks) look_at_modules(e.process);
      look_at_stopped_thread(e.process, e.tid);
      if (picks) watch_slot_here(it->second, e.tid);
      take(e.process, Moment::kNamed, Look::kQuick);
    }
    // Only VmFlags differ, which a quick look does not read again.
    if (unmarking_.erase(e.tid) > 0) take(e.process, Moment::kPeriodic, Look::kThorough);
  }
  if (stores != nullptr) {
    stores->left(e);
    if (arm(it->second, e.tid)) return;
  }
  go_on(e.process, e.tid);
}

void Live::on(const sys::Execed& e) {
  std::erase_if(in_exec_, [&](const auto& in) { return in.second == e.process; });
  if (const auto it = alive_.find(e.process); it != alive_.end()) {
    if (options_.no_filter && it->second.recorder) it->second.recorder->replaced_unseen();
    end_image(it->second, "replaced by exec");
    it->second.arming.reset();
    it->second.stuck.clear();
    it->second.watches = false;
    it->second.shares_memory = false;
    start_image(it->second);
  }
  std::erase_if(threads_, [&](const auto& t) { return t.second.process == e.process; });
  threads_[e.process] = {.process = e.process, .pointer = {}, .watches = {}, .slot_watches = {}};
  std::erase_if(awaited_, [&](pid_t tid) { return !threads_.contains(tid) || tid == e.process; });
  looked_.erase(e.process);
  interrupted_.erase(e.process);
  if (options_.hide_vdso) {
    if (const auto hidden = tracee_.hide_vdso(e.process); !hidden && hidden.error().err != ESRCH) {
      timeline_.notes.push_back("the vDSO of process " + std::to_string(e.process) +
                                " was not hidden: " + sys::to_string(hidden.error()));
    }
  }
  // What it has was left to it.
  if (options_.keep_all) take(e.process, Moment::kStart, Look::kThorough);
  (void)tracee_.resume(e.process);
}

void Live::on(const sys::Exiting& e) {
  // What ends inside of execve may have lost its memory already.
  const bool in_exec = in_exec_.contains(e.tid);
  // No sample like others: what a destructor has freed may still be in the slot.
  if (options_.keep_all && !e.whole_process) look_at_exit(e);
  threads_.erase(e.tid);
  awaited_.erase(e.tid);
  not_running(e.process, e.tid);
  look_at_filters(e.process, e.tid);
  end_walk(e.process, e.tid, "the thread ended");
  if (const auto it = alive_.find(e.process); it != alive_.end() && it->second.slot_steps) {
    if (it->second.slot_steps->watched_thread() == e.tid) it->second.slot_steps->forget();
    if (it->second.turn.next == e.tid) it->second.turn.next = 0;
  }
  if (e.whole_process) {
    interrupted_.erase(e.process);
    if (!in_exec) {
      look_at_modules(e.process);
      look_at_header(e.process, e.tid);
      take(e.process, Moment::kExit, Look::kThorough);
    }
  }
  in_exec_.erase(e.tid);
  go_on(e.process, e.tid);
}

void Live::on(const sys::SignalStop& e) {
  constexpr std::array kFaults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  const bool fault = std::ranges::find(kFaults, e.signo) != kFaults.end();
  const auto it = alive_.find(e.process);
  // What ends process 1 of a namespace is dropped by the kernel while it is traced: it would repeat
  // its fault for ever.
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
  if (gated_ == e.tid) begin_at_gate(e);
  if (const auto it = alive_.find(e.process); it != alive_.end() && it->second.turn.next == e.tid) {
    if (it->second.slot_steps) watch_slot_here(it->second, e.tid);
  }
  // This stop goes before the trap of a store that the thread has just made.
  settle(e.process, e.tid, /*hit_may_wait=*/true);
  move(e.process, e.tid);
}

void Live::begin_slot_walk(SlotStepRecorder& slot_steps, const sys::WatchpointHit& e) {
  if (!stepping_) return slot_steps.pass();
  if (!sys::has_default_action(e.tid, SIGTRAP).value_or(false)) {
    return slot_steps.give_up("the program has an action of its own for SIGTRAP");
  }
  slot_steps.begin(e);
}

// It stops before it runs again: what it waits for may be sent now.
void Live::step_from_gate(pid_t pid, pid_t tid) {
  const auto thread = threads_.find(tid);
  if (!stepping_ || thread == threads_.end() || thread->second.process != pid) return;
  const auto w = alive_.find(pid);
  if (w != alive_.end() && w->second.steps && tracee_.interrupt(tid)) gated_ = tid;
}

void Live::begin_at_gate(const sys::Interrupted& e) {
  gated_ = 0;
  const auto it = alive_.find(e.process);
  if (it == alive_.end() || !it->second.steps || it->second.steps->is_walking()) return;
  Watched& w = it->second;
  const auto header = w.stores->header();
  if (!header || !w.stores->is_armed()) return;
  if (!sys::has_default_action(e.tid, SIGTRAP).value_or(false)) return;
  w.steps->begin_at_gate(e.tid, *header);
}

// Right behind a store to the watched header; a change that it begins is walked through.
void Live::look_at_store(Watched& w, const sys::WatchpointHit& e) {
  const auto header = w.stores->header();
  const bool may_begin =
      stepping_ && w.steps && header && w.stores->is_armed() && !w.steps->is_walking(e.tid);
  const auto before = may_begin ? w.stores->last_header() : std::vector<std::byte>();
  w.stores->hit(e, is_alone(e.process, e.tid));
  if (!may_begin || w.stores->header() != header || !threads_.contains(e.tid)) return;
  if (w.steps->is_early()) w.steps->end("another thread stored to the header first");
  if (w.steps->is_walking()) return w.steps->stored_beside(e);
  if (const auto free = sys::has_default_action(e.tid, SIGTRAP); !free || !*free) {
    return w.steps->unseen("the program has an action of its own for SIGTRAP");
  }
  w.steps->begin(e, *header, before);
}

void Live::on(const sys::Stepped& e) {
  const auto it = alive_.find(e.process);
  if (it != alive_.end() && it->second.slot_steps && it->second.slot_steps->is_walking(e.tid)) {
    it->second.slot_steps->stepped(e);
    if (options_.picks_slots && walked_ > scaled(kWalking)) {
      it->second.slot_steps->give_up("to walk through it took too long");
    }
    const bool is_over = !it->second.slot_steps->is_walking(e.tid);
    if (is_over && it->second.slot_steps->turn_is_over()) choose_slot(it->second);
  }
  if (it != alive_.end() && it->second.steps && it->second.steps->is_walking(e.tid)) {
    auto& steps = *it->second.steps;
    if (steps.is_early() && it->second.stores->header() != steps.header()) {
      steps.end("the header is another one");
      if (e.words != 0) return on(sys::WatchpointHit{e.tid, e.process, e.words, e.pc});
    } else if (const std::uint8_t words = steps.stepped(e); words != 0) {
      it->second.stores->hit({e.tid, e.process, words, e.pc}, is_alone(e.process, e.tid));
      if (arm(it->second, e.tid)) return;
    }
  }
  go_on(e.process, e.tid);
}

void Live::tell_of_walk(Clock::time_point now) {
  std::uint64_t steps = 0;
  for (const auto& [pid, w] : alive_) {
    if (w.steps) steps = std::max(steps, w.steps->walked());
    if (w.slot_steps) steps = std::max(steps, w.slot_steps->walked());
  }
  if (steps < walk_steps_ || walk_steps_ == 0) {  // another one, or none any more
    walk_begun_ = now;
  } else if (now - walk_told_ < LookPace::kTick) {
    return;
  }
  if (steps == 0 && walk_steps_ == 0) return;
  walk_told_ = now;
  walk_steps_ = steps;
  options_.walked(steps, std::chrono::duration<double>(now - walk_begun_).count());
}

void Live::on(const sys::WatchpointHit& e) {
  StoreRecorder* const stores = stores_of(e.process);
  const auto thread = threads_.find(e.tid);
  if (const auto it = alive_.find(e.process); it != alive_.end() && it->second.slot_steps) {
    auto& slot_steps = *it->second.slot_steps;
    if (thread != threads_.end() && thread->second.slot_watches &&
        thread->second.slot_watches == slot_steps.watched(e.tid)) {
      begin_slot_walk(slot_steps, e);
    }
  }
  if (const auto it = alive_.find(e.process); it != alive_.end() && it->second.records) {
    auto& records = *it->second.records;
    if (thread != threads_.end() && thread->second.watches == records.watched()) records.hit(e);
  }
  if (stores != nullptr && thread != threads_.end() && thread->second.watches == stores->header()) {
    look_at_store(alive_.at(e.process), e);
    probe_fork(e.process, e.tid, "after a store");
    if (arm(alive_.at(e.process), e.tid)) return;
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
      // Ctrl-C goes to the whole foreground group: it was meant for us.
      (tracee_.interrupted() &&
       (e.killed_by == SIGINT || e.killed_by == SIGTERM || e.killed_by == SIGHUP));
  finish(w, e.exit_code ? "exited " + std::to_string(*e.exit_code)
                        : "killed by signal " + std::to_string(e.killed_by.value_or(0)));
  alive_.erase(it);
}

void Live::begin() {
  // Its first image begins with its Execed event; until then it is our trampoline.
  add(tracee_.root(), getpid(), /*shares_memory=*/true);
  threads_[tracee_.root()].process = tracee_.root();
}

// One event, or what falls due until then. False when nothing is left.
sys::Result<bool> Live::step(Clock::time_point until) {
  auto wake = std::min(next_tick_, until);
  for (const pid_t pid : arming_) {
    const auto w = alive_.find(pid);
    if (w != alive_.end() && w->second.arming) wake = std::min(wake, w->second.arming->give_up);
  }
  const auto asked = Clock::now();
  if (stepped_) stood_still_for(asked - *std::exchange(stepped_, std::nullopt));
  const auto awake_by = std::max(wake, asked);
  auto event = tracee_.next(wake);
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
  give_up_arming();
  if (tracee_.tasks() > options_.max_tasks || alive_.size() > options_.max_alive ||
      started_ > options_.max_processes) {
    runaway_ = "started " + std::to_string(started_) + " processes, " +
               std::to_string(tracee_.tasks()) + " threads alive at once";
  }
  if (options_.walked) tell_of_walk(woke);
  // Of one instruction the clock is not asked again.
  if (const auto from = stepped ? woke : Clock::now(); from >= next_tick_) {
    tick();
    const auto now = Clock::now();
    next_tick_ = now + pace_.behind(now - from);
    if (options_.progress) {
      options_.progress(std::chrono::duration<double>(from - begin_).count(), alive_.size(),
                        contexts_);
    }
  }
  return true;
}

void Live::begin_race(pid_t pid) {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.recorder) return;
  Watched& w = it->second;
  const Image& image = w.recorder->image();
  const auto header = header_in(image);
  if (!header) {
    w.races_unseen = "there was no context to read";
    return;
  }
  auto reader = RacingReader::start(
      pid, *header, image.elf64,
      std::chrono::duration_cast<milliseconds>(options_.memory_deadline * options_.timeout_scale),
      options_.unreachable);
  if (!reader) {
    w.races_unseen = sys::to_string(reader.error());
    return;
  }
  racer_ = *std::move(reader);
  raced_ = image.key;
  race_begun_ = Clock::now();
}

void Live::end_race() {
  if (!racer_) return;
  const auto it = alive_.find(raced_.pid);
  if (it != alive_.end()) end_race(it->second);
}

// Of the image that is raced; called at its end at the latest.
void Live::end_race(Watched& w) {
  if (!racer_ || !w.recorder || w.recorder->image().key != raced_) return;
  const auto reader = std::exchange(racer_, nullptr);
  Race race = reader->finish();
  race.duration_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - race_begun_).count());
  if (w.races.size() < kMaxRaces) w.races.push_back(std::move(race));
}

void Live::last_look() {
  for (const auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (w.stores) w.stores->look(pid);
    take(pid, Moment::kEnd, Look::kThorough);
  }
}

std::optional<ImageKey> Live::image_of(pid_t pid) const {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.recorder) return std::nullopt;
  return it->second.recorder->image().key;
}

void Live::watch_record(pid_t pid, pid_t owner, Clock::time_point deadline) {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.records || !it->second.threads) return;
  auto& records = *it->second.records;
  const auto slot = it->second.threads->slot_of(owner);
  if (!slot || records.is_about(slot->value, owner)) return;
  records.begin(pid, slot->value, slot->at, owner);
  const auto wanted = records.watched();
  if (!wanted) return;
  const auto missing = [&] {
    std::vector<pid_t> out;
    for (const auto& [tid, thread] : threads_) {
      if (thread.process == pid && thread.watches != wanted) out.push_back(tid);
    }
    return out;
  };
  for (const pid_t tid : missing()) (void)tracee_.interrupt(tid);
  const auto is_done = [&] { return !alive_.contains(pid) || missing().empty(); };
  if (step_until(deadline, is_done) && alive_.contains(pid)) records.armed(missing());
}

void Live::watch_slot(pid_t pid, pid_t owner, Clock::time_point deadline) {
  const auto it = alive_.find(pid);
  const auto thread = threads_.find(owner);
  if (it == alive_.end() || !it->second.slot_steps || !it->second.threads) return;
  if (thread == threads_.end() || thread->second.process != pid || !thread->second.pointer) return;
  Watched& w = it->second;
  const Image& image = w.recorder->image();
  if (!image.elf64) return w.slot_steps->give_up("the program is not a 64-bit one");
  // Where several modules define one: that which has been used.
  const auto used = w.threads->slot_of(owner);
  const auto slot =
      used ? std::optional(used->at) : w.threads->variable_of(owner, *thread->second.pointer);
  if (!slot) return;
  w.slot_steps->watch(owner, *slot, header_in(image));
  const auto is_done = [&] {
    if (!alive_.contains(pid)) return true;
    const auto t = threads_.find(owner);
    return t == threads_.end() || t->second.slot_watches == w.slot_steps->watched(owner);
  };
  if (!is_done()) (void)tracee_.interrupt(owner);
  (void)step_until(deadline, is_done);
}

std::vector<ImageView> Live::look(Look how, Clock::time_point deadline) {
  looked_.clear();
  awaited_.clear();
  for (const auto& [pid, w] : alive_) {
    if (is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (!w.threads || !w.threads->wants_threads()) continue;
    for (const auto& [tid, thread] : threads_) {
      if (thread.process != pid) continue;
      if (thread.pointer) {
        if (auto views = w.threads->sample_if_asleep(tid, *thread.pointer)) {
          looked_[pid][tid] = std::move(*views);
          continue;
        }
      }
      if (tracee_.interrupt(tid)) awaited_.insert(tid);
    }
  }
  (void)step_until(deadline, [&] { return awaited_.empty(); });
  std::vector<ImageView> out;
  std::vector<pid_t> pids;
  for (const auto& [pid, w] : alive_) {
    if (w.recorder) pids.push_back(pid);
  }
  for (const pid_t pid : pids) {
    auto& view = out.emplace_back();
    view.snapshot = take(pid, Moment::kOperation, how);
    const Watched& w = alive_.at(pid);
    view.image = w.recorder->image().key;
    view.order = w.order->last();
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
  timeline_.stops += tracee_.stops();
  const auto released = paused_ ? tracee_.release(paused_->first) : sys::Result<>();
  // What was recorded is there even if something could not be ended.
  auto ended = tracee_.end();
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
    return std::pair(p.pid == tracee_.root() ? 0 : 1, p.pid);
  });
  for (auto& problem : code_files_.name_places(done_)) {
    timeline_.notes.push_back(std::move(problem));
  }
  for (auto& p : done_) timeline_.processes.push_back(std::move(p));
  return ended;
}

}  // namespace

struct Recording::State {
  State(const WrapOptions& o, Timeline& timeline, sys::Tracee tracee)
      : options(o), live(options, timeline, std::move(tracee)), dog(watchdog(options)) {}

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
  CTX_TRY(tracee, sys::Tracee::launch(launch, options.trampoline));
  auto state = std::make_unique<State>(options, timeline, std::move(tracee));
  state->live.begin();
  return Recording(std::move(state));
}

pid_t Recording::root() const { return state_->live.tracee().root(); }
sys::Result<bool> Recording::step(Clock::time_point until) { return state_->live.step(until); }
bool Recording::was_idle() const { return state_->live.was_idle(); }
bool Recording::interrupted() const {
  return state_->live.tracee().interrupted() || state_->live.is_paused();
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
void Recording::watch_slot(pid_t pid, pid_t owner, Clock::time_point deadline) {
  state_->live.watch_slot(pid, owner, deadline);
}
void Recording::step_from_gate(pid_t pid, pid_t tid) { state_->live.step_from_gate(pid, tid); }
bool Recording::is_held_up(pid_t pid) const { return state_->live.is_held_up(pid); }
void Recording::begin_race(pid_t pid) { state_->live.begin_race(pid); }
void Recording::end_race() { state_->live.end_race(); }
void Recording::begins_to_publish(pid_t pid, pid_t tid) {
  state_->live.begins_to_publish(pid, tid);
}
void Recording::look_around(Clock::time_point deadline) { state_->live.look_around(deadline); }
std::size_t Recording::threads() const { return state_->live.threads(); }
void Recording::last_look() { state_->live.last_look(); }
void Recording::terminate(bool politely) {
  state_->live.set_ending();
  if (politely) state_->live.tracee().signal_all(SIGTERM);
}
sys::Result<> Recording::wake_for(int fd, short events) {
  return state_->live.tracee().wake_for(fd, events);
}
std::optional<ImageKey> Recording::image_of(pid_t pid) const { return state_->live.image_of(pid); }
std::vector<pid_t> Recording::processes() const { return state_->live.tracee().processes(); }
void Recording::watch_record(pid_t pid, pid_t owner, Clock::time_point deadline) {
  state_->live.watch_record(pid, owner, deadline);
}
std::vector<ImageView> Recording::look(Look how, Clock::time_point deadline) {
  return state_->live.look(how, deadline);
}
sys::Result<> Recording::finish() { return state_->live.finish(); }

}  // namespace ctxconf::conformance
