// The remote reads of a reader under test: recorded with the memory that they concern, and held at
// the moments of a scene.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/reader_evidence.h"
#include "conformance/observe/wrap.h"

namespace ctxconf::conformance::reader {

// A hold whose addresses are known.
struct ArmedHold {
  std::string name;
  bool before = false;
  MemoryRange part;
  unsigned nth = 1;
  std::function<void()> play;  // moves the target; the reader stands still
};

// The eight bytes at an address of a process; 0 if they cannot be read.
std::uint64_t number_at(pid_t pid, std::uint64_t at);

class ReaderCallRecorder : public CallObserver {
 public:
  // What is watched for the question that begins now.
  struct Watch {
    pid_t process = 0;
    pid_t thread = 0;                      // not 0: its state is recorded with each copy
    std::optional<std::uint64_t> counter;  // address of a number that this thread increases
    std::vector<ArmedHold> holds;
    // The memory of the target that a look reads: the header twice, or the slot once. Size 0: not
    // known.
    MemoryRange looked_at;
  };
  void begin(Watch watch);
  // Ends it; adds calls, and the holds whose moment did not come.
  void end(ReaderQuestion& question);

  // How many bytes the reader has written into a process, or one of its threads, since
  // forget_writes(), that still differ from their values before.
  std::size_t changed_by_reader(pid_t process) const;
  void forget_writes() { written_.clear(); }

  // Whether a reader that polls has begun and ended a look since the question. Nothing: it has
  // never made a call that is seen.
  std::optional<bool> has_looked() const;

  bool entered(const sys::SyscallEntry& e) override;
  void left(const sys::SyscallExit& e) override;

 private:
  // The call, if it concerns another process or a file of one.
  std::optional<ReaderCall> describe(const sys::SyscallEntry& e) const;
  void look_at_thread(ReaderCall& call, std::uint64_t& ran) const;
  void hold(ReaderCall& call, bool before);
  void count_looks(const ReaderCall& call);
  // A call that writes into another process.
  struct Write {
    pid_t target = 0;
    std::vector<MemoryRange> ranges;
    std::vector<std::uint8_t> before;  // of all ranges, one after the other
  };
  static Write before_write(pid_t target, std::vector<MemoryRange> ranges);
  void keep_write(const Write& write);

  std::optional<Watch> watch_;
  std::map<std::string, unsigned> matched_;  // calls that match a hold, by its name
  std::set<std::string> held_;
  std::map<pid_t, std::size_t> in_progress_;  // index into calls_
  std::map<pid_t, Write> writing_;            // by the thread that makes the call
  struct Written {
    std::uint8_t before = 0;
    std::uint8_t after = 0;
  };
  std::map<std::pair<pid_t, std::uint64_t>, Written> written_;  // by target and address
  std::vector<ReaderCall> calls_;
  std::uint64_t dropped_ = 0;
  bool is_seen_ = false;             // a call of this reader was recorded at some time
  std::optional<ReaderCall> first_;  // about the process or the thread
  std::uint64_t firsts_ = 0;         // calls like this one
  std::uint64_t copies_ = 0;         // of what is looked at
};

}  // namespace ctxconf::conformance::reader
