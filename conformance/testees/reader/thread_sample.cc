#include "conformance/testees/reader/thread_sample.h"

#include <errno.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/reader/stopped_thread.h"

namespace ctxconf::testees {
namespace {

constexpr std::size_t kTableSize = 1000;  // of a reader that has a table of threads

constexpr Choice kBadSample[] = {
    {"tctx.reader.own-thread-pointer", "uses the thread pointer of the first thread for all"},
    {"tctx.reader.own-thread-pointer:many", "the same in a process with very many threads"},
    {"tctx.reader.no-permission", "ends when a thread cannot be stopped or looked into"},
    {"tctx.reader.only-while-stopped", "reads slot and record of a thread that runs"},
    {"tctx.reader.only-while-stopped:slot", "reads the slot before it stops the thread"},
    {"tctx.reader.only-while-stopped:asleep", "does not stop a thread that sleeps"},
    {"tctx.reader.only-while-stopped:attributes", "lets the thread run before it reads attributes"},
    {"tctx.reader.one-stop-per-sample", "reads attributes in another stop"},
    {"tctx.reader.one-stop-per-sample:ring",
     "the same once the thread has run, and its reads are not seen"},
    {"tctx.reader.one-stop-per-sample:slot", "reads the record in another stop than the slot"},
    {"tctx.reader.null-slot", "reads 28 bytes at address 0 and reports an error"},
    {"tctx.reader.survives-bad-pointer", "samples a process no more after a failing read"},
    {"tctx.reader.survives-bad-pointer:odd", "reads a record at an odd address"},
};

constexpr Choice kGoodSample[] = {
    {"starts-over", "reads a record with attributes again from the start, in another stop"},
    {"stops-all-threads", "stops all threads of a process for a sample"},
    {"unsynchronised", "reads threads that run, and says so"},
};

}  // namespace

const Choices kSampleChoices{kBadSample, kGoodSample};

namespace {

// How long the thread has run, in ns; nothing: this kernel does not say.
std::optional<std::uint64_t> time_run(pid_t pid, pid_t tid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) +
                     "/schedstat");
  std::uint64_t out = 0;
  return file >> out ? std::optional(out) : std::nullopt;
}

// A sample of one thread, and how often it is stopped for that.
class Sampler {
 public:
  Sampler(pid_t pid, pid_t tid) : pid_(pid), tid_(tid) {}

  SampleState run(const std::vector<Access>& accesses, RecordCopy& out);

 private:
  bool stop();
  void resume() {
    memory_.reset();
    stopped_.reset();
  }
  bool stop_again() {
    resume();
    return stop();
  }
  void let_run();
  bool learn_thread_pointer();
  SampleState look_at(const Access& access, RecordCopy& out);
  SampleState copy_at(std::uint64_t record, RecordCopy& out);
  bool copy(std::uint64_t record, std::size_t offset, void* to, std::size_t size);

  pid_t pid_;
  pid_t tid_;
  std::unique_ptr<StoppedThread> stopped_;
  std::vector<std::unique_ptr<StoppedThread>> others_;
  std::unique_ptr<Memory> memory_;
  std::uint64_t thread_pointer_ = 0;
  bool started_over_ = false;
};

bool Sampler::stop() {
  stopped_ = StoppedThread::stop(tid_);
  if (!stopped_) {
    if (errno == EPERM && is_bad("tctx.reader.no-permission")) _exit(1);
    return false;
  }
  memory_ = std::make_unique<Memory>(pid_, tid_);
  return true;
}

// On a busy machine a thread that may run does not do so at once.
void Sampler::let_run() {
  constexpr std::chrono::milliseconds kLatest{200};
  constexpr std::chrono::milliseconds kUsual{2};  // where it is not known
  constexpr std::chrono::microseconds kBetweenLooks{100};
  const auto before = time_run(pid_, tid_);
  resume();
  const auto until = std::chrono::steady_clock::now() + (before ? kLatest : kUsual);
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kBetweenLooks);
    if (before && time_run(pid_, tid_) != before) return;
  }
}

bool Sampler::learn_thread_pointer() {
  std::optional<std::uint64_t> pointer;
  const bool is_crowded =
      is_bad("tctx.reader.own-thread-pointer:many") && threads_of(pid_).size() > kTableSize;
  if ((is_crowded || is_bad("tctx.reader.own-thread-pointer")) && tid_ != pid_) {
    if (const auto first = StoppedThread::stop(pid_)) pointer = first->thread_pointer();
  } else {
    pointer = stopped_->thread_pointer();
  }
  thread_pointer_ = pointer.value_or(0);
  return pointer.has_value();
}

bool Sampler::copy(std::uint64_t record, std::size_t offset, void* to, std::size_t size) {
  const bool attributes = offset >= kFixedSize;
  const bool later = is_bad("tctx.reader.one-stop-per-sample:ring");
  if (attributes && later) let_run();
  const bool again = later || is_bad("tctx.reader.one-stop-per-sample");
  if (attributes && again && !stop_again()) return false;
  if (attributes && is_bad("tctx.reader.only-while-stopped:attributes")) stopped_.reset();
  if (attributes && is_good("starts-over") && !started_over_) {
    started_over_ = true;
    return false;
  }
  return memory_ != nullptr && memory_->copy(record + offset, to, size);
}

SampleState Sampler::copy_at(std::uint64_t record, RecordCopy& out) {
  const auto state = copy_record([&](std::size_t offset, void* to,
                                     std::size_t size) { return copy(record, offset, to, size); },
                                 out);
  if (state == CopyState::kFailed) return SampleState::kFailed;
  if (state == CopyState::kUnreadable && is_bad("tctx.reader.survives-bad-pointer")) {
    return SampleState::kGivenUp;
  }
  return state == CopyState::kValid ? SampleState::kRecord : SampleState::kNone;
}

SampleState Sampler::look_at(const Access& access, RecordCopy& out) {
  std::uint64_t slot_at = 0;
  switch (slot_address(*memory_, access, thread_pointer_, slot_at)) {
    case SlotState::kFailed:
      return SampleState::kGivenUp;
    case SlotState::kNoBlock:
      return SampleState::kNone;
    case SlotState::kFound:
      break;
  }
  if (is_bad("tctx.reader.only-while-stopped:slot")) stopped_.reset();
  const auto slot = memory_->value<std::uint64_t>(slot_at);
  if (!slot) return SampleState::kNone;
  if (*slot == 0) {
    if (!is_bad("tctx.reader.null-slot")) return SampleState::kNone;
    RecordCopy nothing;
    (void)copy_at(0, nothing);
    return SampleState::kFailed;
  }
  if (*slot % 2 != 0 && !is_bad("tctx.reader.survives-bad-pointer:odd")) return SampleState::kNone;
  const bool again = is_bad("tctx.reader.only-while-stopped:slot") ||
                     is_bad("tctx.reader.one-stop-per-sample:slot");
  if (again && !stop_again()) return SampleState::kNone;
  auto state = copy_at(*slot, out);
  if (started_over_ && state == SampleState::kNone) {
    // The slot as well: the record may be another one.
    if (!stop_again()) return SampleState::kNone;
    const auto newer = memory_->value<std::uint64_t>(slot_at);
    if (!newer || *newer == 0 || *newer % 2 != 0) return SampleState::kNone;
    state = copy_at(*newer, out);
  }
  return state;
}

SampleState Sampler::run(const std::vector<Access>& accesses, RecordCopy& out) {
  if (is_good("stops-all-threads")) {
    for (const pid_t tid : threads_of(pid_)) {
      if (tid != tid_) others_.push_back(StoppedThread::stop(tid));
    }
    std::erase(others_, nullptr);
  }
  const bool sleeps = state_of(tid_) == 'S';
  if (!stop() || !learn_thread_pointer()) return SampleState::kNone;
  if (is_bad("tctx.reader.only-while-stopped") || is_good("unsynchronised")) stopped_.reset();
  if (sleeps && is_bad("tctx.reader.only-while-stopped:asleep")) stopped_.reset();
  for (const Access& access : accesses) {
    started_over_ = false;
    const auto state = look_at(access, out);
    if (state != SampleState::kNone) return state;
    if (memory_ == nullptr) return SampleState::kNone;
  }
  return SampleState::kNone;
}

}  // namespace

SampleState sample(pid_t pid, pid_t tid, const std::vector<Access>& accesses, RecordCopy& out) {
  return Sampler(pid, tid).run(accesses, out);
}

}  // namespace ctxconf::testees
