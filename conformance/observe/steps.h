// Level steps: what a reader could have copied after every instruction of a thread that changes a
// header, from the store that begins the change until it is over.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
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
  // A thread stands right behind its store to the header, which was `before`, and no walk is on.
  void begin(const sys::WatchpointHit& hit, sys::RemoteAddr header,
             std::span<const std::byte> before);
  // Of the thread that walks. Bit i: bytes 8i to 8i+7 of the header are others than before.
  std::uint8_t stepped(const sys::Stepped& e);
  // Another thread stands right behind its store to the header.
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
  std::uint64_t settled_at_ = 0;
  InstructionDecoder decoder_;
  std::unordered_map<std::uint64_t, Instruction> instructions_;  // by address
  std::set<std::array<std::uint64_t, 3>> payloads_;              // of the walk: address, size, hash
  std::vector<StepWalk> walks_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
