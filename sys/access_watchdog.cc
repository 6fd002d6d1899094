#include "sys/access_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "sys/all_signals_blocked.h"

namespace ctxconf::sys {

struct AccessWatchdog::Watched {
  std::atomic<std::uint64_t> changes = 0;  // of `depth`; kWatchLost: nobody watches any more
  std::atomic<int> depth = 0;              // accesses in progress, nested
  std::atomic<pid_t> pid = 0;
  AfterStuck after = AfterStuck::kGoesOn;
  std::function<void(pid_t)> stuck;
  std::shared_ptr<AccessBudget> budget;
  bool is_over_budget = false;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false;
  std::thread thread;
};

namespace {

constexpr int kChecksPerDeadline = 4;
constexpr std::uint64_t kWatchLost = UINT64_MAX;

thread_local AccessWatchdog::Watched* watched_here = nullptr;

void count_change(AccessWatchdog::Watched& w) {
  std::uint64_t seen = w.changes.load();
  do {
    while (seen == kWatchLost) pause();
  } while (!w.changes.compare_exchange_weak(seen, seen + 1));
}

void check_budget(AccessWatchdog::Watched& w, pid_t pid) {
  if (!w.budget || w.is_over_budget || !w.budget->is_used_up()) return;
  w.is_over_budget = true;
  const bool stays = w.after == AfterStuck::kStays;
  if (!stays || w.changes.exchange(kWatchLost) != kWatchLost) w.stuck(pid);
  while (stays) pause();
}

void watch(AccessWatchdog::Watched& w, std::chrono::milliseconds deadline) {
  std::uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(w.mutex);
  while (!w.over.wait_for(lock, deadline / kChecksPerDeadline, [&] { return w.is_over; })) {
    auto now = w.changes.load();
    if (now == kWatchLost) return;  // the thread never leaves its access
    looks = now == seen && w.depth.load() > 0 ? looks + 1 : 0;
    seen = now;
    if (looks != kChecksPerDeadline) continue;
    if (w.after == AfterStuck::kGoesOn || w.changes.compare_exchange_strong(now, kWatchLost)) {
      w.stuck(w.pid.load());
    }
  }
}

}  // namespace

AccessBudget::AccessBudget(Clock::duration most, std::function<Clock::time_point()> now)
    : most_(most), limit_(most), now_(std::move(now)) {}

void AccessBudget::begin() { since_ = now_(); }

void AccessBudget::end() {
  if (since_) spent_ += now_() - *since_;
  since_.reset();
}

void AccessBudget::allow_only(Clock::duration more) { limit_ = std::min(most_, spent_ + more); }

bool AccessBudget::is_used_up() const {
  return spent_ + (since_ ? now_() - *since_ : Clock::duration::zero()) >= limit_;
}

ProcessAccess::ProcessAccess(pid_t pid) {
  if (watched_here == nullptr) return;
  check_budget(*watched_here, pid);
  watched_here->pid.store(pid, std::memory_order_relaxed);
  // Before `depth`: who finds the access stuck may use the budget.
  if (watched_here->depth == 0 && watched_here->budget) watched_here->budget->begin();
  ++watched_here->depth;
  count_change(*watched_here);
}

ProcessAccess::~ProcessAccess() {
  if (watched_here == nullptr) return;
  const bool is_outermost = --watched_here->depth == 0;
  // It does not return if the access was found stuck: the budget is the caller's by then.
  count_change(*watched_here);
  if (is_outermost && watched_here->budget) watched_here->budget->end();
}

AccessWatchdog::AccessWatchdog(std::chrono::milliseconds deadline, std::function<void(pid_t)> stuck,
                               AfterStuck after, std::shared_ptr<AccessBudget> budget)
    : watched_(std::make_unique<Watched>()) {
  watched_->after = after;
  watched_->stuck = std::move(stuck);
  watched_->budget = std::move(budget);
  const AllSignalsBlocked blocked;
  try {
    watched_->thread = std::thread([w = watched_.get(), deadline] { watch(*w, deadline); });
    watched_here = watched_.get();
  } catch (const std::system_error&) {
    watched_here = nullptr;
  }
}

AccessWatchdog::~AccessWatchdog() {
  if (!watched_->thread.joinable()) return;
  watched_here = nullptr;
  {
    const std::scoped_lock lock(watched_->mutex);
    watched_->is_over = true;
  }
  watched_->over.notify_all();
  watched_->thread.join();
}

}  // namespace ctxconf::sys
