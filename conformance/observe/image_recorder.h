// Everything that is recorded about one image of a process: its snapshots, and what the instruments
// see. Add a new instrument to the list in the constructor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/faults/injection.h"
#include "conformance/observe/calls.h"
#include "conformance/observe/code_locations.h"
#include "conformance/observe/fork_probes.h"
#include "conformance/observe/instrument.h"
#include "conformance/observe/known_files.h"
#include "conformance/observe/memory_copy.h"
#include "conformance/observe/record_stores.h"
#include "conformance/observe/slot_steps.h"
#include "conformance/observe/slot_turns.h"
#include "conformance/observe/snapshot.h"
#include "conformance/observe/steps.h"
#include "conformance/observe/stores.h"
#include "conformance/observe/threads.h"
#include "conformance/observe/wrap.h"

namespace ctxconf::conformance {

// What the images of a recording share; must outlive them.
struct SharedByImages {
  KnownFiles& known_files;
  CodeFiles& code_files;
  std::shared_ptr<CopyBudget> copies;
  SharedBySlotTurns& slot_turns;
};

class ImageRecorder {
 public:
  // `filters`: seccomp filters that existed before the program did anything; nothing: unknown.
  // `options` must outlive this.
  ImageRecorder(ImageKey key, const WrapOptions& options, const SnapshotLimits& limits,
                std::optional<unsigned> filters, const SharedByImages& shared);

  SnapshotRecorder& snapshots() { return snapshots_; }
  const Image& image() const { return snapshots_.image(); }
  const EventOrder& order() const { return *order_; }
  Injector& injector() { return injector_; }
  ForkProbes& forks() { return forks_; }
  std::vector<Race>& races() { return races_; }
  void no_race(std::string why) { races_unseen_ = std::move(why); }

  // They are in the order in which they get events.
  const std::vector<std::unique_ptr<Instrument>>& instruments() const { return instruments_; }
  CallRecorder& calls() { return *calls_; }
  ThreadRecorder& threads() { return *threads_; }
  const ThreadRecorder& threads() const { return *threads_; }

  // Whether an instrument that chooses the threads that it watches has none now.
  bool chooses_threads() const;
  // Whether the thread is single-stepped.
  bool steps(pid_t tid) const;
  std::uint64_t stored_bytes() const;

  // The image, with how it ended.
  Image finish(const std::string& ending) &&;

 private:
  template <class T, class... Args>
  T* add(Args&&... args);

  const WrapOptions& options_;
  SnapshotRecorder snapshots_;
  std::shared_ptr<EventOrder> order_ = std::make_shared<EventOrder>();
  Injector injector_;
  ForkProbes forks_;
  std::vector<Race> races_;
  std::string races_unseen_;
  std::vector<std::unique_ptr<Instrument>> instruments_;
  CallRecorder* calls_ = nullptr;
  ThreadRecorder* threads_ = nullptr;
};

}  // namespace ctxconf::conformance
