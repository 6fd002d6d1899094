// What must hold when a thread record becomes a context, is read as a draft, or is printed.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: one byte with the number of keys in the map (255: 256), one byte that selects the test
// (ContextMode + 3 * RecordPlace), and the bytes that can be read from the record's address on.
// Aborts if a check fails.
enum class ContextMode { kEncoder, kReader, kLayouts };
enum class RecordLocation {
  kPlain,
  kNull,  // the slot is null
  kOdd,   // the record is at an odd address
  kSlotUnreadable,
  kEndOfMemory,        // the fixed part reaches the last possible address
  kWithoutAttributes,  // readable, but not requested
};
void check_thread_context(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
