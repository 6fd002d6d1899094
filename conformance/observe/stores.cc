#include "conformance/observe/stores.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/memory_block.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

constexpr unsigned kWords = abi::kHeaderBytes / sys::kWordBytes;
constexpr std::uint8_t kTimestampWord = 1U << 2U;
constexpr std::uint64_t kLargestCandidate = std::uint64_t{128} << 10U;
constexpr std::size_t kKnownMemfds = 4096;
constexpr std::size_t kPutAside = 16;
constexpr std::size_t kClaimable = 256;     // how many stores to check
constexpr unsigned kStoresAfterValid = 64;  // --watch publication: a writer that never names it
constexpr unsigned kTicksAtRest = 3;        // a shorter sleep may be a lock, or a page from a disk
constexpr std::uint32_t kLargestVersion = 255;  // of anything that may become a header

using Header = std::vector<std::byte>;

abi::ProcessHeader decoded(const Header& h) {
  return abi::decode_process_header(h).value_or(abi::ProcessHeader{});
}

Header with_words(Header to, const Header& from, std::uint8_t words) {
  for (unsigned i = 0; i < kWords; ++i) {
    if ((words >> i & 1U) != 0)
      std::copy_n(&from[i * sys::kWordBytes], sys::kWordBytes, &to[i * sys::kWordBytes]);
  }
  return to;
}

bool is_signed(const Header& h) { return decoded(h).signature == abi::kSignature; }

bool is_zero(const Header& h) {
  return std::ranges::all_of(h, [](std::byte b) { return b == std::byte{0}; });
}

// What the mapping may contain after any store while a writer fills 32 zero bytes, in any order.
bool may_become_header(const Header& h) {
  const auto header = decoded(h);
  for (std::size_t i = 0; i < header.signature.size(); ++i) {
    if (header.signature[i] != 0 && header.signature[i] != abi::kSignature[i]) return false;
  }
  return header.version <= kLargestVersion;
}

// Whether the file has exactly this name; other memory may have a similar one.
bool has_the_name(std::string_view file) {
  if (file.ends_with(" (deleted)")) file.remove_suffix(std::string_view(" (deleted)").size());
  return file == abi::kMemfdFile;
}

}  // namespace

std::uint8_t changed_words(std::span<const std::byte> before, std::span<const std::byte> after) {
  std::uint8_t out = 0;
  for (unsigned i = 0; i < std::min(before.size(), after.size()) / sys::kWordBytes; ++i) {
    if (std::memcmp(&before[i * sys::kWordBytes], &after[i * sys::kWordBytes], sys::kWordBytes) !=
        0) {
      out |= static_cast<std::uint8_t>(1U << i);
    }
  }
  return out;
}

StoreRecorder::StoreRecorder(bool elf64, bool lifetime, std::shared_ptr<EventOrder> order,
                             std::shared_ptr<CopyBudget> copies, CodeFiles& files,
                             StoreLimits limits)
    : elf64_(elf64),
      lifetime_(lifetime),
      order_(std::move(order)),
      budget_(std::move(copies)),
      limits_(limits),
      locations_(files) {}

StoreRecorder::~StoreRecorder() { forget_copy(); }

void StoreRecorder::forget_copy() {
  if (!zeroed_) return;
  zeroed_.reset();
  ++budget_->left;
}

std::optional<sys::RemoteAddr> StoreRecorder::header() const {
  if (!current_) return std::nullopt;
  return current_->at;
}

std::optional<sys::WatchedWords> StoreRecorder::watched(pid_t /*tid*/) const {
  if (!current_) return std::nullopt;
  return sys::words_from(current_->at);
}

void StoreRecorder::unseen(const std::string& why) {
  if (unseen_.empty()) unseen_ = why;
  end(WatchEnd::kGivenUp);
}

std::optional<Header> StoreRecorder::read_header(pid_t tid, sys::RemoteAddr at, Stop* stop) {
  Header bytes(abi::kHeaderBytes);
  const sys::ProcessMemory memory(tid);
  const auto got = [&]() -> sys::Result<std::size_t> {
    if (stop == nullptr) return memory.read_some(at, bytes);
    std::array<std::byte, sizeof stop->code> code{};
    CTX_ASSIGN_OR_RETURN(both, memory.read_two({at, bytes}, {stop->pc, code}));
    if (both[1] == code.size()) std::memcpy(&stop->code, code.data(), code.size());
    return both[0];
  }();
  if (!got) {
    if (is_refused(got.error())) unseen("memory: " + sys::to_string(got.error()));
    return std::nullopt;
  }
  bytes.resize(*got);
  return bytes;
}

// Whether this is still the same mapping; there may now be another one at this address.
bool StoreRecorder::still_there(pid_t tid, const Header& now) {
  if (now.size() < abi::kHeaderBytes) return false;
  if (!is_signed(current_->last) || is_signed(now)) return true;
  const auto mapping = sys::mapping_at(tid, current_->at);
  if (!mapping || !current_->mapping) return mapping.has_value();
  const auto& then = *current_->mapping;
  return mapping->inode == then.inode && mapping->dev_major == then.dev_major &&
         mapping->dev_minor == then.dev_minor && mapping->offset == then.offset &&
         (then.inode != 0 || mapping->range.begin() == then.range.begin());
}

void StoreRecorder::begin(pid_t tid, std::uint64_t address, WatchBegin why, bool memfd) {
  if (!unseen_.empty() || address % sys::kWordBytes != 0) return;
  auto now = read_header(tid, sys::RemoteAddr(address));
  if (!now || now->size() < abi::kHeaderBytes) return;
  end(WatchEnd::kPublishedElsewhere);
  if (stores_.size() >= limits_.stores || watches_.size() >= limits_.watches) return;
  locations_.look_again();
  Current c;
  c.at = sys::RemoteAddr(address);
  c.memfd = memfd;
  c.began = why;
  c.mapping = sys::mapping_at(tid, c.at);
  c.signed_once = is_signed(*now);
  c.last = *std::move(now);
  current_ = std::move(c);
}

void StoreRecorder::armed(pid_t tid, std::vector<pid_t> unwatched) {
  if (!current_ || current_->armed) return;
  auto now = read_header(tid, current_->at);
  if (!now || now->size() < abi::kHeaderBytes) {
    if (current_) end(WatchEnd::kUnmapped);
    return;
  }
  current_->armed = true;
  current_->last = *std::move(now);
  current_->watch = watches_.size();
  current_->first_store = stores_.size();
  Watch w;
  w.header = current_->at.raw();
  w.armed_order = order_->next();
  w.armed_ns = sys::boottime_now_ns();
  w.begin = current_->began;
  w.found = current_->last;
  w.unwatched.assign(unwatched.begin(), unwatched.end());
  watches_.push_back(std::move(w));
}

void StoreRecorder::end(WatchEnd why) {
  if (!current_) return;
  // Memory that never held a signature and that nobody named was not a context's.
  if (!current_->signed_once && current_->began == WatchBegin::kAnonymous) return drop();
  if (current_->watch) {
    watches_[*current_->watch].ended_order = order_->next();
    watches_[*current_->watch].end = why;
  }
  current_.reset();
  at_zero_.reset();
  forget_copy();
}

void StoreRecorder::drop() {
  if (current_->watch) {
    stores_.resize(current_->first_store);
    watches_.resize(*current_->watch);
  }
  current_.reset();
  at_zero_.reset();
  forget_copy();
}

// It was not a header: returns to the memory that was put aside.
void StoreRecorder::give_up(pid_t tid) {
  drop();
  while (!current_ && !put_aside_.empty()) {
    const auto address = put_aside_.back();
    put_aside_.pop_back();
    const auto now = read_header(tid, sys::RemoteAddr(address));
    if (now && now->size() == abi::kHeaderBytes && is_zero(*now)) {
      begin(tid, address, WatchBegin::kAnonymous, /*memfd=*/false);
    }
  }
}

void StoreRecorder::call_entered(const SystemCall& call) { in_progress_[call.tid] = call; }

void StoreRecorder::call_left(const sys::SyscallExit& e) {
  const auto it = in_progress_.find(e.tid);
  if (it == in_progress_.end()) return;
  const SystemCall call = std::move(it->second);
  in_progress_.erase(it);
  if (call.name == "mmap" || call.name == "munmap") locations_.look_again();
  if (call.name == "prctl") return on_naming(e.tid, call);
  if (sys::is_error_result(e.result)) return;
  if (without_file_) {
    begin(e.tid, *without_file_, WatchBegin::kMemfd, /*memfd=*/true);
    if (current_ && current_->at.raw() == *without_file_) without_file_.reset();
  }
  // The result of a 32-bit caller may be sign-extended.
  const auto address =
      e.result < 0 ? static_cast<std::uint32_t>(e.result) : static_cast<std::uint64_t>(e.result);
  if (call.name == "mmap") on_mmap(e.tid, call, address);
  if (call.name == "madvise") on_madvise(e.tid, call);
  if (call.name == "mremap") on_mremap(e.tid, call, address);
  if (call.name == "munmap") on_munmap(call);
}

void StoreRecorder::on_mmap(pid_t tid, const SystemCall& call, std::uint64_t result) {
  if (!is_memfd(call.file)) return;
  if (memfds_.size() < kKnownMemfds) memfds_.push_back({result, call.args[1]});
  if (!is_memfd_of_context(call.file)) return;
  const bool right_name = has_the_name(call.file);
  if (!right_name && current_ && current_->at.raw() == rightly_named_) return;
  if (right_name) rightly_named_ = result;
  begin(tid, result, WatchBegin::kMemfd, /*memfd=*/true);
  // Mapped before ftruncate has made the file large enough.
  without_file_.reset();
  if (!current_ || current_->at.raw() != result) without_file_ = result;
}

void StoreRecorder::on_madvise(pid_t tid, const SystemCall& call) {
  const auto address = call.args[0];
  const auto within = [address](std::uint64_t begin, std::uint64_t size) {
    return address >= begin && address - begin < size;
  };
  if (call.args[2] != MADV_DONTFORK || call.args[1] > kLargestCandidate) return;
  if (std::ranges::any_of(memfds_, [&](Span s) { return within(s.begin, s.size); })) return;
  if (current_) {
    if (current_->memfd || !is_zero(current_->last)) return;
    if (current_->at.raw() >= address && current_->at.raw() - address < call.args[1]) return;
  }
  const auto now = read_header(tid, sys::RemoteAddr(address));
  if (!now || now->size() < abi::kHeaderBytes || !is_zero(*now)) return;
  if (current_ && current_->began == WatchBegin::kAnonymous && put_aside_.size() < kPutAside) {
    put_aside_.push_back(current_->at.raw());
  }
  begin(tid, address, WatchBegin::kAnonymous, /*memfd=*/false);
}

void StoreRecorder::on_naming(pid_t tid, const SystemCall& call) {
  const auto address = call.args[2];
  if (!looks_like_the_name(call.text)) return;
  if (current_ && current_->at.raw() == address) {
    if (!lifetime_ && abi::is_valid(decoded(current_->last))) end(WatchEnd::kPublished);
    return;
  }
  const auto now = read_header(tid, sys::RemoteAddr(address));
  if (!now || now->size() < abi::kHeaderBytes) return;
  if (current_ && (current_->memfd || current_->signed_once) && !is_signed(*now)) return;
  if (!lifetime_ && abi::is_valid(decoded(*now))) return;
  begin(tid, address, WatchBegin::kNamed, /*memfd=*/false);
}

void StoreRecorder::on_mremap(pid_t tid, const SystemCall& call, std::uint64_t result) {
  if (!current_ || result == call.args[0]) return;
  const auto at = current_->at.raw();
  if (at < call.args[0] || at - call.args[0] >= call.args[1]) return;
  const bool memfd = current_->memfd;
  const bool anonymous = current_->began == WatchBegin::kAnonymous && !current_->signed_once;
  end(WatchEnd::kMoved);
  begin(tid, result + (at - call.args[0]), anonymous ? WatchBegin::kAnonymous : WatchBegin::kMoved,
        memfd);
}

void StoreRecorder::on_munmap(const SystemCall& call) {
  const auto gone = [&](std::uint64_t at) {
    return at >= call.args[0] && at - call.args[0] < call.args[1];
  };
  std::erase_if(put_aside_, gone);
  // Other memory may be mapped there next.
  std::erase_if(memfds_, [&](Span s) {
    return gone(s.begin) && s.size <= call.args[1] - (s.begin - call.args[0]);
  });
  if (without_file_ && gone(*without_file_)) without_file_.reset();
  if (current_ && gone(current_->at.raw())) end(WatchEnd::kUnmapped);
}

void StoreRecorder::resumed(pid_t tid) {
  if (is_armed()) resumed_[tid] = order_->last();
}

void StoreRecorder::ended(pid_t tid) {
  resumed_.erase(tid);
  last_ended_ = order_->last();
  if (at_zero_ && at_zero_->tid == tid) has_rested();
}

void StoreRecorder::ticked() {
  if (!at_zero_) return;
  const auto now = sys::thread_activity(at_zero_->tid, at_zero_->tid);
  if (!now || !now->sleeping || at_zero_->activity != *now) {
    at_zero_->unchanged = 0;
    at_zero_->activity.reset();
    if (now) at_zero_->activity = *now;
  } else if (++at_zero_->unchanged == kTicksAtRest) {
    has_rested();
  }
}

void StoreRecorder::has_rested() {
  if (Store* const zeroing = store_of(at_zero_->order)) zeroing->rested = true;
  at_zero_.reset();
}

Store* StoreRecorder::store_of(std::uint64_t order) {
  const auto it = std::ranges::lower_bound(stores_, order, {}, &Store::order);
  return it != stores_.end() && it->order == order ? &*it : nullptr;
}

void StoreRecorder::catch_up(pid_t tid) {
  if (!is_armed()) return;
  // A call that removes the mapping may have done so; left() knows whether, and the new address.
  const auto call = in_progress_.find(tid);
  if (call != in_progress_.end() &&
      (call->second.name == "mremap" || call->second.name == "munmap"))
    return;
  const auto now = read_header(tid, current_->at);
  if (!now || !current_) return;
  if (!still_there(tid, *now)) return end(WatchEnd::kUnmapped);
  if (const auto changed = changed_words(current_->last, *now)) add_foreign(tid, changed, *now);
}

void StoreRecorder::hit(const sys::WatchpointHit& e, StoppedAt at) {
  last_stored_to_.reset();
  if (!is_armed()) return;
  last_stored_to_ = current_->at;
  before_ = current_->last;
  Stop stop{sys::RemoteAddr(e.pc)};
  const auto now = read_header(e.tid, current_->at, &stop);
  if (!now || !current_) return;
  if (!still_there(e.tid, *now)) return end(WatchEnd::kUnmapped);
  if (!current_->signed_once && current_->began == WatchBegin::kAnonymous &&
      !may_become_header(*now)) {
    return give_up(e.tid);
  }
  current_->signed_once = current_->signed_once || is_signed(*now);
  const auto changed = changed_words(current_->last, *now);
  const auto foreign = static_cast<std::uint8_t>(changed & ~unsigned{e.words});
  const bool claimed = (changed & e.words) == 0 && claim(e, stop.code, at.call);
  // Other threads have run before this store and after it: it is unknown on which side of it they
  // changed the timestamp.
  if (!claimed && !at.alone && foreign != 0 && (changed & kTimestampWord) != 0) {
    return add_foreign(e.tid, changed | e.words, *now);
  }
  if (foreign != 0) add_foreign(e.tid, foreign, *now);
  if (!current_ || claimed) return;
  Store s;
  s.tid = e.tid;
  s.order = order_->next();
  s.words = e.words;
  s.before = current_->last;
  s.after = *now;
  s.location = location_of(e, stop.code);
  s.call = at.call;
  add(e.tid, std::move(s));
  if (current_ && abi::is_valid(decoded(*now)) && !lifetime_ &&
      ++current_->stores_while_valid >= kStoresAfterValid) {
    end(WatchEnd::kPublished);
  }
}

void StoreRecorder::add_foreign(pid_t tid, std::uint8_t words, const Header& now) {
  Store s;
  // Reserves places in the order for the threads that later turn out to have made this store.
  const auto spare = static_cast<unsigned>(std::popcount(words)) - 1;
  for (unsigned i = 0; i < spare; ++i) order_->next();
  s.order = order_->next();
  s.words = words;
  s.before = current_->last;
  s.after = with_words(current_->last, now, words);
  if (spare > 0) spare_[s.order] = spare;
  add(tid, std::move(s));
}

void StoreRecorder::add(pid_t tid, Store store) {
  if (stores_.size() >= limits_.stores) {
    ++dropped_;
    return end(WatchEnd::kTooManyStores);
  }
  store.at_ns = sys::boottime_now_ns();
  store.header = current_->at.raw();
  current_->last = store.after;
  current_->signed_once = current_->signed_once || is_signed(store.after);
  look_at_timestamp(tid, store);
  stores_.push_back(std::move(store));
}

void StoreRecorder::look_at_timestamp(pid_t tid, Store& store) {
  const auto before = decoded(store.before);
  const auto after = decoded(store.after);
  const bool was_set = before.monotonic_published_at_ns != 0;
  const bool is_set = after.monotonic_published_at_ns != 0;
  if (!was_set && !is_set) return;
  store.payload = payload_of(tid, store.after);
  at_zero_.reset();
  if (was_set && !is_set) {
    if (store.tid != 0) at_zero_ = {.order = store.order, .tid = store.tid, .activity = {}};
    store.threads = threads_since(tid);
    if (zeroed_ || copies_ >= limits_.copies || budget_->left == 0) return;
    ++copies_;
    auto memory = MemoryCopy::of(tid, {current_->at.raw(), payload_address(before.payload, elf64_)},
                                 limits_.copied);
    if (!memory) return;
    --budget_->left;
    zeroed_ = Zeroed{store.order, *std::move(memory)};
  } else if (!was_set && zeroed_) {
    if (Store* const zeroing = store_of(zeroed_->order)) {
      zeroing->prepared = prepared_for(tid, decoded(zeroing->before), store);
    }
    forget_copy();
  }
}

// The number of threads that may have run since `tid` continued from its last stop.
std::optional<std::uint32_t> StoreRecorder::threads_since(pid_t tid) const {
  const auto threads = sys::thread_count(tid);
  if (!threads) return std::nullopt;
  const auto resumed = resumed_.find(tid);
  const bool one_ended =
      last_ended_ && (resumed == resumed_.end() || *last_ended_ >= resumed->second);
  return static_cast<std::uint32_t>(*threads + (one_ended ? 1 : 0));
}

// What `store` announces, as it was when the timestamp was zeroed and `old` was announced.
std::optional<MemoryBlock> StoreRecorder::prepared_for(pid_t tid, const abi::ProcessHeader& old,
                                                       const Store& store) const {
  const auto after = decoded(store.after);
  const auto& memory = zeroed_->memory;
  const sys::RemoteAddr at(payload_address(after.payload, elf64_));
  auto then = memory.block(at, after.payload_size, limits_.payload_kept, limits_.payload_read);
  if (!then || !store.payload || then->hash == store.payload->hash) return then;
  std::vector<std::byte> announced(store.payload->readable);
  if (!sys::ProcessMemory(tid).read_exact(at, announced)) return std::nullopt;
  auto known = memory.block(sys::RemoteAddr(payload_address(old.payload, elf64_)), old.payload_size,
                            limits_.payload_read, limits_.payload_read);
  if (known) known->bytes.insert(known->bytes.end(), then->bytes.begin(), then->bytes.end());
  if (const auto elsewhere = memory.find(announced)) {
    announced.resize(std::min<std::uint64_t>(announced.size(), limits_.payload_kept));
    then = MemoryBlock{.at = *elsewhere,
                       .wanted = store.payload->wanted,
                       .readable = store.payload->readable,
                       .bytes = std::move(announced),
                       .hash = store.payload->hash};
  } else if (!known || !memory.lacks(tid, announced, known->bytes)) {
    then.reset();
  }
  return then;
}

std::optional<MemoryBlock> StoreRecorder::payload_of(pid_t tid, const Header& header) {
  const auto h = decoded(header);
  if (h.payload_size == 0) return std::nullopt;
  auto block =
      read_block(sys::ProcessMemory(tid), sys::RemoteAddr(payload_address(h.payload, elf64_)),
                 h.payload_size, limits_.payload_kept, limits_.payload_read);
  if (block.readable == 0) return std::nullopt;
  const std::array<std::uint64_t, 3> key{block.at.raw(), block.wanted, block.hash};
  if (payloads_.contains(key) || bytes_ + block.bytes.size() > limits_.bytes) {
    block.bytes.clear();
  } else {
    bytes_ += block.bytes.size();
    payloads_.insert(key);
  }
  return block;
}

std::optional<std::uint32_t> StoreRecorder::location_of(const sys::WatchpointHit& e,
                                                        std::uint64_t code) {
  // For an unfinished instruction, the end of its first byte stands for its end.
  return locations_.location_of(e.tid, sys::is_under_way(e, code) ? e.pc + 1 : e.pc, code);
}

// A thread's stop can wait while another thread's stop is handled, whose look at the header then
// found both stores. So a store without a thread may be this thread's.
bool StoreRecorder::claim(const sys::WatchpointHit& e, std::uint64_t code, const char* call) {
  const auto resumed = resumed_.find(e.tid);
  const auto since = resumed == resumed_.end() ? 0 : resumed->second;
  std::size_t looked = 0;
  for (auto i = stores_.size(); i-- > current_->first_store && ++looked <= kClaimable;) {
    Store& s = stores_[i];
    if (s.order <= since) return false;
    if (s.tid != 0 || (s.words & e.words) == 0) continue;
    const auto others = static_cast<std::uint8_t>(s.words & ~unsigned{e.words});
    if (others == 0) {
      s.tid = e.tid;
      s.words = e.words;
      s.location = location_of(e, code);
      s.call = call;
      return true;
    }
    // No order of these says when the timestamp changed: the store stays without a thread.
    if ((s.words & kTimestampWord) != 0) return true;
    const auto spare = spare_.find(s.order);
    if (spare == spare_.end() || spare->second == 0) return false;
    Store own = s;
    own.tid = e.tid;
    own.order = s.order - spare->second--;
    own.words = e.words;
    own.after = with_words(s.before, s.after, e.words);
    own.location = location_of(e, code);
    own.call = call;
    s.before = own.after;
    s.words = others;
    stores_.insert(stores_.begin() + static_cast<std::ptrdiff_t>(i), std::move(own));
    return true;
  }
  return false;
}

void StoreRecorder::add_to(Image& image, bool saw_context) {
  if (current_ && !current_->signed_once && current_->began == WatchBegin::kAnonymous) drop();
  current_.reset();
  image.stores_unseen = std::move(unseen_);
  if (!saw_context && stores_.empty()) return;
  if (!image.stores_unseen.empty()) {
    image.notes.push_back("not all stores were seen: " + image.stores_unseen);
  }
  image.watches = std::move(watches_);
  image.stores = std::move(stores_);
  image.stores_dropped = dropped_;
  image.locations = std::move(locations_).finish();
}

}  // namespace ctxconf::conformance
