// What a program did to one header in one publication or update, step by step, as reports draw it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::conformance {

// The fields of a header in its order (OTEP 4719, "Process Context Header"), what its payload field
// points at, and calls.
enum class Lane { kSignature, kVersion, kSize, kTimestamp, kPointer, kPayload, kCalls };
inline constexpr std::array kLanes = {Lane::kSignature, Lane::kVersion, Lane::kSize,
                                      Lane::kTimestamp, Lane::kPointer, Lane::kPayload,
                                      Lane::kCalls};
std::string_view to_string(Lane lane);  // "payload_size"
std::optional<Lane> lane_from(std::string_view);

// What a reader that copies the header after a step makes of it.
enum class Finds {
  kUnknown,      // the header was not seen
  kNoMemory,     // there is no memory for it yet: nothing
  kNoTimestamp,  // the timestamp is 0: nothing
  kNoContext,    // signature or version are not those of a context: nothing
  kOld,          // what was there before the operation
  kNew,          // what is there after it
  kNeither,      // a header that looks valid, and is none of these
};
std::string_view to_string(Finds finds);  // "no-timestamp"
std::optional<Finds> finds_from(std::string_view);

struct PictureStep {
  enum class Kind {
    kStore,    // to fields of the header
    kPayload,  // bytes that the header points at are others
    kCall,     // a system call
    kFork,     // a new process
    kMissing,  // what should have come by here did not
  };
  struct Change {
    Lane lane = Lane::kTimestamp;
    std::string was;  // short; the same as `is`: stored once more
    std::string is;   // of a signature: hostile
  };
  Kind kind = Kind::kStore;
  std::vector<Change> changes;  // of kStore and kPayload, at least one
  // Of others: "madvise(MADV_DONTFORK)"; may hold a name: hostile. Of kPayload: "the first of 3
  // changes", or empty.
  std::string text;
  std::string at;        // "ctx.cc:118 in publish_update"; empty: not known. Hostile
  std::int32_t tid = 0;  // 0: not known
  Finds finds = Finds::kUnknown;
  bool wrong = false;  // what the finding is about
};
std::string_view to_string(PictureStep::Kind kind);
std::optional<PictureStep::Kind> picture_kind_from(std::string_view);

inline constexpr std::size_t kMaxPictureSteps = 40;

struct OperationPicture {
  bool is_update = false;  // false: a publication
  std::uint64_t header = 0;
  Finds before = Finds::kUnknown;
  std::vector<PictureStep> steps;  // at most kMaxPictureSteps, in order
  std::uint64_t steps_before = 0;  // that are left out
  std::uint64_t steps_behind = 0;
};

}  // namespace ctxconf::conformance
