// Copies memory of another process with calls that fail if it is not mapped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "conformance/testees/reader/stopped_thread.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kMemoryChoices;

class Memory {
 public:
  // `stopped`: a thread of it that this thread has stopped; 0: none.
  explicit Memory(pid_t pid, pid_t stopped = 0);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // All of it, or false.
  bool copy(std::uint64_t at, void* to, std::size_t size) const;
  template <class T>
  std::optional<T> value(std::uint64_t at) const {
    T out{};
    if (!copy(at, &out, sizeof out)) return std::nullopt;
    return out;
  }

 private:
  bool peek(std::uint64_t at, char* to, std::size_t size) const;

  pid_t pid_;
  pid_t stopped_;
  std::unique_ptr<StoppedThread> own_stop_;  // for a reader that peeks
  int file_ = -1;                            // /proc/PID/mem, for a reader that uses it
};

// read() at a position, without a system call for each read. False: this host has no io_uring.
bool ring_is_available();
bool uses_ring();  // this reader
bool ring_copy(int file, std::uint64_t at, void* to, std::size_t size);

}  // namespace ctxconf::testees
