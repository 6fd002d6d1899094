#include "sys/access_watchdog.h"

#include <unistd.h>

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

void watch(AccessWatchdog::Watched& w, std::chrono::milliseconds deadline, AfterStuck after,
           const std::function<void(pid_t)>& stuck) {
  std::uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(w.mutex);
  while (!w.over.wait_for(lock, deadline / kChecksPerDeadline, [&] { return w.is_over; })) {
    auto now = w.changes.load();
    looks = now == seen && w.depth.load() > 0 ? looks + 1 : 0;
    seen = now;
    if (looks != kChecksPerDeadline) continue;
    if (after == AfterStuck::kGoesOn || w.changes.compare_exchange_strong(now, kWatchLost)) {
      stuck(w.pid.load());
    }
  }
}

}  // namespace

ProcessAccess::ProcessAccess(pid_t pid) {
  if (watched_here == nullptr) return;
  watched_here->pid.store(pid, std::memory_order_relaxed);
  ++watched_here->depth;
  count_change(*watched_here);
}

ProcessAccess::~ProcessAccess() {
  if (watched_here == nullptr) return;
  --watched_here->depth;
  count_change(*watched_here);
}

AccessWatchdog::AccessWatchdog(std::chrono::milliseconds deadline, std::function<void(pid_t)> stuck,
                               AfterStuck after)
    : watched_(std::make_unique<Watched>()) {
  const AllSignalsBlocked blocked;
  try {
    watched_->thread = std::thread([w = watched_.get(), deadline, after, stuck = std::move(stuck)] {
      watch(*w, deadline, after, stuck);
    });
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
