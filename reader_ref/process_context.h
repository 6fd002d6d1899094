// The reading protocol of OTEP 4719: finds the context that a process publishes, copies it
// completely although the process keeps changing it, and decodes it. All input is hostile; unusable
// input affects only that mapping or that process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_header.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"
#include "reader_ref/key_map.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::reader {

using KeyValue = opentelemetry::proto::common::v1::KeyValue;
using KeyValues = google::protobuf::RepeatedPtrField<KeyValue>;
using ProcessContextMessage = opentelemetry::proto::processcontext::v1development::ProcessContext;

// Larger payloads are refused, whatever the header says.
inline constexpr std::uint32_t kPayloadLimit = std::uint32_t{1} << 20U;

struct ProcessContext {
  sys::MapEntry mapping;
  abi::ProcessHeader header{};
  ProcessContextMessage message;
  // From field 2: whether there is an attribute threadlocal.schema_version, and its value if that
  // is a string.
  bool has_schema = false;
  std::string schema;
  KeyMap keys;  // threadlocal.attribute_key_map
};

// The attribute that counts, or null: of equal keys, the last.
const KeyValue* find_attribute(const KeyValues& attributes, std::string_view key);

// The message and what the thread context needs from it. The error says why it cannot be decoded.
sys::Result<std::shared_ptr<ProcessContext>> decode_payload(std::span<const std::byte> payload);

// Whether its header is still the same, so that it need not be copied again: one read. Errors are
// about the process. An exec, an munmap and other data at the address change the header or make it
// unreadable.
sys::Result<bool> is_unchanged(const sys::MemoryReader& memory, const ProcessContext& known);

// What one sample of all candidates showed.
struct ContextSample {
  std::shared_ptr<const ProcessContext> context;  // null: no usable context
  bool busy = false;               // being changed: worth another sample; only without a context
  std::vector<std::string> notes;  // ignored candidates, each with the reason; hostile text
};

// Samples the mappings once, in their order, and takes the first good context, without parts of
// others. `known` is an earlier result for the same process (or null): a mapping with the same
// address and header is not copied again. Errors are about the process (ESRCH, EPERM), never about
// its memory.
sys::Result<ContextSample> sample_once(const sys::MemoryReader& memory,
                                       std::span<const sys::MapEntry> candidates,
                                       const std::shared_ptr<const ProcessContext>& known);

// How often and how long to wait for a context that is being changed: with the defaults, at most
// 127 ms of sleep.
struct Patience {
  int samples = 8;
  std::chrono::milliseconds first{1};      // doubled after each sample...
  std::chrono::milliseconds longest{100};  // ... up to this
};
std::chrono::milliseconds delay_after(int sample, const Patience& patience);  // from 1

// Tests replace the sleep and the mappings.
using Sleep = std::function<bool(std::chrono::milliseconds)>;  // false: stop waiting
using ListCandidates = std::function<sys::Result<std::vector<sys::MapEntry>>()>;

// Lists the candidates and samples them, repeatedly while the context is busy. If it is still busy
// at the end, the result says so.
sys::Result<ContextSample> read_process_context(const sys::MemoryReader& memory,
                                                const ListCandidates& list,
                                                const std::shared_ptr<const ProcessContext>& known,
                                                const Patience& patience, const Sleep& sleep);

// The mappings of a live process whose name begins like that of a context.
sys::Result<std::vector<sys::MapEntry>> candidates_of(pid_t pid);
// These, and those of files; by address. One list costs less than two.
sys::Result<std::vector<sys::MapEntry>> candidates_and_files_of(pid_t pid);

}  // namespace ctxconf::reader
