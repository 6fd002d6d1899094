#include "conformance/observe/slot_turns.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "conformance/observe/image_recorder.h"
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

// Remaining instructions for threads that had a turn, or for threads that had none; 0: not enough
// for a turn.
std::uint64_t steps_for(const ImageRecorder& image, bool had_a_turn) {
  const std::uint64_t left = image.slot_steps()->steps_left();
  const std::uint64_t free = left - std::min(left, had_a_turn ? kKeptSteps : 0);
  return free < kLeastTurnSteps ? 0 : free;
}

}  // namespace

// The address of its variable, if it has one.
std::optional<sys::RemoteAddr> SlotTurns::slot_in(const ImageRecorder& image, pid_t process,
                                                  pid_t tid) const {
  const auto thread = threads_.find(tid);
  if (thread == threads_.end() || thread->second.process != process) return std::nullopt;
  if (!thread->second.pointer || !image.threads().wants_threads()) return std::nullopt;
  const auto used = image.threads().slot_of(tid);
  return used ? std::optional(used->at) : image.threads().variable_of(tid, *thread->second.pointer);
}

// Counts from the thread that was chosen last, not from the watched one: the chosen thread may have
// ended before it stopped, or may never stop.
void SlotTurns::choose(ImageRecorder& image, pid_t process) {
  SlotStepRecorder& slot_steps = *image.slot_steps();
  if (slot_steps.gave_up()) return;
  SlotTurn& turn = image.slot_turn();
  const pid_t now = slot_steps.watched_thread();
  if (slot_steps.is_stepping(now)) return;
  const bool awaits = turn.next != 0;
  const bool stores = now != 0 && slot_steps.traces_of_turn() > 0 && !slot_steps.turn_is_over();
  if ((awaits || stores) && ++turn.ticks < kTurnTicks) return;
  turn.ticks = 0;
  turn.next = 0;
  if (steps_for(image, /*had_a_turn=*/true) == 0) {
    slot_steps.unseen(
        "not every instruction of later operations was observed: there were too many");
  }
  const auto may_be_next = [&](const auto& thread) {
    return steps_for(image, turn.had.contains(thread.first)) > 0 &&
           slot_in(image, process, thread.first).has_value();
  };
  auto next = std::find_if(threads_.upper_bound(turn.last), threads_.end(), may_be_next);
  if (next == threads_.end()) next = std::ranges::find_if(threads_, may_be_next);
  if (next == threads_.end()) return;
  turn.last = next->first;
  // If it sleeps, do not interrupt its call needlessly.
  if (next->first == now && !slot_steps.turn_is_over()) return;
  if (tracer_.interrupt(next->first)) turn.next = next->first;
}

// A share of the remaining instructions; 0: none.
std::uint64_t SlotTurns::steps_for_turn(ImageRecorder& image, pid_t process, pid_t tid) const {
  const SlotTurn& turn = image.slot_turn();
  const bool had = turn.had.contains(tid);
  const auto shares = std::ranges::count_if(threads_, [&](const auto& t) {
    return t.second.process == process && (had || !turn.had.contains(t.first));
  });
  const std::uint64_t free = steps_for(image, had);
  if (free == 0) return 0;
  return std::clamp(free / static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(shares, 1)),
                    kLeastTurnSteps, kTurnSteps);
}

void SlotTurns::watch_here(ImageRecorder& image, pid_t process, pid_t tid) {
  SlotTurn& turn = image.slot_turn();
  turn.next = 0;
  turn.ticks = 0;
  turn.last = tid;  // the publishing thread was not chosen by turn
  SlotStepRecorder& slot_steps = *image.slot_steps();
  const pid_t before = slot_steps.watched_thread();
  if (slot_steps.gave_up() || slot_steps.is_stepping(before)) return;
  const auto slot = slot_in(image, process, tid);
  if (!slot) return;
  if (!image.image().elf64) return slot_steps.give_up("the program is not a 64-bit program");
  if (!sys::has_default_action(tid, SIGTRAP).value_or(false)) {
    return slot_steps.give_up(kOwnTrapAction);
  }
  if (!std::exchange(turn.begun, true) && ++images_ > kSteppedImages) {
    return slot_steps.give_up("there were too many processes");
  }
  const std::uint64_t steps = steps_for_turn(image, process, tid);
  if (steps == 0) return;
  turn.had.insert(tid);
  slot_steps.watch(tid, *slot, image.snapshots().header(),
                   {.steps = steps, .step_traces = kTurnTraces});
  if (before != 0 && before != tid) (void)tracer_.interrupt(before);
}

}  // namespace ctxconf::conformance
