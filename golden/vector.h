// A golden vector: bytes, the requirements that they are about, and what a correct reader makes
// of them. Read from the generated files in golden/; docs/golden.md has the format. Everything
// read is checked: unknown members, wrong types and numbers out of range are errors that name the
// file, the member and what to do. Sizes are bounded (kLongestVectorFile).
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
std::string_view to_string(Kind kind);    // "process-context": also the folder's name
std::string_view id_prefix(Kind kind);    // "pctx/"
std::string_view revision_of(Kind kind);  // of the OTEP: "2026-04-07"

// What a reader may make of a vector.
enum class Result {
  kAccept,  // exactly one of the expected contents
  kAbsent,  // there is no context
  kReject,  // there is one that cannot be used
  kRetry,   // it is being changed: look again
};
std::string_view to_string(Result result);

using Bytes = std::string;  // any bytes, no text

// Bytes that a correct writer may have different, and by which rule.
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
  Bytes header;  // what stands at the start of the mapping; perhaps fewer than 32 bytes
  std::uint64_t mapping_address = 0;
  std::uint64_t mapping_size = 0;
  Bytes payload;                 // the bytes at `payload_at`
  std::uint64_t payload_at = 0;  // inside the mapping, or memory of its own of just that size
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
// The mapping with all its bytes and, where the payload lies elsewhere, the payload.
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
  Bytes record;  // all that is readable from its address on; may be shorter than its size says
  std::vector<std::string> key_map;
  std::string schema;  // threadlocal.schema_version of the process context
  std::vector<Mask> masks;
  std::vector<RecordContent> expect;
  friend bool operator==(const ThreadRecordVector&, const ThreadRecordVector&) = default;
};

struct MapsContent {
  std::vector<std::uint64_t> candidates;  // where the mappings begin, in order
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
  std::vector<Result> results;  // those that are right; more than one where the OTEP leaves it open
  // That of `kind` is meant. `expect` is not empty exactly when kAccept is among the results.
  ProcessContextVector process_context;
  ThreadRecordVector thread_record;
  MapsVector maps;

  std::string_view name() const;  // behind the prefix: "inline-one-page"
  bool allows(Result result) const;
  friend bool operator==(const Vector&, const Vector&) = default;
};

std::filesystem::path file_of(const Vector& vector);  // "process-context/inline-one-page.json"

// One generated file. `file` is for the error.
std::expected<Vector, std::string> parse_vector(std::string_view json, std::string_view file,
                                                Kind kind);
// Which kind a file says it is.
std::expected<Kind, std::string> kind_in(std::string_view json, std::string_view file);
// The text of the generated file. parse_vector of it gives the same vector.
std::string to_json(const Vector& vector);

// All of one kind below `golden` ("…/golden"), by name. None at all is an error.
std::expected<std::vector<Vector>, std::string> load_vectors(const std::filesystem::path& golden,
                                                             Kind kind);

inline constexpr std::size_t kLongestVectorFile = std::size_t{1} << 20U;
inline constexpr std::size_t kLongestSourceFile = std::size_t{4} << 20U;

using ProcessContextMessage = opentelemetry::proto::processcontext::v1development::ProcessContext;
using AnyValue = opentelemetry::proto::common::v1::AnyValue;

// An attribute value in the form in which vectors have it; bad UTF-8 is replaced.
std::string value_text(const AnyValue& value);
// What a decoded message holds, to be compared with ProcessContextVector::expect. Of equal keys the
// last (or the first).
enum class Repeats { kLast, kFirst };
ProcessContent content_of(const ProcessContextMessage& message, Repeats repeats = Repeats::kLast);

}  // namespace ctxconf::golden
