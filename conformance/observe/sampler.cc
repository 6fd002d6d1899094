#include "conformance/observe/sampler.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "sys/proc_dir.h"
#include "sys/process.h"

namespace ctxconf::conformance {

Sampler::Sampler(const WrapOptions& options, sys::Tracer& tracer, TracedProcesses& processes)
    : options_(options),
      tracer_(tracer),
      processes_(processes),
      next_tick_(options.looks_by_itself ? Clock::now() + SnapshotPace::kTick
                                         : Clock::time_point::max()) {}

std::optional<std::uint64_t> Sampler::take(pid_t pid, Moment moment, SnapshotDepth depth) {
  ImageRecorder* const i = processes_.image(pid);
  if (i == nullptr) return std::nullopt;
  // At all other moments some thread is stopped, and an exec would have ended it.
  const bool any_time =
      moment == Moment::kPeriodic || moment == Moment::kOperation || moment == Moment::kEnd;
  if (any_time && processes_.is_in_exec(pid)) return std::nullopt;
  SnapshotRecorder& r = i->snapshots();
  const auto before = r.last_publication_ns();
  const auto state = r.take(moment, depth);
  if (r.last_publication_ns() != before) {
    published_ = Clock::now();
    ++contexts_;
  }
  return state;
}

void Sampler::tick() {
  // Threads first: a key map that is seen after a record must name its indexes. If some threads are
  // running, the last one that stops takes the snapshot.
  const auto late = std::exchange(interrupted_, {});
  for (const auto& [pid, tids] : late) take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
  for (const auto& [pid, w] : processes_.alive()) {
    if (processes_.is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (w.image) {
      if (w.image->threads().wants_threads()) look_at_threads(w);
      for (const auto& instrument : w.image->instruments()) instrument->ticked();
    }
    if (!interrupted_.contains(pid)) take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
  }
}

bool Sampler::tick_if_due(Clock::time_point now) {
  if (now < next_tick_) return false;
  tick();
  const auto end = Clock::now();
  next_tick_ = end + pace_.wait_after(end - now);
  return true;
}

void Sampler::look_at_modules(pid_t pid) {
  if (ImageRecorder* const i = processes_.image(pid)) i->threads().look_at_modules();
}

void Sampler::look_at_threads(const TracedProcess& w) {
  const pid_t pid = w.process.pid;
  for (const auto& [tid, thread] : processes_.threads()) {
    if (thread.process != pid) continue;
    // A step trace has seen the thread more closely, and short moments last long while it is
    // single-stepped.
    if (w.image->steps(tid)) continue;
    if (thread.pointer && w.image->threads().sample_if_asleep(tid, *thread.pointer)) continue;
    if (tracer_.interrupt(tid)) interrupted_[pid].insert(tid);
  }
}

std::vector<pid_t> Sampler::unreported_threads() const {
  std::vector<pid_t> out;
  for (const auto& [pid, w] : processes_.alive()) {
    if (!w.image || processes_.is_in_exec(pid)) continue;
    if (const auto tids = sys::thread_list(pid)) out.insert(out.end(), tids->begin(), tids->end());
  }
  leave_out_reported(out);
  return out;
}

void Sampler::leave_out_reported(std::vector<pid_t>& tids) const {
  std::erase_if(tids, [&](pid_t tid) {
    if (processes_.threads().contains(tid)) return true;
    const auto folder = sys::ProcDir::open(tid);
    const auto stat = folder ? folder->read_stat() : std::unexpected(folder.error());
    return !stat || sys::has_ended(*stat);
  });
}

void Sampler::begin_look() {
  looked_.clear();
  awaited_.clear();
  for (const auto& [pid, w] : processes_.alive()) {
    if (processes_.is_in_exec(pid)) continue;
    look_at_modules(pid);
    if (!w.image || !w.image->threads().wants_threads()) continue;
    for (const auto& [tid, thread] : processes_.threads()) {
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
}

bool Sampler::meets_update() const {
  return std::ranges::any_of(processes_.alive(), [&](const auto& process) {
    const auto& [pid, w] = process;
    return w.image && !processes_.is_in_exec(pid) && w.image->snapshots().meets_update();
  });
}

std::vector<ImageView> Sampler::end_look(SnapshotDepth depth) {
  std::vector<ImageView> out;
  for (const auto& [pid, w] : processes_.alive()) {
    if (!w.image) continue;
    auto& view = out.emplace_back();
    view.snapshot = take(pid, Moment::kOperation, depth);
    view.image = w.image->image().key;
    view.order = w.image->order().last();
    for (const auto& [tid, views] : looked_[pid]) {
      view.threads.insert(view.threads.end(), views.begin(), views.end());
    }
    for (const pid_t tid : awaited_) {
      const auto thread = processes_.threads().find(tid);
      if (thread != processes_.threads().end() && thread->second.process == pid) {
        view.unseen.push_back(tid);
      }
    }
  }
  looked_.clear();
  awaited_.clear();
  return out;
}

void Sampler::look_at_stopped_thread(pid_t pid, pid_t tid) {
  ImageRecorder* const i = processes_.image(pid);
  const auto thread = processes_.threads().find(tid);
  if (i == nullptr || thread == processes_.threads().end() || !i->threads().wants_threads()) return;
  if (const auto pointer = tracer_.thread_pointer(tid)) {
    if (pointer->raw() == 0) return;  // too early
    thread->second.pointer = *pointer;
    auto views = i->threads().sample(tid, *pointer);
    if (awaited_.contains(tid)) looked_[pid][tid] = std::move(views);
  } else if (pointer.error().err != ESRCH) {
    i->threads().unread(sys::to_string(pointer.error()));
  }
}

void Sampler::look_at_birth(const sys::NewTask& e, sys::RemoteAddr pointer) {
  ImageRecorder* const child = processes_.image(e.process);
  ImageRecorder* const maker = processes_.image(e.maker);
  if (child == nullptr) return;
  ThreadRecorder* parent = maker == nullptr ? nullptr : &maker->threads();
  if (parent != nullptr) {
    parent->look_at_modules();
    if (parent->knows_modules() && !parent->wants_threads()) return;
    if (!parent->knows_modules()) parent = nullptr;  // it ended before it could be examined
  }
  child->threads().look_at_birth(parent, pointer);
}

void Sampler::look_at_exit(const sys::Exiting& e) {
  ImageRecorder* const i = processes_.image(e.process);
  if (i == nullptr || !i->threads().wants_threads()) return;
  const auto pointer = tracer_.thread_pointer(e.tid);
  if (pointer && pointer->raw() != 0) i->threads().sample_at_exit(e.tid, *pointer);
}

void Sampler::arrived(pid_t pid, pid_t tid) {
  awaited_.erase(tid);
  const auto it = interrupted_.find(pid);
  if (it == interrupted_.end()) return;
  it->second.erase(tid);
  if (!it->second.empty()) return;
  interrupted_.erase(it);
  take(pid, Moment::kPeriodic, SnapshotDepth::kQuick);
}

void Sampler::forget(pid_t pid) {
  interrupted_.erase(pid);
  looked_.erase(pid);
  std::erase_if(awaited_, [&](pid_t tid) { return !processes_.threads().contains(tid); });
}

void Sampler::postpone(Clock::duration time) {
  if (published_) *published_ += time;
}

void Sampler::postpone_tick(Clock::duration time) {
  if (options_.looks_by_itself) next_tick_ += time;
}

}  // namespace ctxconf::conformance
