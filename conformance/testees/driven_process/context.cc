#include "conformance/testees/driven_process/context.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <latch>
#include <thread>
#include <utility>

#include "conformance/testees/writer/clock.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/memory.h"

namespace ctxconf::testees {

using adapter::json;
using adapter::refuse;

namespace {

constexpr Choice kBadContext[] = {
    {"pctx.publish.memfd-retry", "uses anonymous memory after one refused memfd"},
    {"pctx.publish.memfd-retry-flags", "gives the second memfd_create no flags"},
    {"pctx.publish.failure-madvise", "publishes when madvise fails"},
    {"pctx.publish.failure-mmap", "stores through MAP_FAILED"},
    {"pctx.publish.failure-mmap:open", "leaves the memfd open when mmap fails"},
    {"pctx.publish.failure-ftruncate", "leaves the memfd open when ftruncate fails"},
    {"pctx.publish.no-name-at-all", "publishes a context without any name"},
    {"pctx.publish.survives-total-denial", "aborts when there is no memfd"},
    {"pctx.publish.survives-file-size-limit", "calls ftruncate without a look at the limit"},
    {"pctx.update.timestamp-later", "takes timestamps from the clock as they are"},
    {"pctx.header.timestamp-clock", "reads the wall clock"},
    {"pctx.drop.no-dead-payload", "clears the payload before it withdraws"},
    {"pctx.drop.no-dead-payload:left", "clears the payload and leaves the header"},
    {"pctx.update.complete-state:size", "keeps the size of a longer message"},
    {"pctx.update.failure-recoverable", "reads the clock while the timestamp is zero"},
    {"pctx.update.failure-recoverable:memory", "asks for memory while the timestamp is zero"},
    {"pctx.publish.fence-before-timestamp", "stores the first timestamp without a fence"},
    {"pctx.update.fence-after-zero", "stores zero without a fence"},
    {"pctx.update.fence-before-timestamp", "stores the closing timestamp without a fence"},
    {"pctx.update.no-mixed-read", "rewrites a byte of the payload after the timestamp"},
    {"pctx.update.no-mixed-read:pointer", "stores the new pointer before zero"},
    {"pctx.update.no-mixed-read:bulk", "leaves out zero where it makes many updates"},
    {"pctx.update.no-mixed-read:before-zero", "overwrites the payload before zero"},
    {"pctx.update.no-mixed-read:before-zero-and-back",
     "changes a byte of the payload before zero, and changes it back"},
    {"pctx.fork.child-has-none:update", "takes MADV_DONTFORK away during an update"},
    {"pctx.fork.dontfork-before-header",
     "makes a valid header, clears it, then gives MADV_DONTFORK"},
    {"pctx.exec.memfd-not-leaked:open", "has a memfd that exec does not close"},
};

constexpr Choice kGoodContext[] = {
    {"fixed-room", "has room for 4096 bytes, and fails to update with more"},
    {"fixed-room-by-design", "has room for 4096 bytes, and rejects more"},
    {"unmap-only", "withdraws by unmapping"},
    {"zero-only", "withdraws by zero"},
    {"in-place", "overwrites the payload during updates"},
    {"side-by-side", "writes the new payload next to the old one"},
    {"unmaps-payloads", "has payloads with their own mappings, and unmaps the old one"},
    {"spawns", "runs a program in each publication and update"},
    {"withdraws-on-failure", "withdraws when an update fails"},
    {"keeps-on-failure", "keeps the old context when an update fails"},
    {"aborts-without-memory", "aborts when there is no memory for an update"},
    {"waits-for-a-memfd", "waits until there is a descriptor for a memfd"},
    {"waits-for-the-clock", "waits until the clock goes on"},
    {"exchanges-fields", "stores each field by an atomic exchange"},
    {"tries-its-page", "writes a byte of the header and clears it before MADV_DONTFORK"},
};

}  // namespace

const Choices kContextChoices{kBadContext, kGoodContext};

namespace {

// One store, as a reader has to see it.
template <class T>
void ordered_store(char* at, T value, std::memory_order order = std::memory_order_seq_cst) {
  const std::atomic_ref word(*reinterpret_cast<T*>(at));
  if (is_good("exchanges-fields")) {
    word.exchange(value);
  } else {
    word.store(value, order);
  }
}

std::memory_order relaxed_if_bad(std::string_view name) {
  return is_bad(name) ? std::memory_order_relaxed : std::memory_order_seq_cst;
}

std::optional<std::uint64_t> clock_ns() {
  timespec now{};
  const bool wall = is_bad("pctx.header.timestamp-clock");
  if (clock_gettime(wall ? CLOCK_REALTIME : CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return nanoseconds(now);
}

}  // namespace

Reply Context::publish(const std::string& bytes) {
  const auto now = clock_ns();
  if (!now) return refuse("failed", "clock_gettime", errno);
  if (at_ != nullptr && timestamp() == 0 && withdrawn_) return announce(bytes, *now);
  if (at_ != nullptr) return update(bytes);
  size_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const int fd = make_memfd();
  const bool sized = fd >= 0 && ftruncate(fd, static_cast<off_t>(size_)) == 0;
  if (fd >= 0 && !sized) {
    const int err = errno;
    if (!is_bad("pctx.publish.failure-ftruncate")) close(fd);
    return refuse("failed", "ftruncate", err);
  }
  anonymous_ = fd < 0;
  const int flags = MAP_PRIVATE | (anonymous_ ? MAP_ANONYMOUS : 0);
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, fd, 0);
  const int err = errno;
  const bool stays_open = memory == MAP_FAILED ? is_bad("pctx.publish.failure-mmap:open")
                                               : is_bad("pctx.exec.memfd-not-leaked:open");
  if (fd >= 0 && !stays_open) close(fd);
  if (memory == MAP_FAILED && !is_bad("pctx.publish.failure-mmap")) {
    return refuse("failed", "mmap", err);
  }
  if (is_bad("pctx.fork.dontfork-before-header") && memory != MAP_FAILED) {
    at_ = static_cast<char*>(memory);
    memcpy(at_, kSignature.data(), kSignature.size());
    ordered_store(at_ + kVersionAt, std::uint32_t{2});
    set_timestamp(*now);
    memset(at_, 0, kHeaderSize);
  }
  if (is_good("tries-its-page") && memory != MAP_FAILED) {
    auto* const first = static_cast<volatile char*>(memory);
    *first = 'O';
    *first = 0;
  }
  if (madvise(memory, size_, MADV_DONTFORK) != 0 && !is_bad("pctx.publish.failure-madvise") &&
      !is_bad("pctx.publish.failure-mmap")) {
    const int why = errno;
    munmap(memory, size_);
    return refuse("failed", "madvise", why);
  }
  at_ = static_cast<char*>(memory);
  return announce(bytes, *now);
}

bool Context::clock_has_gone_on() const { return clock_ns().value_or(0) > last_; }

Reply Context::update(std::string next, bool in_bulk) {
  const bool late = is_bad("pctx.update.failure-recoverable");
  const bool allocates_late = is_bad("pctx.update.failure-recoverable:memory");
  const bool withdraws = is_good("withdraws-on-failure");
  std::optional<std::uint64_t> now;
  if (!late) now = clock_ns();
  while (is_good("waits-for-the-clock") && now && *now <= last_) now = clock_ns();
  if (!late && !now) {
    const int err = errno;
    if (withdraws) drop();
    return refuse("failed", "clock_gettime", err);
  }
  if (is_good("aborts-without-memory") && !can_allocate(next.size())) abort();
  constexpr std::size_t kRoom = 4096;
  const bool by_design = is_good("fixed-room-by-design");
  if ((by_design || is_good("fixed-room")) && next.size() > kRoom) {
    return refuse(by_design ? "rejected" : "failed", "no room for so much", ENOSPC);
  }
  if (is_good("unmaps-payloads")) next.reserve(std::size_t{2} * kMapped);
  if (is_bad("pctx.update.complete-state:size") && payload_.size() > next.size()) {
    next.resize(payload_.size());
  }
  if (is_bad("pctx.update.no-mixed-read:pointer")) set_payload(next);
  if (is_bad("pctx.update.no-mixed-read:before-zero")) overwrite_payload(next);
  if (is_bad("pctx.update.no-mixed-read:before-zero-and-back")) rewrite_payload();
  const char* const prepared = is_good("side-by-side") ? prepare_beside(next) : nullptr;
  const bool skips_zero = in_bulk && is_bad("pctx.update.no-mixed-read:bulk");
  // It waits as if it lost its processor, here and below, so that a reader meets both.
  const auto stays = [&] {
    if (skips_zero) std::this_thread::sleep_for(std::chrono::microseconds(500));
  };
  stays();
  const bool shares = is_bad("pctx.fork.child-has-none:update");
  if (shares) (void)madvise(at_, size_, MADV_DOFORK);
  if (!skips_zero) set_timestamp(0, relaxed_if_bad("pctx.update.fence-after-zero"));
  if (shares) (void)madvise(at_, size_, MADV_DONTFORK);
  if (is_good("spawns")) run_a_program();
  if (late) now = clock_ns();
  if (!now) return refuse("failed", "clock_gettime", errno);
  if (allocates_late && !can_allocate(next.size())) return refuse("failed", "mmap", errno);
  if (is_good("in-place") && next.size() <= payload_.size()) {
    std::ranges::copy(next, payload_.begin());
    ordered_store(at_ + kSizeAt, static_cast<std::uint32_t>(next.size()));
  } else if (prepared != nullptr) {
    point_to(prepared, next.size());
  } else {
    set_payload(std::move(next));
  }
  stays();
  const bool rewrites = is_bad("pctx.update.no-mixed-read");
  set_timestamp(later(*now), relaxed_if_bad("pctx.update.fence-before-timestamp"));
  if (rewrites) rewrite_payload();
  set_name();
  return json();
}

void Context::update_with_another(std::string bytes) {
  const auto now = clock_ns().value_or(0);
  std::latch zeroed(1);
  std::thread other([&] {
    zeroed.wait();
    set_payload(std::move(bytes));
  });
  set_timestamp(0);
  zeroed.count_down();
  other.join();
  set_timestamp(later(now));
  set_name();
}

void Context::drop() {
  if (at_ == nullptr) return;
  const bool dead = is_bad("pctx.drop.no-dead-payload") || is_bad("pctx.drop.no-dead-payload:left");
  if (dead) memset(payload_.data(), 0, payload_.size());
  if (is_bad("pctx.drop.no-dead-payload:left")) return;
  if (!is_good("unmap-only")) set_timestamp(0);
  if (is_good("zero-only") || is_bad("pctx.update.visible:publish-after-zero")) {
    withdrawn_ = true;
    return;
  }
  remove();
}

void Context::begin_anew(bool zeroes, bool leaves_mapping) {
  if (zeroes) set_timestamp(0);
  if (!leaves_mapping) munmap(at_, size_);
  at_ = nullptr;
}

void Context::leave() {
  static std::vector<std::string> left;
  left.push_back(std::exchange(payload_, {}));
  forget();
}

void Context::remove() {
  munmap(at_, size_);
  at_ = nullptr;
}

Reply Context::publish_copy(const std::string& bytes) {
  copied_ = last_;
  return publish(bytes);
}

void Context::write_anyway() {
  volatile char* const at = at_;
  at[0] = 'O';
}

void Context::rewrite_payload() {
  volatile char& last = payload_.back();
  const char same = last;
  last = same == '0' ? '1' : '0';
  last = same;
}

void Context::overwrite_payload(const std::string& next) {
  std::copy_n(next.begin(), std::min(payload_.size(), next.size()), payload_.begin());
}

const char* Context::prepare_beside(const std::string& bytes) {
  constexpr std::size_t kHalf = 4096;
  halves_.resize(2 * kHalf);
  if (bytes.size() > kHalf) return nullptr;
  in_second_half_ = !in_second_half_;
  char* const to = halves_.data() + (in_second_half_ ? kHalf : 0);
  bytes.copy(to, bytes.size());
  return to;
}

void Context::run_a_program() {
  std::array<char, 5> name{"true"};
  const std::array<char*, 2> argv{name.data(), nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, name.data(), nullptr, nullptr, argv.data(), environ) == 0) {
    waitpid(pid, nullptr, 0);
  }
}

int Context::make_memfd() const {
  rlimit limit{};
  const bool heeds = !is_bad("pctx.publish.survives-file-size-limit");
  if (heeds && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_) return -1;
  const int keeps = is_bad("pctx.exec.memfd-not-leaked:open") ? 0 : MFD_CLOEXEC;
  const int flags = keeps | MFD_ALLOW_SEALING;
  int fd = memfd_create("OTEL_CTX", flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && !is_bad("pctx.publish.memfd-retry")) {
    fd = memfd_create("OTEL_CTX", is_bad("pctx.publish.memfd-retry-flags") ? 0 : flags);
  }
  if (fd < 0 && is_bad("pctx.publish.survives-total-denial")) abort();
  while (fd < 0 && is_good("waits-for-a-memfd") && errno == EMFILE) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    fd = memfd_create("OTEL_CTX", flags);
  }
  return fd;
}

bool Context::can_allocate(std::size_t size) {
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, size);
  return true;
}

std::uint64_t Context::timestamp() const {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at_ + kTimestampAt)).load();
}

void Context::set_timestamp(std::uint64_t value, std::memory_order order) const {
  ordered_store(at_ + kTimestampAt, value, order);
}

std::uint64_t Context::later(std::uint64_t now) {
  if (copied_ != 0) return copied_;
  if (is_bad("pctx.update.timestamp-later")) return last_ = now;
  return last_ = std::max(now, last_ + 1);
}

void Context::point_to(const char* bytes, std::size_t size) const {
  const auto order = relaxed_if_bad("pctx.update.fence-after-zero");
  ordered_store(at_ + kSizeAt, static_cast<std::uint32_t>(size), order);
  ordered_store(at_ + kPointerAt,
                static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(bytes)), order);
}

void Context::set_payload(std::string bytes) {
  kept_ = std::exchange(payload_, std::move(bytes));
  point_to(payload_.data(), payload_.size());
  if (is_good("unmaps-payloads")) kept_ = std::string();
}

Reply Context::announce(std::string bytes, std::uint64_t now) {
  withdrawn_ = false;
  memcpy(at_, kSignature.data(), kSignature.size());
  if (is_good("spawns")) run_a_program();
  ordered_store(at_ + kVersionAt, std::uint32_t{2});
  set_payload(std::move(bytes));
  set_timestamp(later(now), relaxed_if_bad("pctx.publish.fence-before-timestamp"));
  if (!set_name() && anonymous_ && !is_bad("pctx.publish.no-name-at-all")) {
    const int err = errno;
    remove();
    return refuse("failed", "neither a memfd nor a name", err);
  }
  return json();
}

}  // namespace ctxconf::testees
