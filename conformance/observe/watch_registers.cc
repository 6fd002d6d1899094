#include "conformance/observe/watch_registers.h"

#include <algorithm>
#include <utility>

namespace ctxconf::conformance {
namespace {

using Wanted = std::pair<Instrument*, std::optional<sys::WatchedWords>>;

Wanted wanted(const ImageRecorder& image, pid_t tid) {
  const auto& all = image.instruments();
  if (std::ranges::any_of(all, [&](const auto& i) { return i->sees_all_stores_of(tid); })) {
    return {nullptr, std::nullopt};
  }
  for (const auto& i : all) {
    if (auto words = i->watched(tid)) return {i.get(), words};
  }
  return {nullptr, std::nullopt};
}

Instrument* to_be_armed(const ImageRecorder& image) {
  for (const auto& i : image.instruments()) {
    if (i->is_to_be_armed()) return i.get();
  }
  return nullptr;
}

}  // namespace

WatchRegisters::WatchRegisters(sys::Tracer& tracer, TracedProcesses& processes, GoOn go_on,
                               Clock::duration patience)
    : tracer_(tracer), processes_(processes), go_on_(std::move(go_on)), patience_(patience) {}

void WatchRegisters::set(ImageRecorder& image, pid_t tid) {
  const auto thread = processes_.threads().find(tid);
  if (thread == processes_.threads().end()) return;
  const auto [instrument, words] = wanted(image, tid);
  if (thread->second.watches == words) return;
  const auto set = words ? tracer_.watch(tid, *words) : tracer_.unwatch(tid);
  if (set) {
    thread->second.watches = words;
    return;
  }
  if (instrument != nullptr) instrument->watch_failed(sys::to_string(set.error()));
  (void)tracer_.unwatch(tid);
  thread->second.watches.reset();
}

// Useless watchpoints cost a thread time: interrupts these threads, so that their registers are set
// at that stop.
void WatchRegisters::disarm(pid_t process) {
  for (const auto& [tid, thread] : processes_.threads()) {
    if (thread.process == process && thread.watches) (void)tracer_.interrupt(tid);
  }
}

bool WatchRegisters::arm(ImageRecorder& image, pid_t process, pid_t caller) {
  Instrument* const instrument = to_be_armed(image);
  if (instrument == nullptr) return false;
  const auto words = instrument->watched(caller);
  OfProcess& p = by_process_[process];
  if (!words || (p.arming && p.arming->words == *words)) return false;
  if (p.arming) finish_arming(p, process);
  Arming arming;
  arming.caller = caller;
  arming.instrument = instrument;
  arming.words = *words;
  for (const auto& [tid, thread] : processes_.threads()) {
    if (thread.process != process || tid == caller) continue;
    if (thread.watches == words || !tracer_.interrupt(tid)) continue;
    (p.stuck.contains(tid) ? arming.stuck : arming.missing).insert(tid);
  }
  arming.give_up = Clock::now() + patience_;
  set(image, caller);
  if (arming.missing.empty() || instrument->watched(caller) != words) {
    instrument->armed(caller, {arming.stuck.begin(), arming.stuck.end()});
    return false;
  }
  p.arming = std::move(arming);
  return true;
}

void WatchRegisters::finish_arming(OfProcess& p, pid_t process) {
  Arming arming = *std::exchange(p.arming, std::nullopt);
  arming.missing.merge(arming.stuck);
  if (arming.instrument->watched(arming.caller) == arming.words) {
    arming.instrument->armed(arming.caller, {arming.missing.begin(), arming.missing.end()});
  }
  go_on_(process, arming.caller);
}

void WatchRegisters::settle(ImageRecorder& image, pid_t process, pid_t tid, bool hit_may_wait) {
  set(image, tid);
  const bool has_ended = !processes_.threads().contains(tid);
  bool watches = false;
  for (const auto& i : image.instruments()) {
    if (has_ended) {
      i->ended(tid);
    } else if (!hit_may_wait) {
      i->resumed(tid);
    }
    watches = watches || i->watches_all_threads();
  }
  OfProcess& p = by_process_[process];
  if (std::exchange(p.watches, watches) && !watches) disarm(process);
  p.stuck.erase(tid);
  if (!p.arming) return;
  p.arming->stuck.erase(tid);
  p.arming->missing.erase(tid);
  if (p.arming->missing.empty() ||
      p.arming->instrument->watched(p.arming->caller) != p.arming->words) {
    finish_arming(p, process);
  }
}

void WatchRegisters::select(ImageRecorder& image, pid_t tid) {
  const pid_t process = image.image().key.pid;
  const auto thread = processes_.threads().find(tid);
  const bool lives = thread != processes_.threads().end() && thread->second.process == process;
  const auto pointer = lives ? thread->second.pointer : std::nullopt;
  for (const auto& instrument : image.instruments()) {
    const Rewatched changed = instrument->select(tid, pointer);
    if (changed == Rewatched::kNobody) continue;
    selection_ = {.process = process,
                  .thread = changed == Rewatched::kThread ? tid : 0,
                  .instrument = instrument.get()};
    for (const pid_t other : missing()) (void)tracer_.interrupt(other);
    return;
  }
}

std::vector<pid_t> WatchRegisters::missing() const {
  const Selection& s = *selection_;
  std::vector<pid_t> out;
  for (const auto& [tid, thread] : processes_.threads()) {
    if (thread.process != s.process || (s.thread != 0 && tid != s.thread)) continue;
    if (thread.watches != s.instrument->watched(tid)) out.push_back(tid);
  }
  return out;
}

void WatchRegisters::end_selection() {
  if (!selection_) return;
  const auto without = missing();
  std::exchange(selection_, std::nullopt)->instrument->selected(without);
}

void WatchRegisters::forget(pid_t process) {
  by_process_.erase(process);
  if (selection_ && selection_->process == process) selection_.reset();
}

void WatchRegisters::give_up(Clock::time_point now) {
  std::vector<pid_t> over;
  for (const auto& [process, p] : by_process_) {
    if (p.arming && (now >= p.arming->give_up || tracer_.is_ending(p.arming->caller))) {
      over.push_back(process);
    }
  }
  for (const pid_t process : over) {
    const auto p = by_process_.find(process);
    if (p == by_process_.end() || !p->second.arming) continue;
    if (processes_.image(process) == nullptr) {
      p->second.arming.reset();
      continue;
    }
    p->second.stuck.merge(std::set(p->second.arming->missing));
    finish_arming(p->second, process);
  }
}

std::optional<WatchRegisters::Clock::time_point> WatchRegisters::due() const {
  std::optional<Clock::time_point> first;
  for (const auto& [process, p] : by_process_) {
    if (p.arming && (!first || p.arming->give_up < *first)) first = p.arming->give_up;
  }
  return first;
}

void WatchRegisters::postpone(Clock::duration time) {
  for (auto& [process, p] : by_process_) {
    if (p.arming) p.arming->give_up += time;
  }
}

}  // namespace ctxconf::conformance
