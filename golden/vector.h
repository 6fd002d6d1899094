// A golden vector: bytes, the requirements that they test, and what a correct reader makes of them.
// Read from the generated files in golden/; docs/golden.md has the format. Checks everything:
// unknown members, wrong types and numbers out of range are errors that name the file, the member
// and what to do. Sizes are limited (kLongestVectorFile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_layouts.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::golden {

enum class Kind { kProcessContext, kThreadRecord, kMaps };
inline constexpr Kind kKinds[] = {Kind::kMaps, Kind::kProcessContext, Kind::kThreadRecord};
std::string_view to_string(Kind kind);    // "process-context"; also the folder's name
std::string_view id_prefix(Kind kind);    // "pctx/"
std::string_view revision_of(Kind kind);  // of the OTEP: "2026-04-07"

// What a reader may conclude from a vector.
enum class Result {
  kAccept,  // exactly one of the expected contents
  kAbsent,  // there is no context
  kReject,  // there is one, but it cannot be used
  kRetry,   // it is being changed: read again
};
std::string_view to_string(Result result);

using Bytes = std::string;  // any bytes, not text

// Bytes that may differ in a correct writer, and the rule for them.
struct Mask {
  std::size_t offset = 0;  // in the header or record
  std::size_t length = 0;
  std::string name;  // "monotonic_published_at_ns"
  std::string rule;  // "u64 != 0 && <= boottime at capture"
  friend bool operator==(const Mask&, const Mask&) = default;
};

// Attribute key -> AnyValue as compact JSON, as value_text() writes it: {"string":"checkout"}.
using Attributes = std::map<std::string, std::string>;

struct ProcessContent {
  Attributes resource;
  Attributes attributes;
  friend bool operator==(const ProcessContent&, const ProcessContent&) = default;
};

struct ProcessContextVector {
  abi::HeaderLayout layout = abi::HeaderLayout::kH5;
  Bytes header;  // the bytes at the start of the mapping; perhaps fewer than 32
  std::uint64_t mapping_address = 0;
  std::uint64_t mapping_size = 0;
  Bytes payload;                 // the bytes at `payload_at`
  std::uint64_t payload_at = 0;  // inside the mapping, or in separate memory of exactly that size
  std::uint64_t boottime_ns = 0;
  std::vector<Mask> masks;  // of the header
  std::vector<ProcessContent> expect;
  friend bool operator==(const ProcessContextVector&, const ProcessContextVector&) = default;
};

// Readable memory of the publisher.
struct MemoryPiece {
  std::uint64_t address = 0;
  Bytes bytes;
};
// The mapping with all its bytes and, if the payload is elsewhere, the payload.
std::vector<MemoryPiece> memory_of(const ProcessContextVector& vector);

struct RecordContent {
  std::string trace_id;  // 32 hex digits; zeros: none
  std::string span_id;   // 16
  std::uint8_t flags = 0;
  std::map<std::string, Bytes> attributes;  // by name
  friend bool operator==(const RecordContent&, const RecordContent&) = default;
};

struct ThreadRecordVector {
  std::string layout = "T3";  // or a draft's: "T0", "T1", "T2"
  Bytes record;               // all bytes readable from its address; may be shorter than its size
  std::vector<std::string> key_map;
  std::string schema;  // threadlocal.schema_version of the process context
  std::vector<Mask> masks;
  std::vector<RecordContent> expect;
  friend bool operator==(const ThreadRecordVector&, const ThreadRecordVector&) = default;
};

struct MapsContent {
  std::vector<std::uint64_t> candidates;  // start addresses of the mappings, in order
  friend bool operator==(const MapsContent&, const MapsContent&) = default;
};

struct MapsVector {
  std::string maps;  // as /proc/PID/maps; hostile
  std::vector<MapsContent> expect;
  friend bool operator==(const MapsVector&, const MapsVector&) = default;
};

struct Vector {
  Kind kind = Kind::kProcessContext;
  std::string id;  // "pctx/inline-one-page"
  std::vector<std::string> requirements;
  std::string comment;
  std::vector<Result> results;  // the correct ones; several if the OTEP leaves it open
  // The member for `kind` is valid. `expect` is not empty exactly if kAccept is among the results.
  ProcessContextVector process_context;
  ThreadRecordVector thread_record;
  MapsVector maps;

  std::string_view name() const;  // after the prefix: "inline-one-page"
  bool allows(Result result) const;
  friend bool operator==(const Vector&, const Vector&) = default;
};

std::filesystem::path file_of(const Vector& vector);  // "process-context/inline-one-page.json"

// One generated file. `file` is for the error.
std::expected<Vector, std::string> parse_vector(std::string_view json, std::string_view file,
                                                Kind kind);
// The kind that a file says it has.
std::expected<Kind, std::string> kind_in(std::string_view json, std::string_view file);
// The text of the generated file. parse_vector of this text gives the same vector.
std::string to_json(const Vector& vector);

// All vectors of one kind in `golden` ("…/golden"), by name. It is an error if there are none.
std::expected<std::vector<Vector>, std::string> load_vectors(const std::filesystem::path& golden,
                                                             Kind kind);

inline constexpr std::size_t kLongestVectorFile = std::size_t{1} << 20U;
inline constexpr std::size_t kLongestSourceFile = std::size_t{4} << 20U;

using ProcessContextMessage = opentelemetry::proto::processcontext::v1development::ProcessContext;
using AnyValue = opentelemetry::proto::common::v1::AnyValue;

// An attribute value in the format of vectors; bad UTF-8 is replaced.
std::string value_text(const AnyValue& value);
// The contents of a decoded message, to compare with ProcessContextVector::expect. Takes the last
// (or the first) of equal keys.
enum class Repeats { kLast, kFirst };
ProcessContent content_of(const ProcessContextMessage& message, Repeats repeats = Repeats::kLast);

}  // namespace ctxconf::golden
