// What a rule says about one image of one process, and what is said about a run.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "conformance/verdict/operation_picture.h"

namespace ctxconf::conformance {

// In the order of how bad it is; the worst finding is a requirement's outcome.
enum class Outcome {
  kNa,  // does not apply; `reason` is one of capability, revision, arch, mode
  kPass,
  kUnobservable,  // could not be seen; `remedy` says what would make it observable
  kInfo,          // a contradiction of severity info
  kWarn,          // ... of severity warning
  kFail,          // ... of severity error
  kTimeout,       // the testee hung
  kCrash,         // the testee died
  kHarnessError,  // our own fault
};
std::string_view to_string(Outcome o);                  // "harness-error"
std::optional<Outcome> outcome_from(std::string_view);  // the inverse

// The closed list behind `na`.
enum class NaReason { kCapability, kRevision, kArch, kMode };
std::string_view to_string(NaReason r);
std::optional<NaReason> na_reason_from(std::string_view);

// Which image of which process: exec replaces the image and keeps the process.
struct ImageKey {
  std::int32_t pid = 0;
  std::uint32_t image = 0;  // 0 for the first, counted per process
  // In which session (run) or cell (wrap --faults), from 1; 0: in none. Two may have had one pid.
  std::uint32_t session = 0;
  friend bool operator==(const ImageKey&, const ImageKey&) = default;
  friend std::strong_ordering operator<=>(const ImageKey& a, const ImageKey& b) {
    return std::tie(a.session, a.pid, a.image) <=> std::tie(b.session, b.pid, b.image);
  }
};

// Bytes of the testee with the wrong ones marked, perhaps beside those of a golden vector.
struct Hexdump {
  std::string title;          // "header at 0x7f1200000000"
  std::uint64_t address = 0;  // of the first byte
  std::vector<std::uint8_t> bytes;
  struct Mark {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::string label;  // "version: 0, want 2"
  };
  std::vector<Mark> marks;

  // What a golden vector has in place of the bytes, from the first one on; perhaps of fewer.
  struct Expected {
    struct Mask {
      std::uint64_t offset = 0;
      std::uint64_t length = 0;
      std::string name;  // "payload"
      std::string rule;  // what may stand there instead: "the address of the payload"
    };
    std::string vector;  // "rec/layout"
    std::vector<std::uint8_t> bytes;
    std::vector<Mask> masks;  // in order, without overlap
  };
  std::optional<Expected> expected;
};

// An event in the recording of a finding's image.
struct EventPlace {
  std::uint64_t header = 0;  // the address of the header that it concerns
  // In the image's order of events: of a store, of the beginning of a call, or of a view; of the
  // last that was seen where something is missing.
  std::uint64_t order = 0;
  std::string missing;  // what should have followed: "a naming call"; empty: the event is wrong
};

struct Finding {
  std::string requirement;  // id of the catalogue
  ImageKey image;
  std::string image_name;  // "12 /usr/bin/python3.11", from the testee: hostile text
  Outcome outcome = Outcome::kUnobservable;
  NaReason na_reason = NaReason::kCapability;  // only for kNa
  // Of a contradiction: a reader of the protocol notices nothing of it, so that the reading of
  // numbered steps decides how bad it is. In no report: the outcome has it.
  bool unnoticed = false;

  // What was seen, in one line; for unobservable and na the reason. May quote the testee: hostile.
  std::string saw;
  // Short, without addresses or numbers that vary: what an expectation's saw= is compared with.
  std::string signature;
  // The code that did it: "src/ctx.cc:118 in publish_update, thread 4243"; empty: none is known.
  // Hostile.
  std::string at;
  std::string remedy;                 // unobservable: what would make it observable
  std::string level;                  // the observation level that the verdict rests on
  std::vector<std::string> evidence;  // further lines: maps lines, decoded values; hostile
  std::vector<Hexdump> hexdumps;
  std::optional<EventPlace> event;  // what is wrong; nothing: it is no event. In no report
  std::optional<OperationPicture> operation;  // in which that is
};

}  // namespace ctxconf::conformance
