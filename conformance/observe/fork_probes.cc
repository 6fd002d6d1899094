#include "conformance/observe/fork_probes.h"

#include <cerrno>
#include <utility>

#include "abi/process_header.h"
#include "conformance/observe/snapshot.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// Keeps only the beginning of each candidate's first entry, at most a header.
void keep_headers(ForkProbe& probe) {
  for (Candidate& c : probe.candidates) {
    std::vector<MemoryBlock> head;
    for (MemoryBlock& b : c.memory) {
      if (b.at.raw() != c.entries.front().range.begin().raw() || !head.empty()) continue;
      if (b.bytes.size() > sizeof(abi::ProcessHeader)) b.bytes.resize(sizeof(abi::ProcessHeader));
      head.push_back(std::move(b));
    }
    c.memory = std::move(head);
  }
}

// How long all copies of an image may take together: copies of a large process take long.
constexpr std::chrono::milliseconds kProbing{2000};

}  // namespace

void ForkProbes::unseen(std::string why) {
  if (unseen_.empty()) unseen_ = std::move(why);
}

ForkProbes::Duration ForkProbes::probe(sys::Tracer& tracer, pid_t tid, std::uint64_t order,
                                       std::string at, Duration most) {
  if (probes_.size() >= kMaxForkProbes) {
    unseen("there were too many steps");
    return {};
  }
  if (probed_ > most) {
    unseen("copying and searching this process takes too long");
    return {};
  }
  // The program's own filter may kill a thread that clones.
  if (!filters_ || sys::seccomp_filters(tid).value_or(*filters_ + 1) != *filters_) {
    unseen("the program has a system call filter of its own");
    return {};
  }
  ForkProbe probe{.tid = tid, .order = order, .at = std::move(at), .candidates = {}};
  const auto look = [&](pid_t copy) {
    SnapshotRecorder recorder(ImageKey{copy, 0}, {});
    recorder.take(Moment::kPeriodic, SnapshotDepth::kThorough);
    Image image = std::move(recorder).finish("");
    if (!image.snapshots.empty()) probe.candidates = std::move(image.snapshots.front().candidates);
  };
  const auto from = std::chrono::steady_clock::now();
  const auto made = tracer.with_copy(tid, look);
  const Duration took = std::chrono::steady_clock::now() - from;
  probed_ += took;
  if (!made && made.error().err == ETIMEDOUT) {
    held_up_ = true;
    unseen("a fork that ctxconf made in it did not finish, so ctxconf ended it (userfaultfd?)");
  } else if (!made) {
    unseen(sys::to_string(made.error()));
  } else {
    keep_headers(probe);
    probes_.push_back(std::move(probe));
  }
  return took;
}

void ForkProbes::add_to(Image& image) && {
  image.forks = std::move(probes_);
  image.forks_unseen = std::move(unseen_);
}

ForkProbes::Duration ForkProber::probe(ForkProbes& probes, pid_t pid, pid_t tid,
                                       std::uint64_t order, std::string at) {
  if (!options_.forks || !on_) return {};
  // The program would notice the copy.
  if (pid != tracer_.root()) {
    probes.unseen("the forked copy would be a child of another process");
    return {};
  }
  const auto most =
      std::chrono::duration_cast<ForkProbes::Duration>(kProbing * options_.timeout_scale);
  const auto took = probes.probe(tracer_, tid, order, std::move(at), most);
  if (probes.is_held_up()) held_up_.insert(pid);
  return took;
}

}  // namespace ctxconf::conformance
