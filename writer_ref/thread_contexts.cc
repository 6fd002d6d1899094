#include "writer_ref/thread_contexts.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>

namespace ctxconf::writer {
namespace {

// A bijection of 64 bits: different numbers in, different numbers out.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <std::size_t N>
void put(std::array<std::uint8_t, N>& to, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) to[at + i] = static_cast<std::uint8_t>(value >> (56 - 8 * i));
}

}  // namespace

Ids ids_of(std::uint32_t process, std::uint32_t thread, std::uint64_t turn) {
  const std::uint64_t high = mixed(std::uint64_t{process} << 32 | thread) | 1;
  const std::uint64_t low = mixed(turn ^ high) & ~std::uint64_t{1};
  Ids ids{};
  put(ids.trace, 0, high);
  put(ids.trace, 8, low);
  put(ids.span, 0, high ^ low);
  return ids;
}

ThreadContexts::ThreadContexts(ThreadSettings settings) : settings_(std::move(settings)) {
  for (const auto& [key, value] : settings_.attributes) {
    keys_.push_back(otel_thread_ctx_register_key(key.data(), key.size()));
  }
  started_.resize(settings_.threads);
  turns_.resize(settings_.threads);
  otel_thread_ctx_record record;
  fill(record, Ids{}, &complaints_);
}

void ThreadContexts::fill(otel_thread_ctx_record& record, const Ids& ids,
                          std::vector<std::string>* complaints) const {
  constexpr std::uint8_t sampled = 1;
  otel_thread_ctx_begin_inline(&record, ids.trace.data(), ids.span.data(), sampled);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto& [key, value] = settings_.attributes[i];
    const int status =
        otel_thread_ctx_append_inline(&record, sizeof record, keys_[i], value.data(), value.size());
    if (status == OTEL_THREAD_CTX_OK || complaints == nullptr) continue;
    const char* what = "left out: the record is full";
    if (keys_[i] < 0) what = "left out: too many keys";
    if (status == OTEL_THREAD_CTX_CUT) what = "cut to 255 bytes at most";
    complaints->push_back("'" + key + "': " + what);
  }
  otel_thread_ctx_end_inline(&record);
}

const std::vector<ThreadContexts::Started>& ThreadContexts::start() {
  stopping_ = false;
  attached_ = 0;
  for (std::size_t i = 0; i < settings_.threads; ++i) {
    try {
      threads_.emplace_back([this, i] { run(i); });
    } catch (const std::exception& e) {
      throw std::runtime_error("cannot start thread " + std::to_string(i + 1) + " of " +
                               std::to_string(settings_.threads) + ": " + e.what());
    }
  }
  std::unique_lock guard(lock_);
  changed_.wait(guard, [this] { return attached_ == settings_.threads; });
  return started_;
}

void ThreadContexts::stop() {
  {
    const std::lock_guard guard(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

bool ThreadContexts::wait_for_turn() {
  if (settings_.rotate && settings_.rotate->count() == 0) return !stopping_;
  const auto stopping = [this] { return stopping_.load(); };
  std::unique_lock guard(lock_);
  if (settings_.rotate) return !changed_.wait_for(guard, *settings_.rotate, stopping);
  changed_.wait(guard, stopping);
  return false;
}

void ThreadContexts::run(std::size_t index) {
  const auto process = static_cast<std::uint32_t>(getpid());
  const auto thread = static_cast<std::uint32_t>(index);
  std::uint64_t& turn = turns_[index];
  std::array<otel_thread_ctx_record, 2> records;

  otel_thread_ctx_init_thread();
  const Ids first = ids_of(process, thread, turn);
  fill(records[0], first, nullptr);
  otel_thread_ctx_attach_inline(records.data());
  started_[index] = {static_cast<int>(syscall(SYS_gettid)),
                     reinterpret_cast<std::uintptr_t>(&otel_thread_ctx_v1), first};
  {
    const std::lock_guard guard(lock_);
    ++attached_;
  }
  changed_.notify_all();

  for (std::size_t next = 1; wait_for_turn(); next ^= 1) {
    const Ids ids = ids_of(process, thread, ++turn);
    if (settings_.in_place) {
      fill(records[0], ids, nullptr);
    } else {
      fill(records[next], ids, nullptr);
      otel_thread_ctx_attach_inline(&records[next]);
    }
  }
  ++turn;
  otel_thread_ctx_attach_inline(nullptr);
}

}  // namespace ctxconf::writer
