// Level snapshot: what a reader outside the process could copy at one moment.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/evidence/state_judge.h"
#include "conformance/evidence/timeline.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// How much to examine. A thorough snapshot also rereads VmFlags and descriptors, and searches all
// private memory for a header without a documented name.
enum class SnapshotDepth { kQuick, kThorough };

// What several images may leave together. Their recorders may run in different threads.
class ByteBudget {
 public:
  explicit ByteBudget(std::uint64_t bytes) : left_(bytes) {}
  // False: less is left.
  bool take(std::uint64_t bytes) {
    std::uint64_t left = left_;
    while (left >= bytes) {
      if (left_.compare_exchange_weak(left, left - bytes)) return true;
    }
    return false;
  }

 private:
  std::atomic<std::uint64_t> left_;
};

// Limits on what one image may leave in a timeline.
struct SnapshotLimits {
  std::uint64_t payload_kept = std::uint64_t{1} << 20U;  // bytes of a payload that are stored
  std::uint64_t payload_read = kMostPayload;             // bytes of a payload that are hashed
  // Larger payloads are kept once each, and together at most as much as the largest payload; states
  // that announce one keep its beginning.
  std::uint64_t large_payloads = kMostPayload;
  std::shared_ptr<ByteBudget> large_of_all = nullptr;  // those of all images; null: no such limit
  std::uint64_t large_begin = std::uint64_t{4} << 10U;
  std::size_t snapshots = 512;  // distinct states; later ones are only judged and counted
  // Judges later states. Null: they are counted as not judged.
  const StateJudge* judge = nullptr;
  // Later states that break a requirement in a new way are kept anyway: this many, with half the
  // memory of the others. 0: none is judged.
  std::size_t broken = 32;
  std::size_t judged = 20'000;                             // later ones, at most
  std::uint64_t judged_bytes = std::uint64_t{256} << 20U;  // ... of all of them
  std::size_t candidates = 16;                             // per snapshot
  std::size_t headers = 4096;                              // of more candidates, to choose them
  // How many consecutive looks may find more candidates; after that, only looks that no call of the
  // program caused count.
  std::size_t crowded_looks = 64;
  std::uint64_t image_bytes = std::uint64_t{8} << 20U;  // stored memory of one image
  // Thorough snapshots also list descriptors of an image that showed no context.
  bool descriptors_always = false;
};

// Records one image of one process. The process may run, stop or end meanwhile.
class SnapshotRecorder {
 public:
  SnapshotRecorder(ImageKey key, SnapshotLimits limits);

  // Looks once. An equal state extends the last snapshot. What cannot be read becomes a note of the
  // image; it is not an error if the process is gone. Returns the index of the state in
  // image().snapshots, or nothing if there was nothing left to examine. Beyond the limits a later
  // state replaces the last one: first_seen_ns tells them apart.
  std::optional<std::uint64_t> take(Moment moment, SnapshotDepth depth);

  // Whether a named header of the last state has a zero timestamp now and is otherwise complete.
  bool meets_update() const;

  // The image was replaced at an unknown moment. Removes a last state that shows nothing, or
  // nothing readable: it may belong to the next image.
  void replaced_unseen();

  const Image& image() const { return image_; }
  // The header of the context in the last snapshot, if a reader would accept it.
  std::optional<sys::RemoteAddr> header() const;
  const StateJudge* state_judge() const { return limits_.judge; }
  // The image, with how it ended; do not use the recorder after that.
  Image finish(std::string ending) &&;

  // Whether a candidate was seen, and when a valid header last appeared in a mapping that had none
  // (our CLOCK_BOOTTIME; 0: never).
  bool saw_candidate() const { return saw_candidate_; }
  std::uint64_t stored_bytes() const { return stored_bytes_ + broken_bytes_ + large_bytes_; }
  std::uint64_t last_publication_ns() const { return last_publication_ns_; }

 private:
  void note(const std::string& text);
  // `what` cannot be read.
  void unread(const std::string& what, const sys::Error& why);
  // If there are too many candidates, the first ones are kept, non-blank ones before blank ones.
  void keep_those_in_use(std::vector<Candidate>& candidates);
  // Those with a documented name; nothing: the mappings cannot be read.
  std::optional<std::vector<Candidate>> named_candidates();
  // Valid headers in private memory without a documented name.
  std::vector<Candidate> hidden_candidates() const;
  // Returns whether they differ from those of the last snapshot.
  bool copy_candidates(std::vector<Candidate>& candidates);
  void copy_candidate(Candidate& candidate);
  void examine_start(Candidate& candidate);
  // The mappings around the copies, and VmFlags.
  void add_surroundings(std::vector<Candidate>& candidates);
  void note_publications(const Snapshot& snapshot);
  void keep_apart(MemoryBlock& payload);
  std::optional<std::uint64_t> append(Snapshot snapshot);  // its index; nothing: not kept
  bool is_full_for(std::uint64_t bytes) const;
  std::vector<Snapshot> worth_keeping(const Snapshot* before, const Snapshot& snapshot);

  SnapshotLimits limits_;
  sys::ProcessMemory memory_;
  Image image_;
  bool saw_candidate_ = false;
  bool keeps_named_ = false;  // an operation's view may name a state: none is replaced any more
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t large_bytes_ = 0;
  // These are about states beyond the limits.
  std::optional<Snapshot> gave_way_;        // directly before the last one
  std::set<std::uint64_t> kept_as_broken_;  // first_seen_ns of those that are kept
  std::uint64_t broken_bytes_ = 0;          // of these; not in stored_bytes_
  ShownAsBroken broken_;
  std::size_t crowded_looks_ = 0;
  JudgedSoFar judged_;
  std::uint64_t last_publication_ns_ = 0;
  std::vector<std::uint64_t>
      published_at_;  // starts of mappings with a valid header in the last look
};

}  // namespace ctxconf::conformance
