#include "reader_ref/process_context.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <utility>

#include "abi/thread_record.h"
#include "sys/process.h"

namespace ctxconf::reader {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using sys::MapEntry;
using sys::MemoryReader;
using sys::RemotePtr;
using sys::Result;

// Per process; further mappings of that name are ignored.
constexpr std::size_t kMostCandidates = 64;

std::string hex(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

// EFAULT is about the memory of the process; every other error is about the process.
bool is_fault(const sys::Error& e) { return e.err == EFAULT; }

// A candidate that was not used: permanently, or because it is being changed.
struct PassedOver {
  bool busy = false;
  std::string why;
};

struct Copy {
  abi::ProcessHeader header{};
  std::vector<std::byte> payload;
};

template <class T>
using Taken = std::expected<T, PassedOver>;

Result<Taken<abi::ProcessHeader>> read_header(const MemoryReader& memory, const MapEntry& mapping) {
  const auto header = memory.read(RemotePtr<abi::ProcessHeader>{mapping.range.begin()});
  if (!header && !is_fault(header.error())) return std::unexpected(header.error());
  if (!header) return Taken<abi::ProcessHeader>(std::unexpect, false, "cannot be read");
  if (header->signature != abi::kSignature) {
    return Taken<abi::ProcessHeader>(std::unexpect, false, "has no signature");
  }
  if (header->version != abi::kVersion) {
    return Taken<abi::ProcessHeader>(std::unexpect, false,
                                     "has version " + std::to_string(header->version));
  }
  if (header->monotonic_published_at_ns == 0) {
    return Taken<abi::ProcessHeader>(std::unexpect, true, "is being changed (timestamp 0)");
  }
  return *header;
}

// The payload, or why there is none. The answer is valid only if the header has not changed.
Result<Taken<std::vector<std::byte>>> read_payload(const MemoryReader& memory,
                                                   const abi::ProcessHeader& header) {
  using Payload = Taken<std::vector<std::byte>>;
  const std::string what = std::to_string(header.payload_size) + " bytes at " + hex(header.payload);
  if (header.payload_size > kPayloadLimit) {
    return Payload(
        std::unexpect, false,
        "names a payload of " + what + ", the limit is " + std::to_string(kPayloadLimit));
  }
  std::vector<std::byte> payload(header.payload_size);
  const auto copied = memory.read_exact(sys::RemoteAddr(header.payload), payload);
  if (!copied && !is_fault(copied.error())) return std::unexpected(copied.error());
  if (!copied) {
    return Payload(
        std::unexpect, false,
        "names a payload that cannot be read (" + what + ": " + copied.error().detail + ")");
  }
  return payload;
}

// `before` is what read_header() has just returned.
Result<Taken<Copy>> copy_context(const MemoryReader& memory, const MapEntry& mapping,
                                 const abi::ProcessHeader& before) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  CTX_ASSIGN_OR_RETURN(payload, read_payload(memory, before));
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Compares the whole header, not only the timestamp: nothing guarantees the order in which the
  // kernel copies 32 bytes, so the first copy may hold the old pointer and the new timestamp.
  CTX_ASSIGN_OR_RETURN(after, read_header(memory, mapping));
  if (!after || *after != before) {
    return Taken<Copy>(std::unexpect, true, "was changed while it was copied");
  }
  if (!payload) return Taken<Copy>(std::unexpect, std::move(payload.error()));
  return Copy{before, std::move(*payload)};
}

using Found = std::shared_ptr<const ProcessContext>;

Result<Taken<Found>> take(const MemoryReader& memory, const MapEntry& mapping, const Found& known) {
  CTX_ASSIGN_OR_RETURN(header, read_header(memory, mapping));
  if (!header) return Taken<Found>(std::unexpect, std::move(header.error()));
  if (known && known->mapping.range.begin() == mapping.range.begin() && *header == known->header) {
    return known;
  }
  CTX_ASSIGN_OR_RETURN(copy, copy_context(memory, mapping, *header));
  if (!copy) return Taken<Found>(std::unexpect, std::move(copy.error()));
  auto decoded = decode_payload(copy->payload);
  if (!decoded) return Taken<Found>(std::unexpect, false, decoded.error().detail);
  (*decoded)->mapping = mapping;
  (*decoded)->header = copy->header;
  return Found(std::move(*decoded));
}

std::string name_of(const MapEntry& mapping) {
  return "the mapping at " + hex(mapping.range.begin().raw()) + " (" + mapping.name + ")";
}

KeyMap key_map_of(const AnyValue& value) {
  KeyMap keys;
  if (value.value_case() != AnyValue::kArrayValue) return keys;
  for (const AnyValue& element : value.array_value().values()) {
    if (keys.size() == abi::kMaxKeys) break;
    // Every element counts; otherwise all elements after an odd one would get the wrong name.
    keys.push_back(element.string_value());
  }
  return keys;
}

std::vector<std::string> name_prefixes() {
  return {abi::kMappingNamePrefixes.begin(), abi::kMappingNamePrefixes.end()};
}

// protobuf reports on stderr which string is not UTF-8.
void quieten_protobuf() {
  [[maybe_unused]] static const auto before = google::protobuf::SetLogHandler(nullptr);
}

}  // namespace

const KeyValue* find_attribute(const KeyValues& attributes, std::string_view key) {
  for (auto at = attributes.rbegin(); at != attributes.rend(); ++at) {
    if (at->key() == key) return &*at;
  }
  return nullptr;
}

Result<std::shared_ptr<ProcessContext>> decode_payload(std::span<const std::byte> payload) {
  quieten_protobuf();
  auto context = std::make_shared<ProcessContext>();
  if (payload.size() > kPayloadLimit ||
      !context->message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return sys::fail("decode payload", 0,
                     "has a payload of " + std::to_string(payload.size()) +
                         " bytes that is not a ProcessContext message");
  }
  const KeyValues& attributes = context->message.attributes();
  if (const KeyValue* schema = find_attribute(attributes, abi::kSchemaVersionKey)) {
    context->has_schema = true;
    context->schema = schema->value().string_value();
  }
  if (const KeyValue* keys = find_attribute(attributes, abi::kAttributeKeyMapKey)) {
    context->keys = key_map_of(keys->value());
  }
  return context;
}

Result<bool> is_unchanged(const MemoryReader& memory, const ProcessContext& known) {
  CTX_ASSIGN_OR_RETURN(header, read_header(memory, known.mapping));
  return header && *header == known.header;
}

Result<ContextSample> sample_once(const MemoryReader& memory, std::span<const MapEntry> candidates,
                                  const Found& known) {
  ContextSample sample;
  if (candidates.size() > kMostCandidates) {
    sample.notes.push_back(std::to_string(candidates.size() - kMostCandidates) +
                           " more mappings of that name were not examined");
    candidates = candidates.first(kMostCandidates);
  }
  for (const MapEntry& mapping : candidates) {
    if (sample.context) {
      CTX_ASSIGN_OR_RETURN(header, read_header(memory, mapping));
      if (header) sample.notes.push_back(name_of(mapping) + " is a second context, not used");
      continue;
    }
    CTX_ASSIGN_OR_RETURN(taken, take(memory, mapping, known));
    if (taken) {
      sample.context = std::move(*taken);
    } else {
      sample.busy = sample.busy || taken.error().busy;
      sample.notes.push_back(name_of(mapping) + " " + taken.error().why);
    }
  }
  if (sample.context) sample.busy = false;
  return sample;
}

std::chrono::milliseconds delay_after(int sample, const Patience& patience) {
  auto delay = patience.first;
  for (int i = 1; i < sample && delay < patience.longest; ++i) delay *= 2;
  return std::min(delay, patience.longest);
}

Result<ContextSample> read_process_context(const MemoryReader& memory, const ListCandidates& list,
                                           const Found& known, const Patience& patience,
                                           const Sleep& sleep) {
  for (int n = 1;; ++n) {
    CTX_ASSIGN_OR_RETURN(candidates, list());
    CTX_ASSIGN_OR_RETURN(sample, sample_once(memory, candidates, known));
    if (!sample.busy || n >= patience.samples || !sleep(delay_after(n, patience))) {
      return std::move(sample);
    }
  }
}

Result<std::vector<MapEntry>> candidates_of(pid_t pid) {
  return sys::find_all_mappings(pid, name_prefixes());
}

Result<std::vector<MapEntry>> candidates_and_files_of(pid_t pid) {
  auto prefixes = name_prefixes();
  prefixes.emplace_back("/");
  return sys::find_all_mappings(pid, prefixes);
}

}  // namespace ctxconf::reader
