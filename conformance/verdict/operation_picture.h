// One publication or update of one header, step by step, as reports draw it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::conformance {

// The fields of a header in order (OTEP 4719, "Process Context Header"), the bytes to which its
// payload field points, and calls.
enum class Lane { kSignature, kVersion, kSize, kTimestamp, kPointer, kPayload, kCalls };
inline constexpr std::array kLanes = {Lane::kSignature, Lane::kVersion, Lane::kSize,
                                      Lane::kTimestamp, Lane::kPointer, Lane::kPayload,
                                      Lane::kCalls};
std::string_view to_string(Lane lane);  // "payload_size"
std::optional<Lane> lane_from(std::string_view);

// What a reader gets if it copies the header after a step.
enum class Finds {
  kUnknown,      // the header was not seen
  kNoMemory,     // nothing: there is no memory for it yet
  kNoTimestamp,  // nothing: the timestamp is 0
  kNoContext,    // nothing: wrong signature or version
  kOld,          // the context before the operation
  kNew,          // the context after the operation
  kNeither,      // a header that looks valid but is neither of them
};
std::string_view to_string(Finds finds);  // "no-timestamp"
std::optional<Finds> finds_from(std::string_view);

struct PictureStep {
  enum class Kind {
    kStore,    // to fields of the header
    kPayload,  // the bytes at the payload address changed
    kCall,     // a system call
    kFork,     // a new process
    kMissing,  // something that should have happened by now
  };
  struct Change {
    Lane lane = Lane::kTimestamp;
    std::string was;  // short; equal to `is` if the same value was stored again
    std::string is;   // hostile for a signature
  };
  Kind kind = Kind::kStore;
  std::vector<Change> changes;  // of kStore and kPayload, at least one
  // Other kinds: "madvise(MADV_DONTFORK)"; may hold a name: hostile. kPayload: "the first of 3
  // changes", or empty.
  std::string text;
  std::string at;        // "ctx.cc:118 in publish_update"; empty if unknown. Hostile
  std::int32_t tid = 0;  // 0: unknown
  Finds finds = Finds::kUnknown;
  bool wrong = false;  // the finding is about this step
};
std::string_view to_string(PictureStep::Kind kind);
std::optional<PictureStep::Kind> picture_kind_from(std::string_view);

inline constexpr std::size_t kMaxPictureSteps = 40;

struct OperationPicture {
  bool is_update = false;  // false: a publication
  std::uint64_t header = 0;
  Finds before = Finds::kUnknown;
  std::vector<PictureStep> steps;  // at most kMaxPictureSteps, in order
  std::uint64_t steps_before = 0;  // number of earlier steps that are left out
  std::uint64_t steps_behind = 0;
};

}  // namespace ctxconf::conformance
