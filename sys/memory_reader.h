// Copies bytes out of a process: a live one, a recorded one, or one that a test changes between two
// reads.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys {

class MemoryReader {
 public:
  MemoryReader() = default;
  MemoryReader(const MemoryReader&) = default;
  MemoryReader& operator=(const MemoryReader&) = default;
  virtual ~MemoryReader() = default;

  // Copies up to out.size() bytes. A short count, including 0, means that the byte after the last
  // copied one is not readable; this is not an error. Errors are about the process (ESRCH, EPERM),
  // never about a byte.
  virtual Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const = 0;

  struct Part {
    RemoteAddr from;
    std::span<std::byte> out;
  };
  // Calls read_some() for the first, then for the second. An error is about the first; if the
  // second is refused, nothing of it is copied.
  virtual Result<std::array<std::size_t, 2>> read_two(const Part& first, const Part& second) const;

  // Copies all of `out`, or returns EFAULT with the first unreadable address.
  Result<> read_exact(RemoteAddr from, std::span<std::byte> out) const;

  template <Plain T>
  Result<T> read(RemotePtr<T> p) const {
    T value;
    CTX_RETURN_IF_ERROR(read_exact(p.at, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
};

// Uses process_vm_readv on a live process, or /proc/PID/mem where that call is refused. Needs
// ptrace access to it (EPERM otherwise).
class ProcessMemory : public MemoryReader {
 public:
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const override;
  // Like read_some(), for memory that a list of mappings has just shown as readable: where the call
  // is refused, read_some() makes that list each time.
  Result<std::size_t> read_mapped(RemoteAddr from, std::span<std::byte> out) const;
  // Uses one system call if all of both can be read.
  Result<std::array<std::size_t, 2>> read_two(const Part& first, const Part& second) const override;

 private:
  pid_t pid_;
};

// Copies into the memory of a stopped thread that the caller traces, with process_vm_writev.
// Where that call is refused, it writes through /proc/PID/mem, or word by word with ptrace. EFAULT:
// the process itself may not write there.
Result<> write_memory(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes);

// Bytes from a recording, a test or a fuzzer. Blocks may touch or overlap; the last one put wins.
class SnapshotMemory : public MemoryReader {
 public:
  void put(RemoteAddr at, std::span<const std::byte> bytes);
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const override;

 private:
  std::map<std::uint64_t, std::vector<std::byte>> blocks_;  // disjoint, by start
};

// Calls `before(n, address)` before the nth read (from 1) of the reader below, which must outlive
// it. If the hook returns an error, so does that read.
class InterruptedMemory : public MemoryReader {
 public:
  using Hook = std::function<Result<>(int nth, RemoteAddr at)>;
  InterruptedMemory(const MemoryReader& below, Hook before)
      : below_(&below), before_(std::move(before)) {}
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const override;

 private:
  const MemoryReader* below_;
  Hook before_;
  mutable int reads_ = 0;
};

}  // namespace ctxconf::sys
