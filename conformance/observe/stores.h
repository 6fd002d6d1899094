// Level stores: every store to the header of one image's publication, seen through four
// watchpoints that all threads of the process carry.
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
#include "conformance/observe/calls.h"
#include "conformance/observe/code_places.h"
#include "conformance/observe/memory_copy.h"
#include "conformance/timeline.h"
#include "sys/map_table.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

// Of two states of a header, bit i: bytes 8i to 8i+7 differ. What one of them lacks is the same.
std::uint8_t changed_words(std::span<const std::byte> before, std::span<const std::byte> after);

struct StoreLimits {
  std::size_t stores = kMaxStores;
  std::size_t watches = 1024;
  std::uint64_t payload_kept = 4096;
  std::uint64_t payload_read = kMostPayload;
  std::uint64_t bytes = std::uint64_t{1} << 20U;  // of payloads that are stored
  // Where the payload of an update was before its timestamp became zero: memory copied at each,
  // and for how many updates.
  std::uint64_t copied = std::uint64_t{32} << 20U;
  std::size_t copies = 16;
};

// How many images may hold such a copy at once.
struct CopyBudget {
  std::size_t left = 4;
};

// Decides what is watched and records what the watchpoints say. Whoever uses it arms and disarms
// the threads: after each function of it header() is what they are to watch.
class StoreRecorder {
 public:
  // `lifetime`: --watch lifetime. `files`: of all images; outlives this.
  StoreRecorder(bool elf64, bool lifetime, std::shared_ptr<EventOrder> order,
                std::shared_ptr<CopyBudget> copies, CodeFiles& files, StoreLimits limits = {});
  ~StoreRecorder();
  StoreRecorder(const StoreRecorder&) = delete;
  StoreRecorder& operator=(const StoreRecorder&) = delete;

  std::optional<sys::RemoteAddr> header() const;
  bool is_armed() const { return current_ && current_->armed; }
  // Where is_armed(): the header at the last look, 32 bytes or fewer.
  const std::vector<std::byte>& last_header() const { return current_->last; }
  CodePlaces& places() { return places_; }

  // A call that concerns a publication begins, or is back; `tid` is stopped there.
  void entered(const SystemCall& call);
  void left(const sys::SyscallExit& e);
  // All threads watch header() now, but for `unwatched`, which may have run without. The thread
  // that made the call is still stopped, as `tid`.
  void armed(pid_t tid, std::vector<pid_t> unwatched);
  // `alone`: nobody else has run in this memory since the thread stored.
  void hit(const sys::WatchpointHit& e, bool alone = false);
  // What has changed since the last look was no watched thread, or one whose stop comes yet.
  void look(pid_t tid);
  // The thread goes on from a stop behind which no hit of it waits.
  void resumed(pid_t tid);
  void ended(pid_t tid);

  // Stores are not seen, or not all: the first reason is kept, and nothing is watched any more.
  void unseen(const std::string& why);

  // Adds what concerned a publication, as CallRecorder does.
  void add_to(Image& image, bool saw_context) &&;
  std::uint64_t stored_bytes() const { return bytes_; }

 private:
  using Header = std::vector<std::byte>;  // 32 bytes, or fewer
  struct Current {
    sys::RemoteAddr at;
    bool memfd = false;  // of a memfd that is named for it
    bool armed = false;
    std::string because;
    std::optional<sys::MapEntry> mapping;
    Header last;
    bool signed_once = false;          // it had the whole signature
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

  void begin(pid_t tid, std::uint64_t address, const std::string& because, bool memfd);
  void end(const std::string& because);
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
  bool claim(const sys::WatchpointHit& e, std::uint64_t code);
  std::optional<std::uint32_t> place_of(const sys::WatchpointHit& e, std::uint64_t code);
  void look_at_timestamp(pid_t tid, Store& store);
  std::optional<MemoryBlock> prepared_for(pid_t tid, const abi::ProcessHeader& old,
                                          const Store& store) const;
  std::optional<std::uint32_t> threads_since(pid_t tid) const;
  std::optional<MemoryBlock> payload_of(pid_t tid, const Header& header);
  void forget_copy();

  bool elf64_;
  bool lifetime_;
  std::shared_ptr<EventOrder> order_;
  std::shared_ptr<CopyBudget> budget_;
  StoreLimits limits_;
  std::optional<Current> current_;
  std::map<pid_t, SystemCall> in_progress_;
  std::vector<Span> memfds_;                    // where memfds were mapped
  std::optional<std::uint64_t> rightly_named_;  // the last mapping of a memfd OTEL_CTX
  std::optional<std::uint64_t>
      without_file_;                      // a memfd's mapping, still beyond the end of the file
  std::vector<std::uint64_t> put_aside_;  // anonymous memory that may yet become a header
  std::vector<Watch> watches_;
  std::vector<Store> stores_;
  std::map<std::uint64_t, unsigned> spare_;  // free places before a store of nobody, by its order
  std::map<pid_t, std::uint64_t> resumed_;   // last place in the order before the thread went on
  std::optional<std::uint64_t> last_ended_;  // last place in the order when a thread ended
  std::optional<Zeroed> zeroed_;
  std::size_t copies_ = 0;
  CodePlaces places_;
  std::set<std::array<std::uint64_t, 3>> payloads_;  // address, size and hash of those kept
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
