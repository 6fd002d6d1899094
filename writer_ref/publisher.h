// The publication protocol of OTEP 4719 over a replaceable kernel.
//
// All state is in one State, which is valid if all its bytes are zero. So it can be in a page that
// the kernel clears on fork, and a child starts like a new process, whatever its threads were
// doing. All mappings are marked MADV_DONTFORK, so a child inherits nothing that it must release.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "abi/process_header.h"
#include "writer_ref/otel_ctx.h"

namespace ctxconf::writer {

inline constexpr unsigned kMemfdCloseOnExec = 1;
inline constexpr unsigned kMemfdAllowSealing = 2;
inline constexpr unsigned kMemfdNoexecSeal = 8;  // Linux 6.3
inline constexpr const char* kName = "OTEL_CTX";
static_assert(abi::kMemfdName == kName);

// A payload buffer above this size is released after it is replaced.
inline constexpr std::size_t kKeptCapacity = std::size_t{64} * 1024;

struct Buffer {
  std::byte* start;
  std::size_t capacity;
};

struct State {
  pthread_mutex_t lock;  // PTHREAD_MUTEX_INITIALIZER is all zero bytes in glibc and musl
  int guarded;           // forks are detected
  pid_t owner;           // of this state if the kernel does not clear it; -pid: being claimed
  int fork_handler;      // installed: survives a fork
  bool published;
  bool memfd;
  int naming_errno;
  abi::ProcessHeader* header;  // one page; after a failed drop mapped but not published
  Buffer active;               // what the header points to
  Buffer spare;                // the previous one, for the next update
  std::uint32_t payload_size;
  std::uint64_t last_timestamp;  // survives drop, so that no value is used twice
  std::uint64_t updates;
};
static_assert(std::is_trivially_copyable_v<State> && std::is_trivial_v<State>);

// The fork handling if the kernel does not clear the state.
inline void wipe(State& state) {
  const int fork_handler = state.fork_handler;
  const pid_t owner = state.owner;
  std::memset(&state, 0, sizeof state);
  state.fork_handler = fork_handler;
  state.owner = owner;
}

class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

template <class Kernel>
class Publisher {
 public:
  // `own_page`: `state` is alone in its page, so that the kernel may clear it. `forked`: wipes
  // `state`; pthread_atfork runs it in the child if the kernel cannot clear the page.
  Publisher(Kernel& kernel, State& state, bool own_page, void (*forked)())
      : kernel_(kernel),
        state_(state),
        page_(kernel.page_size()),
        own_page_(own_page),
        forked_(forked) {}

  otel_ctx_error publish(std::span<const std::byte> payload) {
    if (const auto bad = check(payload); bad.status != OTEL_CTX_OK) return bad;
    if (const auto error = guard(); error.status != OTEL_CTX_OK) return error;
    const Locked locked(state_.lock);
    return state_.published ? replace(payload) : begin(payload);
  }

  otel_ctx_error update(std::span<const std::byte> payload) {
    if (const auto bad = check(payload); bad.status != OTEL_CTX_OK) return bad;
    if (!guarded_here()) return not_published();
    const Locked locked(state_.lock);
    return state_.published ? replace(payload) : not_published();
  }

  otel_ctx_error drop() {
    if (!guarded_here()) return ok();
    const Locked locked(state_.lock);
    return release();
  }

  otel_ctx_info info() {
    otel_ctx_info out{};
    if (!guarded_here()) return out;
    const Locked locked(state_.lock);
    out.last_timestamp = state_.last_timestamp;
    if (!state_.published) return out;
    out.published = 1;
    out.memfd = state_.memfd ? 1 : 0;
    out.naming_errno = state_.naming_errno;
    out.payload_size = state_.payload_size;
    out.payload = address(state_.active.start);
    out.header = address(state_.header);
    out.header_mapping = page_;
    out.updates = state_.updates;
    out.name_in_maps = !state_.memfd              ? "[anon:OTEL_CTX]"
                       : state_.naming_errno == 0 ? "[anon_shmem:OTEL_CTX]"
                                                  : "/memfd:OTEL_CTX";
    return out;
  }

 private:
  static otel_ctx_error ok() { return {OTEL_CTX_OK, 0, ""}; }
  static otel_ctx_error not_published() {
    return {OTEL_CTX_NOT_PUBLISHED, 0, "there is no context in this process"};
  }
  static otel_ctx_error failed(const char* step, long result) {
    return {OTEL_CTX_SYSTEM, static_cast<int>(-result), step};
  }

  static otel_ctx_error check(std::span<const std::byte> payload) {
    if (payload.data() == nullptr || payload.empty()) {
      return {OTEL_CTX_BAD_PAYLOAD, EINVAL, "payload without bytes"};
    }
    if (payload.size() > UINT32_MAX) {
      return {OTEL_CTX_BAD_PAYLOAD, EMSGSIZE, "payload above 4 GiB"};
    }
    return ok();
  }

  static std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

  template <class T>
  static std::atomic_ref<T> atomic(T& object) {
    return std::atomic_ref<T>(object);
  }

  // Call it before locking: a child must not wait for a lock that its parent holds.
  otel_ctx_error guard() {
    claim();
    if (atomic(state_.guarded).load(std::memory_order_acquire) != 0) return ok();
    if (!own_page_ || kernel_.wipe_on_fork(&state_, page_) < 0) {
      int none = 0;
      if (atomic(state_.fork_handler).compare_exchange_strong(none, 1)) {
        if (const long r = kernel_.at_fork(forked_); r < 0) {
          atomic(state_.fork_handler).store(0);
          return failed("pthread_atfork", r);
        }
      }
      atomic(state_.owner).store(kernel_.process_id());
    }
    atomic(state_.guarded).store(1, std::memory_order_release);
    return ok();
  }

  bool guarded_here() {
    claim();
    return atomic(state_.guarded).load(std::memory_order_acquire) != 0;
  }

  // In a child of a bare clone, neither the kernel nor pthread_atfork may have wiped the state: the
  // first thread that arrives does it, and the others wait.
  void claim() {
    auto owner = atomic(state_.owner);
    for (pid_t seen = owner.load(); seen != 0; seen = owner.load()) {
      const pid_t me = kernel_.process_id();
      if (seen == me) return;
      if (seen == -me) {
        kernel_.yield();
      } else if (owner.compare_exchange_strong(seen, -me)) {
        wipe(state_);
        owner.store(0);
        return;
      }
    }
  }

  otel_ctx_error begin(std::span<const std::byte> payload) {
    if (const auto error = release(); error.status != OTEL_CTX_OK) return error;
    const auto error = begin_unprotected(payload);
    if (error.status != OTEL_CTX_OK) release();
    return error;
  }

  // If this fails, the caller releases what exists.
  otel_ctx_error begin_unprotected(std::span<const std::byte> payload) {
    if (const auto error = map_header(); error.status != OTEL_CTX_OK) return error;
    if (const long r = kernel_.dont_fork(state_.header, page_); r < 0) {
      return failed("madvise of the header", r);
    }
    if (const auto error = fill_spare(payload); error.status != OTEL_CTX_OK) return error;
    std::uint64_t timestamp = 0;
    if (const auto error = next_timestamp(timestamp); error.status != OTEL_CTX_OK) return error;

    abi::ProcessHeader& h = *state_.header;
    // Writes each field with one store, so that readers never see a part of a field.
    atomic(*reinterpret_cast<std::uint64_t*>(h.signature.data()))
        .store(std::bit_cast<std::uint64_t>(abi::kSignature), std::memory_order_relaxed);
    atomic(h.version).store(abi::kVersion, std::memory_order_relaxed);
    point_to_spare(payload.size());
    std::atomic_thread_fence(std::memory_order_release);
    atomic(h.monotonic_published_at_ns).store(timestamp, std::memory_order_relaxed);
    announced(timestamp);
    state_.published = true;
    state_.updates = 0;

    call_it_by_name();
    if (!state_.memfd && state_.naming_errno != 0) {
      return {OTEL_CTX_NO_NAME, state_.naming_errno, "memfd and name both refused"};
    }
    return ok();
  }

  otel_ctx_error replace(std::span<const std::byte> payload) {
    if (const auto error = fill_spare(payload); error.status != OTEL_CTX_OK) return error;
    std::uint64_t timestamp = 0;
    if (const auto error = next_timestamp(timestamp); error.status != OTEL_CTX_OK) return error;

    abi::ProcessHeader& h = *state_.header;
    atomic(h.monotonic_published_at_ns).store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    point_to_spare(payload.size());
    std::atomic_thread_fence(std::memory_order_release);
    atomic(h.monotonic_published_at_ns).store(timestamp, std::memory_order_relaxed);
    announced(timestamp);
    ++state_.updates;

    call_it_by_name();
    if (state_.spare.capacity > kKeptCapacity)
      unmap(state_.spare);  // otherwise the next update unmaps it
    return ok();
  }

  void point_to_spare(std::size_t size) {
    abi::ProcessHeader& h = *state_.header;
    state_.payload_size = static_cast<std::uint32_t>(size);
    atomic(h.payload_size).store(state_.payload_size, std::memory_order_relaxed);
    atomic(h.payload).store(address(state_.spare.start), std::memory_order_relaxed);
  }

  void announced(std::uint64_t timestamp) {
    state_.last_timestamp = timestamp;
    const Buffer old = state_.active;
    state_.active = state_.spare;
    state_.spare = old;
  }

  // Called even if it is known to fail: readers may hook the call itself.
  void call_it_by_name() {
    state_.naming_errno = static_cast<int>(-kernel_.name(state_.header, page_, kName));
  }

  // A memfd; otherwise anonymous memory. Whatever prevents a usable memfd (a seccomp filter with
  // its own errno, a file size limit, a security label that forbids mapping) is not a reason to
  // have no context.
  otel_ctx_error map_header() {
    constexpr unsigned flags = kMemfdCloseOnExec | kMemfdAllowSealing;
    void* at = nullptr;
    long fd = kernel_.memfd_create(kName, flags | kMemfdNoexecSeal);
    if (fd < 0) fd = kernel_.memfd_create(kName, flags);
    if (fd >= 0) {
      const int number = static_cast<int>(fd);
      if (kernel_.resize(number, page_) == 0) kernel_.map(page_, number, &at);
      state_.header = static_cast<abi::ProcessHeader*>(at);
      // The descriptor is gone whatever close returns. But if it was not ours any more, we do not
      // know what we have mapped.
      if (const long r = kernel_.close(number); r < 0 && r != -EINTR) {
        return failed("close of the memfd", r);
      }
    }
    state_.memfd = at != nullptr;
    if (at == nullptr) {
      if (const long r = kernel_.map(page_, -1, &at); r < 0) return failed("mmap of the header", r);
      state_.header = static_cast<abi::ProcessHeader*>(at);
    }
    return ok();
  }

  // A complete copy of the payload; nothing points to it yet.
  otel_ctx_error fill_spare(std::span<const std::byte> payload) {
    if (state_.spare.capacity < payload.size()) {
      if (const long r = unmap(state_.spare); r < 0) return failed("munmap of an old payload", r);
      if (payload.size() > SIZE_MAX - page_) return failed("mmap of the payload", -ENOMEM);
      const std::size_t capacity = (payload.size() + page_ - 1) / page_ * page_;
      void* at = nullptr;
      if (const long r = kernel_.map(capacity, -1, &at); r < 0) {
        return failed("mmap of the payload", r);
      }
      state_.spare = {static_cast<std::byte*>(at), capacity};
      if (const long r = kernel_.dont_fork(at, capacity); r < 0) {
        unmap(state_.spare);
        return failed("madvise of the payload", r);
      }
    }
    // A reader that still copies the payload before the last one must not see these bytes without
    // seeing that the timestamp has changed since.
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(state_.spare.start, payload.data(), payload.size());
    return ok();
  }

  // Later than every earlier timestamp of this process, whatever the clock says.
  otel_ctx_error next_timestamp(std::uint64_t& out) {
    std::uint64_t now = 0;
    const long r = kernel_.boot_time(&now);
    if (r < 0 && state_.last_timestamp == 0) return failed("clock_gettime", r);
    if (r < 0) now = 0;
    if (state_.last_timestamp == UINT64_MAX) return failed("timestamp", -EOVERFLOW);
    out = now > state_.last_timestamp ? now : state_.last_timestamp + 1;
    return ok();
  }

  // Unmaps the header before the payload: a valid header never points to missing memory. What
  // cannot be unmapped is kept and tried again.
  otel_ctx_error release() {
    if (state_.header != nullptr) {
      if (state_.published) {
        atomic(state_.header->monotonic_published_at_ns).store(0, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_release);
        state_.published = false;
      }
      if (const long r = kernel_.unmap(state_.header, page_); r < 0) {
        return failed("munmap of the header", r);
      }
      state_.header = nullptr;
    }
    if (const long r = unmap(state_.active); r < 0) return failed("munmap of the payload", r);
    if (const long r = unmap(state_.spare); r < 0) return failed("munmap of an old payload", r);
    return ok();
  }

  long unmap(Buffer& buffer) {
    if (buffer.start == nullptr) return 0;
    const long r = kernel_.unmap(buffer.start, buffer.capacity);
    if (r == 0) buffer = {};
    return r;
  }

  Kernel& kernel_;
  State& state_;
  std::size_t page_;
  bool own_page_;
  void (*forked_)();
};

}  // namespace ctxconf::writer
