// What the bytes of a record are. Each mistake in them has one name, so that it is
// reported by one rule; a name other than kCutEntry is given only to bytes that make
// sense in that wrong way and in no right one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/evidence.h"

namespace ctxconf::conformance {

enum class RecordFault {
  kNone,              // all of it is there, and its entries fill the area
  kForeignByteOrder,  // the size is in the other byte order
  kSizeIsCount,       // the size counts entries
  kSizeWithHead,      // the size counts the fixed part too
  kVarintLengths,     // lengths above 127 take two bytes
  kPaddedEntries,     // entries begin at multiples of two, four or eight
  kElsewhere,         // the attributes are not after the fixed part, or not all of them
  kOlderLayout,       // a draft's, with a root span id
  kCutEntry,          // the area does not end where an entry ends, and nothing else explains it
};

struct JudgedRecord {
  const Record* record = nullptr;
  RecordFault fault = RecordFault::kNone;
  std::size_t end = 0;      // of the whole entries, in the area; by the merged layout
  std::size_t entries = 0;  // how many these are
  std::string reading;      // how the bytes do make sense; one line
  bool at_address = true;   // false: the block ends before the size says
};

// The records that readers use (byte 24 is 1), and those of the older layout whatever that
// byte is. A record in the middle of an update is not among them.
std::vector<JudgedRecord> judged_records(const ImageEvidence& evidence);

// Elements of the longest key map that a record may refer to; nothing: no map was seen.
std::optional<std::size_t> key_count(const Record& record);

// Reference data of the time of the older layout.
struct DraftTimes {
  bool max_record_size = false;  // an entry threadlocal.max_record_size
  bool key_map_pairs = false;    // a key map that is a key-value list
};
DraftTimes draft_times(const ImageEvidence& evidence);

// The process that forked this one, if that was recorded and this has not executed another program.
const Process* forked_from(const ImageEvidence& evidence);
// Whether a process from which it was forked, directly or not, had a process context or a record,
// or may have had one. Then it may go back to a context from before the fork, on any thread.
bool may_have_contexts_of_ancestors(const ImageEvidence& evidence);
// Whether a forked child had the record from its parent before it ran: the child's process context
// says nothing of it.
bool is_inherited(const ImageEvidence& evidence, const Record& record);

}  // namespace ctxconf::conformance
