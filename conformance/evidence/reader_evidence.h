// What `ctxconf reader` records of a question to a reader under test: the memory of the target,
// what the reader copied of it and when, and the right answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ctxconf::conformance {

struct MemoryRange {
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  bool covers(std::uint64_t address, std::uint64_t bytes) const {
    return address >= at && address - at <= size && bytes <= size - (address - at);
  }
  bool touches(const MemoryRange& other) const {
    return size != 0 && other.size != 0 && (at - other.at < other.size || other.at - at < size);
  }
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;
};

// A system call of a process under test that concerns a target, or a file that it opens.
struct ReaderCall {
  std::int32_t tid = 0;  // that made it
  // The kernel's name: "process_vm_readv", "pread64", "read", "ptrace", "openat", "tgkill", "mmap".
  std::string name;
  // ptrace: the request, "PTRACE_SEIZE"; a signal: "SIGSTOP"; otherwise the file that was opened,
  // read or mapped. Hostile.
  std::string detail;
  std::int32_t target = 0;             // the process or thread that it is about; 0: none
  std::vector<MemoryRange> ranges;     // of the target's memory, that it was to copy
  std::optional<std::int64_t> result;  // -errno on failure; nothing: it has not returned
  std::uint64_t entered_ns = 0;        // CLOCK_BOOTTIME of the harness
  // The state of the thread that was asked about, when the call began and when it had returned: the
  // letter of /proc/PID/stat, and a number that the thread increases while it runs.
  std::string state;
  std::uint64_t ran_before = 0;
  std::uint64_t ran_after = 0;
  std::string held;  // not empty: the hold that began here
  friend bool operator==(const ReaderCall&, const ReaderCall&) = default;
};

inline constexpr std::size_t kMaxReaderCalls = 2048;  // of one question

// Memory of a target when the question was asked.
struct ShownMemory {
  std::string name;  // "header", "payload", "slot", "record"
  std::uint64_t at = 0;
  std::uint64_t size = 0;
  std::vector<std::byte> bytes;  // the first ones, if they can be read
  friend bool operator==(const ShownMemory&, const ShownMemory&) = default;
};

inline constexpr std::size_t kMaxShownBytes = 1024;  // of one name

// The result of a reply with `ok` false.
inline constexpr const char* kRefusedAnswer = "refused";

// One answer that is right.
struct AllowedAnswer {
  std::string result;   // as in a reply: "accept", "absent", "reject", "retry"; or kRefusedAnswer
  std::string content;  // JSON, see reader_answers.h; empty: any
  friend bool operator==(const AllowedAnswer&, const AllowedAnswer&) = default;
};

// What the answer must be for the sake of one requirement.
struct AnswerClaim {
  std::string requirement;
  std::vector<AllowedAnswer> allowed;  // one of them must fit
  std::vector<std::string> never;      // texts that must not occur in the answer
  std::string otherwise;  // what is wrong with any other answer: "the search stopped at a decoy"
  // Whatever the severity of the requirement:
  bool info = false;     // only mentioned
  bool warning = false;  // a warning
  friend bool operator==(const AnswerClaim&, const AnswerClaim&) = default;
};

// The evidence of a question, in addition to the request and the reply of its operation.
struct ReaderQuestion {
  std::vector<AnswerClaim> claims;  // none: the answer decides nothing
  std::int32_t process = 0;         // that is asked about; 0: none
  std::int32_t thread = 0;          // the same; 0: none
  std::vector<ShownMemory> shown;
  std::vector<ReaderCall> calls;
  bool counted = false;  // the thread counts while it runs: ReaderCall::ran_before
  // It is asked again and again while the target changes between two contents: the first claim
  // allows both.
  bool repeated = false;
  std::uint64_t calls_dropped = 0;  // over the limit
  std::vector<std::string> missed;  // holds whose moment did not come
  std::uint64_t processor_ns = 0;   // that the reading processes used
  // The memory of the process that has grown most: its largest resident size meanwhile, and its
  // size before; zeros where that cannot be measured.
  std::uint64_t peak_bytes = 0;
  std::uint64_t before_bytes = 0;
  friend bool operator==(const ReaderQuestion&, const ReaderQuestion&) = default;
};

}  // namespace ctxconf::conformance
