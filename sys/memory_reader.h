// Copies bytes out of a process: a live one, a recorded one, or one that a test
// changes between two reads.
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

  // Copies up to out.size() bytes. A short count, 0 included, means that the byte
  // after the last one copied is not readable; it is not an error. Errors are about
  // the process (ESRCH, EPERM), never about a byte.
  virtual Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const = 0;

  struct Part {
    RemoteAddr from;
    std::span<std::byte> out;
  };
  // As read_some() for each, one after the other. An error is about the first; of the second
  // nothing is copied where it is refused.
  virtual Result<std::array<std::size_t, 2>> read_two(const Part& first, const Part& second) const;

  // All of `out`, or an error with EFAULT that names the first unreadable address.
  Result<> read_exact(RemoteAddr from, std::span<std::byte> out) const;

  template <Plain T>
  Result<T> read(RemotePtr<T> p) const {
    T value;
    CTX_CHECK(read_exact(p.at, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }
};

// process_vm_readv on a live process, /proc/PID/mem where that call is refused. Needs ptrace access
// to it (EPERM otherwise).
class ProcessMemory : public MemoryReader {
 public:
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const override;
  // As read_some(), of what a list of mappings has just called readable: where the call is refused,
  // read_some() makes that list each time.
  Result<std::size_t> read_mapped(RemoteAddr from, std::span<std::byte> out) const;
  // In one system call where all of both can be read.
  Result<std::array<std::size_t, 2>> read_two(const Part& first, const Part& second) const override;

 private:
  pid_t pid_;
};

// Bytes from a recording, a test or a fuzzer. Blocks may touch or overlap; the
// one put last wins.
class SnapshotMemory : public MemoryReader {
 public:
  void put(RemoteAddr at, std::span<const std::byte> bytes);
  Result<std::size_t> read_some(RemoteAddr from, std::span<std::byte> out) const override;

 private:
  std::map<std::uint64_t, std::vector<std::byte>> blocks_;  // disjoint, by start
};

// Calls `before(n, address)` ahead of the nth read (from 1) of the reader below,
// which must outlive it. An error of the hook is the error of that read.
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
