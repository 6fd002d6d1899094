#include "conformance/observe/steps.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "conformance/observe/stores.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// What a reader uses after it has seen it.
struct Announced {
  bool timestamp = false;
  bool valid = false;
  std::uint64_t payload = 0;
  std::uint64_t size = 0;
};

Announced announced_by(std::span<const std::byte> header) {
  const auto h = abi::decode_process_header(header);
  if (!h) return {};
  return {.timestamp = h->monotonic_published_at_ns != 0,
          .valid = abi::is_valid(*h),
          .payload = h->payload,
          .size = h->payload_size};
}

}  // namespace

StepRecorder::StepRecorder(bool elf64, std::shared_ptr<EventOrder> order, StoreRecorder& stores,
                           StepLimits limits)
    : elf64_(elf64), order_(std::move(order)), stores_(&stores), limits_(limits) {}

void StepRecorder::unseen(const std::string& why) {
  if (unseen_.empty()) unseen_ = why;
}

// The thread must be stopped.
StepRecorder::Seen StepRecorder::look(pid_t tid) const {
  std::vector<std::byte> header(abi::kHeaderBytes);
  const auto at = sys::RemoteAddr(trace_->header);
  header.resize(sys::ProcessMemory(tid).read_some(at, header).value_or(0));
  return with_payload(tid, std::move(header));
}

StepRecorder::Seen StepRecorder::with_payload(pid_t tid, std::vector<std::byte> header) const {
  Seen out;
  out.header = std::move(header);
  const auto announced = announced_by(out.header);
  if (!announced.timestamp || announced.size == 0) return out;
  out.payload_at = sys::RemoteAddr(payload_address(announced.payload, elf64_));
  out.wanted = announced.size;
  out.payload.resize(std::min(announced.size, limits_.payload));
  out.payload.resize(sys::ProcessMemory(tid).read_some(out.payload_at, out.payload).value_or(0));
  return out;
}

// Whether look() would return anything new: two copies in one call, at every instruction.
bool StepRecorder::differs(pid_t tid) {
  const sys::ProcessMemory memory(tid);
  next_.header.resize(abi::kHeaderBytes);
  if (last_.header.size() < abi::kHeaderBytes) return true;
  if (last_.payload.empty()) {
    const auto got = memory.read_some(sys::RemoteAddr(trace_->header), next_.header);
    return !got || *got != abi::kHeaderBytes || next_.header != last_.header || last_.wanted != 0;
  }
  next_.payload.resize(last_.payload.size());
  const auto got = memory.read_two({sys::RemoteAddr(trace_->header), next_.header},
                                   {last_.payload_at, next_.payload});
  return !got || (*got)[0] != abi::kHeaderBytes || (*got)[1] != last_.payload.size() ||
         next_.header != last_.header || next_.payload != last_.payload;
}

void StepRecorder::add(Seen now, std::optional<std::uint32_t> location) {
  last_ = std::move(now);
  stable_at_ = trace_->steps;
  if (trace_->views.size() >= limits_.views) return end("too many changes");
  ReaderView view;
  view.step = trace_->steps;
  view.order = order_->next();
  view.header = last_.header;
  view.location = location;
  if (last_.wanted != 0) {
    MemoryBlock block{.at = last_.payload_at,
                      .wanted = last_.wanted,
                      .readable = last_.payload.size(),
                      .bytes = {},
                      .hash = fnv1a(kFnvBasis, last_.payload)};
    const bool known = !payloads_.insert({block.at.raw(), block.readable, block.hash}).second;
    if (!known && bytes_ + last_.payload.size() <= limits_.bytes) {
      bytes_ += last_.payload.size();
      block.bytes = last_.payload;
    }
    view.payload = std::move(block);
  }
  trace_->views.push_back(std::move(view));
}

bool StepRecorder::may_begin() {
  if (traces_.size() < limits_.step_traces && steps_ < limits_.all_steps) return true;
  unseen("not every instruction of later changes was observed: there were too many");
  return false;
}

void StepRecorder::begin(pid_t tid, sys::RemoteAddr header) {
  trace_.emplace();
  trace_->tid = tid;
  trace_->header = header.raw();
  payloads_.clear();
  early_ = false;
  stored_at_ = 0;
}

void StepRecorder::begin_at_gate(pid_t tid, sys::RemoteAddr header) {
  if (gate_given_up_ || !may_begin()) return;
  begin(tid, header);
  Seen now = look(tid);
  if (!announced_by(now.header).valid) return trace_.reset();
  trace_->from_gate = true;
  trace_->began_order = order_->last() + 1;
  early_ = true;
  add(std::move(now), std::nullopt);
  pc_ = 0;  // unknown: the next instruction may store
}

void StepRecorder::begin(const sys::WatchpointHit& hit, sys::RemoteAddr header,
                         std::span<const std::byte> before) {
  if (!may_begin()) return;
  begin(hit.tid, header);
  // What the header announced before the store is still there, and nobody has run since.
  add(with_payload(hit.tid, {before.begin(), before.end()}), std::nullopt);
  ++trace_->steps;
  ++steps_;
  trace_->began_order = order_->last() + 1;
  // For an unfinished instruction, the end of its first byte stands for its end.
  add(look(hit.tid), stores_->locations().location_of(hit.tid, hit.pc, 0));
  pc_ = hit.pc;
}

void StepRecorder::add_barrier(pid_t tid, std::uint64_t pc, const std::string& text) {
  if (text.empty()) return;
  // Before the first store, keep only the latest barrier: it may be the first store itself.
  if (early_) trace_->barriers.clear();
  if (trace_->barriers.size() >= kMaxBarriers) return;
  trace_->barriers.push_back({.step = trace_->steps,
                              .text = text,
                              .location = stores_->locations().location_of(tid, pc + 1, 0)});
}

// The last step led from one address to the other.
bool StepRecorder::may_have_stored(pid_t tid, std::uint64_t from, std::uint64_t to) {
  constexpr std::uint64_t kSize = InstructionDecoder::kExclusive;
  const auto& first = instructions_.at(tid, from);
  add_barrier(tid, from, first.barrier);
  if (!first.loads_exclusively) return first.may_store;
  // Elsewhere, it has left the loop before the store.
  if (to <= from + kSize || to - from > InstructionDecoder::kLongestAttemptBytes ||
      !instructions_.at(tid, to - kSize).stores_exclusively) {
    return true;
  }
  for (std::uint64_t pc = from + kSize; pc < to; pc += kSize) {
    add_barrier(tid, pc, instructions_.at(tid, pc).barrier);
  }
  return true;
}

std::uint8_t StepRecorder::words_of_step(const sys::Stepped& e, const StoppedAt& at_stop) {
  const bool may_differ = may_have_stored(e.tid, pc_, e.pc);
  ++trace_->steps;
  ++(early_ ? early_steps_ : steps_);
  const std::uint64_t at = std::exchange(pc_, e.pc);
  const auto by_this_thread = [&](std::uint8_t changed) -> std::uint8_t {
    return at_stop.call_words != 0 ? changed & at_stop.call_words : e.words;
  };
  std::uint8_t words = 0;
  if (may_differ && differs(e.tid)) {
    Seen now = look(e.tid);
    words = changed_words(last_.header, now.header);
    const bool of_others = early_ && words != 0 && by_this_thread(words) == 0;
    if (now != last_) {
      add(std::move(now),
          of_others ? std::nullopt : stores_->locations().location_of_step(e.tid, at, e.pc));
    }
  }
  // Early, the other threads run as well.
  if (early_) words = by_this_thread(words);
  if (!trace_) return words;
  if (early_ && words != 0) {
    early_ = false;
    stored_at_ = trace_->steps - 1;
    stable_at_ = trace_->steps;
  }
  if (early_) {
    if (trace_->steps >= limits_.early_steps || early_steps_ >= limits_.all_early_steps) {
      gate_given_up_ = true;
      end("too many instructions before the first store");
    }
    return words;
  }
  if (trace_->steps - stable_at_ >= limits_.stable && announced_by(last_.header).valid) {
    end_over();
  } else if (trace_->steps - stored_at_ >= limits_.steps || steps_ >= limits_.all_steps) {
    end("too many instructions");
  }
  return words;
}

void StepRecorder::stored_beside(const sys::WatchpointHit& hit) {
  if (!trace_) return;
  Seen now = look(hit.tid);
  if (now != last_) add(std::move(now), stores_->locations().location_of(hit.tid, hit.pc, 0));
}

void StepRecorder::end_over() {
  if (trace_) trace_->over = true;
  end("over");
}

void StepRecorder::end(const std::string& because) {
  if (!trace_) return;
  trace_->ended_because = because;
  traces_.push_back(*std::exchange(trace_, std::nullopt));
}

void StepRecorder::end_now(const std::string& otherwise) {
  if (!trace_) return;
  if (announced_by(last_.header).valid) return end_over();
  end(otherwise);
}

void StepRecorder::stored(const sys::WatchpointHit& hit, StoppedAt at) {
  const auto header = stores_->header();
  if (!at.may_step || is_stepping(hit.tid) || !header || stores_->last_stored_to() != header)
    return;
  if (is_early()) end("another thread stored to the header first");
  if (is_stepping()) return stored_beside(hit);
  if (!sys::has_default_action(hit.tid, SIGTRAP).value_or(false)) return unseen(kOwnTrapAction);
  begin(hit, *header, stores_->header_before());
}

bool StepRecorder::stepped(const sys::Stepped& e, StoppedAt at) {
  if (!is_stepping(e.tid)) return false;
  if (is_early() && stores_->header() != header()) {
    end("another header replaced this one");
    return e.words != 0;
  }
  if (const std::uint8_t words = words_of_step(e, at); words != 0) {
    stores_->hit({e.tid, e.process, words, e.pc}, at);
  }
  return false;
}

void StepRecorder::end_steps(pid_t tid, const std::string& because) {
  if (is_stepping(tid)) end(because);
}

void StepRecorder::stop_stepping() {
  gate_ = 0;
  end_now("the operation was answered");
}

bool StepRecorder::will_pass_gate(pid_t tid) {
  gate_ = tid;
  return true;
}

void StepRecorder::interrupted(pid_t tid) {
  if (gate_ != tid) return;
  gate_ = 0;
  const auto header = stores_->header();
  if (is_stepping() || !header || !stores_->is_armed()) return;
  if (sys::has_default_action(tid, SIGTRAP).value_or(false)) begin_at_gate(tid, *header);
}

void StepRecorder::add_to(Image& image, bool /*saw_context*/) {
  end_now("the program was replaced or ended");
  image.step_traces = std::move(traces_);
  image.steps_unseen = std::move(unseen_);
}

}  // namespace ctxconf::conformance
