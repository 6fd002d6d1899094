// Level stores of thread context: every store to the record that is attached to one thread, by any
// thread of the process. The four watchpoints cover its 28 bytes and the next four. A store
// elsewhere in the record becomes visible at the next hit.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/code_locations.h"
#include "conformance/observe/instrument.h"
#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

struct RecordStoreLimits {
  std::size_t stores = kMaxRecordStores;
  std::size_t watches = 256;
  std::uint64_t record = 4096;  // bytes of one copy
  std::uint64_t bytes = std::uint64_t{4} << 20U;
};

// Decides what is recorded; its user sets the watchpoints of the threads.
class ThreadRecordWatcher : public Instrument {
 public:
  ThreadRecordWatcher(std::shared_ptr<EventOrder> order, CodeFiles& files,
                      RecordStoreLimits limits = {});

  // The four words at the beginning of the record.
  std::optional<sys::WatchedWords> watched(pid_t tid) const override;
  void stored(const sys::WatchpointHit& e, StoppedAt /*at*/) override { hit(e); }
  // Starts with this record, which `owner` has in the slot at `slot`.
  bool is_about(sys::RemoteAddr record, pid_t owner) const;

  // From now on; `reader` is a living thread of the process. Stops watching the previous record.
  // The record must be at a multiple of 4.
  void begin(pid_t reader, sys::RemoteAddr record, sys::RemoteAddr slot, pid_t owner);
  // All threads now have the watchpoints, except these.
  void watches_begun(std::vector<pid_t> unwatched);
  void hit(const sys::WatchpointHit& e);
  void end();

  void add_to(Image& image, bool saw_context) override;

 private:
  std::vector<std::byte> copy(pid_t reader) const;
  std::uint64_t slot_value(pid_t reader) const;

  std::shared_ptr<EventOrder> order_;
  RecordStoreLimits limits_;
  CodeLocations locations_;
  bool active_ = false;
  RecordWatch current_;
  std::vector<std::byte> last_;
  std::vector<RecordWatch> watches_;
  std::vector<RecordStore> stores_;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace ctxconf::conformance
