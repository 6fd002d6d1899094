// Findings: what a rule says about one image of one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/image_key.h"
#include "conformance/verdict/operation_picture.h"

namespace ctxconf::conformance {

// In order of severity; the worst finding is the outcome of a requirement.
enum class Outcome {
  kNa,  // does not apply; `reason` is one of capability, revision, arch, mode
  kPass,
  kUnobservable,  // could not be observed; `remedy` says how it could be
  kInfo,          // a requirement of severity info is broken
  kWarn,          // ... of severity warning
  kFail,          // ... of severity error
  kTimeout,       // the testee hung
  kCrash,         // the testee died
  kHarnessError,  // a fault of ctxconf
};
std::string_view to_string(Outcome o);                  // "harness-error"
std::optional<Outcome> outcome_from(std::string_view);  // the inverse

// The reasons for `na`; there are no others.
enum class NaReason { kCapability, kRevision, kArch, kMode };
std::string_view to_string(NaReason r);
std::optional<NaReason> na_reason_from(std::string_view);

// Bytes of the testee with the wrong bytes marked, perhaps next to those of a golden vector.
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

  // The bytes of a golden vector for comparison, from the first byte on; may be fewer.
  struct Expected {
    struct Mask {
      std::uint64_t offset = 0;
      std::uint64_t length = 0;
      std::string name;  // "payload"
      std::string rule;  // what the bytes may be instead: "the address of the payload"
    };
    std::string vector;  // "rec/layout"
    std::vector<std::uint8_t> bytes;
    std::vector<Mask> masks;  // in order, without overlap
  };
  std::optional<Expected> expected;
};

// An event in the recording of a finding's image.
struct EventLocation {
  std::uint64_t header = 0;  // the address of its header
  // In the image's order of events: a store, the beginning of a call, or a view. If something is
  // missing, the last event that was seen.
  std::uint64_t order = 0;
  std::string missing;  // what should have followed: "a naming call"; empty: the event is wrong
};

// A place in code. Texts are hostile.
struct CodeFrame {
  std::string function;     // empty: unknown
  std::string source_file;  // by debug information; empty: none
  std::uint32_t source_line = 0;
  std::string module;        // the file's path; empty: code that is in no file
  std::uint64_t offset = 0;  // in that file
  // The source file below the source root of the run: "src/ctx.cc"; empty: it is not there.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ misses it in aggregates without
  std::string path = {};
  friend bool operator==(const CodeFrame&, const CodeFrame&) = default;
};
inline constexpr std::size_t kMaxCodeFrames = 16;

// What decides which of the findings of one requirement count.
enum class FindingKind : std::uint8_t {
  kOther,
  kNoSuchFault,  // unobservable: no call failed that the requirement is about
  kDiedOfFault,  // the process did not live through a fault
  kEndedCheck,   // the adapter died in a check
};

struct Finding {
  std::string requirement;  // id of the catalogue
  ImageKey image;
  std::string image_name;  // "12 /usr/bin/python3.11", from the testee: hostile text
  Outcome outcome = Outcome::kUnobservable;
  NaReason na_reason = NaReason::kCapability;  // only for kNa
  FindingKind kind = FindingKind::kOther;      // not in reports
  // The requirement is broken, but no reader that follows the protocol notices it. The reading of
  // numbered steps then decides the outcome. Not in reports.
  bool unnoticed = false;

  // What was seen, in one line; for unobservable and na, the reason. May quote the testee: hostile.
  std::string saw;
  // Short, without varying addresses or numbers: the text that saw= of an expectation is compared
  // with.
  std::string signature;
  // The code that did it: "src/ctx.cc:118 in publish_update, thread 4243"; empty if unknown.
  // Hostile.
  std::string at;
  // The same, innermost first: the instruction and, where that is library code, its callers. At
  // most kMaxCodeFrames.
  std::vector<CodeFrame> code;
  std::string remedy;                 // unobservable: how it could be observed
  std::string level;                  // the observation level that the verdict rests on
  std::vector<std::string> evidence;  // further lines: maps lines, decoded values; hostile
  std::vector<Hexdump> hexdumps;
  std::optional<EventLocation> event;         // the wrong event, if it is an event. Not in reports
  std::optional<OperationPicture> operation;  // the operation with that event
};

}  // namespace ctxconf::conformance
