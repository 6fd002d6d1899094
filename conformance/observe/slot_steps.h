// Level steps of thread context: what a reader of a stopped thread could have copied of its
// variable and its record after every instruction, from the store that begins a change until it is
// over. Four watchpoints are the variable and of the record the words with the beginning of the
// trace id, the span id, and byte 24.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/observe/calls.h"
#include "conformance/observe/code_places.h"
#include "conformance/observe/instructions.h"
#include "conformance/timeline.h"
#include "sys/remote_addr.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

struct SlotStepLimits {
  std::uint64_t steps = 50'000;       // of one walk
  std::uint64_t all_steps = 100'000;  // of one image
  std::uint64_t settled = 1000;       // behind the last change: it is over
  std::size_t walks = kMaxWalks;
  std::size_t views = kMaxViews;
  std::uint64_t record = 4096;  // bytes of one copy
  std::uint64_t bytes = std::uint64_t{2} << 20U;
};

// What the walks of a thread may have together, as long as it is the one that is watched.
struct SlotTurnLimits {
  std::uint64_t steps = UINT64_MAX;
  std::size_t walks = SIZE_MAX;
};

// Decides who is stepped, and records; whoever uses it moves the threads. One walk at a time.
class SlotStepRecorder {
 public:
  SlotStepRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files, SlotStepLimits limits = {});

  bool is_walking(pid_t tid) const { return walk_ && walk_->tid == tid; }
  std::uint64_t walked() const { return walk_ ? walk_->steps : 0; }  // instructions of the walk
  // What the thread is to be watched for.
  std::optional<sys::WatchedWords> watched(pid_t tid) const;
  // From now on, of this thread, which stands still or sleeps; its variable is at `slot`. `header`:
  // of the process context, where one is known.
  void watch(pid_t tid, sys::RemoteAddr slot, std::optional<sys::RemoteAddr> header,
             SlotTurnLimits turn = {});
  // That thread stands right behind such a store, and no walk is on: one begins, ...
  void begin(const sys::WatchpointHit& hit);
  // ... or the next one begins with what is there now.
  void pass();
  // Of the thread that walks.
  void stepped(const sys::Stepped& e);
  void end(const std::string& because);
  // Walks do not take place, until watch().
  void give_up(const std::string& why);
  bool gave_up() const { return gave_up_; }
  void unseen(const std::string& why);           // of some walks that do not take place
  pid_t watched_thread() const { return tid_; }  // 0: none
  std::size_t walks_of_turn() const { return turn_walks_; }
  // No further walk of this thread begins, since it might be cut: not until watch().
  bool turn_is_over() const;
  std::uint64_t steps_left() const {
    return limits_.all_steps - std::min(limits_.all_steps, steps_);
  }
  void forget();  // the thread that is watched has ended

  void add_to(Image& image) &&;

 private:
  struct Seen {
    std::uint64_t value = 0;
    std::uint64_t wanted = 0;  // bytes that the record announces
    std::vector<std::byte> record;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  Seen look() const;
  bool differs();
  void add(Seen now, std::optional<std::uint32_t> place, bool by_another = false);
  bool is_by_another(const Seen& now, std::uint64_t pc) const;

  std::shared_ptr<EventOrder> order_;
  SlotStepLimits limits_;
  CodePlaces places_;
  KnownInstructions instructions_;
  pid_t tid_ = 0;  // that is watched; 0: none
  sys::RemoteAddr slot_;
  std::optional<sys::RemoteAddr> header_;
  std::optional<SlotWalk> walk_;
  Seen last_;
  std::vector<std::byte> next_;  // kept for its memory
  std::uint64_t pc_ = 0;         // of the instruction that comes next
  std::uint64_t changed_at_ = 0;
  std::vector<SlotWalk> walks_;
  std::uint64_t steps_ = 0;
  SlotTurnLimits turn_;
  std::uint64_t turn_steps_ = 0;
  std::size_t turn_walks_ = 0;
  std::uint64_t bytes_ = 0;
  bool gave_up_ = false;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
