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

#include "conformance/evidence/timeline.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/code_locations.h"
#include "conformance/observe/instructions.h"
#include "conformance/observe/instrument.h"
#include "conformance/observe/step_limits.h"
#include "conformance/observe/stores.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// Decides which thread is stepped, and records; its user moves the threads. One step trace at a
// time.
class StepRecorder : public Instrument {
 public:
  // `stores`: of the same image; must outlive this. It gets the stores of single-stepped threads.
  StepRecorder(bool elf64, std::shared_ptr<EventOrder> order, StoreRecorder& stores,
               StepLimits limits = {});

  bool steps(pid_t tid) const override { return is_stepping(tid); }
  bool sees_all_stores_of(pid_t tid) const override { return is_stepping(tid) && !is_early(); }
  // Must be called after the store recorder.
  void stored(const sys::WatchpointHit& hit, StoppedAt at) override;
  bool stepped(const sys::Stepped& e, StoppedAt at) override;
  void end_steps(pid_t tid, const std::string& because) override;
  void stop_stepping() override;
  std::uint64_t steps_under_way() const override { return trace_ ? trace_->steps : 0; }
  bool will_pass_gate(pid_t tid) override;
  void interrupted(pid_t tid) override;

  bool is_stepping() const { return trace_.has_value(); }
  bool is_stepping(pid_t tid) const { return trace_ && trace_->tid == tid; }
  // Whether the step trace began at a gate and its thread has not stored to header() yet. Then it
  // must still be watched for that: the stores of others are not part of the step trace.
  bool is_early() const { return trace_ && early_; }
  sys::RemoteAddr header() const { return sys::RemoteAddr(trace_->header); }
  // A thread is stopped directly after its store to the header, which was `before`; no step trace
  // is active.
  void begin(const sys::WatchpointHit& hit, sys::RemoteAddr header,
             std::span<const std::byte> before);
  // A thread is stopped after a gate; no step trace is active. Nothing begins if a reader does not
  // accept the header, or after a step trace was given up before its first store.
  void begin_at_gate(pid_t tid, sys::RemoteAddr header);
  // For the thread that is single-stepped. Bit i: it changed bytes 8i to 8i+7 of the header, or its
  // first store touched them.
  std::uint8_t words_of_step(const sys::Stepped& e, const StoppedAt& at_stop);
  // Another thread is stopped directly after its store to the header.
  void stored_beside(const sys::WatchpointHit& hit);
  void end(const std::string& because);  // early
  void end_over();                       // the change was over
  // If a reader accepts the current state, the change is over.
  void end_now(const std::string& otherwise);
  void unseen(const std::string& why);  // why there are no step traces

  void add_to(Image& image, bool saw_context) override;

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
  void add(Seen now, std::optional<std::uint32_t> location);
  // Whether it may have stored; also records a barrier.
  bool may_have_stored(pid_t tid, std::uint64_t from, std::uint64_t to);
  void add_barrier(pid_t tid, std::uint64_t pc, const std::string& text);

  bool elf64_;
  std::shared_ptr<EventOrder> order_;
  StoreRecorder* stores_;
  StepLimits limits_;
  std::optional<StepTrace> trace_;
  Seen last_;
  Seen next_;             // keeps its memory
  std::uint64_t pc_ = 0;  // of the next instruction
  bool early_ = false;    // the value of is_early()
  pid_t gate_ = 0;        // not 0: a step trace begins at the next stop of this thread, at a gate
  std::uint64_t stable_at_ = 0;
  std::uint64_t stored_at_ = 0;  // steps of the step trace before its first store
  KnownInstructions instructions_;
  std::set<std::array<std::uint64_t, 3>> payloads_;  // of the step trace: address, size, hash
  std::vector<StepTrace> traces_;
  std::uint64_t steps_ = 0;  // without early ones
  std::uint64_t early_steps_ = 0;
  bool gate_given_up_ = false;
  std::uint64_t bytes_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
