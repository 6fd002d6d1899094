#include "conformance/observe/slot_turns.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// A turn lasts one tick, or more if its thread keeps storing.
constexpr int kTurnTicks = 3;
constexpr std::size_t kTurnTraces = 4;
// Its instructions: a share of the remaining ones, within these bounds.
constexpr std::uint64_t kTurnSteps = 10'000;
constexpr std::uint64_t kLeastTurnSteps = 2000;
// Reserved for threads that had no turn yet, which may start late.
constexpr std::uint64_t kKeptSteps = 50'000;
constexpr std::size_t kSteppedImages = 16;

}  // namespace

SlotTurnRecorder::SlotTurnRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files,
                                   const ThreadRecorder& threads, SharedBySlotTurns& shared)
    : SlotStepRecorder(std::move(order), files, threads), shared_(shared) {}

// Remaining instructions for threads that had a turn, or for threads that had none; 0: not enough
// for a turn.
std::uint64_t SlotTurnRecorder::steps_for(bool had_a_turn) const {
  const std::uint64_t left = steps_left();
  const std::uint64_t free = left - std::min(left, had_a_turn ? kKeptSteps : 0);
  return free < kLeastTurnSteps ? 0 : free;
}

// The address of its variable, if it has one.
std::optional<sys::RemoteAddr> SlotTurnRecorder::slot_in(pid_t tid) const {
  const auto thread = shared_.threads.find(tid);
  if (thread == shared_.threads.end() || thread->second.process != process()) return std::nullopt;
  if (!thread->second.pointer || !threads().wants_threads()) return std::nullopt;
  return variable_of(tid, *thread->second.pointer);
}

// Counts from the thread that was chosen last, not from the watched one: the chosen thread may have
// ended before it stopped, or may never stop.
void SlotTurnRecorder::choose() {
  if (gave_up()) return;
  const pid_t now = watched_thread();
  if (is_stepping(now)) return;
  const bool awaits = next_ != 0;
  const bool stores = now != 0 && traces_of_turn() > 0 && !turn_is_over();
  if ((awaits || stores) && ++ticks_ < kTurnTicks) return;
  ticks_ = 0;
  next_ = 0;
  if (steps_for(/*had_a_turn=*/true) == 0) {
    unseen("not every instruction of later operations was observed: there were too many");
  }
  const auto may_be_next = [&](const auto& thread) {
    return steps_for(had_.contains(thread.first)) > 0 && slot_in(thread.first).has_value();
  };
  const WatchedThreads& all = shared_.threads;
  auto next = std::find_if(all.upper_bound(chosen_), all.end(), may_be_next);
  if (next == all.end()) next = std::ranges::find_if(all, may_be_next);
  if (next == all.end()) return;
  chosen_ = next->first;
  // If it sleeps, do not interrupt its call needlessly.
  if (next->first == now && !turn_is_over()) return;
  if (shared_.tracer.interrupt(next->first)) next_ = next->first;
}

// A share of the remaining instructions; 0: none.
std::uint64_t SlotTurnRecorder::steps_for_turn(pid_t tid) const {
  const bool had = had_.contains(tid);
  const auto shares = std::ranges::count_if(shared_.threads, [&](const auto& t) {
    return t.second.process == process() && (had || !had_.contains(t.first));
  });
  const std::uint64_t free = steps_for(had);
  if (free == 0) return 0;
  return std::clamp(free / static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(shares, 1)),
                    kLeastTurnSteps, kTurnSteps);
}

void SlotTurnRecorder::watch_here(pid_t tid) {
  next_ = 0;
  ticks_ = 0;
  chosen_ = tid;  // the publishing thread was not chosen by turn
  const pid_t before = watched_thread();
  if (gave_up() || is_stepping(before)) return;
  const auto slot = slot_in(tid);
  if (!slot || !can_watch()) return;
  if (!sys::has_default_action(tid, SIGTRAP).value_or(false)) return give_up(kOwnTrapAction);
  if (!std::exchange(begun_, true) && ++shared_.images > kSteppedImages) {
    return give_up("there were too many processes");
  }
  const std::uint64_t steps = steps_for_turn(tid);
  if (steps == 0) return;
  had_.insert(tid);
  watch(tid, *slot, threads().context().header(), {.steps = steps, .step_traces = kTurnTraces});
  if (before != 0 && before != tid) (void)shared_.tracer.interrupt(before);
}

void SlotTurnRecorder::ticked() {
  if (threads().wants_threads()) choose();
}

void SlotTurnRecorder::named(pid_t tid) {
  // A thread that publishes may attach next.
  if (chooses_threads()) watch_here(tid);
}

bool SlotTurnRecorder::stepped(const sys::Stepped& e, StoppedAt at) {
  if (!is_stepping(e.tid)) return false;
  const bool is_store = SlotStepRecorder::stepped(e, at);
  if (at.out_of_time) give_up("single-stepping it took too long");
  if (!is_stepping(e.tid) && turn_is_over()) choose();
  return is_store;
}

void SlotTurnRecorder::interrupted(pid_t tid) {
  if (next_ == tid) watch_here(tid);
}

void SlotTurnRecorder::ended(pid_t tid) {
  SlotStepRecorder::ended(tid);
  if (next_ == tid) next_ = 0;
}

void SlotTurnRecorder::add_to(Image& image, bool saw_context) {
  SlotStepRecorder::add_to(image, saw_context);
  if (image.slot_step_traces.empty() && image.slot_steps_unseen.empty()) {
    image.slot_steps_unseen = "no thread stored to its variable or record while it was watched";
  }
}

}  // namespace ctxconf::conformance
