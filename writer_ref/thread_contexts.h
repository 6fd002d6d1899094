// The threads of the program writer_ref: each has a context and, on request, changes it in turns. A
// reader can be checked with them, because everything is known in advance: the ids follow from
// process, thread and turn.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "writer_ref/otel_thread_ctx.h"

namespace ctxconf::writer {

struct ThreadSettings {
  std::size_t threads = 0;
  // Key and value; a key that occurs twice makes two entries.
  std::vector<std::pair<std::string, std::string>> attributes;
  bool in_place = false;                           // by the valid byte, otherwise by the pointer
  std::optional<std::chrono::nanoseconds> rotate;  // zero: without a pause
};

struct Ids {
  std::array<std::uint8_t, 16> trace;
  std::array<std::uint8_t, 8> span;
};
// The ids that thread `thread` of a process has in its turn `turn`. Never zero. The span id is the
// first half of the trace id XOR its second half.
Ids ids_of(std::uint32_t process, std::uint32_t thread, std::uint64_t turn);

class ThreadContexts {
 public:
  // Registers the keys; the process context must contain them before start().
  explicit ThreadContexts(ThreadSettings settings);
  ThreadContexts(const ThreadContexts&) = delete;
  ThreadContexts& operator=(const ThreadContexts&) = delete;
  ~ThreadContexts() { stop(); }

  // "'http.route': cut to 255 bytes at most"
  const std::vector<std::string>& complaints() const { return complaints_; }

  struct Started {
    int tid = 0;
    std::uint64_t slot = 0;  // address of otel_thread_ctx_v1
    Ids ids{};               // of the first turn
  };
  // Returns when every thread has attached. If that fails, no thread is left and it throws: "cannot
  // start thread 3 of 8: ...".
  const std::vector<Started>& start();
  // Every thread detaches and ends. The next start continues the turns.
  void stop();

 private:
  void run(std::size_t index);
  void fill(otel_thread_ctx_record& record, const Ids& ids,
            std::vector<std::string>* complaints) const;
  bool wait_for_turn();  // false: stop

  ThreadSettings settings_;
  std::vector<int> keys_;  // of each attribute
  std::vector<std::string> complaints_;
  std::vector<Started> started_;
  std::vector<std::uint64_t> turns_;
  std::vector<std::thread> threads_;
  std::mutex lock_;
  std::condition_variable changed_;  // protects what follows
  std::size_t attached_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace ctxconf::writer
