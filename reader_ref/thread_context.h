// The thread record of OTEP 4947 as a reader handles it: copied while its thread is stopped, parsed
// afterwards. Both parts are pure: bytes come from a MemoryReader, names from a key map.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/thread_record.h"
#include "reader_ref/key_map.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::reader {

enum class RecordState {
  kNoBlock,         // the thread has no memory for the variable yet
  kSlotUnreadable,  // the variable is not where it should be
  kNull,            // the variable is null: no context
  kOddAddress,      // the record is not aligned to 2
  kUnreadable,      // fewer than 28 bytes can be read there
  kNotValid,        // the valid byte is not 1
  kValid,
};
std::string_view describe(RecordState state);  // "the slot is null"

// What was copied from one thread, in one stop.
struct RecordCopy {
  RecordState state = RecordState::kNoBlock;
  sys::RemoteAddr slot;    // address of the variable
  sys::RemoteAddr record;  // its value
  abi::ThreadRecordHead head{};
  std::vector<std::byte> area;  // if the record is valid: attrs_data_size bytes...
  bool area_cut = false;        // ... unless fewer could be read
};

// Follows the variable at `slot`; the thread must be stopped. Reads the 8 bytes of the slot, 28 of
// the record, and the attribute area only if the record is valid and the caller wants it. Errors
// are about the process.
enum class Attributes { kSkip, kRead };
sys::Result<RecordCopy> copy_record(const sys::MemoryReader& memory, sys::RemoteAddr slot,
                                    Attributes attributes);

struct TraceLink {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  std::uint8_t flags = 0;
  friend bool operator==(const TraceLink&, const TraceLink&) = default;
};

struct NamedValue {
  std::string key;
  std::string value;  // UTF-8 by rule, hostile bytes in fact
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

struct ThreadContext {
  std::optional<TraceLink> link;  // only with both ids
  std::vector<NamedValue> attributes;
  std::vector<std::uint8_t> unknown;  // indexes beyond the map: refresh the map, parse again
  std::vector<std::string> notes;     // what was wrong with the record
};

// Parses a valid record. If entries have the same index, the last one counts. Ignores what follows
// an entry that does not fit, and an index without a name.
ThreadContext parse_record(const RecordCopy& copy, const KeyMap& keys);

}  // namespace ctxconf::reader
