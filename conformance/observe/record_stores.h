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
#include "conformance/observe/threads.h"
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
  // `threads`: of the same image; must outlive this.
  ThreadRecordWatcher(std::shared_ptr<EventOrder> order, CodeFiles& files,
                      const ThreadRecorder& threads, RecordStoreLimits limits = {});

  // The four words at the beginning of the record.
  std::optional<sys::WatchedWords> watched(pid_t tid) const override;
  void stored(const sys::WatchpointHit& hit, StoppedAt at) override;
  // The record that the thread had at its last look; if it had none, the previous one stays
  // watched.
  Rewatched select(pid_t tid, std::optional<sys::RemoteAddr> thread_pointer) override;
  void selected(std::vector<pid_t> unwatched) override;

  void add_to(Image& image, bool saw_context) override;

 private:
  // Stops watching the previous record. `record` must be at a multiple of 4.
  void begin(sys::RemoteAddr record, sys::RemoteAddr slot, pid_t owner);
  void end();
  // `reader`: a living thread of the process.
  std::vector<std::byte> copy(pid_t reader) const;
  std::uint64_t slot_value(pid_t reader) const;

  std::shared_ptr<EventOrder> order_;
  RecordStoreLimits limits_;
  CodeLocations locations_;
  const ThreadRecorder& threads_;
  bool active_ = false;
  RecordWatch current_;
  std::vector<std::byte> last_;
  std::vector<RecordWatch> watches_;
  std::vector<RecordStore> stores_;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace ctxconf::conformance
