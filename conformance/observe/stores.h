// Level stores: every store to the header of one image's publication, seen through four watchpoints
// in all threads of the process.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "abi/process_header.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/code_locations.h"
#include "conformance/observe/instrument.h"
#include "conformance/observe/memory_copy.h"
#include "sys/map_table.h"
#include "sys/thread_stop.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// Compares two states of a header. Bit i: bytes 8i to 8i+7 differ. Bytes that one state lacks count
// as equal.
std::uint8_t changed_words(std::span<const std::byte> before, std::span<const std::byte> after);

struct StoreLimits {
  std::size_t stores = kMaxStores;
  std::size_t watches = 1024;
  std::uint64_t payload_kept = 4096;
  std::uint64_t payload_read = kMostPayload;
  std::uint64_t bytes = std::uint64_t{1} << 20U;  // of payloads that are stored
  // To find the payload of an update as it was before its timestamp became zero: how many bytes of
  // memory are copied for an update, and for how many updates.
  std::uint64_t copied = std::uint64_t{32} << 20U;
  std::size_t copies = 16;
};

// How many images may hold such a copy at a time.
struct CopyBudget {
  std::size_t left = 4;
};

// Decides what is watched and records what the watchpoints report. Its user arms and disarms the
// threads: after each call of a function here, they must watch header().
class StoreRecorder : public Instrument {
 public:
  // `lifetime`: --watch lifetime. `files`: of all images; must outlive this.
  StoreRecorder(bool elf64, bool lifetime, std::shared_ptr<EventOrder> order,
                std::shared_ptr<CopyBudget> copies, CodeFiles& files, StoreLimits limits = {});
  ~StoreRecorder() override;

  std::optional<sys::RemoteAddr> header() const;
  bool is_armed() const { return current_ && current_->armed; }
  // If is_armed(): the header at the last look, 32 bytes or fewer.
  const std::vector<std::byte>& last_header() const { return current_->last; }
  // The header that received the last store, and its bytes before that.
  std::optional<sys::RemoteAddr> last_stored_to() const { return last_stored_to_; }
  const std::vector<std::byte>& header_before() const { return before_; }

  std::optional<sys::WatchedWords> watched(pid_t tid) const override;
  bool watches_all_threads() const override { return current_.has_value(); }
  bool is_to_be_armed() const override { return current_ && !current_->armed; }
  void watch_failed(const std::string& why) override { unseen(why); }
  void stored(const sys::WatchpointHit& e, StoppedAt at) override { hit(e, at); }
  void ticked() override;
  CodeLocations& locations() { return locations_; }

  // A call that concerns a publication begins or has returned; `tid` is stopped there.
  void call_entered(const SystemCall& call) override;
  void call_left(const sys::SyscallExit& e) override;
  // All threads now watch header(), except `unwatched`, which may have run without it. The thread
  // that made the call is still stopped, as `tid`.
  void armed(pid_t tid, std::vector<pid_t> unwatched) override;
  void hit(const sys::WatchpointHit& e, StoppedAt at = {});
  // A change since the last look was made by no watched thread, or by one whose stop is pending.
  void catch_up(pid_t tid) override;
  // The thread continues from a stop, and no hit of it is pending.
  void resumed(pid_t tid) override;
  void ended(pid_t tid) override;

  // Some or all stores are not seen: keeps the first reason, and watches nothing any more.
  void unseen(const std::string& why);

  // Adds what concerned a publication; see CallRecorder.
  void add_to(Image& image, bool saw_context) override;
  std::uint64_t stored_bytes() const override { return bytes_; }

 private:
  using Header = std::vector<std::byte>;  // 32 bytes, or fewer
  struct Current {
    sys::RemoteAddr at;
    bool memfd = false;  // in a memfd that has a context's name
    bool armed = false;
    WatchBegin began = WatchBegin::kUnknown;
    std::optional<sys::MapEntry> mapping;
    Header last;
    bool signed_once = false;          // it once had the whole signature
    unsigned stores_while_valid = 0;   // since it became valid
    std::optional<std::size_t> watch;  // index into watches_
    std::size_t first_store = 0;       // of this watch, index into stores_
  };
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };
  // A copy of memory from the store that made the timestamp zero, by the order of that store.
  struct Zeroed {
    std::uint64_t order = 0;
    MemoryCopy memory;
  };
  // The timestamp is zero because of this store.
  struct AtZero {
    std::uint64_t order = 0;
    pid_t tid = 0;
    std::optional<sys::ThreadActivity> activity;  // at the last tick
    unsigned unchanged = 0;                       // ticks in a row that found the same, asleep
  };

  void begin(pid_t tid, std::uint64_t address, WatchBegin why, bool memfd);
  void end(WatchEnd why);
  void drop();
  void give_up(pid_t tid);
  void on_mmap(pid_t tid, const SystemCall& call, std::uint64_t result);
  void on_madvise(pid_t tid, const SystemCall& call);
  void on_naming(pid_t tid, const SystemCall& call);
  void on_mremap(pid_t tid, const SystemCall& call, std::uint64_t result);
  void on_munmap(const SystemCall& call);

  // The code at which a thread stopped; 0: it cannot be read.
  struct Stop {
    sys::RemoteAddr pc;
    std::uint64_t code = 0;
  };
  std::optional<Header> read_header(pid_t tid, sys::RemoteAddr at, Stop* stop = nullptr);
  bool still_there(pid_t tid, const Header& now);
  void add(pid_t tid, Store store);
  void add_foreign(pid_t tid, std::uint8_t words, const Header& now);
  bool claim(const sys::WatchpointHit& e, std::uint64_t code, const char* call);
  std::optional<std::uint32_t> location_of(const sys::WatchpointHit& e, std::uint64_t code);
  void look_at_timestamp(pid_t tid, Store& store);
  std::optional<MemoryBlock> prepared_for(pid_t tid, const abi::ProcessHeader& old,
                                          const Store& store) const;
  std::optional<std::uint32_t> threads_since(pid_t tid) const;
  std::optional<MemoryBlock> payload_of(pid_t tid, const Header& header);
  void has_rested();
  Store* store_of(std::uint64_t order);  // null: it is not kept
  void forget_copy();

  bool elf64_;
  bool lifetime_;
  std::shared_ptr<EventOrder> order_;
  std::shared_ptr<CopyBudget> budget_;
  StoreLimits limits_;
  std::optional<Current> current_;
  std::optional<sys::RemoteAddr> last_stored_to_;
  Header before_;
  std::map<pid_t, SystemCall> in_progress_;
  std::vector<Span> memfds_;                    // where memfds were mapped
  std::optional<std::uint64_t> rightly_named_;  // the last mapping of a memfd OTEL_CTX
  std::optional<std::uint64_t>
      without_file_;  // a memfd's mapping that is still beyond the end of the file
  std::vector<std::uint64_t> put_aside_;  // anonymous memory that may still become a header
  std::vector<Watch> watches_;
  std::vector<Store> stores_;
  std::map<std::uint64_t, unsigned>
      spare_;  // free places before a store without a thread, by its order
  std::map<pid_t, std::uint64_t> resumed_;   // last place in the order before the thread continued
  std::optional<std::uint64_t> last_ended_;  // last place in the order when a thread ended
  std::optional<Zeroed> zeroed_;
  std::optional<AtZero> at_zero_;  // until the timestamp returns, or the thread has rested
  std::size_t copies_ = 0;
  CodeLocations locations_;
  std::set<std::array<std::uint64_t, 3>> payloads_;  // address, size and hash of those kept
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
