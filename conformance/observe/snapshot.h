// Level snapshot: what a reader outside the process could copy at one moment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/rules/state_rules.h"
#include "conformance/timeline.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// How much is looked at. A thorough look also rereads VmFlags and descriptors, and
// searches all private memory for a header that has no documented name.
enum class Look { kQuick, kThorough };

// Limits on what one image may leave in a timeline.
struct SnapshotLimits {
  std::uint64_t payload_kept = std::uint64_t{1} << 20U;  // bytes of a payload that are stored
  std::uint64_t payload_read = kMostPayload;             // bytes of a payload that are hashed
  // Larger payloads are kept once each, and of all together as much as the largest may have; the
  // states that announce one hold its beginning.
  std::uint64_t large_payloads = kMostPayload;
  std::uint64_t large_begin = std::uint64_t{4} << 10U;
  std::size_t snapshots = 512;  // distinct states; later ones are judged, and counted
  // Later ones that break a row, in a way that others do not, are kept all the same: so many, with
  // half the memory of the others. 0: none is judged.
  std::size_t broken = 32;
  std::size_t judged = 20'000;                             // later ones, at most
  std::uint64_t judged_bytes = std::uint64_t{256} << 20U;  // ... of all of them
  std::size_t candidates = 16;                             // per snapshot
  // Looks in a row at more candidates, until only those count that no call of the program asks for.
  std::size_t crowded_looks = 64;
  std::uint64_t image_bytes = std::uint64_t{8} << 20U;  // stored memory of one image
  // Thorough looks list descriptors also of an image that showed no context.
  bool descriptors_always = false;
};

// Records one image of one process. The process may run, stop or vanish meanwhile.
class SnapshotRecorder {
 public:
  SnapshotRecorder(ImageKey key, SnapshotLimits limits);

  // Looks once. An equal state extends the last snapshot. What cannot be read becomes
  // a note of the image; a process that is gone is no error. The result is the index of the
  // state in image().snapshots, nothing when there was nothing to look at any more. Beyond the
  // limits a later state takes the place of the last: its first_seen_ns tells them apart.
  std::optional<std::uint64_t> take(Moment moment, Look look);

  // The image was replaced at a moment that is not known. A last state that shows nothing, or what
  // cannot be read, is taken back: it may be a look at the next one.
  void replaced_unseen();

  const Image& image() const { return image_; }
  // The image with how it ended; the recorder is done.
  Image finish(std::string ending) &&;

  // Has a candidate been seen, and when did a valid header first appear in a mapping
  // that had none (CLOCK_BOOTTIME of ours; 0: never).
  bool saw_candidate() const { return saw_candidate_; }
  std::uint64_t stored_bytes() const { return stored_bytes_ + broken_bytes_ + large_bytes_; }
  std::uint64_t last_publication_ns() const { return last_publication_ns_; }

 private:
  void note(const std::string& text);
  void copy_candidate(Candidate& candidate);
  void keep_apart(MemoryBlock& payload);
  std::optional<std::uint64_t> append(Snapshot snapshot);  // its index; nothing: not kept
  bool is_full_for(std::uint64_t bytes) const;
  std::vector<Snapshot> worth_keeping(const Snapshot* before, const Snapshot& snapshot);

  SnapshotLimits limits_;
  sys::ProcessMemory memory_;
  Image image_;
  bool saw_candidate_ = false;
  bool keeps_named_ = false;  // an operation's view may name a state: none gives way any more
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t large_bytes_ = 0;
  // Of states beyond the limits.
  std::optional<Snapshot> gave_way_;        // right before the last one
  std::set<std::uint64_t> kept_as_broken_;  // first_seen_ns of those that stay
  std::uint64_t broken_bytes_ = 0;          // of these; not in stored_bytes_
  BrokenRows broken_;
  std::size_t crowded_looks_ = 0;
  bool judges_no_more_ = false;
  std::size_t judged_ = 0;
  std::uint64_t judged_bytes_ = 0;
  std::uint64_t last_publication_ns_ = 0;
  std::vector<std::uint64_t> published_at_;  // starts of mappings with a valid header, last look
};

}  // namespace ctxconf::conformance
