// Level stores of thread context: every store to the record that is attached to one thread, by any
// thread of the process. Four watchpoints are its 28 bytes and the next four; what a store changed
// elsewhere in the record shows when the next one of these is hit.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "conformance/observe/calls.h"
#include "conformance/observe/code_places.h"
#include "conformance/timeline.h"
#include "sys/remote_addr.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

struct RecordStoreLimits {
  std::size_t stores = kMaxRecordStores;
  std::size_t watches = 256;
  std::uint64_t record = 4096;  // bytes of one copy
  std::uint64_t bytes = std::uint64_t{4} << 20U;
};

// Decides what is recorded; whoever uses it gives the watchpoints to the threads.
class RecordStoreRecorder {
 public:
  RecordStoreRecorder(std::shared_ptr<EventOrder> order, CodeFiles& files,
                      RecordStoreLimits limits = {});

  // Where the 32 watched bytes begin, a multiple of 8; nothing: nowhere.
  std::optional<sys::RemoteAddr> watched() const;
  // Of this record, which `owner` has in the slot at `slot`.
  bool is_about(sys::RemoteAddr record, pid_t owner) const;

  // From now on; `reader` is a thread of the process that is there. What was watched before is so
  // no longer. The record must be at a multiple of 4.
  void begin(pid_t reader, sys::RemoteAddr record, sys::RemoteAddr slot, pid_t owner);
  // All threads carry the watchpoints now, but for these.
  void armed(std::vector<pid_t> unwatched);
  void hit(const sys::WatchpointHit& e);
  void end();

  void add_to(Image& image) &&;

 private:
  std::vector<std::byte> copy(pid_t reader) const;
  std::uint64_t slot_value(pid_t reader) const;

  std::shared_ptr<EventOrder> order_;
  RecordStoreLimits limits_;
  CodePlaces places_;
  bool active_ = false;
  RecordWatch current_;
  std::vector<std::byte> last_;
  std::vector<RecordWatch> watches_;
  std::vector<RecordStore> stores_;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace ctxconf::conformance
