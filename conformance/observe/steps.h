// Level steps: what a reader could have copied after every instruction of a thread that changes a
// header, from the store that begins the change, or from a gate before it, until it is over.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "conformance/observe/calls.h"
#include "conformance/observe/code_places.h"
#include "conformance/observe/instructions.h"
#include "conformance/timeline.h"
#include "sys/remote_addr.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

struct StepLimits {
  std::uint64_t steps = 100'000;      // of one walk
  std::uint64_t all_steps = 400'000;  // of one image
  // The same between a gate and the first store, which count by themselves.
  std::uint64_t early_steps = 50'000;
  std::uint64_t all_early_steps = 100'000;
  // A header that a reader accepts has stayed so for so long: the change is over.
  std::uint64_t settled = 1000;
  std::size_t walks = kMaxWalks;
  std::size_t views = kMaxViews;
  std::uint64_t payload = std::uint64_t{64} << 10U;  // bytes that are compared
  std::uint64_t bytes = std::uint64_t{2} << 20U;     // of payloads that are kept
};

// Decides who is stepped, and records; whoever uses it moves the threads. One walk at a time.
class StepRecorder {
 public:
  // `places`: those of the image that the store recorder has, too.
  StepRecorder(bool elf64, std::shared_ptr<EventOrder> order, CodePlaces& places,
               StepLimits limits = {});

  bool is_walking() const { return walk_.has_value(); }
  bool is_walking(pid_t tid) const { return walk_ && walk_->tid == tid; }
  std::uint64_t walked() const { return walk_ ? walk_->steps : 0; }  // instructions of the walk
  // It began at a gate, and its thread has not stored to the header() yet: it is still to be
  // watched for that, since what others store is none of it.
  bool is_early() const { return walk_ && early_; }
  sys::RemoteAddr header() const { return sys::RemoteAddr(walk_->header); }
  // A thread stands right after its store to the header, which was `before`, and no walk is on.
  void begin(const sys::WatchpointHit& hit, sys::RemoteAddr header,
             std::span<const std::byte> before);
  // A thread stands where it has passed a gate, and no walk is on. Nothing begins where a reader
  // does not accept the header, nor once a walk had to be given up before its first store.
  void begin_at_gate(pid_t tid, sys::RemoteAddr header);
  // Of the thread that walks. Bit i: it changed bytes 8i to 8i+7 of the header, or its first store
  // touched them.
  std::uint8_t stepped(const sys::Stepped& e);
  // Another thread stands right after its store to the header.
  void stored_beside(const sys::WatchpointHit& hit);
  void end(const std::string& because);
  // Where a reader accepts what there is, the change is over.
  void end_now(const std::string& otherwise);
  void unseen(const std::string& why);  // of walks that do not take place

  void add_to(Image& image) &&;

 private:
  struct Seen {
    std::vector<std::byte> header;
    sys::RemoteAddr payload_at;
    std::vector<std::byte> payload;  // as much of it as can be read
    std::uint64_t wanted = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  bool may_begin();
  void begin(pid_t tid, sys::RemoteAddr header);
  Seen look(pid_t tid) const;
  Seen with_payload(pid_t tid, std::vector<std::byte> header) const;
  bool differs(pid_t tid);
  void add(Seen now, std::optional<std::uint32_t> place);
  // Whether it may have stored; a barrier is noted.
  bool may_have_stored(pid_t tid, std::uint64_t pc);

  bool elf64_;
  std::shared_ptr<EventOrder> order_;
  CodePlaces* places_;
  StepLimits limits_;
  std::optional<StepWalk> walk_;
  Seen last_;
  Seen next_;             // kept for its memory
  std::uint64_t pc_ = 0;  // of the instruction that comes next
  bool early_ = false;    // as is_early() says
  std::uint64_t settled_at_ = 0;
  std::uint64_t stored_at_ = 0;  // steps of the walk before its first store
  KnownInstructions instructions_;
  std::set<std::array<std::uint64_t, 3>> payloads_;  // of the walk: address, size, hash
  std::vector<StepWalk> walks_;
  std::uint64_t steps_ = 0;  // but for early ones
  std::uint64_t early_steps_ = 0;
  bool gate_given_up_ = false;
  std::uint64_t bytes_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
