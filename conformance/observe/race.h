// Level race: a reader on another processor copies a context again and again, by the reading
// protocol of OTEP 4719, while the program changes it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::conformance {

struct RaceLimits {
  std::uint64_t payload = std::uint64_t{64}
                          << 10U;  // bytes; a larger announced payload is not read
  std::size_t kept = kMaxRaceReads;
};

// Copies and compares; used by one thread.
class RaceRecorder {
 public:
  RaceRecorder(const sys::MemoryReader& memory, sys::RemoteAddr header, bool elf64,
               RaceLimits limits = {});

  // One attempt: timestamp, header, payload, timestamp. False: nothing can be read any more.
  bool read();
  const Race& race() const { return race_; }

 private:
  struct Accepted {
    std::uint64_t read = 0;
    std::uint64_t wanted = 0;  // bytes of payload
    std::uint64_t timestamp = 0;
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };

  void accept();
  void keep(const Accepted& read);

  const sys::MemoryReader& memory_;
  sys::RemoteAddr header_;
  bool elf64_;
  RaceLimits limits_;
  Race race_;
  Accepted now_;
  Accepted last_;
};

// Reads in a thread of its own, which blocks all signals, from its creation on.
class RacingReader {
 public:
  // Calls `unreachable` in another thread if memory of the process does not arrive within
  // `memory_deadline` (sys/access_watchdog.h). The error: no thread can be created, or there is no
  // second processor.
  static sys::Result<std::unique_ptr<RacingReader>> start(pid_t pid, sys::RemoteAddr header,
                                                          bool elf64,
                                                          std::chrono::milliseconds memory_deadline,
                                                          std::function<void(pid_t)> unreachable);
  ~RacingReader();
  RacingReader(const RacingReader&) = delete;
  RacingReader& operator=(const RacingReader&) = delete;

  Race finish();  // call once

 private:
  RacingReader(pid_t pid, sys::RemoteAddr header, bool elf64);
  void run(std::chrono::milliseconds memory_deadline,
           const std::function<void(pid_t)>& unreachable);

  sys::ProcessMemory memory_;
  RaceRecorder recorder_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace ctxconf::conformance
