#include "conformance/observe/slot_steps.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <span>
#include <utility>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "conformance/observe/memory_block.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

std::optional<std::uint64_t> word_at(pid_t tid, sys::RemoteAddr at) {
  const auto word = sys::ProcessMemory(tid).read(sys::RemotePtr<std::uint64_t>{at});
  return word ? std::optional(*word) : std::nullopt;
}

}  // namespace

SlotStepRecorder::SlotStepRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files,
                                   const ThreadRecorder& threads, SlotStepLimits limits)
    : order_(std::move(order)), threads_(threads), limits_(limits), locations_(files) {}

void SlotStepRecorder::give_up(const std::string& why) {
  end(why);
  tid_ = 0;
  gave_up_ = true;
  unseen(why);
}

void SlotStepRecorder::unseen(const std::string& why) {
  if (unseen_.empty()) unseen_ = why;
}

bool SlotStepRecorder::turn_is_over() const {
  // The shortest change ends after `stable` instructions and a few more.
  const std::uint64_t least = 2 * limits_.stable;
  return turn_traces_ >= turn_.step_traces || turn_steps_ >= turn_.steps ||
         (turn_traces_ > 0 && turn_.steps - turn_steps_ < least);
}

void SlotStepRecorder::forget() {
  end("the thread ended");
  tid_ = 0;
}

SlotStepRecorder::Seen SlotStepRecorder::look() const {
  Seen out;
  out.value = word_at(tid_, slot_).value_or(0);
  if (out.value == 0) return out;
  const sys::ProcessMemory memory(tid_);
  const sys::RemoteAddr at(out.value);
  out.wanted = abi::kRecordHeadBytes;
  out.record.resize(abi::kRecordHeadBytes);
  out.record.resize(memory.read_some(at, out.record).value_or(0));
  const auto head = abi::decode_thread_record(out.record);
  if (!head || head->attrs_data_size == 0) return out;
  out.wanted += head->attrs_data_size;
  out.record.resize(std::min(out.wanted, limits_.record));
  out.record.resize(memory.read_some(at, out.record).value_or(0));
  return out;
}

// Whether look() would return anything new.
bool SlotStepRecorder::differs() {
  if (last_.record.size() < abi::kRecordHeadBytes) return look() != last_;
  const sys::ProcessMemory memory(tid_);
  std::array<std::byte, sizeof(std::uint64_t)> slot{};
  next_.resize(last_.record.size());
  const auto got = memory.read_two({slot_, slot}, {sys::RemoteAddr(last_.value), next_});
  std::uint64_t value = 0;
  std::memcpy(&value, slot.data(), sizeof value);
  return !got || (*got)[0] != slot.size() || (*got)[1] != next_.size() || value != last_.value ||
         next_ != last_.record;
}

// The instruction at `pc` did not store to the record, but bytes of the record changed.
bool SlotStepRecorder::is_by_another(const Seen& now, std::uint64_t pc) const {
  if (now.value != last_.value || now.value == 0) return false;
  const auto record =
      sys::RemoteRange::from_size(sys::RemoteAddr(now.value), std::max(now.wanted, last_.wanted));
  return record && instructions_.left_alone(tid_, pc, *record);
}

void SlotStepRecorder::add(Seen now, std::optional<std::uint32_t> location, bool by_another) {
  last_ = std::move(now);
  changed_at_ = trace_->steps;
  if (trace_->views.size() >= limits_.views) return end("too many changes");
  if (bytes_ + last_.record.size() > limits_.bytes) return end("too much memory");
  bytes_ += last_.record.size();
  SlotView view;
  view.step = trace_->steps;
  view.order = order_->next();
  view.value = last_.value;
  view.location = location;
  view.by_another = by_another;
  if (header_) {
    const auto at = header_->plus(offsetof(abi::ProcessHeader, monotonic_published_at_ns));
    if (at) view.published = word_at(tid_, *at);
  }
  if (last_.value != 0) {
    view.record = MemoryBlock{
        .at = sys::RemoteAddr(last_.value),
        .wanted = last_.wanted,
        // Nothing was compared beyond the limit.
        .readable = last_.record.size() < limits_.record ? last_.record.size() : last_.wanted,
        .bytes = last_.record,
        .hash = fnv1a(kFnvBasis, last_.record)};
  }
  trace_->views.push_back(std::move(view));
}

std::optional<sys::WatchedWords> SlotStepRecorder::watched(pid_t tid) const {
  if (tid != tid_ || trace_ || turn_is_over()) return std::nullopt;
  const sys::RemoteAddr slot(slot_.raw() / sys::kWordBytes * sys::kWordBytes);
  if (last_.value == 0) return sys::WatchedWords{slot, slot, slot, slot};
  const std::uint64_t record = last_.value / sys::kWordBytes * sys::kWordBytes;
  return sys::WatchedWords{slot, sys::RemoteAddr(record),
                           sys::RemoteAddr(record + 2 * sys::kWordBytes),
                           sys::RemoteAddr(record + 3 * sys::kWordBytes)};
}

void SlotStepRecorder::watch(pid_t tid, sys::RemoteAddr slot, std::optional<sys::RemoteAddr> header,
                             SlotTurnLimits turn) {
  turn_ = turn;
  turn_steps_ = 0;
  turn_traces_ = 0;
  tid_ = tid;
  slot_ = slot;
  header_ = header;
  last_ = look();
  locations_.look_again();
}

bool SlotStepRecorder::can_watch() {
  if (threads_.context().image().elf64) return true;
  give_up("the program is not a 64-bit program");
  return false;
}

// If several modules define one, takes the one that was used.
std::optional<sys::RemoteAddr> SlotStepRecorder::variable_of(pid_t tid,
                                                             sys::RemoteAddr thread_pointer) const {
  const auto used = threads_.slot_of(tid);
  return used ? std::optional(used->at) : threads_.variable_of(tid, thread_pointer);
}

Rewatched SlotStepRecorder::select(pid_t tid, std::optional<sys::RemoteAddr> thread_pointer) {
  if (!thread_pointer || !can_watch()) return Rewatched::kNobody;
  const auto slot = variable_of(tid, *thread_pointer);
  if (!slot) return Rewatched::kNobody;
  watch(tid, *slot, threads_.context().header());
  return Rewatched::kThread;
}

void SlotStepRecorder::begin(const sys::WatchpointHit& hit) {
  if (traces_.size() >= limits_.step_traces || steps_ >= limits_.all_steps) {
    return give_up("not every instruction of later operations was observed: there were too many");
  }
  trace_.emplace();
  trace_->tid = tid_;
  trace_->slot = slot_.raw();
  add(std::exchange(last_, {}), std::nullopt);
  if (!trace_) return;
  ++trace_->steps;
  ++steps_;
  ++turn_steps_;
  // For an unfinished instruction, the end of its first byte stands for its end.
  if (Seen now = look(); now != last_) add(std::move(now), locations_.location_of(tid_, hit.pc, 0));
  pc_ = hit.pc;
}

void SlotStepRecorder::pass() { last_ = look(); }

void SlotStepRecorder::stepped(const sys::Stepped& e) {
  const bool may_differ = instructions_.at(e.tid, pc_).may_store;
  ++trace_->steps;
  ++steps_;
  ++turn_steps_;
  const std::uint64_t at = std::exchange(pc_, e.pc);
  if (may_differ && differs()) {
    if (Seen now = look(); now != last_) {
      const bool by_another = is_by_another(now, at);
      add(std::move(now), by_another ? std::nullopt : locations_.location_of_step(e.tid, at, e.pc),
          by_another);
    }
    if (!trace_) return;
  }
  if (trace_->steps - changed_at_ >= limits_.stable) {
    end_over();
  } else if (trace_->steps >= limits_.steps || steps_ >= limits_.all_steps ||
             turn_steps_ >= turn_.steps) {
    end("too many instructions");
  }
}

void SlotStepRecorder::end_over() {
  if (trace_) trace_->over = true;
  end("over");
}

void SlotStepRecorder::end(const std::string& because) {
  if (!trace_) return;
  trace_->ended_because = because;
  ++turn_traces_;
  traces_.push_back(*std::exchange(trace_, std::nullopt));
}

void SlotStepRecorder::stored(const sys::WatchpointHit& hit, StoppedAt at) {
  if (!watched(hit.tid)) return;
  if (!at.may_step) return pass();
  if (!sys::has_default_action(hit.tid, SIGTRAP).value_or(false)) return give_up(kOwnTrapAction);
  begin(hit);
}

bool SlotStepRecorder::stepped(const sys::Stepped& e, StoppedAt /*at*/) {
  if (is_stepping(e.tid)) stepped(e);
  return false;
}

void SlotStepRecorder::ended(pid_t tid) {
  if (watched_thread() == tid) forget();
}

void SlotStepRecorder::end_steps(pid_t tid, const std::string& because) {
  if (is_stepping(tid)) end(because);
}

void SlotStepRecorder::add_to(Image& image, bool /*saw_context*/) {
  end("the program was replaced or ended");
  // Other stores are not recorded together with these, so these are all locations.
  image.locations = std::move(locations_).finish();
  image.slot_step_traces = std::move(traces_);
  image.slot_steps_unseen = std::move(unseen_);
}

}  // namespace ctxconf::conformance
