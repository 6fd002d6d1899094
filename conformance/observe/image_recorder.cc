#include "conformance/observe/image_recorder.h"

#include <algorithm>
#include <utility>

namespace ctxconf::conformance {

template <class T, class... Args>
T* ImageRecorder::add(Args&&... args) {
  auto made = std::make_unique<T>(std::forward<Args>(args)...);
  T* const instrument = made.get();
  instruments_.push_back(std::move(made));
  return instrument;
}

ImageRecorder::ImageRecorder(ImageKey key, const WrapOptions& options, const SnapshotLimits& limits,
                             std::optional<unsigned> filters, const SharedByImages& shared)
    : options_(options), snapshots_(key, limits), injector_(options.injections), forks_(filters) {
  const bool elf64 = snapshots_.image().elf64;
  CallLimits call_limits;
  call_limits.bytes = std::min(call_limits.bytes, limits.image_bytes / 2);
  StoreLimits store_limits;
  store_limits.bytes = std::min(store_limits.bytes, limits.image_bytes / 4);

  threads_ = add<ThreadRecorder>(key.pid, shared.known_files.modules, snapshots_);
  calls_ = add<CallRecorder>(filters, order_, call_limits);
  // Without the filter the call recorder gets no calls: this sets the reason, so it comes after it.
  if (options.no_filter) add<AbsentInstrument>(&Image::calls_unseen, options.no_calls);
  if (options.stores) {
    auto* const stores = add<StoreRecorder>(elf64, options.watch_lifetime, order_, shared.copies,
                                            shared.code_files, store_limits);
    if (options.steps) add<StepRecorder>(elf64, order_, *stores, options.step_limits);
  } else {
    add<AbsentInstrument>(&Image::stores_unseen, options.no_stores);
  }
  if (options.record_stores) add<ThreadRecordWatcher>(order_, shared.code_files, *threads_);
  if (options.slot_steps && options.picks_slots) {
    add<SlotTurnRecorder>(order_, shared.code_files, *threads_, shared.slot_turns);
  } else if (options.slot_steps) {
    add<SlotStepRecorder>(order_, shared.code_files, *threads_);
  } else {
    add<AbsentInstrument>(&Image::slot_steps_unseen, options.no_slot_steps);
  }
}

bool ImageRecorder::chooses_threads() const {
  return std::ranges::any_of(instruments_, [](const auto& i) { return i->chooses_threads(); });
}

bool ImageRecorder::steps(pid_t tid) const {
  return std::ranges::any_of(instruments_, [&](const auto& i) { return i->steps(tid); });
}

std::uint64_t ImageRecorder::stored_bytes() const {
  std::uint64_t bytes = snapshots_.stored_bytes();
  for (const auto& i : instruments_) bytes += i->stored_bytes();
  return bytes;
}

Image ImageRecorder::finish(const std::string& ending) && {
  Image image = std::move(snapshots_).finish(ending);
  // Snapshots without a candidate contain no evidence.
  const bool saw_context = std::ranges::any_of(image.snapshots, [](const Snapshot& s) {
    return !s.candidates.empty() || !s.descriptors.empty();
  });
  if (!saw_context && !options_.keep_all) image.snapshots.clear();
  for (const auto& i : instruments_) i->add_to(image, saw_context);
  image.races = std::move(races_);
  image.races_unseen = std::move(races_unseen_);
  std::move(forks_).add_to(image);
  return image;
}

}  // namespace ctxconf::conformance
