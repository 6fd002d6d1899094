#include "conformance/observe/record_stores.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "abi/thread_record.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {

ThreadRecordWatcher::ThreadRecordWatcher(std::shared_ptr<EventOrder> order, CodeFiles& files,
                                         const ThreadRecorder& threads, RecordStoreLimits limits)
    : order_(std::move(order)), limits_(limits), locations_(files), threads_(threads) {}

std::optional<sys::WatchedWords> ThreadRecordWatcher::watched(pid_t /*tid*/) const {
  if (!active_) return std::nullopt;
  return sys::words_from(sys::RemoteAddr(current_.record / sys::kWordBytes * sys::kWordBytes));
}

// The head and all entries that it announces, or announced at the last copy.
std::vector<std::byte> ThreadRecordWatcher::copy(pid_t reader) const {
  const sys::ProcessMemory memory(reader);
  std::vector<std::byte> bytes(abi::kRecordHeadBytes);
  const sys::RemoteAddr at(current_.record);
  auto got = memory.read_some(at, bytes);
  bytes.resize(got.value_or(0));
  const auto head = abi::decode_thread_record(bytes);
  if (!head) return bytes;
  const auto whole =
      std::min(std::max<std::uint64_t>(abi::kRecordHeadBytes + head->attrs_data_size, last_.size()),
               limits_.record);
  bytes.resize(whole);
  got = memory.read_some(at, bytes);
  bytes.resize(got.value_or(0));
  return bytes;
}

std::uint64_t ThreadRecordWatcher::slot_value(pid_t reader) const {
  const sys::ProcessMemory memory(reader);
  return memory.read(sys::RemotePtr<std::uint64_t>{sys::RemoteAddr(current_.slot)}).value_or(0);
}

Rewatched ThreadRecordWatcher::select(pid_t tid, std::optional<sys::RemoteAddr>) {
  const auto slot = threads_.slot_of(tid);
  if (!slot) return Rewatched::kNobody;
  if (active_ && current_.record == slot->value.raw() && current_.owner == tid) {
    return Rewatched::kNobody;
  }
  begin(slot->value, slot->at, tid);
  return active_ ? Rewatched::kAllThreads : Rewatched::kNobody;
}

void ThreadRecordWatcher::begin(sys::RemoteAddr record, sys::RemoteAddr slot, pid_t owner) {
  end();
  if (record.raw() % 4 != 0 || watches_.size() >= limits_.watches) return;
  current_ = {};
  current_.record = record.raw();
  current_.slot = slot.raw();
  current_.owner = owner;
  last_.clear();
  last_ = copy(threads_.context().image().key.pid);
  if (last_.size() < abi::kRecordHeadBytes) return;
  current_.found = last_;
  active_ = true;
  locations_.look_again();
}

void ThreadRecordWatcher::selected(std::vector<pid_t> unwatched) {
  if (!active_) return;
  current_.armed_order = order_->next();
  current_.unwatched.assign(unwatched.begin(), unwatched.end());
}

void ThreadRecordWatcher::end() {
  if (!active_) return;
  active_ = false;
  current_.ended_order = order_->next();
  if (current_.armed_order != 0) watches_.push_back(std::move(current_));
}

void ThreadRecordWatcher::stored(const sys::WatchpointHit& hit, StoppedAt /*at*/) {
  if (!active_) return;
  auto now = copy(hit.tid);
  if (now.size() < abi::kRecordHeadBytes) return end();  // it was unmapped
  const std::uint64_t stored = last_.size() + now.size();
  if (stores_.size() >= limits_.stores || bytes_ + stored > limits_.bytes) {
    ++dropped_;
    return end();
  }
  bytes_ += stored;
  std::array<std::byte, 8> code{};
  std::uint64_t code_word = 0;
  if (sys::ProcessMemory(hit.tid).read_exact(sys::RemoteAddr(hit.pc), code)) {
    std::memcpy(&code_word, code.data(), sizeof code_word);
  }
  RecordStore s;
  s.tid = hit.tid;
  s.order = order_->next();
  s.at_ns = sys::boottime_now_ns();
  s.record = current_.record;
  s.words = hit.words;
  s.slot = slot_value(hit.tid);
  s.location = locations_.location_of(hit.tid, hit.pc, code_word);
  s.before = std::exchange(last_, now);
  s.after = std::move(now);
  stores_.push_back(std::move(s));
}

void ThreadRecordWatcher::add_to(Image& image, bool /*saw_context*/) {
  end();
  // Header stores are not recorded together with these, so these are all locations.
  image.locations = std::move(locations_).finish();
  image.record_watches = std::move(watches_);
  image.record_stores = std::move(stores_);
  image.record_stores_dropped = dropped_;
}

}  // namespace ctxconf::conformance
