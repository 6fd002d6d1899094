#include "conformance/observe/steps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "conformance/observe/stores.h"
#include "sys/memory_reader.h"

namespace ctxconf::conformance {
namespace {

// What a reader goes on with, once it has seen it.
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

StepRecorder::StepRecorder(bool elf64, std::shared_ptr<EventOrder> order, CodePlaces& places,
                           StepLimits limits)
    : elf64_(elf64), order_(std::move(order)), places_(&places), limits_(limits) {}

void StepRecorder::unseen(const std::string& why) {
  if (unseen_.empty()) unseen_ = why;
}

// Of a thread that stands still.
StepRecorder::Seen StepRecorder::look(pid_t tid) const {
  std::vector<std::byte> header(abi::kHeaderBytes);
  const auto at = sys::RemoteAddr(walk_->header);
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

// Whether look() would give anything else than the last time: two copies in one call, at every
// instruction.
bool StepRecorder::differs(pid_t tid) {
  const sys::ProcessMemory memory(tid);
  next_.header.resize(abi::kHeaderBytes);
  if (last_.header.size() < abi::kHeaderBytes) return true;
  if (last_.payload.empty()) {
    const auto got = memory.read_some(sys::RemoteAddr(walk_->header), next_.header);
    return !got || *got != abi::kHeaderBytes || next_.header != last_.header || last_.wanted != 0;
  }
  next_.payload.resize(last_.payload.size());
  const auto got = memory.read_two({sys::RemoteAddr(walk_->header), next_.header},
                                   {last_.payload_at, next_.payload});
  return !got || (*got)[0] != abi::kHeaderBytes || (*got)[1] != last_.payload.size() ||
         next_.header != last_.header || next_.payload != last_.payload;
}

void StepRecorder::add(Seen now, std::optional<std::uint32_t> place) {
  last_ = std::move(now);
  settled_at_ = walk_->steps;
  if (walk_->views.size() >= limits_.views) return end("too many changes");
  ReaderView view;
  view.step = walk_->steps;
  view.order = order_->next();
  view.header = last_.header;
  view.place = place;
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
  walk_->views.push_back(std::move(view));
}

bool StepRecorder::may_begin() {
  if (walks_.size() < limits_.walks && steps_ < limits_.all_steps) return true;
  unseen("of later changes not every instruction was looked at: there were too many");
  return false;
}

void StepRecorder::begin(pid_t tid, sys::RemoteAddr header) {
  walk_.emplace();
  walk_->tid = tid;
  walk_->header = header.raw();
  payloads_.clear();
  early_ = false;
  stored_at_ = 0;
}

void StepRecorder::begin_at_gate(pid_t tid, sys::RemoteAddr header) {
  if (gate_given_up_ || !may_begin()) return;
  begin(tid, header);
  Seen now = look(tid);
  if (!announced_by(now.header).valid) return walk_.reset();
  walk_->from_gate = true;
  walk_->began_order = order_->last() + 1;
  early_ = true;
  add(std::move(now), std::nullopt);
  pc_ = 0;  // not known: whatever comes next may store
}

void StepRecorder::begin(const sys::WatchpointHit& hit, sys::RemoteAddr header,
                         std::span<const std::byte> before) {
  if (!may_begin()) return;
  begin(hit.tid, header);
  // What the header announced before the store is where it was, and nobody has run since.
  add(with_payload(hit.tid, {before.begin(), before.end()}), std::nullopt);
  ++walk_->steps;
  ++steps_;
  walk_->began_order = order_->last() + 1;
  // The end of the instruction's first byte is taken for its end where it is under way.
  add(look(hit.tid), places_->place_of(hit.tid, hit.pc, 0));
  pc_ = hit.pc;
}

bool StepRecorder::may_have_stored(pid_t tid, std::uint64_t pc) {
  const auto& [barrier, may_store] = instructions_.at(tid, pc);
  // That of the first store is the first that orders anything.
  if (early_ && !barrier.empty()) walk_->barriers.clear();
  if (!barrier.empty() && walk_->barriers.size() < kMaxBarriers) {
    walk_->barriers.push_back(
        {.step = walk_->steps, .text = barrier, .place = places_->place_of(tid, pc + 1, 0)});
  }
  return may_store;
}

std::uint8_t StepRecorder::stepped(const sys::Stepped& e) {
  const bool may_differ = may_have_stored(e.tid, pc_);
  ++walk_->steps;
  ++(early_ ? early_steps_ : steps_);
  const std::uint64_t at = std::exchange(pc_, e.pc);
  std::uint8_t words = 0;
  if (may_differ && differs(e.tid)) {
    Seen now = look(e.tid);
    words = changed_words(last_.header, now.header);
    const bool of_others = early_ && words != 0 && e.words == 0;
    if (now != last_) {
      add(std::move(now), of_others ? std::nullopt : places_->place_of_step(e.tid, at, e.pc));
    }
  }
  if (early_) words = e.words;
  if (!walk_) return words;
  if (early_ && words != 0) {
    early_ = false;
    stored_at_ = walk_->steps - 1;
    settled_at_ = walk_->steps;
  }
  if (early_) {
    if (walk_->steps >= limits_.early_steps || early_steps_ >= limits_.all_early_steps) {
      gate_given_up_ = true;
      end("too many instructions before the first store");
    }
    return words;
  }
  if (walk_->steps - settled_at_ >= limits_.settled && announced_by(last_.header).valid) {
    end("over");
  } else if (walk_->steps - stored_at_ >= limits_.steps || steps_ >= limits_.all_steps) {
    end("too many instructions");
  }
  return words;
}

void StepRecorder::stored_beside(const sys::WatchpointHit& hit) {
  if (!walk_) return;
  Seen now = look(hit.tid);
  if (now != last_) add(std::move(now), places_->place_of(hit.tid, hit.pc, 0));
}

void StepRecorder::end(const std::string& because) {
  if (!walk_) return;
  walk_->ended_because = because;
  walks_.push_back(*std::exchange(walk_, std::nullopt));
}

void StepRecorder::end_now(const std::string& otherwise) {
  if (walk_) end(announced_by(last_.header).valid ? "over" : otherwise);
}

void StepRecorder::add_to(Image& image) && {
  end_now("the program was replaced or ended");
  image.walks = std::move(walks_);
  image.walks_unseen = std::move(unseen_);
}

}  // namespace ctxconf::conformance
