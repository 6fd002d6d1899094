// What was said to a program under test and what it then showed: the evidence of `ctxconf run`
// next to what was recorded of its processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/image_key.h"
#include "conformance/evidence/reader_evidence.h"

namespace ctxconf::conformance {

inline constexpr const char* kFileSizeLimit = "RLIMIT_FSIZE=0";

// The slot of one thread in a sample, while the thread could not run.
struct ThreadView {
  std::int32_t tid = 0;
  std::uint32_t module = 0;  // index into Image::modules: whose variable
  bool null = false;         // the slot holds null, or the thread has no such block of TLS yet
  // Index into Image::threads; nothing: null, or not kept (over the limit).
  std::optional<std::uint64_t> sample;
  friend bool operator==(const ThreadView&, const ThreadView&) = default;
};

// One image in a snapshot.
struct ImageView {
  ImageKey image;
  std::uint64_t order = 0;                // of its last event until then
  std::optional<std::uint64_t> snapshot;  // index into Image::snapshots; nothing: none was taken
  std::vector<ThreadView> threads;        // none without the variable
  std::vector<std::int32_t> unseen;       // threads that did not stop for it in time
  friend bool operator==(const ImageView&, const ImageView&) = default;
};

// One request and its answer, or a time without any.
struct Operation {
  std::uint32_t check = 0;    // index into Session::checks
  std::string request;        // the line as it was sent; empty: none was, it was left alone
  std::string reply;          // the line that answered; empty: none did. Hostile
  std::uint64_t sent_ns = 0;  // CLOCK_BOOTTIME of the harness
  // When the reply was read; without a request: when the snapshot had been taken. 0: never.
  std::uint64_t answered_ns = 0;
  // The images of the session that lived after the reply and before the next request.
  std::vector<ImageView> after;
  std::optional<ReaderQuestion> question;  // reader
  friend bool operator==(const Operation&, const Operation&) = default;
};

// Recordings and events call these "done", "refused", "crash", "timeout" and "not-run".
enum class CheckEnding {
  kDone,     // all was asked; what it means is for the rules
  kRefused,  // an operation that the testee had declared was not done
  kCrash,    // the testee died or left
  kTimeout,  // it did not answer
  kNotRun,   // after too many crashes of its group; of bye: the run was interrupted
};

std::string_view to_string(CheckEnding ending);

// Some operations that belong together, and the requirements that they are for.
struct CheckRun {
  std::string name;  // "update.visible"
  std::vector<std::string> requirements;
  CheckEnding ending = CheckEnding::kDone;
  std::string
      text;  // how it ended, where not kDone: "killed by SIGSEGV in process.update"; hostile
  std::vector<std::string> details;  // threads of a hang, the tail of stderr; hostile
  std::string script;                // reader: the script of the targets, as JSON lines
  std::string unshown;               // reader: why it was not played to its end; empty: it was
  std::string remedy;                // reader: what would make it playable
  std::string harm;  // reader: what it did to a target: "left its target stopped, as its tracer"
  friend bool operator==(const CheckRun&, const CheckRun&) = default;
};

// How an adapter process ended. The words of recordings are in session_json.cc.
struct AdapterEnding {
  enum class How : std::uint8_t {
    kUnknown,
    kExitedZero,
    kExited,      // with another exit code
    kKilled,      // by a signal that was not ours
    kKilledByUs,  // by a signal of ctxconf
    kRunaway,     // ended by ctxconf: it made too many processes
  };
  How how = How::kUnknown;
  std::string text;  // "exited 0", "killed by SIGSEGV"; empty: unknown

  bool was_killed() const { return how == How::kKilled || how == How::kKilledByUs; }
  friend bool operator==(const AdapterEnding&, const AdapterEnding&) = default;
};

// The life of one adapter process.
struct Session {
  std::string group;
  std::uint32_t repeat = 0;  // which of --repeat, from 0
  // The image that hello named; pid 0: it never said hello. Its `session` is the number of this
  // one: no other has it.
  ImageKey root;
  std::string hello;  // its reply; hostile
  // The faults that were injected for a while: their Injection::spec (clocks were then read by
  // system calls), or kFileSizeLimit alone.
  std::vector<std::string> faults;
  std::vector<CheckRun> checks;
  std::vector<Operation> operations;  // hello is the first
  AdapterEnding ending;
  std::uint64_t noise_lines = 0;         // on its channel that are not protocol messages
  std::string noise;                     // the first of them, cut; hostile
  std::vector<std::string> left_behind;  // processes that outlived it and were killed; hostile
  friend bool operator==(const Session&, const Session&) = default;
};

// A check that was left out because of what the testee declares.
struct SkippedCheck {
  std::string name;
  std::vector<std::string> requirements;
  std::string capability;       // that the testee does not declare
  bool must_be_absent = false;  // but this one it declares, and the check is for testees without
  friend bool operator==(const SkippedCheck&, const SkippedCheck&) = default;
};

}  // namespace ctxconf::conformance
